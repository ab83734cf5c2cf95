//! Which lines of the protocol histories reach, as a compiler notes them that counts what runs.
//!
//! A line that none reaches is code that only its unit tests know, or that nothing needs. Each has its
//! reason in a list, by function, so that lines may move.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::{SimArgs, run_seeds};
use crate::binaries::built;
use crate::paths;
use crate::process::{command, output, run};

/// The variable with the file to which an instrumented program writes.
pub(super) const PROFILE: &str = "LLVM_PROFILE_FILE";

/// The code whose lines are counted.
const SOURCES: &str = "crates/proto/src/";

/// The functions with lines that no history reaches, each with its reason.
const UNREACHED: &str = "xtask/src/sim/unreached.txt";

/// A function, by its file and name.
type Function = (String, String);

/// Runs histories with an instrumented build, and reports what they do not reach.
pub(super) fn report(args: &SimArgs) -> Result<()> {
    let tools = tools()?;
    let folder = paths::target().join("coverage");
    let profiles = folder.join("profiles");
    let _ = fs::remove_dir_all(&profiles);
    fs::create_dir_all(&profiles)?;
    let words = ["test", "--lib", "--no-run", "--message-format=json-render-diagnostics"];
    let mut cargo = command("cargo", words);
    cargo.args(["--profile", "sim", "--package", "farreach-sim"]).current_dir(paths::repository());
    cargo.env("RUSTFLAGS", "-C instrument-coverage").env("CARGO_TARGET_DIR", &folder);
    // Programs that only the build runs.
    let program = built(cargo.env(PROFILE, folder.join("build.profraw")))?;
    run_seeds(args, &program, Some(&profiles.join("%p.profraw")))?;

    let merged = folder.join("merged.profdata");
    let raw = fs::read_dir(&profiles)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let mut merge = command(&tool(&tools, "llvm-profdata"), ["merge", "-sparse", "-o"]);
    run(merge.arg(&merged).args(raw))?;
    let mut export = command(&tool(&tools, "llvm-cov"), ["export", "--format=lcov", &program]);
    let lines = parse(&output(export.arg("--instr-profile").arg(&merged))?)?;
    judge(&lines, &listed()?)
}

fn tool(tools: &Path, name: &str) -> String {
    tools.join(name).to_string_lossy().into_owned()
}

/// Returns the folder with the compiler's own tools.
fn tools() -> Result<PathBuf> {
    let sysroot = output(&mut command("rustc", ["--print", "sysroot"]))?;
    let version = output(&mut command("rustc", ["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin");
    ensure!(
        folder.join("llvm-cov").is_file(),
        "the coverage of histories needs the compiler's tools; install them:\n\
         rustup component add llvm-tools"
    );
    Ok(folder)
}

/// The lines of a file, and whether they were reached.
type Lines = BTreeMap<usize, bool>;

/// Returns the counted lines of each file below [`SOURCES`], from a report in the format of lcov.
fn parse(report: &str) -> Result<BTreeMap<String, Lines>> {
    let mut files = BTreeMap::<String, Lines>::new();
    let mut file = None;
    for line in report.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path.split_once(SOURCES).map(|(_, path)| path.to_owned());
        }
        if let (Some(file), Some((number, count))) =
            (&file, line.strip_prefix("DA:").and_then(|it| it.split_once(',')))
        {
            *files.entry(file.clone()).or_default().entry(number.parse()?).or_default() |= count != "0";
        }
    }
    ensure!(!files.is_empty(), "the report has no line of {SOURCES}");
    Ok(files)
}

/// Returns the functions of the list: lines of `FILE FUNCTION: REASON`.
fn listed() -> Result<BTreeSet<Function>> {
    let path = paths::repository().join(UNREACHED);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {UNREACHED}"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let function = |line: &str| {
        let (function, reason) = line.split_once(": ")?;
        let (file, name) = function.split_once(' ').filter(|_| !reason.is_empty())?;
        Some((file.to_owned(), name.to_owned()))
    };
    lines
        .map(|line| function(line).with_context(|| format!("{UNREACHED}: {line:?} gives no reason")))
        .collect()
}

fn judge(files: &BTreeMap<String, Lines>, listed: &BTreeSet<Function>) -> Result<()> {
    let mut unreached = BTreeMap::<Function, Vec<usize>>::new();
    for (file, lines) in files {
        let source = fs::read_to_string(paths::repository().join(SOURCES).join(file))?;
        let source: Vec<&str> = source.lines().collect();
        for (line, _) in lines.iter().filter(|(_, is_reached)| !**is_reached) {
            let function = function_of(&source, *line).to_owned();
            unreached.entry((file.clone(), function)).or_default().push(*line);
        }
    }
    let all: usize = files.values().map(BTreeMap::len).sum();
    let missed: usize = unreached.values().map(Vec::len).sum();
    println!(
        "coverage: histories reach {:.2} % of {all} lines of {SOURCES}; {missed} lines of {} functions are not \
         reached",
        100.0 * (all - missed) as f64 / all as f64,
        unreached.len()
    );
    let mut findings = Vec::new();
    for ((file, function), lines) in &unreached {
        if !listed.contains(&(file.clone(), function.clone())) {
            findings.push(format!(
                "{SOURCES}{file}:{}: no history reaches lines {lines:?} of `{function}`",
                lines[0]
            ));
        }
    }
    // A rare line may be reached this time, and not the next.
    for (file, function) in listed.iter().filter(|it| !unreached.contains_key(*it)) {
        println!("{UNREACHED}: histories reach all of `{function}` of {file}");
    }
    if !findings.is_empty() {
        bail!("{}\nreach them, or give the reason in {UNREACHED}", findings.join("\n"));
    }
    Ok(())
}

/// Returns the name of the function around a line, counted from 1.
fn function_of<'a>(source: &[&'a str], line: usize) -> &'a str {
    let name = |line: &&'a str| {
        let (before, rest) = line.split_once("fn ")?;
        let is_word = before.is_empty() || before.ends_with([' ', '(']);
        let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_')?;
        (is_word && end > 0 && !before.trim_start().starts_with("//")).then(|| &rest[..end])
    };
    source[..line.min(source.len())].iter().rev().find_map(name).unwrap_or("no function")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_the_lines_of_the_sources_only() {
        let report = "SF:/x/crates/proto/src/plan.rs\nDA:1,5\nDA:2,0\nend_of_record\nSF:/x/crates/rail/src/a.rs\nDA:1,0\n";
        let files = parse(report).unwrap();
        assert_eq!(files, BTreeMap::from([("plan.rs".to_owned(), BTreeMap::from([(1, true), (2, false)]))]));
        parse("SF:/x/other.rs\nDA:1,1\n").unwrap_err();
    }

    #[test]
    fn a_line_belongs_to_the_function_before_it() {
        let source = [
            "struct A;",
            "impl A {",
            "    pub(super) fn one(&self) {",
            "        // As fn two.",
            "        a()",
        ];
        assert_eq!(function_of(&source, 5), "one");
        assert_eq!(function_of(&source, 1), "no function");
    }

    #[test]
    fn every_listed_function_exists() {
        for (file, function) in listed().unwrap() {
            let text = fs::read_to_string(paths::repository().join(SOURCES).join(&file)).unwrap();
            assert!(text.contains(&format!("fn {function}")), "{file} has no function `{function}`");
        }
    }
}

//! Fuzzing: replays the corpora with the stable compiler, and searches for new inputs with nightly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::process::{command, run};

/// `cargo xtask fuzz`
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct FuzzArgs {
    /// Run every target with its corpus. Needs no nightly compiler.
    #[arg(long, group = "what")]
    replay: bool,

    /// Search for new inputs for this long, for each target. Needs a nightly compiler and cargo-fuzz.
    #[arg(long, value_name = "N", group = "what")]
    seconds: Option<u64>,

    /// Remove inputs from the corpora that add no coverage.
    #[arg(long, group = "what")]
    minimise: bool,

    /// The target; all of them by default.
    #[arg(conflicts_with = "replay")]
    target: Option<String>,
}

/// A target, and the features of the package that it needs.
struct Target {
    name: &'static str,
    features: &'static str,
}

const fn target(name: &'static str, features: &'static str) -> Target {
    Target { name, features }
}

const TARGETS: [Target; 10] = [
    target("frames", "live"),
    target("machine", "live"),
    target("tls", "live,engine"),
    target("orders", "live,command"),
    target("packs", "live,doctor"),
    target("firewall", "live,doctor"),
    target("sysfs", "live,doctor"),
    target("names", "live,command"),
    target("pages", "live"),
    target("ends", "live,engine"),
];

/// An input that takes longer than this many seconds is a finding. The machine may be busy.
const TIMEOUT_S: u64 = 20;
/// A process that needs more memory than this is a finding. Inputs have budgets of their own.
const MEMORY_MB: u64 = 1024;
/// Longer inputs are slower, and find nothing that shorter ones do not.
const INPUT_BYTES_MAX: u64 = 16 << 10;

pub(crate) fn execute(args: &FuzzArgs) -> Result<()> {
    if args.replay {
        return replay();
    }
    let targets: Vec<&Target> = match &args.target {
        None => TARGETS.iter().collect(),
        Some(name) => {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            let found = TARGETS.iter().find(|target| target.name == name);
            vec![found.with_context(|| format!("there is no target {name}: use {}", names.join(", ")))?]
        }
    };
    let has_fuzz = command("cargo", ["+nightly", "fuzz", "--version"]).output();
    if !has_fuzz.is_ok_and(|output| output.status.success()) {
        bail!(
            "live fuzzing needs a nightly compiler and cargo-fuzz; install them:\n\
             rustup toolchain install nightly --profile minimal\n\
             cargo install --locked cargo-fuzz"
        );
    }
    match args.seconds {
        Some(seconds) => search(&targets, seconds),
        None => targets.into_iter().try_for_each(minimise),
    }
}

fn package() -> PathBuf {
    paths::repository().join("fuzz")
}

/// Runs the targets with their corpora, in the build of the tests.
fn replay() -> Result<()> {
    let manifest = package().join("Cargo.toml");
    run(command("cargo", ["test", "--quiet", "--locked", "--manifest-path"])
        .arg(manifest)
        // The crates that the workspace has built are used again.
        .env("CARGO_TARGET_DIR", paths::target()))
}

/// Returns a call of cargo-fuzz. The code is safe, so no sanitizer is needed, and inputs run faster.
fn cargo_fuzz(verb: &str, target: &Target) -> Command {
    let mut cargo =
        command("cargo", ["+nightly", "fuzz", verb, "--sanitizer", "none", "--no-default-features"]);
    cargo.args(["--features", target.features, "--fuzz-dir"]).arg(package());
    cargo.arg("--target-dir").arg(paths::target().join("fuzz")).arg(target.name);
    cargo.current_dir(paths::repository());
    cargo
}

fn minimise(target: &Target) -> Result<()> {
    run(cargo_fuzz("cmin", target).arg(package().join("corpus").join(target.name)))
}

/// Runs each target for some time. Prints a table, and fails if there is a finding.
fn search(targets: &[&Target], seconds: u64) -> Result<()> {
    let mut rows = Vec::new();
    for target in targets {
        run(&mut cargo_fuzz("build", target))?;
        rows.push(fuzz(target, seconds)?);
    }
    print!("{}", table(&rows));
    let findings: Vec<&Row> = rows.iter().filter(|row| row.finding.is_some()).collect();
    match findings.len() {
        0 => Ok(()),
        count => bail!("{count} targets have a finding; run one again:\n{}", again(&findings)),
    }
}

fn again(findings: &[&Row]) -> String {
    let line = |row: &&Row| {
        let path = row.finding.as_deref().unwrap_or_default();
        format!("cargo +nightly fuzz run --sanitizer none {} {path}", row.target)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The results of one target.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    target: String,
    executions: u64,
    seconds: u64,
    /// Edges of the control flow, and features, which also count how often an edge is taken.
    edges: u64,
    features: u64,
    /// Inputs of the corpus.
    corpus: u64,
    /// The file with the input that broke a promise.
    finding: Option<String>,
}

fn fuzz(target: &Target, seconds: u64) -> Result<Row> {
    // New inputs go to a folder of their own: what is worth keeping is decided by `--minimise`.
    let found = paths::target().join("fuzz/found").join(target.name);
    fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
    let mut cargo = cargo_fuzz("run", target);
    cargo.arg(&found).arg(package().join("corpus").join(target.name)).arg("--").args([
        format!("-max_total_time={seconds}"),
        format!("-timeout={TIMEOUT_S}"),
        format!("-rss_limit_mb={MEMORY_MB}"),
        format!("-max_len={INPUT_BYTES_MAX}"),
        "-print_final_stats=1".to_owned(),
    ]);
    let output = cargo.output().with_context(|| format!("cannot fuzz {}", target.name))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let mut row = parse(&log);
    row.target = target.name.to_owned();
    if !output.status.success() && row.finding.is_none() {
        bail!("{} ended with {}\n{log}", target.name, output.status);
    }
    if row.finding.is_some() {
        println!("{}", said(&log));
    }
    Ok(row)
}

/// Reads what libFuzzer reports at its end.
fn parse(log: &str) -> Row {
    let mut row = Row::default();
    for line in log.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |word: &str| {
            let place = words.iter().position(|it| *it == word)?;
            words.get(place + 1)?.split('/').next()?.parse().ok()
        };
        if line.starts_with('#') {
            row.edges = after("cov:").unwrap_or(row.edges);
            row.features = after("ft:").unwrap_or(row.features);
            row.corpus = after("corp:").unwrap_or(row.corpus);
        }
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            row.executions = count.trim().parse().unwrap_or(0);
        }
        if let Some(done) = line.strip_prefix("Done ") {
            row.seconds =
                done.split_whitespace().nth(3).and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            row.finding = Some(path.trim().to_owned());
        }
    }
    row
}

/// Returns the lines that say what is wrong.
fn said(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let first =
        lines.iter().position(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
    lines[first.unwrap_or(lines.len().saturating_sub(20))..]
        .iter()
        .take(12)
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<10}{:>14}{:>10}{:>9}{:>10}{:>9}  {}\n",
        "target", "executions", "per s", "edges", "features", "corpus", "finding"
    );
    for row in rows {
        let finding = row.finding.as_deref().map_or("none", |path| {
            Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
        });
        text.push_str(&format!(
            "{:<10}{:>14}{:>10}{:>9}{:>10}{:>9}  {finding}\n",
            row.target,
            row.executions,
            row.executions / row.seconds.max(1),
            row.edges,
            row.features,
            row.corpus
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
#2	INITED cov: 120 ft: 130 corp: 1/1b exec/s: 0 rss: 30Mb
#1048576	pulse  cov: 400 ft: 900 corp: 77/3456b lim: 4096 exec/s: 9000 rss: 60Mb
#2000000	DONE   cov: 412 ft: 991 corp: 80/3500b lim: 4096 exec/s: 9090 rss: 61Mb
Done 2000000 runs in 220 second(s)
stat::number_of_executed_units: 2000000
stat::average_exec_per_sec:     9090
";

    #[test]
    fn the_last_report_counts() {
        let row = parse(LOG);
        assert_eq!((row.executions, row.seconds, row.edges, row.features), (2_000_000, 220, 412, 991));
        assert_eq!((row.corpus, row.finding), (80, None));
    }

    #[test]
    fn a_finding_is_named() {
        let log = format!(
            "{LOG}thread panicked at src/x.rs:1:\nit is wrong\n\
             artifact_prefix='a/'; Test unit written to fuzz/artifacts/frames/crash-12\n"
        );
        let row = Row { target: "frames".into(), ..parse(&log) };
        assert_eq!(row.finding.as_deref(), Some("fuzz/artifacts/frames/crash-12"));
        assert!(said(&log).contains("it is wrong"), "{}", said(&log));
        let told = table(&[row]);
        assert!(
            told.contains("frames") && told.contains("2000000") && told.ends_with("crash-12\n"),
            "{told}"
        );
    }

    /// A target that is missing here would never be fuzzed.
    #[test]
    fn every_target_of_the_package_is_known() {
        let manifest = fs::read_to_string(package().join("Cargo.toml")).unwrap();
        let bins = manifest.split("[[bin]]").skip(1);
        let named = bins.map(|bin| {
            let value = |key: &str| {
                let line = bin.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap();
                line.replace(['"', '[', ']', ' '], "")
            };
            (value("name"), value("required-features"))
        });
        let known = TARGETS.iter().map(|target| (target.name.to_owned(), target.features.to_owned()));
        assert_eq!(named.collect::<Vec<_>>(), known.collect::<Vec<_>>());
    }
}

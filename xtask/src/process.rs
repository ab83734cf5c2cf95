//! Running other programs, with errors that name what was run.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A command from words: `program` and its arguments.
pub(crate) fn command<I>(program: &str, arguments: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs to the end with our own streams; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs to the end and gives what it wrote to stdout; its stderr becomes part of the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}\n{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("{} printed something that is not text", shown(command)))
}

/// Fails with the packages to install when one of the programs is not on the PATH.
pub(crate) fn require_programs(programs_and_packages: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> =
        programs_and_packages.iter().filter(|(program, _)| !is_on_path(program)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    bail!(
        "not installed: {}\nfix: apt-get install --no-install-recommends {}",
        programs.join(", "),
        packages.join(" ")
    );
}

fn is_on_path(program: &str) -> bool {
    // System programs live in sbin, which an ordinary user's PATH may lack.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| directory.join(program).is_file())
}

/// The end of what was told: so many lines, or all.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The command as it would be typed; a script among its words, or a very long line, is cut.
fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .map(|word| if word.contains('\n') { "…".into() } else { word })
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(400) {
        Some((end, _)) => format!("`{}…`", &line[..end]),
        None => format!("`{line}`"),
    }
}

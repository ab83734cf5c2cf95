//! Runs other programs, with errors that name the command.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Returns a command for a program and its arguments.
pub(crate) fn command<I>(program: &str, arguments: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs a command with the streams of this process. Returns an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command and returns its stdout. The error contains its stderr, and the end of its stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}\n{}\n{}",
            shown(command),
            output.status,
            last_lines(&String::from_utf8_lossy(&output.stdout), 40),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("the output of {} is not valid UTF-8", shown(command)))
}

/// Runs a command and passes each line of its stdout to `on_line` as it arrives. The error contains
/// its stderr.
pub(crate) fn watched(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<()> {
    let mut errors = tempfile::tempfile()?;
    command.stdout(Stdio::piped()).stderr(errors.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
    for line in BufReader::new(child.stdout.take().expect("stdout was piped")).lines() {
        on_line(&line?);
    }
    let status = child.wait()?;
    if !status.success() {
        let mut told = String::new();
        errors.rewind()?;
        errors.read_to_string(&mut told)?;
        bail!("{} ended with {status}\n{}", shown(command), told.trim_end());
    }
    Ok(())
}

/// Prints progress to stderr, at most every few seconds.
#[derive(Debug)]
pub(crate) struct Ticker {
    what: String,
    count: usize,
    last: Instant,
}

impl Ticker {
    const PAUSE: Duration = Duration::from_secs(3);

    /// Creates a ticker for an operation that counts packages.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), count: 0, last: Instant::now() }
    }

    /// Counts one more package. `of` is the total number, if it is known.
    pub(crate) fn step(&mut self, of: Option<usize>) {
        self.count += 1;
        if self.last.elapsed() >= Self::PAUSE {
            self.last = Instant::now();
            let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
            eprintln!("   {}: {}{of} packages", self.what, self.count);
        }
    }
}

/// Returns an error with the packages to install if one of the programs is not in the PATH.
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
    // System programs are in sbin, which may be missing in the PATH of an ordinary user.
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| directory.join(program).is_file())
}

/// Returns the last `count` lines of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns the command as it would be typed. A script among its words, or a very long line, is cut.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_heard_and_errors_are_told() {
        let mut heard = Vec::new();
        watched(&mut command("sh", ["-c", "echo one; echo two; echo not >&2"]), |line| {
            heard.push(line.to_owned())
        })
        .unwrap();
        assert_eq!(heard, ["one", "two"]);
        let error = watched(&mut command("sh", ["-c", "echo why >&2; exit 3"]), |_| ()).unwrap_err();
        assert!(error.to_string().ends_with("why"), "{error}");
    }
}

//! A terminal session: the commands that are typed one after the other, and their results.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::mask::masked;
use super::readme::Step;
use crate::paths;
use crate::process::last_lines;

/// The script that runs the commands.
pub(super) const SCRIPT: &str = include_str!("follow.sh");

/// A folder with the commands and, afterwards, their outputs.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) folder: PathBuf,
    steps: Vec<&'a Step>,
}

impl<'a> Session<'a> {
    /// Writes the commands. `before` is the previous session of the same reader.
    pub(super) fn new(name: &str, steps: Vec<&'a Step>, before: Option<&Session<'_>>) -> Result<Self> {
        let folder = paths::target().join("start").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        // The commands may run as another user.
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o777))?;
        let mut list = String::new();
        for (number, step) in steps.iter().enumerate() {
            let how = match step {
                step if is_staying(step) => "stay",
                step if is_behind(step) => "behind",
                _ => "run",
            };
            // A server prints at least one line when it is ready.
            let lines = step.shown.len().max(usize::from(is_staying(step)));
            list.push_str(&format!("{how} {number} {lines}\n"));
            fs::write(folder.join(format!("{number}.command")), &step.command)?;
        }
        fs::write(folder.join("steps"), list)?;
        fs::write(folder.join("follow.sh"), SCRIPT)?;
        let session = Self { folder, steps };
        if !session.builds() {
            session.make_workplace()?;
        }
        if let Some(before) = before {
            fs::copy(before.folder.join("exported"), session.folder.join("before"))?;
        }
        Ok(session)
    }

    /// Creates an empty folder to run the commands in, which has the build of the repository. A file
    /// that they create, such as a secret, would make the next run fail in the repository.
    fn make_workplace(&self) -> Result<()> {
        let work = self.folder.join("work");
        fs::create_dir(&work)?;
        fs::set_permissions(&work, PermissionsExt::from_mode(0o777))?;
        symlink(paths::repository().join("target"), work.join("target"))?;
        Ok(())
    }

    /// Returns whether a command builds something.
    pub(super) fn builds(&self) -> bool {
        self.steps.iter().any(|step| step.command.starts_with("cargo "))
    }

    /// Prints the result of each step. Returns those that differ from README.
    pub(super) fn judge(&self) -> Result<Vec<String>> {
        let mut complaints = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let file = |kind: &str| self.folder.join(format!("{number}.{kind}"));
            let ended = fs::read_to_string(file("end")).unwrap_or_default();
            let (code, took_ms) = ended.trim().split_once(' ').unwrap_or(("", "0"));
            let took_s = took_ms.parse::<f64>().unwrap_or_default() / 1000.0;
            let complaint = match code {
                "" => Some("did not end".to_owned()),
                "0" => difference(step, &read(&file("out"))?),
                code => Some(format!("ended with {code}\n{}", tail(&file("err"))?)),
            };
            let mark = if complaint.is_some() { "✗" } else { "✓" };
            println!("{mark} README.md:{:<4} {:5.1} s  {}", step.line, took_s, step.command);
            complaints
                .extend(complaint.map(|what| format!("README.md:{}: `{}` {what}", step.line, step.command)));
        }
        Ok(complaints)
    }
}

/// Returns whether the command runs until it is ended.
fn is_staying(step: &Step) -> bool {
    step.command == "farreach serve" || step.command.starts_with("farreach serve ")
}

fn is_behind(step: &Step) -> bool {
    step.command.ends_with('&')
}

/// Returns the difference between the output of a command and README. If README shows no output,
/// nothing is compared. For a command in the background, README shows the beginning.
fn difference(step: &Step, printed: &str) -> Option<String> {
    let seen = if is_behind(step) { step.shown.len() } else { usize::MAX };
    let printed: Vec<String> = printed.lines().take(seen).map(masked).collect();
    let shown: Vec<String> = step.shown.iter().map(|line| masked(line)).collect();
    if shown.is_empty() || shown == printed {
        return None;
    }
    let line = shown.iter().zip(&printed).take_while(|(shown, printed)| shown == printed).count();
    let at = |lines: &[String]| lines.get(line).cloned().unwrap_or_else(|| "(nothing more)".to_owned());
    Some(format!(
        "prints another line {}, with N for numbers\nREADME: {}\nnow:    {}",
        line + 1,
        at(&shown),
        at(&printed)
    ))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Returns the end of a file.
fn tail(file: &Path) -> Result<String> {
    Ok(last_lines(&read(file)?, 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str, shown: &[&str]) -> Step {
        let shown = shown.iter().map(|&line| line.to_owned()).collect();
        Step { line: 1, command: command.to_owned(), shown }
    }

    #[test]
    fn figures_may_differ_and_words_may_not() {
        let step = step("farreach fill", &["rate  66.6 Gb/s", "verified  160 MiB"]);
        assert_eq!(difference(&step, "rate 9.1 Gb/s\nverified 160 MiB\n"), None);
        let changed = difference(&step, "rate 9.1 Gb/s\nchecked 160 MiB\n").unwrap();
        assert!(changed.contains("line 2") && changed.contains("now:    checked N MiB"), "{changed}");
        let shorter = difference(&step, "rate 9.1 Gb/s\n").unwrap();
        assert!(shorter.contains("now:    (nothing more)"), "{shorter}");
        let longer = difference(&step, "rate 1 Gb/s\nverified 1 MiB\nmore\n").unwrap();
        assert!(longer.contains("README: (nothing more)"), "{longer}");
    }

    #[test]
    fn a_terminal_does_what_is_typed_and_tells_how_it_ended() {
        let steps = [
            step("export WORD=here", &[]),
            step("(echo first; sleep 0.1; echo late) &", &["first"]),
            step("echo \"$WORD\" 7", &["here 5"]),
            step("echo $WORD; (exit 3)", &["here"]),
            step("echo other", &["another"]),
            step("echo secret > farreach.secret && test -e target/..", &[]),
        ];
        let session = Session::new("test-of-a-terminal", steps.iter().collect(), None).unwrap();
        let mut terminal = crate::process::command("sh", [session.folder.join("follow.sh")]);
        crate::process::run(terminal.arg(&session.folder)).unwrap();
        let complaints = session.judge().unwrap();
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("ended with 3"), "{complaints:?}");
        assert!(complaints[1].contains("now:    other"), "{complaints:?}");
        let exported = fs::read_to_string(session.folder.join("exported")).unwrap();
        assert!(exported.contains("WORD"), "{exported}");
        assert!(session.folder.join("work/farreach.secret").exists());
        assert!(!paths::repository().join("farreach.secret").exists(), "the repository is unchanged");
    }
}

//! Runs a command in a terminal, and reads the screen at the end.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The number of rows: more than any command prints.
const ROWS: u16 = 400;

/// The content of a screen.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) columns: u16,
    /// The rows, down to the last that is not empty.
    pub(super) rows: Vec<Vec<Run>>,
}

/// Adjacent characters with the same attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) column: u16,
    pub(super) text: String,
    pub(super) look: Look,
}

/// The attributes of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: vt100::Color,
    pub(super) is_bold: bool,
    pub(super) is_faint: bool,
}

/// Runs a command to its end, in a terminal with this number of columns.
pub(super) fn screen_of(command: &mut Command, columns: u16) -> Result<Screen> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("cannot open a terminal")?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    let name = ptsname(&controller, Vec::new())?;
    let terminal = rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
    tcsetwinsize(&controller, Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
    let end = |terminal: &OwnedFd| terminal.try_clone();
    command.stdin(end(&terminal)?).stdout(end(&terminal)?).stderr(end(&terminal)?);
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    // Only the child and its children keep it open.
    drop(terminal);
    // Replaced, so that the copies of the terminal in the command are closed.
    *command = Command::new("true");
    let mut parser = vt100::Parser::new(ROWS, columns, 0);
    let (mut controller, mut bytes) = (File::from(controller), [0; 4096]);
    // Reading fails when no process has the other side open any more.
    while let Ok(len @ 1..) = controller.read(&mut bytes) {
        parser.process(&bytes[..len]);
    }
    let status = child.wait()?;
    ensure!(status.success(), "{status}:\n{}", parser.screen().contents());
    Ok(screen(parser.screen(), columns))
}

fn screen(screen: &vt100::Screen, columns: u16) -> Screen {
    let mut rows: Vec<Vec<Run>> = (0..ROWS).map(|row| runs(screen, row, columns)).collect();
    while rows.last().is_some_and(Vec::is_empty) {
        rows.pop();
    }
    Screen { columns, rows }
}

fn runs(screen: &vt100::Screen, row: u16, columns: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| cell.has_contents()) else { continue };
        let text = cell.contents();
        if text == " " {
            continue;
        }
        let look = Look { colour: cell.fgcolor(), is_bold: cell.bold(), is_faint: cell.dim() };
        match runs.last_mut() {
            // Words with the same attributes form one run, with the spaces between them.
            Some(last) if last.look == look => {
                let width = last.text.chars().count() as u16;
                let gap = usize::from(column.saturating_sub(last.column + width));
                last.text.push_str(&" ".repeat(gap));
                last.text.push_str(text);
            }
            _ => runs.push(Run { column, text: text.to_owned(), look }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_over_is_gone_and_looks_are_kept() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf 'half done\\r\\033[K'; printf 'all \\033[32mdone\\033[0m  now\\n'; tput cols 2>/dev/null; stty size"]);
        let screen = screen_of(&mut shell, 60).expect("sh");
        let first: Vec<&str> = screen.rows[0].iter().map(|run| run.text.as_str()).collect();
        assert_eq!(first, ["all", "done", "now"]);
        assert_eq!(screen.rows[0][1].look.colour, vt100::Color::Idx(2));
        assert_eq!(screen.rows.last().expect("a size")[0].text, "400 60");
    }

    #[test]
    fn a_command_that_fails_makes_no_picture() {
        let error = screen_of(Command::new("sh").args(["-c", "echo no; exit 3"]), 60).expect_err("it fails");
        assert!(error.to_string().contains("no"), "{error}");
    }
}

//! Writes to the terminal: results to stdout, everything else to stderr, never wider than the
//! terminal.

use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use comfy_table::{ContentArrangement, Table, presets};
use farreach::Warning;
use farreach_text::{one_line, printable};

use crate::exit::{Exit, Failure, Told};
use crate::show::paint::Paint;
use crate::units;

/// Prints a result. A closed stdout (`| head`) is not an error: the command continues, and keeps
/// its exit code.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(harmless(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints an error, and returns the exit code. With `wants_json` it is printed as JSON too.
pub(crate) fn tell_failure(failure: &Failure, wants_json: bool) -> Exit {
    if wants_json {
        let told = serde_json::json!({
            "schema_version": 1,
            "exit_code": failure.exit.code(),
            "error": Told::from(failure),
        });
        // If stdout is closed, stderr remains.
        let _ = print(&format!("{told:#}\n"));
    }
    let width = io::stderr().is_terminal().then(terminal_width);
    let mut text = folded("error: ", &one_line(&failure.error, TEXT_MAX), width);
    if let Some(cause) = &failure.cause {
        text.push_str(&folded("cause: ", &one_line(cause, TEXT_MAX), width));
    }
    if let Some(fix) = &failure.fix {
        text.push_str(&folded("  fix: ", fix, width));
    }
    if let Some(fix) = &failure.their_fix {
        text.push_str(&folded("their fix: ", &one_line(fix, TEXT_MAX), width));
    }
    tell_raw(&text);
    failure.exit
}

/// Prints a line of information on stderr, never a result.
pub(crate) fn tell(line: &str) {
    tell_raw(&format!("{line}\n"));
}

/// Prints a warning on stderr, in one line.
pub(crate) fn warn(line: &str) {
    tell(&format!("warning: {line}"));
}

/// Prints a warning on stderr, and its fix below it.
pub(crate) fn warn_with_fix(warning: &Warning) {
    let width = io::stderr().is_terminal().then(terminal_width);
    tell_raw(
        &(folded("warning: ", &warning.to_string(), width) + &folded("    fix: ", warning.fix(), width)),
    );
}

/// Prints a line of the server's log on stderr, with a timestamp. Parts of the line may come from a
/// client.
pub(crate) fn log(line: &str) {
    tell(&format!("{} {}", units::utc(SystemTime::now()), one_line(line, LINE_MAX)));
}

/// The longest line of a log, in characters.
const LINE_MAX: usize = 1000;

/// The longest error and the longest cause, in characters.
const TEXT_MAX: usize = 4000;

/// Returns text with its line breaks, tabs and paint, and nothing else that a terminal would obey or hide.
/// Everything that this command writes passes here: names of devices and files, and the texts of
/// libraries, may contain anything.
pub(crate) fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, after) = rest.split_at(at);
        harmless.push_str(&printable(before));
        let painted = Paint::sequence(after);
        let (escape, after) = after.split_at(painted.map_or(1, str::len));
        harmless.push_str(&if painted.is_some() { escape.into() } else { printable(escape) });
        rest = after;
    }
    harmless + &printable(rest)
}

fn tell_raw(text: &str) {
    // If stderr is closed too, there is nowhere left to report to.
    let _ = io::stderr().write_all(harmless(text).as_bytes());
}

/// Returns the width of the terminal, or `None` if stdout is not a terminal and lines are not
/// folded.
pub(crate) fn width() -> Option<u16> {
    if !io::stdout().is_terminal() {
        return None;
    }
    Some(terminal_width())
}

fn terminal_width() -> u16 {
    terminal_size::terminal_size().map_or(USUAL_WIDTH, |(width, _)| width.0)
}

/// The width of a terminal that does not report its size, such as a serial console.
const USUAL_WIDTH: u16 = 80;

/// Formats a table of plain columns, two spaces apart.
pub(crate) fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<u16>,
) -> String {
    let rows =
        rows.into_iter().map(|row| row.iter().map(|cell| one_line(cell, TEXT_MAX)).collect::<Vec<_>>());
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).add_rows(rows);
    match width {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Folds text between words. The first line begins with `lead`; the others are indented by its
/// width. Line breaks in the text are kept, so that a command to copy has a line of its own.
pub(crate) fn folded(lead: &str, text: &str, width: Option<u16>) -> String {
    let limit = width.map_or(usize::MAX, usize::from);
    let indent = lead.chars().count();
    let mut folded = lead.to_owned();
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
        }
        fold_line(&mut folded, line, indent, limit);
    }
    folded.push('\n');
    folded
}

/// Appends one line, folded between words at the limit.
fn fold_line(folded: &mut String, line: &str, indent: usize, limit: usize) {
    let mut column = indent;
    for (number, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 {
            if column + 1 + length > limit {
                folded.push('\n');
                folded.push_str(&" ".repeat(indent));
                column = indent;
            } else {
                folded.push(' ');
                column += 1;
            }
        }
        folded.push_str(word);
        column += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_folds_between_words_and_under_its_lead() {
        assert_eq!(folded("", "one two three", Some(8)), "one two\nthree\n");
        assert_eq!(folded("  fix: ", "a b", Some(8)), "  fix: a\n       b\n");
        assert_eq!(folded("fix: ", "do it:\na b", Some(80)), "fix: do it:\n     a b\n");
    }

    #[test]
    fn text_stays_whole_for_a_program_and_where_it_cannot_fold() {
        assert_eq!(folded("- ", "one two three", None), "- one two three\n");
        assert_eq!(folded("- ", "immeasurable", Some(5)), "- immeasurable\n");
    }

    #[test]
    fn a_log_line_is_one_line_without_control_characters() {
        assert_eq!(one_line("a\nb\x1b[2Jc\u{9b}d é", LINE_MAX), r"a\nb\u001b[2Jc\u009bd é");
    }

    #[test]
    fn paint_tabs_and_line_breaks_are_all_that_a_terminal_obeys() {
        let text = "\x1b[1;31mFAIL\x1b[0m a\x1b[2J\x1b[8m\x1b\u{9b}b\u{202e}\n\tc\x1b";
        let expected = "\x1b[1;31mFAIL\x1b[0m a\\u001b[2J\\u001b[8m\\u001b\\u009bb\\u202e\n\tc\\u001b";
        assert_eq!(harmless(text), expected);
    }

    #[test]
    fn a_table_has_no_trailing_space() {
        let text = table(&["A", "LONG"], [vec!["x".into(), "y".into()]], Some(80));
        assert_eq!(text, "A  LONG\nx  y\n");
    }
}

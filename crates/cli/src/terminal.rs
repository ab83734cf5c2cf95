//! What a person sees: results on stdout, all else on stderr, nothing wider than the terminal.

use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use comfy_table::{ContentArrangement, Table, presets};

use crate::exit::{Exit, Failure};
use crate::units;

/// Prints a result. A reader who has had enough (`| head`) is no error: the command goes on, and ends as it would have.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Tells what went wrong, and gives what to end with. A program that reads JSON gets it in that form as well.
pub(crate) fn tell_failure(failure: &Failure, wants_json: bool) -> Exit {
    if wants_json {
        let told = serde_json::json!({
            "schema_version": 1,
            "exit_code": failure.exit.code(),
            "error": { "error": failure.error, "cause": failure.cause, "fix": failure.fix },
        });
        // When stdout is gone there is stderr.
        let _ = print(&format!("{told:#}\n"));
    }
    let width = io::stderr().is_terminal().then(terminal_width);
    let mut text = folded("error: ", &failure.error, width);
    if let Some(cause) = &failure.cause {
        text.push_str(&folded("cause: ", cause, width));
    }
    if let Some(fix) = &failure.fix {
        text.push_str(&folded("  fix: ", fix, width));
    }
    tell_raw(&text);
    failure.exit
}

/// A line on stderr for whoever watches: what happens, never a result.
pub(crate) fn tell(line: &str) {
    tell_raw(&format!("{line}\n"));
}

/// A line of the server's log on stderr, with the time before it.
pub(crate) fn log(line: &str) {
    tell(&format!("{} {line}", units::utc(SystemTime::now())));
}

fn tell_raw(text: &str) {
    // When stderr is gone too there is nobody left to tell.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The columns that text may take: the terminal's, or `None` where the reader is a program and lines stay whole.
pub(crate) fn width() -> Option<u16> {
    if !io::stdout().is_terminal() {
        return None;
    }
    Some(terminal_width())
}

fn terminal_width() -> u16 {
    terminal_size::terminal_size().map_or(USUAL_WIDTH, |(width, _)| width.0)
}

/// What a terminal has that does not know its size, such as a serial console.
const USUAL_WIDTH: u16 = 80;

/// A table of plain columns, two spaces apart.
pub(crate) fn table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<u16>,
) -> String {
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

/// Text folded between words: the first line begins with `lead`, the others are indented as far as it reaches.
pub(crate) fn folded(lead: &str, text: &str, width: Option<u16>) -> String {
    let limit = width.map_or(usize::MAX, usize::from);
    let indent = lead.chars().count();
    let mut folded = lead.to_owned();
    let mut column = indent;
    for (number, word) in text.split(' ').enumerate() {
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
    folded.push('\n');
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_folds_between_words_and_under_its_lead() {
        assert_eq!(folded("", "one two three", Some(8)), "one two\nthree\n");
        assert_eq!(folded("  fix: ", "a b", Some(8)), "  fix: a\n       b\n");
    }

    #[test]
    fn text_stays_whole_for_a_program_and_where_it_cannot_fold() {
        assert_eq!(folded("- ", "one two three", None), "- one two three\n");
        assert_eq!(folded("- ", "immeasurable", Some(5)), "- immeasurable\n");
    }

    #[test]
    fn a_table_has_no_trailing_space() {
        let text = table(&["A", "LONG"], [vec!["x".into(), "y".into()]], Some(80));
        assert_eq!(text, "A  LONG\nx  y\n");
    }
}

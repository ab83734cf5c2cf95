//! Colours text on terminals.

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};

/// Whether text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    is_on: bool,
}

impl Paint {
    /// No colour: for files, pipes and tests.
    pub(crate) const PLAIN: Self = Self { is_on: false };

    /// Uses colour if stdout supports it. `NO_COLOR` turns it off (<https://no-color.org>).
    pub(crate) fn for_stdout() -> Self {
        let (no_color, term) = (env::var_os("NO_COLOR"), env::var_os("TERM"));
        Self::chosen(io::stdout().is_terminal(), no_color.as_deref(), term.as_deref())
    }

    fn chosen(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Self {
        let is_unwanted = no_color.is_some_and(|value| !value.is_empty());
        let is_able = term.is_some_and(|name| !name.is_empty() && name != "dumb");
        Self { is_on: is_terminal && is_able && !is_unwanted }
    }

    /// Emphasises figures, such as the bars of a chart.
    pub(crate) fn figure(self, text: &str) -> String {
        self.with("36", text)
    }

    /// Marks a success.
    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Marks a failure.
    pub(crate) fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// Dims secondary text, such as headings and notes.
    pub(crate) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    /// Returns the escape sequence at the beginning of a text, if it is one of paint.
    pub(crate) fn sequence(text: &str) -> Option<&str> {
        const SEQUENCES: [&str; 5] = ["\x1b[36m", "\x1b[32m", "\x1b[1;31m", "\x1b[2m", "\x1b[0m"];
        SEQUENCES.into_iter().find(|sequence| text.starts_with(sequence))
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.is_on && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paint with colour, as for a terminal.
    const COLOURED: Paint = Paint { is_on: true };

    #[test]
    fn only_a_terminal_that_can_gets_colour_and_only_if_wanted() {
        let chosen = |is_terminal, no_color: Option<&str>, term: Option<&str>| {
            Paint::chosen(is_terminal, no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert_eq!(chosen(true, None, Some("xterm-256color")), COLOURED);
        assert_eq!(chosen(true, Some(""), Some("linux")), COLOURED);
        assert_eq!(chosen(false, None, Some("xterm")), Paint::PLAIN);
        assert_eq!(chosen(true, Some("1"), Some("xterm")), Paint::PLAIN);
        assert_eq!(chosen(true, None, Some("dumb")), Paint::PLAIN);
        assert_eq!(chosen(true, None, None), Paint::PLAIN);
    }

    #[test]
    fn colour_ends_where_the_text_does() {
        assert_eq!(COLOURED.bad("no"), "\x1b[1;31mno\x1b[0m");
        assert_eq!(COLOURED.figure(""), "");
        for painted in [COLOURED.figure("a"), COLOURED.good("a"), COLOURED.bad("a"), COLOURED.faint("a")] {
            let begin = Paint::sequence(&painted).unwrap_or_default();
            assert!(!begin.is_empty() && painted == format!("{begin}a\x1b[0m"), "{painted:?}");
        }
        assert_eq!(Paint::sequence("\x1b[8ma"), None);
        assert_eq!(Paint::PLAIN.bad("no"), "no");
    }
}

//! Escapes what a terminal obeys or does not show.

use std::borrow::Cow;

/// Returns text as one line of at most `max` characters: control characters (line breaks too), and
/// characters that are invisible or change the direction of text, are escaped as in JSON. Longer
/// text is cut, and ends with `…`.
///
/// ```
/// assert_eq!(farreach_text::one_line("a\r\nb\u{202e}c", 80), r"a\r\nb\u202ec");
/// assert_eq!(farreach_text::one_line("abcdef", 4), "abc…");
/// ```
pub fn one_line(text: &str, max: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max));
    let mut length = 0;
    for letter in text.chars() {
        let begin = line.len();
        push(&mut line, letter, is_harmless(letter));
        length += line[begin..].chars().count();
        if length > max {
            let keep = line.char_indices().nth(max.saturating_sub(1)).map_or(0, |(at, _)| at);
            line.truncate(keep);
            line.push('…');
            break;
        }
    }
    line
}

/// Returns text with its line breaks and tabs, and everything else escaped as in [`one_line`].
///
/// Text that is JSON stays valid and means the same: what is escaped occurs within its strings only.
///
/// ```
/// assert_eq!(farreach_text::printable("{\n  \"\u{9b}2J\"\n}"), "{\n  \"\\u009b2J\"\n}");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_kept = |letter: char| matches!(letter, '\n' | '\t') || is_harmless(letter);
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    text.chars().for_each(|letter| push(&mut escaped, letter, is_kept(letter)));
    Cow::Owned(escaped)
}

fn push(text: &mut String, letter: char, is_kept: bool) {
    match letter {
        _ if is_kept => text.push(letter),
        '\n' => text.push_str(r"\n"),
        '\r' => text.push_str(r"\r"),
        '\t' => text.push_str(r"\t"),
        _ => {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
}

/// Returns whether a character is shown, in the direction of its neighbours, and does nothing else.
pub(crate) fn is_harmless(letter: char) -> bool {
    !letter.is_control() && !INVISIBLE.iter().any(|&(first, last)| (first..=last).contains(&letter))
}

/// Characters that have no width, or change the direction or the lines of text: those with the
/// property Default_Ignorable_Code_Point of Unicode, line and paragraph separators, and the
/// annotations.
const INVISIBLE: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Some of each kind: C0, DEL, C1, bidirectional, without width, separators, tags.
    const HOSTILE: &str = "\0\x07\x1b[2J\x7f\u{9b}1A\u{9d}52;c;eA==\u{9c}\u{202e}\u{2066}\u{61c}\u{200b}\u{feff}\u{2028}\u{e0041}";

    #[test]
    fn nothing_that_a_terminal_obeys_or_hides_is_left() {
        for text in [one_line(HOSTILE, 1000), printable(HOSTILE).into_owned()] {
            assert!(text.chars().all(is_harmless), "{text:?}");
            assert!(text.is_ascii(), "{text:?}");
        }
    }

    #[test]
    fn ordinary_text_of_any_language_is_left_alone() {
        for text in ["Größe 3 µs", "データ", "שלום", "e\u{301}", r"C:\new", "½ RTT × 2 …"] {
            assert_eq!((one_line(text, 100).as_str(), &*printable(text)), (text, text));
        }
    }

    #[test]
    fn a_line_has_no_break_and_its_length_is_bounded() {
        assert_eq!(one_line("a\nb\tc", 100), r"a\nb\tc");
        assert_eq!(printable("a\nb\tc\r"), "a\nb\tc\\r");
        assert_eq!(one_line(&"é".repeat(10_000), 400).chars().count(), 400);
        assert_eq!(one_line(&"\x1b".repeat(10_000), 400).chars().count(), 400);
        assert_eq!((one_line("abcd", 4).as_str(), one_line("", 4).as_str()), ("abcd", ""));
    }

    #[test]
    fn json_stays_valid_and_means_the_same() {
        let value = serde_json::json!({ "a\u{202e}": [HOSTILE, "b\\\n", "\u{1f600}"] });
        for json in [value.to_string(), format!("{value:#}")] {
            let escaped = printable(&json);
            assert!(escaped.chars().all(|letter| letter == '\n' || is_harmless(letter)), "{escaped:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        }
    }
}

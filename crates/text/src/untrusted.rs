//! A text of someone else.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::escape::one_line;

/// The length of a text of someone else in a message, in characters.
const SHOWN_MAX: usize = 1000;

/// A text that a peer sent. It may contain anything, such as escape sequences of terminals and lines
/// that look like those of this program.
///
/// It has no `Display`: [`shown`](Self::shown) and [`quoted`](Self::quoted) are the ways to print it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Untrusted(String);

impl Untrusted {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text as it was sent, to compare it. It must not be printed.
    pub fn as_sent(&self) -> &str {
        &self.0
    }

    /// Returns the text as one line of at most 1000 characters, without anything that a terminal would
    /// obey or hide.
    pub fn shown(&self) -> String {
        one_line(&self.0, SHOWN_MAX)
    }

    /// Returns the same within double quotes, for a text that is not to be taken for one of this program.
    /// Its lines are joined by spaces.
    pub fn quoted(&self) -> String {
        let lines: Vec<&str> = self.0.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        format!("\"{}\"", one_line(&lines.join(" "), SHOWN_MAX).replace('"', "\\\""))
    }
}

impl<T: Into<String>> From<T> for Untrusted {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// Writes the text as [`quoted`](Untrusted::quoted).
impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.quoted())
    }
}

/// Deserializes a text of someone else as one line ([`Untrusted::shown`]): for
/// `#[serde(deserialize_with = "farreach_text::line")]`.
pub fn line<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Untrusted::deserialize(from).map(|text| text.shown())
}

/// Like [`line()`], for a list of texts.
pub fn lines<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Vec::<Untrusted>::deserialize(from).map(|texts| texts.iter().map(Untrusted::shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quoted_wherever_it_is_printed() {
        let told = Untrusted::new("x\"\r\n  fix: \x1b[2J\n");
        assert_eq!(told.quoted(), r#""x\" fix: \u001b[2J""#);
        assert_eq!(format!("{told:?}"), told.quoted());
        assert_eq!(told.as_sent().lines().count(), 2);
    }

    #[test]
    fn a_field_is_one_line_after_it_was_read() {
        #[derive(Deserialize)]
        struct Told {
            #[serde(deserialize_with = "line")]
            host: String,
            #[serde(deserialize_with = "lines")]
            rails: Vec<String>,
        }
        let told: Told = serde_json::from_str(r#"{ "host": "a\nb", "rails": ["tcp", "\u001b"] }"#).unwrap();
        assert_eq!(told.host, r"a\nb");
        assert_eq!(told.rails, ["tcp", r"\u001b"]);
    }
}

//! The findings of a check.

pub use farreach_text::CommandLine;
use farreach_text::{Untrusted, one_line};
use serde::{Deserialize, Serialize};

use crate::pack::Missing;

/// The verdict on what was found. A worse verdict compares greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
// Exhaustive: code that prints or counts findings has to handle each of the four.
pub enum Verdict {
    /// No problem.
    Pass,
    /// The value could not be read; `found` states why. This never counts as a pass.
    Unknown,
    /// It works, but is slower or less safe than it could be.
    Warn,
    /// It does not work.
    Fail,
}

/// One way to remove a problem.
///
/// The prose and the commands are separate, so that a command can be copied from its own line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Fix {
    /// Where the fix applies, if that makes a difference: `systemd`, `container`, `at boot`, `on storage-7`.
    pub place: Option<String>,
    /// What to do, in words, without a command.
    pub what: String,
    /// Commands for a shell, or lines of the configuration file that `what` names. Words in capitals are placeholders.
    #[serde(default)]
    pub commands: Vec<String>,
}

impl Fix {
    /// Creates a fix from a description in words.
    pub fn new(what: impl Into<String>) -> Self {
        Self { place: None, what: what.into(), commands: Vec::new() }
    }

    /// Creates a fix from the text of an error in a pack, as a quotation: whoever wrote the pack may have
    /// written anything there, so nothing of it is a command to copy.
    pub fn quoted(text: &str) -> Self {
        Self::new(format!("the error says {}", Untrusted::new(text).quoted()))
    }

    /// Adds a command, or a line of a configuration file: a text of this program, with quoted arguments.
    pub fn run(mut self, command: impl Into<CommandLine>) -> Self {
        self.commands.push(command.into().to_string());
        self
    }

    fn printable(mut self) -> Self {
        self.place = self.place.map(|place| text_of(&place));
        self.what = text_of(&self.what);
        self
    }

    /// Sets the place where the fix applies.
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }
}

impl From<&str> for Fix {
    fn from(what: &str) -> Self {
        Self::new(what)
    }
}

impl From<String> for Fix {
    fn from(what: String) -> Self {
        Self::new(what)
    }
}

/// The result of one check for one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Finding {
    /// The device, port or rail that the finding is about, such as `mlx5_0 port 1`; null if it is about the host.
    pub subject: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found. If the verdict is `unknown`: why it could not be determined.
    pub found: String,
    /// The files and calls from which it was read.
    pub read: Vec<String>,
    /// The fixes. They are alternatives.
    pub fixes: Vec<Fix>,
}

impl Finding {
    fn new(verdict: Verdict, found: impl Into<String>) -> Self {
        Self { subject: None, verdict, found: found.into(), read: Vec::new(), fixes: Vec::new() }
    }

    /// Creates a finding about something that is as it should be.
    pub fn pass(found: impl Into<String>) -> Self {
        Self::new(Verdict::Pass, found)
    }

    /// Creates a finding about something that works, at a cost.
    pub fn warn(found: impl Into<String>) -> Self {
        Self::new(Verdict::Warn, found)
    }

    /// Creates a finding about something that does not work.
    pub fn fail(found: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, found)
    }

    /// Creates a finding about something that could not be determined, with the reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, reason)
    }

    /// Creates a finding about a file that could not be read.
    pub(crate) fn unread(path: &str, missing: &Missing) -> Self {
        Self::unknown(missing.reason(path)).read(path)
    }

    /// Sets the subject, unless the finding is about the host itself.
    pub fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Adds a source from which the finding was read.
    pub fn read(mut self, source: impl Into<String>) -> Self {
        self.read.push(source.into());
        self
    }

    /// Returns the finding with each of its texts in one line, without anything that a terminal would
    /// obey or hide.
    pub(crate) fn printable(mut self) -> Self {
        self.subject = self.subject.map(|subject| text_of(&subject));
        self.found = text_of(&self.found);
        self.read.iter_mut().for_each(|source| *source = text_of(source));
        self.fixes = self.fixes.into_iter().map(Fix::printable).collect();
        self
    }

    /// Adds a fix.
    pub fn fix(mut self, fix: impl Into<Fix>) -> Self {
        self.fixes.push(fix.into());
        self
    }
}

/// The longest text of a finding, in characters.
const TEXT_MAX: usize = 4000;

/// Returns a text that may have parts of a pack as one line that can be printed.
pub(crate) fn text_of(text: &str) -> String {
    one_line(text, TEXT_MAX)
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The findings. Invariant: at least one.
    Findings(Vec<Finding>),
    /// The check does not apply to this host, for this reason.
    DoesNotApply(String),
}

impl Answer {
    /// Returns the answer with texts that can be printed.
    pub(crate) fn printable(self) -> Self {
        match self {
            Self::Findings(all) => Self::Findings(all.into_iter().map(Finding::printable).collect()),
            Self::DoesNotApply(reason) => Self::DoesNotApply(text_of(&reason)),
        }
    }

    /// Makes one finding for each item, or `DoesNotApply(why_none)` if there are no items.
    pub(crate) fn of_each<T>(
        these: impl IntoIterator<Item = T>,
        why_none: &str,
        look: impl FnMut(T) -> Finding,
    ) -> Self {
        let findings: Vec<Finding> = these.into_iter().map(look).collect();
        if findings.is_empty() { Self::DoesNotApply(why_none.to_owned()) } else { Self::Findings(findings) }
    }
}

impl From<Finding> for Answer {
    fn from(finding: Finding) -> Self {
        Self::Findings(vec![finding])
    }
}

//! The findings of a check.

use serde::{Deserialize, Serialize};

use crate::pack::Missing;

/// How it is. The worse one is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
// Exhaustive: code that prints or counts findings has to handle each of the four.
pub enum Verdict {
    /// As it should be.
    Pass,
    /// It could not be read: the reason is told. Never taken for a pass.
    Unknown,
    /// It works, and costs something.
    Warn,
    /// It does not work like this.
    Fail,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Fix {
    /// Where it is done, if that makes a difference: `systemd`, `container`, `limits.conf`, `at boot`.
    pub place: Option<String>,
    /// The command, or the file and its line.
    pub how: String,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Finding {
    /// `mlx5_0 port 1`; null where it is the host itself.
    pub subject: Option<String>,
    /// How it is.
    pub verdict: Verdict,
    /// What was found; of an unknown one, why nothing was.
    pub found: String,
    /// Where it was read.
    pub read: Vec<String>,
    /// What to do about it; each is a way of its own.
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

    /// Adds a fix.
    pub fn fix(mut self, how: impl Into<String>) -> Self {
        self.fixes.push(Fix { place: None, how: how.into() });
        self
    }

    /// Adds a fix that applies in this place.
    pub fn fix_in(mut self, place: &str, how: impl Into<String>) -> Self {
        self.fixes.push(Fix { place: Some(place.to_owned()), how: how.into() });
        self
    }
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

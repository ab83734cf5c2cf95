//! The report on a pair: the part of the JSON report that concerns both hosts.

use serde::{Deserialize, Serialize};

use super::readings::{Cell, LeftOut};
use crate::finding::{Finding, Verdict};

/// Subjects of findings that belong to no row of the matrix.
pub(super) const CONTROL: &str = "control connection";
pub(super) const VERSIONS: &str = "versions";

/// What was found between this host and the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PairReport {
    /// What the peer is called.
    pub peer: String,
    /// Each rail of this host with each of the peer's.
    pub matrix: Vec<Row>,
    /// Rails that were not tried.
    pub left_out: Vec<LeftOut>,
    /// What each of them comes to, and the connection between the hosts.
    pub findings: Vec<Finding>,
}

/// One rail with another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Row {
    /// How it is.
    pub state: State,
    /// In a few words.
    pub why: String,
    /// What was tried.
    #[serde(flatten)]
    pub cell: Cell,
}

/// How it is between two rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
// Exhaustive, like `Verdict`.
pub enum State {
    /// It works.
    Works,
    /// It works, and costs something.
    Warns,
    /// The two are on different networks, and each has others: nothing is wrong.
    Apart,
    /// It does not work.
    Fails,
}

impl PairReport {
    /// Returns the findings that belong to no row of the matrix: those about the control connection
    /// and about the versions.
    pub fn beside_matrix(&self) -> impl Iterator<Item = &Finding> {
        let is_beside = |finding: &&Finding| matches!(finding.subject.as_deref(), Some(CONTROL | VERSIONS));
        self.findings.iter().filter(is_beside)
    }

    /// Returns the worst verdict of all findings.
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Unknown)
    }
}

//! The report on a pair: the part of the JSON report that concerns both hosts.

use serde::{Deserialize, Serialize};

use super::readings::{Cell, LeftOut};
use crate::finding::{Finding, Verdict};

/// Subjects of findings that belong to no row of the matrix.
pub(super) const CONTROL: &str = "control connection";
pub(super) const VERSIONS: &str = "versions";

/// The results between this host and the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PairReport {
    /// The name of this host in the findings, with its address if both hosts have the same name.
    pub here: String,
    /// The name of the peer in the findings, with its address if both hosts have the same name.
    pub peer: String,
    /// Each rail of this host with each rail of the peer.
    pub matrix: Vec<Row>,
    /// Rails that were not tried.
    pub left_out: Vec<LeftOut>,
    /// The findings about each pair of rails, the control connection and the versions.
    pub findings: Vec<Finding>,
}

/// The result of one rail of this host with one rail of the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Row {
    /// The state.
    pub state: State,
    /// The reason for the state, in a few words.
    pub why: String,
    /// The results of the trial.
    #[serde(flatten)]
    pub cell: Cell,
}

/// The state of a pair of rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
// Exhaustive, like `Verdict`.
pub enum State {
    /// It works.
    Works,
    /// It works, with a warning.
    Warns,
    /// The two rails are on different networks, and each reaches another rail. This is no fault.
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

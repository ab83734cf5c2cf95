//! What is said of a pair: the part of the report's JSON that is between two hosts.

use serde::{Deserialize, Serialize};

use super::readings::{Cell, LeftOut};
use crate::cmd::doctor::finding::{Finding, Verdict};

/// What findings are about that are of no row of the matrix.
pub(super) const CONTROL: &str = "control connection";
pub(super) const VERSIONS: &str = "versions";

/// What was found between this host and the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PairReport {
    /// What the peer is called.
    pub(crate) peer: String,
    /// Each rail of this host with each of the peer's.
    pub(crate) matrix: Vec<Row>,
    /// Rails that were not tried.
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) findings: Vec<Finding>,
}

/// One rail with another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Row {
    pub(crate) state: State,
    /// In a few words.
    pub(crate) why: String,
    #[serde(flatten)]
    pub(crate) cell: Cell,
}

/// How it is between two rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Works,
    /// It works, and costs something.
    Warns,
    /// The two are on different networks, and each has others: nothing is wrong.
    Apart,
    Fails,
}

impl PairReport {
    /// The worst of it.
    pub(crate) fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Unknown)
    }
}

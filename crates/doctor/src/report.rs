//! The report of the checks of one host.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises the
//! `schema_version` of the command's report, which contains this one. The schema is
//! docs/schema/doctor.json.

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Verdict};

/// What was found on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HostReport {
    /// The host's name.
    pub host: String,
    /// When it was read, in seconds since 1970.
    pub read_unix_seconds: u64,
    /// Where the pack was written by a person instead of read from a host: from what.
    pub constructed: Option<String>,
    /// Whether there is an RDMA device, or a card that should be one: without, there is nothing to check.
    pub has_rdma: bool,
    /// The checks that had something to look at.
    pub checks: Vec<CheckReport>,
    /// The checks that had nothing to look at.
    pub not_here: Vec<NotHere>,
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CheckReport {
    /// The check's name.
    pub check: String,
    /// Why it matters.
    pub why: String,
    /// The worst of its findings.
    pub verdict: Verdict,
    /// What it has found: one thing at least.
    pub findings: Vec<Finding>,
}

/// A check that has nothing to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NotHere {
    /// The check's name.
    pub check: String,
    /// Why there is nothing to look at.
    pub reason: String,
}

impl HostReport {
    /// Returns the rails over which a transfer worked.
    pub fn working_rails(&self) -> Vec<&str> {
        let transfers = self.checks.iter().filter(|check| check.check == "transfer");
        let worked =
            transfers.flat_map(|check| &check.findings).filter(|finding| finding.verdict == Verdict::Pass);
        worked.filter_map(|finding| finding.subject.as_deref()).collect()
    }

    /// Returns the worst verdict of all checks.
    pub fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Unknown)
    }
}

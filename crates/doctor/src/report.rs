//! The report of the checks of one host.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises the
//! `schema_version` of the command's report, which contains this one. The schema is
//! docs/schema/doctor.json.

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Verdict};

/// The results of the checks of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct HostReport {
    /// The host's name.
    pub host: String,
    /// The address of the host on the control connection, if the host is one of a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::IpAddr>,
    /// When the host was read, in seconds since 1970.
    pub read_unix_seconds: u64,
    /// The source of a pack that was written by hand instead of read from a host; otherwise null.
    pub constructed: Option<String>,
    /// Whether the host has an RDMA device, or a card that should have one.
    pub has_rdma: bool,
    /// The checks that apply to this host.
    pub checks: Vec<CheckReport>,
    /// The checks that do not apply to this host.
    pub not_here: Vec<NotHere>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CheckReport {
    /// The check's name.
    pub check: String,
    /// Why the check matters.
    pub why: String,
    /// The worst verdict of its findings.
    pub verdict: Verdict,
    /// The findings: at least one.
    pub findings: Vec<Finding>,
}

/// A check that does not apply to this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NotHere {
    /// The check's name.
    pub check: String,
    /// The reason why it does not apply.
    pub reason: String,
}

impl HostReport {
    /// Returns the rails over which a transfer worked.
    pub fn working_rails(&self) -> Vec<&str> {
        self.rails(|verdict| verdict == Verdict::Pass)
    }

    /// Returns the rails over which a transfer was tried.
    pub fn tried_rails(&self) -> Vec<&str> {
        self.rails(|verdict| verdict != Verdict::Unknown)
    }

    fn rails(&self, has: impl Fn(Verdict) -> bool) -> Vec<&str> {
        let transfers = self.checks.iter().filter(|check| check.check == "transfer");
        let findings = transfers.flat_map(|check| &check.findings).filter(|finding| has(finding.verdict));
        findings.filter_map(|finding| finding.subject.as_deref()).collect()
    }

    /// Returns the worst verdict of all checks.
    pub fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Unknown)
    }
}

//! What `farreach doctor` has to say: the shape of its JSON.
//!
//! A field is only ever added; one that changes its meaning or goes away raises [`SCHEMA_VERSION`]. The schema is docs/schema/doctor.json.

use serde::{Deserialize, Serialize};

use super::checks::{CHECKS, has_rdma};
use super::finding::{Answer, Finding, Verdict};
use super::pack::Pack;
use super::pair::{PairPack, PairReport};
use crate::exit::{Exit, Failure};
use crate::report::Told;

/// The version of this shape.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// What `farreach doctor` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DoctorReport"))]
pub(crate) struct Report {
    pub(crate) schema_version: u32,
    /// The hosts that were looked at: this one, and the peer where one was named.
    pub(crate) hosts: Vec<HostReport>,
    /// What is between the two, where a peer was named.
    pub(crate) pair: Option<PairReport>,
    /// What the command ends with; only where the peer was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u8>,
    /// Why the peer was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Told>,
}

/// What was found on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HostReport {
    pub(crate) host: String,
    /// When it was read, in seconds since 1970.
    pub(crate) read_unix_seconds: u64,
    /// Where the pack was written by a person instead of read from a host: from what.
    pub(crate) constructed: Option<String>,
    /// Whether there is an RDMA device, or a card that should be one: without, there is nothing to check.
    pub(crate) has_rdma: bool,
    pub(crate) checks: Vec<CheckReport>,
    pub(crate) not_here: Vec<NotHere>,
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CheckReport {
    pub(crate) check: String,
    /// Why it matters.
    pub(crate) why: String,
    /// The worst of its findings.
    pub(crate) verdict: Verdict,
    pub(crate) findings: Vec<Finding>,
}

/// A check that has nothing to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NotHere {
    pub(crate) check: String,
    pub(crate) reason: String,
}

impl HostReport {
    /// Runs every check.
    pub(crate) fn of(pack: &Pack) -> Self {
        let (mut checks, mut not_here) = (Vec::new(), Vec::new());
        for check in CHECKS {
            match (check.look)(pack) {
                Answer::Findings(findings) => checks.push(CheckReport {
                    check: check.name.to_owned(),
                    why: check.why.to_owned(),
                    verdict: findings.iter().map(|it| it.verdict).max().unwrap_or(Verdict::Unknown),
                    findings,
                }),
                Answer::DoesNotApply(reason) => {
                    not_here.push(NotHere { check: check.name.to_owned(), reason })
                }
            }
        }
        Self {
            host: pack.host.clone(),
            read_unix_seconds: pack.recorded_unix_seconds,
            constructed: pack.constructed.clone(),
            has_rdma: has_rdma(pack),
            checks,
            not_here,
        }
    }

    /// The rails of which a transfer has worked.
    pub(crate) fn working_rails(&self) -> Vec<&str> {
        let transfers = self.checks.iter().filter(|check| check.check == "transfer");
        let worked =
            transfers.flat_map(|check| &check.findings).filter(|finding| finding.verdict == Verdict::Pass);
        worked.filter_map(|finding| finding.subject.as_deref()).collect()
    }

    fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Unknown)
    }
}

impl Report {
    pub(crate) fn of(pack: &Pack) -> Self {
        Self::new(vec![HostReport::of(pack)], None)
    }

    fn new(hosts: Vec<HostReport>, pair: Option<PairReport>) -> Self {
        Self { schema_version: SCHEMA_VERSION, hosts, pair, exit_code: None, error: None }
    }

    /// Of this host, a peer, and what is between them.
    pub(crate) fn of_pair(pack: &PairPack) -> Self {
        let hosts = vec![HostReport::of(&pack.here), HostReport::of(&pack.peer)];
        Self::new(hosts, Some(pack.report()))
    }

    /// Of a host that did not reach its peer.
    pub(crate) fn without_peer(self, failure: &Failure) -> Self {
        Self { exit_code: Some(failure.exit.code()), error: Some(Told::from(failure)), ..self }
    }

    /// What to end with. `is_strict` takes what costs something, or is unknown, for a failure.
    pub(crate) fn exit(&self, is_strict: bool) -> Exit {
        // Between two hosts the question is whether they reach each other: also over tcp, where there is no RDMA.
        let is_unavailable = match &self.pair {
            Some(pair) => pair.matrix.is_empty(),
            None => !self.hosts.iter().any(|host| host.has_rdma),
        };
        let looked_at = self.hosts.iter().filter(|host| host.has_rdma).map(HostReport::verdict);
        let worst = looked_at.chain(self.pair.as_ref().map(PairReport::verdict)).max();
        match worst.unwrap_or(Verdict::Unknown) {
            _ if is_unavailable => Exit::Unavailable,
            Verdict::Fail => Exit::Failed,
            Verdict::Warn | Verdict::Unknown if is_strict => Exit::Failed,
            _ => Exit::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_are_what_the_types_say() {
        crate::schema::assert_current::<Report>("doctor.json");
        crate::schema::assert_current::<Pack>("doctor-pack.json");
        crate::schema::assert_current::<PairPack>("doctor-pair-pack.json");
    }
}

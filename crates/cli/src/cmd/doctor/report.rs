//! The report of `farreach doctor`, as JSON.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises
//! [`SCHEMA_VERSION`]. The schema is docs/schema/doctor.json.

use farreach_doctor::pair::{self, PairReport};
use farreach_doctor::{Dump, HostReport, Verdict, checks};
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure, Told};

/// The schema version of the report.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The report of `farreach doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DoctorReport"))]
pub(crate) struct Report {
    pub(crate) schema_version: u32,
    /// The hosts that were examined: this host, and the peer if one was given and reached.
    pub(crate) hosts: Vec<HostReport>,
    /// The results between the two hosts; null without a peer.
    pub(crate) pair: Option<PairReport>,
    /// The exit code of the command.
    #[serde(default)]
    pub(crate) exit_code: Option<u8>,
    /// The error if the peer was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Told>,
}

impl Report {
    /// Runs the checks and the diagnosis.
    pub(crate) fn of(dump: &Dump) -> Self {
        match dump {
            Dump::Pair(pack) => {
                let mut hosts = vec![checks::run(pack.here()), checks::run(pack.peer())];
                if let Some((here, peer)) = pack.addresses() {
                    (hosts[0].address, hosts[1].address) = (Some(here), Some(peer));
                }
                Self::new(hosts, Some(pair::diagnose(pack)))
            }
            Dump::Host(pack) => Self::new(vec![checks::run(pack)], None),
        }
    }

    fn new(hosts: Vec<HostReport>, pair: Option<PairReport>) -> Self {
        Self { schema_version: SCHEMA_VERSION, hosts, pair, exit_code: None, error: None }
    }

    /// Adds the failure to reach the peer.
    pub(crate) fn without_peer(self, failure: &Failure) -> Self {
        Self { exit_code: Some(failure.exit.code()), error: Some(Told::from(failure)), ..self }
    }

    /// Adds the exit code.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit_code: Some(exit.code()), ..self }
    }

    /// Returns the exit code. With `is_strict`, warnings and unknown results count as failures.
    ///
    /// Invariant: if a finding of any host or of the pair fails, the exit code is not 0.
    pub(crate) fn exit(&self, is_strict: bool) -> Exit {
        // For a pair it matters whether the hosts reach each other, even over tcp without RDMA.
        let is_unavailable = match &self.pair {
            Some(pair) => pair.matrix.is_empty(),
            None => !self.hosts.iter().any(|host| host.has_rdma),
        };
        let hosts = self.hosts.iter().map(HostReport::verdict);
        let worst = hosts.chain(self.pair.as_ref().map(PairReport::verdict)).max();
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
    use farreach_doctor::pair::{PairPack, State};
    use farreach_doctor::{Finding, Pack};
    use serde_json::{Value, json};

    use super::*;

    /// A pair that works over tcp, of hosts with and without RDMA that have this verdict.
    fn pair_with(verdict: Verdict, has_rdma: bool) -> Report {
        let finding = match verdict {
            Verdict::Pass => Finding::pass("a"),
            Verdict::Unknown => Finding::unknown("a"),
            Verdict::Warn => Finding::warn("a"),
            Verdict::Fail => Finding::fail("a"),
        };
        let host = |has_rdma: bool, checks: Value| {
            json!({
                "host": "h", "read_unix_seconds": 0, "constructed": null, "has_rdma": has_rdma,
                "checks": checks, "not_here": [],
            })
        };
        let check = |finding: &Finding| json!([{ "check": "c", "why": "w", "verdict": finding.verdict, "findings": [finding] }]);
        let row = json!({
            "state": State::Works, "why": "works", "local": "tcp", "remote": "tcp", "round_trip_ns": 1,
            "rate_bits_per_second": 1, "trouble": null, "cards": null,
        });
        let pair = json!({
            "here": "h", "peer": "localhost", "matrix": [row], "left_out": [],
            "findings": [Finding::pass("works")],
        });
        let hosts = [host(true, check(&Finding::pass("a"))), host(has_rdma, check(&finding))];
        serde_json::from_value(json!({ "schema_version": 1, "hosts": hosts, "pair": pair })).unwrap()
    }

    #[test]
    fn a_failure_on_any_host_of_a_pair_is_a_failure_of_the_command() {
        for has_rdma in [true, false] {
            assert_eq!(pair_with(Verdict::Fail, has_rdma).exit(false), Exit::Failed, "{has_rdma}");
            assert_eq!(pair_with(Verdict::Warn, has_rdma).exit(false), Exit::Ok, "{has_rdma}");
            assert_eq!(pair_with(Verdict::Warn, has_rdma).exit(true), Exit::Failed, "{has_rdma}");
            assert_eq!(pair_with(Verdict::Pass, has_rdma).exit(true), Exit::Ok, "{has_rdma}");
        }
    }

    #[test]
    fn the_schemas_are_what_the_types_say() {
        crate::schema::assert_current::<Report>("doctor.json");
        crate::schema::assert_current::<Pack>("doctor-pack.json");
        crate::schema::assert_current::<PairPack>("doctor-pair-pack.json");
    }
}

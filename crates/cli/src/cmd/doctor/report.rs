//! The report of `farreach doctor`, as JSON.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises
//! [`SCHEMA_VERSION`]. The schema is docs/schema/doctor.json.

use farreach_doctor::pair::{self, PairReport};
use farreach_doctor::{Dump, HostReport, Verdict, checks};
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::report::Told;

/// The schema version of the report.
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

impl Report {
    /// Runs the checks and the diagnosis.
    pub(crate) fn of(dump: &Dump) -> Self {
        match dump {
            Dump::Pair(pack) => {
                let hosts = vec![checks::run(pack.here()), checks::run(pack.peer())];
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

    /// Returns the exit code. With `is_strict`, warnings and unknown results count as failures.
    pub(crate) fn exit(&self, is_strict: bool) -> Exit {
        // For a pair it matters whether the hosts reach each other, even over tcp without RDMA.
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
    use farreach_doctor::Pack;
    use farreach_doctor::pair::PairPack;

    use super::*;

    #[test]
    fn the_schemas_are_what_the_types_say() {
        crate::schema::assert_current::<Report>("doctor.json");
        crate::schema::assert_current::<Pack>("doctor-pack.json");
        crate::schema::assert_current::<PairPack>("doctor-pair-pack.json");
    }
}

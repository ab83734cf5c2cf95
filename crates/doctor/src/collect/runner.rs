//! The operations that the collector leaves to its caller.

use std::collections::BTreeMap;

use super::{fabric, shm, verbs};
use crate::probes::{Fabric, Reading, Shm, Trial, Verbs};

/// The operations that [`host`](super::host) leaves to its caller, because they load foreign
/// libraries, start processes, or move bytes.
///
/// A library may crash, hang, or keep cards open. The command `farreach doctor` therefore queries
/// each library in a process of its own. [`InProcess`] queries them in this process.
pub trait Runner: Sync {
    /// Queries libibverbs.
    fn verbs(&self) -> Reading<Verbs>;

    /// Queries libfabric.
    fn fabric(&self) -> Reading<Fabric>;

    /// Tries what the rail within a host needs ([`shm`](super::shm)). A seccomp filter may end the
    /// process.
    fn shm(&self) -> Reading<Shm>;

    /// Runs a transfer from this host to itself over each of its rails.
    ///
    /// It is called last, when nothing else is being read.
    fn transfers(&self) -> Reading<BTreeMap<String, Trial>>;

    /// Runs a program (`nft` or `iptables-save`) with these arguments in the locale `C`, and
    /// returns its output.
    fn output(&self, program: &str, args: &[&str]) -> Result<String, ProgramError>;
}

/// The reason why a program has no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The program is not installed. Another program may serve instead.
    #[error("not installed")]
    NotInstalled,
    /// The program could not be started, hung or failed. The message names it.
    #[error("{0}")]
    Failed(String),
}

/// Queries the libraries in this process.
///
/// It starts no program and makes no transfer: firewall rules, if there are any, are unknown, and
/// the check `transfer` does not apply.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Runner for InProcess {
    fn verbs(&self) -> Reading<Verbs> {
        verbs::look()
    }

    fn fabric(&self) -> Reading<Fabric> {
        fabric::look()
    }

    fn shm(&self) -> Reading<Shm> {
        Reading::Read(shm(None))
    }

    fn transfers(&self) -> Reading<BTreeMap<String, Trial>> {
        Reading::LeftOut("no transfer was requested".to_owned())
    }

    fn output(&self, program: &str, _args: &[&str]) -> Result<String, ProgramError> {
        Err(ProgramError::Failed(format!("{program} was not run: this runner starts no programs")))
    }
}

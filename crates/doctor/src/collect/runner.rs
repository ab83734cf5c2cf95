//! What a collector does not do itself.

use std::collections::BTreeMap;

use super::{fabric, verbs};
use crate::probes::{Fabric, Reading, Trial, Verbs};

/// What [`host`](super::host) leaves to its caller, because it loads libraries of others, starts processes, or moves bytes.
///
/// A library may crash, hang, or keep the cards open that it has seen. The command `farreach doctor` therefore asks each in a process of its own;
/// [`InProcess`] asks them here.
pub trait Runner: Sync {
    /// What libibverbs says.
    fn verbs(&self) -> Reading<Verbs>;

    /// What libfabric says.
    fn fabric(&self) -> Reading<Fabric>;

    /// What came of a real transfer from this host to itself, over each of its rails. It is called last, when nothing else is being read.
    fn transfers(&self) -> Reading<BTreeMap<String, Trial>>;

    /// What a program prints, in the locale `C`: `nft` or `iptables-save`, with these arguments.
    fn output(&self, program: &str, args: &[&str]) -> Result<String, ProgramError>;
}

/// Why a program has printed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// This host does not have it: another one may do.
    #[error("it is not installed")]
    NotInstalled,
    /// It could not be started, hung or failed, in words that name it.
    #[error("{0}")]
    Failed(String),
}

/// Asks the libraries in this process. It starts no program and makes no transfer: the firewall's rules are unknown where there are any, and the
/// check `transfer` does not apply.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Runner for InProcess {
    fn verbs(&self) -> Reading<Verbs> {
        verbs::look()
    }

    fn fabric(&self) -> Reading<Fabric> {
        fabric::look()
    }

    fn transfers(&self) -> Reading<BTreeMap<String, Trial>> {
        Reading::LeftOut("left out: no transfer was asked for".to_owned())
    }

    fn output(&self, program: &str, _args: &[&str]) -> Result<String, ProgramError> {
        Err(ProgramError::Failed(format!("{program} was not asked: no program is started here")))
    }
}

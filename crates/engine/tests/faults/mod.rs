//! Real faults, over any rail: a process that is killed, one that is stopped, and what they leave behind.
//!
//! The test is the survivor. The victim is a process of its own, the example `node`. All the while another process is served by the same
//! engine, and every byte of that is verified: a fault costs the one that has it, and nobody else.

pub(crate) mod cut;
pub(crate) mod killed;
pub(crate) mod late;
pub(crate) mod node;
#[allow(dead_code, reason = "tcp alone has it")]
pub(crate) mod refused;
pub(crate) mod rogue;
pub(crate) mod steady;
pub(crate) mod stopped;
pub(crate) mod survivor;
pub(crate) mod table;

use std::time::Duration;

/// Where the faults happen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The rails of every engine, as its settings name them.
    pub(crate) rails: &'static [&'static str],
    /// How often each fault is made.
    pub(crate) rounds: fn() -> u32,
    /// How often peers hear from each other at least, and which silence means that one is lost.
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
}

/// The deadline of each wait that a fault is to end.
pub(crate) const DEADLINE: Duration = Duration::from_secs(6);
/// By how much a wait may miss it at most.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How long memory that is back is watched for what lands late.
pub(crate) const WATCHED: Duration = Duration::from_millis(200);
/// What memory that is back is filled with. No round of a sender's is full of it before the two hundred and thirty-eighth.
pub(crate) const MARK: u8 = 0xEE;

//! Real faults, over any rail: a process that is killed or stopped, and the effects on its peers.
//!
//! The test is the survivor. The victim is another process, the example `node`. At the same time
//! the engine serves a third process, and every byte of that is verified: a fault must affect only
//! the peer that has it.

#[allow(dead_code, reason = "tcp alone has it")]
pub(crate) mod any_instant;
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

/// The rails and times of a test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The rails of every engine, as its settings name them.
    pub(crate) rails: &'static [&'static str],
    /// How often each fault is made.
    pub(crate) rounds: fn() -> u32,
    /// The heartbeat, and the silence after which a peer is lost.
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
}

/// The deadline of each wait that a fault has to end.
pub(crate) const DEADLINE: Duration = Duration::from_secs(6);
/// The tolerance for the deadline.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How long returned memory is watched for late writes.
pub(crate) const WATCHED: Duration = Duration::from_millis(200);
/// The byte that returned memory is filled with. A sender first fills a round with it in round 238.
pub(crate) const MARK: u8 = 0xEE;

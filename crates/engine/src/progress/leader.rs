//! The leader: the machine, and the commands to be applied to it.

use super::Drive;

/// The machine, and the commands to be applied to it. The thread that owns this box leads.
///
/// Invariant: there is exactly one for each [`LeaderFollowers`](super::LeaderFollowers).
pub(super) struct Leader<M: Drive> {
    pub(super) machine: M,
    pub(super) commands: Vec<M::Command>,
}

//! The leader: the machine, and the commands to be applied to it.

use super::Drive;

/// The machine, and the commands to be applied to it. The thread that owns this box leads.
///
/// Invariant: there is exactly one for each [`LeaderFollowers`](super::LeaderFollowers).
pub(super) struct Leader<M: Drive> {
    pub(super) machine: M,
    pub(super) commands: Vec<M::Command>,
}

impl<M: Drive> Leader<M> {
    /// Applies the queued commands and `command`, and makes one step.
    pub(super) fn step(&mut self, command: Option<M::Command>) {
        // Queued commands were submitted first.
        self.commands.drain(..).for_each(|command| self.machine.apply(command));
        if let Some(command) = command {
            self.machine.apply(command);
        }
        self.machine.step();
    }
}

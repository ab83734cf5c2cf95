//! One connection's turn among the others.

use super::connection::{Connection, Progress};
use super::event::{ConnectionId, ControlEvent};
use super::reason::CloseReason;

/// One connection's turn.
pub(super) struct Turn {
    pub(super) id: ConnectionId,
    /// Frames that it may still tell.
    pub(super) room: usize,
}

impl Turn {
    /// Whether something is left.
    pub(super) fn run(
        &mut self,
        connection: &mut Connection,
        scratch: &mut [u8],
        sink: &mut dyn FnMut(ControlEvent),
    ) -> Result<bool, CloseReason> {
        if connection.is_connecting() {
            return Ok(false);
        }
        if self.tell_frames(connection, sink)? {
            return Ok(true);
        }
        match connection.read(scratch)? {
            Progress::Dry => return Ok(false),
            Progress::More => {}
            Progress::Greeted => connection.announcement(self.id).into_iter().for_each(&mut *sink),
        }
        // The poller tells again of what was not read.
        Ok(self.tell_frames(connection, sink)? || connection.has_something_left())
    }

    /// Whether there may be more of them.
    fn tell_frames(
        &mut self,
        connection: &mut Connection,
        sink: &mut dyn FnMut(ControlEvent),
    ) -> Result<bool, CloseReason> {
        while self.room > 0 {
            let Some(frame) = connection.next_frame()? else { return Ok(false) };
            self.room -= 1;
            sink(ControlEvent::Frame(self.id, frame));
        }
        Ok(true)
    }
}

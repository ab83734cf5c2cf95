//! Reads the frames of one connection, at most so many, so that all connections are served.

use super::connection::{Connection, Progress};
use super::event::{ConnectionId, ControlEvent};
use super::reason::CloseReason;

/// How many frames of a connection are read at a time.
pub(super) struct FrameBudget {
    pub(super) id: ConnectionId,
    /// Frames left.
    pub(super) room: usize,
}

impl FrameBudget {
    /// Reads frames. Returns whether something is left.
    pub(super) fn read(
        &mut self,
        connection: &mut Connection,
        scratch: &mut [u8],
        sink: &mut dyn FnMut(ControlEvent),
    ) -> Result<bool, CloseReason> {
        if connection.is_connecting() {
            return Ok(false);
        }
        if self.deliver_frames(connection, sink)? {
            return Ok(true);
        }
        match connection.read(scratch)? {
            Progress::Dry => return Ok(false),
            Progress::More => {}
            Progress::HandshakeDone => connection.announcement(self.id).into_iter().for_each(&mut *sink),
        }
        // The poller tells again of what was not read.
        Ok(self.deliver_frames(connection, sink)? || connection.has_something_left())
    }

    /// Returns whether there may be more of them.
    fn deliver_frames(
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

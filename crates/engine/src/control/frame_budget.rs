//! Reads the frames of one connection, up to a limit, so that all connections are served.

use super::connection::{Connection, Progress};
use super::event::{ConnectionId, ControlEvent};
use super::reason::CloseReason;

/// The number of frames that may still be read from a connection in this turn.
pub(super) struct FrameBudget {
    pub(super) id: ConnectionId,
    /// Frames left.
    pub(super) room: usize,
}

impl FrameBudget {
    /// Delivers frames to `sink`, and reads the socket at most once. Returns whether something is
    /// left that the poller does not report.
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
        // The poller reports unread bytes of the socket again.
        Ok(self.deliver_frames(connection, sink)? || connection.has_something_left())
    }

    /// Delivers decoded frames. Returns whether there may be more of them.
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

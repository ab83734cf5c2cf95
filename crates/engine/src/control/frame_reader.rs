//! Reads the frames of one connection, up to a limit, so that all connections are served.

use super::admission::Admission;
use super::connection::{Connection, Progress};
use super::event::{ConnectionId, ControlEvent};
use super::reason::CloseReason;

/// Reads frames from a connection.
pub(super) struct FrameReader<'a> {
    pub(super) id: ConnectionId,
    /// The number of frames that may still be read from the connection in this turn.
    pub(super) room: usize,
    pub(super) admission: &'a mut Admission,
}

impl FrameReader<'_> {
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
            Progress::HandshakeDone => sink(ControlEvent::Connected(self.id)),
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
            if connection.awaits_first_frame() {
                let (peer, admitted) = (connection.peer, self.admission.admit(connection.address()));
                admitted.map_err(|exceeded| CloseReason::OverBudget { peer, exceeded })?;
                connection.open();
                sink(ControlEvent::Accepted(self.id, peer));
            }
            self.room -= 1;
            sink(ControlEvent::Frame(self.id, frame));
        }
        Ok(true)
    }
}

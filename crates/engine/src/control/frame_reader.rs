//! Reads the frames of one connection, up to a limit, so that all connections are served.

use std::time::Instant;

use super::admission::Admission;
use super::connection::{Connection, Cost, Progress};
use super::event::{ConnectionId, ControlEvent};
use super::reason::CloseReason;

/// Reads frames from a connection.
pub(super) struct FrameReader<'a> {
    pub(super) id: ConnectionId,
    pub(super) now: Instant,
    /// The number of frames to deliver at most.
    pub(super) frames_max: usize,
    pub(super) admission: &'a mut Admission,
    /// The number of frames that were delivered.
    pub(super) frames: usize,
    /// The cost of the read.
    pub(super) cost: Cost,
}

impl<'a> FrameReader<'a> {
    pub(super) fn new(
        id: ConnectionId,
        now: Instant,
        frames_max: usize,
        admission: &'a mut Admission,
    ) -> Self {
        Self { id, now, frames_max, admission, frames: 0, cost: Cost::default() }
    }

    /// Delivers frames to `sink`, and reads the socket at most once, as far as the connection has
    /// tokens. Returns whether something is left that the poller does not report.
    pub(super) fn read(
        &mut self,
        connection: &mut Connection,
        scratch: &mut [u8],
        sink: &mut dyn FnMut(ControlEvent),
    ) -> Result<bool, CloseReason> {
        // Nothing can be read yet, and `recv` could take the error that `go_on_writing` reports.
        if connection.is_connecting() {
            return Ok(false);
        }
        self.frames_max = self.frames_max.min(connection.rates.frames(self.now));
        // The reads of a handshake are few: its time is limited, and its TLS records are.
        let is_billed = !connection.is_in_handshake();
        let has_more = self.read_within(connection, scratch, sink)?;
        let reads = if is_billed { self.cost.reads } else { 0 };
        connection.rates.take(self.frames, reads, self.cost.bytes, self.now);
        Ok(has_more)
    }

    fn read_within(
        &mut self,
        connection: &mut Connection,
        scratch: &mut [u8],
        sink: &mut dyn FnMut(ControlEvent),
    ) -> Result<bool, CloseReason> {
        let rates = &connection.rates;
        let room = if rates.reads(self.now) > 0 { scratch.len().min(rates.bytes(self.now)) } else { 0 };
        // Frames that are left come first: otherwise the decoder could grow with each read, without
        // a bound.
        if self.deliver_frames(connection, sink)? {
            return Ok(true);
        }
        // No token is left. `Rates::pause` says when to read again.
        if room == 0 && !connection.has_something_left() {
            return Ok(false);
        }
        let (progress, cost) = connection.read(&mut scratch[..room])?;
        self.cost = cost;
        match progress {
            Progress::Dry => return Ok(false),
            Progress::More => {}
            // Before the frames of the same read: until then the driver knows no peer for this
            // connection.
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
        while self.frames < self.frames_max {
            let Some(frame) = connection.next_frame()? else { return Ok(false) };
            // Only a whole frame that can be decoded uses a place of the budget of peers.
            if connection.awaits_first_frame() {
                let (peer, admitted) = (connection.peer, self.admission.admit(connection.address()));
                admitted.map_err(|exceeded| CloseReason::OverBudget { peer, exceeded })?;
                // After the admission: `Control::remove` gives a place back for each open
                // connection.
                connection.open();
                sink(ControlEvent::Accepted(self.id, peer));
            }
            self.frames += 1;
            sink(ControlEvent::Frame(self.id, frame));
        }
        Ok(true)
    }
}

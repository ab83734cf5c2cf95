//! One control connection: its output buffer, its decoder, and the state of its handshake.
//!
//! No call here blocks. Invariant: frames are decoded only after the peer's preamble was checked.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use farreach_proto::wire::{self, Decoder, Frame, PREAMBLE_LEN, WireError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::event::ConnectionId;
use super::exceeded::Exceeded;
use super::poller::{Interest, Poller};
use super::rates::Rates;
use super::reason::CloseReason;
use super::record_layer::RecordLayer;
use crate::Origin;

/// An empty buffer with a larger capacity is shrunk to this: most peers send little after the
/// beginning.
const IDLE_ROOM_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    record_layer: RecordLayer,
    phase: Phase,
    /// Whether the peer has initiated the connection, at a listener of this side.
    is_accepted: bool,
    outgoing: Vec<u8>,
    /// The number of bytes of `outgoing` that were written.
    written: usize,
    /// The unwritten bytes as they are [counted](Self::count) with those of other connections.
    counted: usize,
    /// The error of a failed write. Nothing more can be written. Data that the peer sent before can
    /// still be read.
    write_failed: Option<Errno>,
    decoder: Decoder,
    /// Bytes fed to the decoder since it was last empty.
    fed: usize,
    /// What the poller reports.
    interest: Interest,
    pub(super) rates: Rates,
    /// The connection is not read before, because it has used up its tokens.
    pub(super) paused_until: Option<Instant>,
    /// Whether the connection is in the list of connections to be written to.
    pub(super) is_unflushed: bool,
    /// Whether the connection is in the list of unread connections, which are served without the
    /// poller.
    pub(super) is_in_unread: bool,
}

#[derive(Debug)]
enum Phase {
    Connecting,
    /// The peer's preamble has not arrived completely.
    Preamble {
        bytes: [u8; PREAMBLE_LEN],
        len: usize,
    },
    /// The first frame of an accepted connection has not arrived completely.
    FirstFrame,
    Open,
}

/// The result of one read.
pub(super) enum Progress {
    /// There is nothing more to read.
    Dry,
    /// There may be more.
    More,
    /// The handshake is done, and this has to be reported. There may be more.
    HandshakeDone,
}

/// The work of one read, whether or not a frame came of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    /// Calls to the kernel that returned bytes, and TLS records in these bytes.
    pub(super) reads: usize,
    pub(super) bytes: usize,
}

impl Connection {
    /// Creates a connection that this side initiates.
    pub(super) fn connecting(
        stream: TcpStream,
        peer: SocketAddr,
        record_layer: RecordLayer,
        rates: Rates,
    ) -> Self {
        // `interest` is what the poller was given by `Control::connect`: `watch` tells it of
        // changes only.
        let connecting = Self::adopted(stream, peer, record_layer, rates);
        Self { phase: Phase::Connecting, interest: Interest::BOTH, ..connecting }
    }

    /// Creates a connection that the peer has initiated.
    pub(super) fn accepted(
        stream: TcpStream,
        peer: SocketAddr,
        record_layer: RecordLayer,
        rates: Rates,
    ) -> Self {
        Self { is_accepted: true, ..Self::adopted(stream, peer, record_layer, rates) }
    }

    /// Creates a connection from an established stream of the caller.
    pub(super) fn adopted(
        stream: TcpStream,
        peer: SocketAddr,
        mut record_layer: RecordLayer,
        rates: Rates,
    ) -> Self {
        // The preamble is sent before the peer's is read, so that each side can report which
        // one is too old.
        let mut outgoing = Vec::new();
        record_layer.write_preamble(&mut outgoing);
        Self {
            stream,
            peer,
            record_layer,
            phase: PREAMBLE,
            is_accepted: false,
            outgoing,
            written: 0,
            counted: 0,
            write_failed: None,
            decoder: Decoder::new(),
            fed: 0,
            interest: Interest::READING,
            rates,
            paused_until: None,
            is_unflushed: false,
            is_in_unread: false,
        }
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting)
    }

    /// Returns whether the connection was not reported yet.
    pub(super) fn is_in_handshake(&self) -> bool {
        !matches!(self.phase, Phase::Open)
    }

    /// Returns whether only the first frame of an accepted connection is missing.
    pub(super) fn awaits_first_frame(&self) -> bool {
        matches!(self.phase, Phase::FirstFrame)
    }

    /// Ends the handshake of an accepted connection.
    pub(super) fn open(&mut self) {
        self.phase = Phase::Open;
    }

    /// Returns the address of the peer, as the budgets count it.
    pub(super) fn address(&self) -> Origin {
        self.peer.ip().into()
    }

    /// Returns whether the connection is an accepted one that has become a peer.
    pub(super) fn is_admitted(&self) -> bool {
        self.is_accepted && !self.is_in_handshake()
    }

    /// Returns the reason for closing a connection whose handshake timed out.
    pub(super) fn handshake_timed_out(&self, after: Duration) -> CloseReason {
        // In the first case no handshake has begun, and the fix is about the network.
        match self.is_connecting() {
            true => CloseReason::Unreachable { peer: self.peer, errno: Errno::TIMEDOUT },
            false => CloseReason::HandshakeTimedOut { peer: self.peer, after },
        }
    }

    /// Continues writing after the poller has reported writability or an error.
    pub(super) fn go_on_writing(&mut self) -> Result<(), CloseReason> {
        if self.is_connecting() {
            // A refused connect makes the socket writable, too. Only `SO_ERROR` tells the
            // difference.
            let unreachable = |errno| CloseReason::Unreachable { peer: self.peer, errno };
            rustix::net::sockopt::socket_error(&self.stream).and_then(|error| error).map_err(unreachable)?;
            self.phase = PREAMBLE;
        }
        self.flush();
        Ok(())
    }

    /// Appends a frame to the output buffer. Does nothing after a failed write.
    pub(super) fn push(&mut self, frame: &Frame) -> Result<(), WireError> {
        if self.write_failed.is_some() {
            // No error of this frame: the read that finds the end reports it.
            return Ok(());
        }
        self.record_layer.write(frame, &mut self.outgoing)
    }

    /// Appends a refusal to the output buffer. Over TLS it is sent only after the handshake.
    pub(super) fn refuse(&mut self, exceeded: &Exceeded) {
        // A frame with a short text is never too long.
        let _ = self.push(&Frame::Refused { reason: exceeded.to_string() });
    }

    /// Writes as much as the socket takes now.
    pub(super) fn flush(&mut self) {
        // Not during a connect: `send` would take the error from the socket, and `go_on_writing`
        // would find none.
        while !self.is_connecting() && self.unwritten() > 0 {
            // `NOSIGNAL`: a peer that has gone must not end this process by SIGPIPE.
            match rustix::net::send(&self.stream, &self.outgoing[self.written..], SendFlags::NOSIGNAL) {
                Ok(written) => self.written += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    // The rest can never be written. Without it, nothing counts for the budget of
                    // queued bytes.
                    self.write_failed = Some(errno);
                    self.written = self.outgoing.len();
                }
            }
        }
        if self.unwritten() == 0 {
            self.outgoing.clear();
            self.outgoing.shrink_to(IDLE_ROOM_MAX);
        } else if self.written > self.outgoing.len() / 2 {
            // Only then, so that moving the rest costs a constant amount for each byte.
            self.outgoing.drain(..self.written);
        } else {
            return;
        }
        self.written = 0;
    }

    /// Changes what the poller reports.
    pub(super) fn watch(&mut self, id: ConnectionId, interest: Interest, poller: &Poller) {
        if interest != std::mem::replace(&mut self.interest, interest) {
            // It fails only for a descriptor that is not registered.
            let _ = poller.change(id.token(), &self.stream, interest);
        }
    }

    /// Returns whether a TLS handshake is in progress, in which a read costs much.
    pub(super) fn is_in_tls_handshake(&self) -> bool {
        self.is_in_handshake() && !self.record_layer.is_plain()
    }

    /// Returns the DNS names of the peer's certificate; none without TLS.
    pub(super) fn certificate_names(&self) -> Vec<String> {
        self.record_layer.certificate_names()
    }

    /// Returns the bytes that the connection holds, including its buffers.
    pub(super) fn memory(&self) -> usize {
        // The decoder does not tell its capacity. It holds no more than it was fed since it was
        // empty.
        size_of::<Self>() + self.outgoing.capacity() + self.fed + self.record_layer.memory()
    }

    pub(super) fn unwritten(&self) -> usize {
        self.outgoing.len() - self.written
    }

    /// Updates a sum of unwritten bytes, to which this connection contributes.
    pub(super) fn count(&mut self, sum: &mut usize) {
        let unwritten = self.unwritten();
        // Added first: the difference alone may be negative.
        *sum = *sum + unwritten - self.counted;
        self.counted = unwritten;
    }

    /// Removes the contribution to a sum of unwritten bytes.
    pub(super) fn discount(&mut self, sum: &mut usize) {
        *sum -= std::mem::take(&mut self.counted);
    }

    pub(super) fn has_failed_writing(&self) -> bool {
        self.write_failed.is_some()
    }

    /// Shuts the write direction of the socket down.
    pub(super) fn end_writing(&mut self) {
        // It fails if the peer has ended the connection; then there is nothing to shut down.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Write);
    }

    /// Appends `close_notify`, if this is a TLS session.
    pub(super) fn write_close(&mut self) {
        if self.write_failed.is_none() {
            self.record_layer.write_close(&mut self.outgoing);
        }
    }

    /// Returns whether data, or the end of the session, can be taken without reading the socket.
    pub(super) fn has_something_left(&self) -> bool {
        self.record_layer.has_something_left()
    }

    /// Reads once, as much as fits into `scratch`, and checks the preamble if it is not complete
    /// yet. Must be called only when no frame is left to take.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> Result<(Progress, Cost), CloseReason> {
        if self.record_layer.has_something_left() {
            // Before the socket: a caller without tokens passes an empty `scratch`, for which
            // `recv` would return 0, as at the end of the connection.
            let mut cost = Cost::default();
            return Ok((self.read_records(&[], &mut cost)?, cost));
        }
        let room = scratch.len().min(self.record_layer.receive_max());
        let bytes = match rustix::net::recv(&self.stream, &mut scratch[..room], RecvFlags::empty()) {
            Ok((0, _)) => return Err(self.ended()),
            Ok((len, _)) => &scratch[..len],
            Err(Errno::INTR) => return Ok((Progress::More, Cost::default())),
            Err(Errno::AGAIN) => {
                // All data that the peer sent before the failure was read.
                return match self.write_failed {
                    Some(errno) => Err(self.broken(errno)),
                    None => Ok((Progress::Dry, Cost::default())),
                };
            }
            Err(errno) => return Err(self.broken(errno)),
        };
        let mut cost = Cost { reads: 1, bytes: bytes.len() };
        Ok((self.read_records(bytes, &mut cost)?, cost))
    }

    /// Passes bytes of the socket through the record layer.
    #[inline]
    fn read_records(&mut self, bytes: &[u8], _cost: &mut Cost) -> Result<Progress, CloseReason> {
        match &mut self.record_layer {
            RecordLayer::Plain => self.take(bytes),
            #[cfg(feature = "tls")]
            RecordLayer::Tls(session) => {
                _cost.reads += session.read_records(bytes);
                // Also after an error of the session: its alert tells the peer why.
                session.drain(&mut self.outgoing);
                self.flush();
                self.take_decrypted()
            }
        }
    }

    #[cfg(feature = "tls")]
    fn take_decrypted(&mut self) -> Result<Progress, CloseReason> {
        let RecordLayer::Tls(session) = &mut self.record_layer else { return Ok(Progress::Dry) };
        let mut plaintext = session.take_plaintext();
        if plaintext.is_empty() {
            // Records of the handshake and key updates have no plaintext.
            if !session.has_ended() {
                return Ok(Progress::More);
            }
            // Only now that all decrypted bytes are delivered: the frames before the end count.
            return Err(session.failure(self.peer).unwrap_or_else(|| self.ended()));
        }
        let progress = self.take(&plaintext);
        plaintext.clear();
        plaintext.shrink_to(IDLE_ROOM_MAX);
        if let RecordLayer::Tls(session) = &mut self.record_layer {
            session.give_room(plaintext);
        }
        progress
    }

    /// Takes plaintext from the peer: first the preamble, then frames.
    fn take(&mut self, mut bytes: &[u8]) -> Result<Progress, CloseReason> {
        let mut progress = Progress::More;
        if let Phase::Preamble { bytes: preamble, len } = &mut self.phase {
            // The preamble may come in parts, even of a byte each.
            let take = bytes.len().min(PREAMBLE_LEN - *len);
            let (taken, rest) = bytes.split_at(take);
            preamble[*len..*len + take].copy_from_slice(taken);
            *len += take;
            match is_preamble_whole(preamble, *len) {
                Ok(true) => {}
                Ok(false) => return Ok(Progress::More),
                // The first record of a TLS session is where the preamble should be. The fix is
                // another one than for a program that is no engine.
                Err(_) if self.record_layer.is_plain() && TLS_RECORDS.contains(&preamble[0]) => {
                    return Err(CloseReason::TlsNotHere { peer: self.peer });
                }
                Err(error) => return Err(self.not_understood(error)),
            }
            bytes = rest;
            if self.is_accepted {
                // Any stranger can send the preamble, which is a constant. An accepted connection
                // becomes a peer with its first frame, so that strangers cost the machine nothing.
                self.phase = Phase::FirstFrame;
            } else {
                self.phase = Phase::Open;
                progress = Progress::HandshakeDone;
            }
        }
        self.decoder.feed(bytes);
        self.fed += bytes.len();
        Ok(progress)
    }

    /// Returns the next frame of the data that was read.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, CloseReason> {
        let frame = self.decoder.next().map_err(|error| self.not_understood(error))?;
        if self.decoder.is_empty() {
            // The buffer of a decoder does not shrink. A new decoder has none.
            if self.fed > IDLE_ROOM_MAX {
                self.decoder = Decoder::new();
            }
            self.fed = 0;
        }
        Ok(frame)
    }

    /// Reads and discards data. Returns the number of bytes; `None` at the end.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> Option<usize> {
        match rustix::net::recv(&self.stream, &mut *scratch, RecvFlags::empty()) {
            // 0 is the end of the connection.
            Ok((len, _)) => Some(len).filter(|len| *len > 0),
            Err(Errno::INTR | Errno::AGAIN) => Some(0),
            Err(_) => None,
        }
    }

    /// Returns whether the peer has sent an incomplete preamble or frame.
    fn is_torn(&self) -> bool {
        match self.phase {
            Phase::Connecting => false,
            Phase::Preamble { len, .. } => len > 0,
            Phase::FirstFrame | Phase::Open => !self.decoder.is_empty(),
        }
    }

    fn ended(&self) -> CloseReason {
        match self.write_failed {
            Some(errno) => self.broken(errno),
            None => CloseReason::Ended { peer: self.peer, is_torn: self.is_torn() },
        }
    }

    fn broken(&self, errno: Errno) -> CloseReason {
        CloseReason::Closed { peer: self.peer, errno }
    }

    fn not_understood(&self, error: WireError) -> CloseReason {
        CloseReason::NotUnderstood { peer: self.peer, error }
    }
}

/// TLS record types that a peer may begin with: alert and handshake.
const TLS_RECORDS: [u8; 2] = [21, 22];

const PREAMBLE: Phase = Phase::Preamble { bytes: [0; PREAMBLE_LEN], len: 0 };

/// Returns whether the preamble is complete. A wrong first byte is enough to refuse a stranger, so
/// that a stranger that sends little is not waited for.
fn is_preamble_whole(bytes: &[u8; PREAMBLE_LEN], len: usize) -> Result<bool, WireError> {
    // The version is left out: who has another one is an engine, and is told which side to upgrade.
    let known = len.min(PREAMBLE_LEN - size_of_val(&wire::VERSION));
    if bytes[..known] != wire::preamble()[..known] {
        return Err(WireError::Stranger);
    }
    if len < PREAMBLE_LEN {
        return Ok(false);
    }
    wire::check_preamble(bytes).map(|()| true)
}

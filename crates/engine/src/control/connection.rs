//! One connection: what is to be written, what has come, and how far the two preambles are.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use farreach_proto::wire::{self, Decoder, Frame, PREAMBLE_LEN, WireError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::ControlEvent;
use super::event::ConnectionId;
use super::reason::CloseReason;
use super::record_layer::RecordLayer;

/// An empty buffer with more room than this gives it back: most peers say little after the first moment.
const IDLE_ROOM_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    record_layer: RecordLayer,
    phase: Phase,
    announced: Announced,
    outgoing: Vec<u8>,
    /// How much of that was written.
    written: usize,
    /// Writing failed: nothing more can be said, and what the other side said before may still be read.
    write_failed: Option<Errno>,
    decoder: Decoder,
    /// How much it was fed since it was last empty.
    fed: usize,
    /// What the poller was asked for.
    pub(super) is_watched_for_writing: bool,
    /// Whether its turn comes without the poller.
    pub(super) is_in_unread: bool,
}

#[derive(Debug)]
enum Phase {
    Connecting,
    /// The other side's preamble is not here whole.
    Handshake {
        bytes: [u8; PREAMBLE_LEN],
        len: usize,
    },
    Open,
}

/// What is reported when the handshake is done.
#[derive(Debug, Clone, Copy)]
enum Announced {
    /// Nothing: it was told when it came.
    Already,
    AsAccepted,
    AsConnected,
}

/// What was found by reading.
pub(super) enum Progress {
    /// Nothing more is there.
    Dry,
    /// There may be more.
    More,
    /// The other side is one of us, which is to be told. There may be more.
    HandshakeDone,
}

impl Connection {
    /// One that this side begins.
    pub(super) fn connecting(stream: TcpStream, peer: SocketAddr, record_layer: RecordLayer) -> Self {
        let connecting = Self::new(stream, peer, record_layer, Phase::Connecting, Announced::AsConnected);
        Self { is_watched_for_writing: true, ..connecting }
    }

    /// One that the other side has begun.
    pub(super) fn accepted(stream: TcpStream, peer: SocketAddr, record_layer: RecordLayer) -> Self {
        // Who has to show who it is, is nobody before.
        let announced = if record_layer.is_plain() { Announced::Already } else { Announced::AsAccepted };
        Self::new(stream, peer, record_layer, HANDSHAKE, announced)
    }

    /// One that stands already, made by whoever uses this.
    pub(super) fn adopted(stream: TcpStream, peer: SocketAddr, record_layer: RecordLayer) -> Self {
        Self::new(stream, peer, record_layer, HANDSHAKE, Announced::AsConnected)
    }

    fn new(
        stream: TcpStream,
        peer: SocketAddr,
        mut record_layer: RecordLayer,
        phase: Phase,
        announced: Announced,
    ) -> Self {
        // The preamble goes first whoever the other one is, so that it can say who is too old.
        let mut outgoing = Vec::new();
        record_layer.write_preamble(&mut outgoing);
        Self {
            stream,
            peer,
            record_layer,
            phase,
            announced,
            outgoing,
            written: 0,
            write_failed: None,
            decoder: Decoder::new(),
            fed: 0,
            is_watched_for_writing: false,
            is_in_unread: false,
        }
    }

    /// Returns what is reported now that the handshake is done, if anything.
    pub(super) fn announcement(&self, id: ConnectionId) -> Option<ControlEvent> {
        match self.announced {
            Announced::Already => None,
            Announced::AsAccepted => Some(ControlEvent::Accepted(id, self.peer)),
            Announced::AsConnected => Some(ControlEvent::Connected(id)),
        }
    }

    /// Whether its user knows of it from the beginning.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self.announced, Announced::Already)
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting)
    }

    /// Whether the other side has not shown that it is one of us.
    pub(super) fn is_in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake { .. })
    }

    /// Why it is given up when the other side has taken too long.
    pub(super) fn handshake_timed_out(&self, after: Duration) -> CloseReason {
        match self.is_connecting() {
            true => CloseReason::Unreachable { peer: self.peer, errno: Errno::TIMEDOUT },
            false => CloseReason::HandshakeTimedOut { peer: self.peer, after },
        }
    }

    /// Writing is possible, or something is wrong.
    pub(super) fn go_on_writing(&mut self) -> Result<(), CloseReason> {
        if self.is_connecting() {
            let unreachable = |errno| CloseReason::Unreachable { peer: self.peer, errno };
            rustix::net::sockopt::socket_error(&self.stream).and_then(|error| error).map_err(unreachable)?;
            self.phase = HANDSHAKE;
        }
        self.flush();
        Ok(())
    }

    /// Appends a frame to what is to be written.
    pub(super) fn push(&mut self, frame: &Frame) -> Result<(), WireError> {
        if self.write_failed.is_some() {
            return Ok(());
        }
        self.record_layer.write(frame, &mut self.outgoing)
    }

    /// Writes what can be written now.
    pub(super) fn flush(&mut self) {
        while !self.is_connecting() && self.unwritten() > 0 {
            match rustix::net::send(&self.stream, &self.outgoing[self.written..], SendFlags::NOSIGNAL) {
                Ok(written) => self.written += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    self.write_failed = Some(errno);
                    self.written = self.outgoing.len();
                }
            }
        }
        if self.unwritten() == 0 {
            self.outgoing.clear();
            self.outgoing.shrink_to(IDLE_ROOM_MAX);
        } else if self.written > self.outgoing.len() / 2 {
            self.outgoing.drain(..self.written);
        } else {
            return;
        }
        self.written = 0;
    }

    /// Bytes that it holds, with what is to be written and what has come.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.outgoing.capacity() + self.fed + self.record_layer.memory()
    }

    pub(super) fn unwritten(&self) -> usize {
        self.outgoing.len() - self.written
    }

    pub(super) fn has_failed_writing(&self) -> bool {
        self.write_failed.is_some()
    }

    /// Says that nothing follows.
    pub(super) fn end_writing(&mut self) {
        // It fails where the other side has ended the connection, which is then all the same.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Write);
    }

    /// Appends that nothing follows, where that is said in so many words.
    pub(super) fn write_close(&mut self) {
        if self.write_failed.is_none() {
            self.record_layer.write_close(&mut self.outgoing);
        }
    }

    /// Whether there is something to be read without the socket, or an end to be told.
    pub(super) fn has_something_left(&self) -> bool {
        self.record_layer.has_something_left()
    }

    /// Reads once, and takes the preamble off. To be called when there is no frame left to take.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> Result<Progress, CloseReason> {
        if self.record_layer.has_something_left() {
            return self.read_record(&[]);
        }
        let bytes = match rustix::net::recv(&self.stream, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Err(self.ended()),
            Ok((len, _)) => &scratch[..len],
            Err(Errno::INTR) => return Ok(Progress::More),
            Err(Errno::AGAIN) => {
                return self.write_failed.map_or(Ok(Progress::Dry), |errno| Err(self.broken(errno)));
            }
            Err(errno) => return Err(self.broken(errno)),
        };
        self.read_record(bytes)
    }

    /// What came over the socket.
    #[inline]
    fn read_record(&mut self, bytes: &[u8]) -> Result<Progress, CloseReason> {
        match &mut self.record_layer {
            RecordLayer::Plain => self.take(bytes),
            #[cfg(feature = "tls")]
            RecordLayer::Tls(session) => {
                session.read_record(bytes);
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
            let Some(end) = session.end() else { return Ok(Progress::More) };
            return Err(CloseReason::of_session(end, self.peer).unwrap_or_else(|| self.ended()));
        }
        let progress = self.take(&plaintext);
        plaintext.clear();
        plaintext.shrink_to(IDLE_ROOM_MAX);
        if let RecordLayer::Tls(session) = &mut self.record_layer {
            session.give_room(plaintext);
        }
        progress
    }

    /// Takes what the other side says.
    fn take(&mut self, mut bytes: &[u8]) -> Result<Progress, CloseReason> {
        let mut progress = Progress::More;
        if let Phase::Handshake { bytes: preamble, len } = &mut self.phase {
            let take = bytes.len().min(PREAMBLE_LEN - *len);
            let (taken, rest) = bytes.split_at(take);
            preamble[*len..*len + take].copy_from_slice(taken);
            *len += take;
            match is_preamble_whole(preamble, *len) {
                Ok(true) => {}
                Ok(false) => return Ok(Progress::More),
                Err(_) if self.record_layer.is_plain() && TLS_RECORDS.contains(&preamble[0]) => {
                    return Err(CloseReason::TlsNotHere { peer: self.peer });
                }
                Err(error) => return Err(self.not_understood(error)),
            }
            bytes = rest;
            self.phase = Phase::Open;
            progress = Progress::HandshakeDone;
        }
        self.decoder.feed(bytes);
        self.fed += bytes.len();
        Ok(progress)
    }

    /// The next frame of what was read.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, CloseReason> {
        let frame = self.decoder.next().map_err(|error| self.not_understood(error))?;
        if self.decoder.is_empty() {
            if self.fed > IDLE_ROOM_MAX {
                self.decoder = Decoder::new();
            }
            self.fed = 0;
        }
        Ok(frame)
    }

    /// Reads what nobody wants any more. Whether there may be more.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> bool {
        match rustix::net::recv(&self.stream, &mut *scratch, RecvFlags::empty()) {
            Ok((len, _)) => len > 0,
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    /// Whether the other side has begun something that is not here whole.
    fn is_torn(&self) -> bool {
        match self.phase {
            Phase::Connecting => false,
            Phase::Handshake { len, .. } => len > 0,
            Phase::Open => !self.decoder.is_empty(),
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

/// What TLS begins with: an alert, or a handshake.
const TLS_RECORDS: [u8; 2] = [21, 22];

const HANDSHAKE: Phase = Phase::Handshake { bytes: [0; PREAMBLE_LEN], len: 0 };

/// Whether the preamble is here whole. A stranger is told by its first byte, so that one who says little is not waited for.
fn is_preamble_whole(bytes: &[u8; PREAMBLE_LEN], len: usize) -> Result<bool, WireError> {
    let known = len.min(PREAMBLE_LEN - size_of_val(&wire::VERSION));
    if bytes[..known] != wire::preamble()[..known] {
        return Err(WireError::Stranger);
    }
    if len < PREAMBLE_LEN {
        return Ok(false);
    }
    wire::check_preamble(bytes).map(|()| true)
}

//! One connection: what is to be written, what has come, and how far the two preambles are.

use std::net::{SocketAddr, TcpStream};

use farreach_core::wire::{self, Decoder, Frame, PREAMBLE_LEN, WireError};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use super::reason::CloseReason;

/// An empty buffer with more room than this gives it back: most peers say little after the first moment.
const IDLE_ROOM_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    phase: Phase,
    /// Whether its user hears of it when the other side has greeted, and not before.
    is_told_when_greeted: bool,
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
    pub(super) is_in_backlog: bool,
}

#[derive(Debug)]
enum Phase {
    Connecting,
    /// The other side's preamble is not here whole.
    Greeting {
        bytes: [u8; PREAMBLE_LEN],
        len: usize,
    },
    Open,
}

/// What was found by reading.
pub(super) enum Progress {
    /// Nothing more is there.
    Dry,
    /// There may be more.
    More,
    /// The other side is one of us, and that is waited for. There may be more.
    Greeted,
}

impl Connection {
    /// One that this side begins.
    pub(super) fn dialed(stream: TcpStream, peer: SocketAddr) -> Self {
        Self { is_watched_for_writing: true, ..Self::new(stream, peer, Phase::Connecting, true) }
    }

    /// One that the other side has begun.
    pub(super) fn accepted(stream: TcpStream, peer: SocketAddr) -> Self {
        Self::new(stream, peer, GREETING, false)
    }

    /// One that stands already, made by whoever uses this.
    pub(super) fn adopted(stream: TcpStream, peer: SocketAddr) -> Self {
        Self::new(stream, peer, GREETING, true)
    }

    fn new(stream: TcpStream, peer: SocketAddr, phase: Phase, is_told_when_greeted: bool) -> Self {
        Self {
            stream,
            peer,
            phase,
            is_told_when_greeted,
            // The preamble goes first whoever the other one is, so that it can say who is too old.
            outgoing: wire::preamble().to_vec(),
            written: 0,
            write_failed: None,
            decoder: Decoder::new(),
            fed: 0,
            is_watched_for_writing: false,
            is_in_backlog: false,
        }
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting)
    }

    /// Whether the other side has not shown that it is one of us.
    pub(super) fn is_greeting(&self) -> bool {
        matches!(self.phase, Phase::Greeting { .. })
    }

    /// Writing is possible, or something is wrong.
    pub(super) fn go_on_writing(&mut self) -> Result<(), CloseReason> {
        if self.is_connecting() {
            let unreachable = |errno| CloseReason::Unreachable { peer: self.peer, errno };
            rustix::net::sockopt::socket_error(&self.stream).and_then(|error| error).map_err(unreachable)?;
            self.phase = GREETING;
        }
        self.flush();
        Ok(())
    }

    /// Appends a frame to what is to be written.
    pub(super) fn push(&mut self, frame: &Frame) -> Result<(), WireError> {
        if self.write_failed.is_some() {
            return Ok(());
        }
        wire::encode(frame, &mut self.outgoing)
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
        size_of::<Self>() + self.outgoing.capacity() + self.fed
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

    /// Reads once, and takes the preamble off. To be called when there is no frame left to take.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> Result<Progress, CloseReason> {
        let mut bytes = match rustix::net::recv(&self.stream, &mut *scratch, RecvFlags::empty()) {
            Ok((0, _)) => return Err(self.ended()),
            Ok((len, _)) => &scratch[..len],
            Err(Errno::INTR) => return Ok(Progress::More),
            Err(Errno::AGAIN) => {
                return self.write_failed.map_or(Ok(Progress::Dry), |errno| Err(self.broken(errno)));
            }
            Err(errno) => return Err(self.broken(errno)),
        };
        let mut progress = Progress::More;
        if let Phase::Greeting { bytes: preamble, len } = &mut self.phase {
            let take = bytes.len().min(PREAMBLE_LEN - *len);
            let (taken, rest) = bytes.split_at(take);
            preamble[*len..*len + take].copy_from_slice(taken);
            *len += take;
            if !is_greeted(preamble, *len).map_err(|error| self.not_understood(error))? {
                return Ok(Progress::More);
            }
            bytes = rest;
            self.phase = Phase::Open;
            if self.is_told_when_greeted {
                progress = Progress::Greeted;
            }
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
            Phase::Greeting { len, .. } => len > 0,
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
        CloseReason::Broken { peer: self.peer, errno }
    }

    fn not_understood(&self, error: WireError) -> CloseReason {
        CloseReason::NotUnderstood { peer: self.peer, error }
    }
}

const GREETING: Phase = Phase::Greeting { bytes: [0; PREAMBLE_LEN], len: 0 };

/// Whether the preamble is here whole. A stranger is told by its first byte, so that one who says little is not waited for.
fn is_greeted(bytes: &[u8; PREAMBLE_LEN], len: usize) -> Result<bool, WireError> {
    let known = len.min(PREAMBLE_LEN - size_of_val(&wire::VERSION));
    if bytes[..known] != wire::preamble()[..known] {
        return Err(WireError::Stranger);
    }
    if len < PREAMBLE_LEN {
        return Ok(false);
    }
    wire::check_preamble(bytes).map(|()| true)
}

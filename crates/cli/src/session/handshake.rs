//! The handshake of the command, on the connection itself, before an engine takes it over.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use farreach::rustls::CertificateError;
use farreach::{ControlStream, Tls, TlsSession, rustls};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Order, SECRET_FILE, Security, Welcome};
use crate::exit::{Exit, Failure};
use crate::interrupt::{self, GLANCE};

/// The version of the protocol between client and agent. Every change of the protocol raises it.
pub(crate) const PROTOCOL: u16 = 3;

/// The first bytes of both sides. The version follows, in big-endian order. This never changes.
const MAGIC: [u8; 6] = *b"frcmd\n";

const HEAD_LEN: usize = MAGIC.len() + 2;

/// The first bytes of the library's engine, which may connect to the command, or be connected to by
/// it, by mistake.
const ENGINE_MAGIC: [u8; 6] = *b"farrch";

/// The first byte of a TLS client.
const TLS_HANDSHAKE: u8 = 0x16;

/// The size limit of a message of the handshake.
const WORD_MAX: usize = 64 * 1024;

/// How long the other side may take for its first message, for which it has to start a process.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// How long the other side may take for its next message. It opens its rails meanwhile, which takes
/// a second and more on a host with many cards.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a side that was refused may take to read why.
const LINGER: Duration = Duration::from_secs(1);

/// A connection during the handshake.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Patient,
    /// The TLS session, if there is one.
    session: Option<Secured>,
}

/// A TLS session, and what its errors say.
#[derive(Debug)]
struct Secured {
    session: Box<TlsSession>,
    other: Other,
}

impl Line {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GLANCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: Patient { stream, patience: FIRST_PATIENCE }, session: None })
    }

    /// Switches to TLS as the client. The TLS handshake is complete when this returns, but the
    /// server may still refuse this side: the next read reports that.
    pub(crate) fn secure_as_client(
        &mut self,
        tls: &Tls,
        host: &str,
        security: &Security,
    ) -> Result<(), Failure> {
        let session = tls.connecting(host).map_err(|error| Failure::of(&error.into()))?;
        self.shake_hands(session, Other::Server, security)
    }

    /// Switches to TLS as the server. A client without TLS gets an error in plaintext.
    pub(crate) fn secure_as_server(&mut self, tls: &Tls, security: &Security) -> Result<(), Failure> {
        let mut first = [0];
        let len = self.stream.peek(&mut first).map_err(|error| ended(&error))?;
        if len == 1 && first[0] != TLS_HANDSHAKE {
            let means = match security {
                Security::Certificates(_) => "a certificate of the server's CA",
                _ => "the server's secret",
            };
            let refusal = Failure::new(Exit::PeerLost, "it accepts TLS only")
                .cause("the client connected without TLS")
                .fix(format!(
                    "start the client with {means}:\nfarreach COMMAND PEER {}",
                    security.shown_flags()
                ));
            tell_refusal(self, &refusal)?;
            return Err(refusal);
        }
        let session = tls.accepting().map_err(|error| Failure::of(&error.into()))?;
        self.shake_hands(session, Other::Client, security)
    }

    fn shake_hands(
        &mut self,
        session: impl Into<TlsSession>,
        other: Other,
        security: &Security,
    ) -> Result<(), Failure> {
        let mut session = Box::new(session.into());
        while session.is_handshaking() {
            if let Err(error) = session.complete_io(&mut self.stream) {
                // The other side learns why from the alert, which may be one of several records.
                while session.wants_write() && matches!(session.write_tls(&mut self.stream), Ok(1..)) {}
                return Err(match tls_error(&error) {
                    // The server's first bytes are no TLS record. The client's first byte was checked.
                    Some(rustls::Error::InvalidMessage(_)) if other == Other::Server => without_tls(security),
                    Some(reason) => refused(&session, reason, other),
                    None => ended(&error),
                });
            }
        }
        self.session = Some(Secured { session, other });
        Ok(())
    }

    /// Waits a short time for the other side to close the connection, because closing it with unread
    /// data would discard what was sent: the reason of a refusal.
    pub(crate) fn linger(&mut self) {
        // It fails if the other side has closed the connection already.
        let _ = self.stream.stream.shutdown(Shutdown::Write);
        let deadline = Instant::now() + LINGER;
        let mut scratch = [0; 4096];
        while Instant::now() < deadline && !interrupt::is_asked() {
            match self.stream.stream.read(&mut scratch) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
    }

    /// Returns whether the connection is encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream.stream
    }

    /// Ends the handshake and hands the connection to an engine.
    pub(crate) fn into_control(self) -> ControlStream {
        match self.session {
            Some(secured) => ControlStream::tls(self.stream.stream, *secured.session),
            None => self.stream.stream.into(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.session {
            Some(secured) => secured.write(&mut self.stream, bytes).map_err(|error| secured.failure(&error)),
            None => self.stream.write_all(bytes).map_err(|error| ended(&error)),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), Failure> {
        match &mut self.session {
            Some(secured) => secured.read(&mut self.stream, into).map_err(|error| secured.failure(&error)),
            None => self.stream.read_exact(into).map_err(|error| ended(&error)),
        }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, word: &impl Serialize) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(word).map_err(|error| garbled(error.to_string()))?;
        let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
        framed.extend(bytes);
        self.write(&framed)
    }

    /// Receives a message.
    pub(crate) fn recv<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        self.recv_up_to(WORD_MAX)
    }

    /// Receives a long message, with a timeout of its own.
    pub(crate) fn recv_long<T: DeserializeOwned>(
        &mut self,
        bytes_max: usize,
        patience: Duration,
    ) -> Result<T, Failure> {
        let before = std::mem::replace(&mut self.stream.patience, patience);
        let heard = self.recv_up_to(bytes_max);
        self.stream.patience = before;
        heard
    }

    fn recv_up_to<T: DeserializeOwned>(&mut self, bytes_max: usize) -> Result<T, Failure> {
        let mut len = [0; 4];
        self.read(&mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > bytes_max {
            return Err(garbled(format!(
                "it announces a message of {len} bytes; the limit is {bytes_max} bytes"
            )));
        }
        let mut bytes = vec![0; len];
        self.read(&mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|error| garbled(error.to_string()))
    }

    /// Sends this side's version.
    pub(crate) fn say_head(&mut self) -> Result<(), Failure> {
        let head = [&MAGIC[..], &PROTOCOL.to_be_bytes()].concat();
        self.write(&head)
    }

    /// Receives and checks the other side's version. `other` selects the words of the error.
    pub(crate) fn recv_head(&mut self, other: Other) -> Result<(), Failure> {
        let mut head = [0; HEAD_LEN];
        self.read(&mut head)?;
        self.stream.patience = PATIENCE;
        check_head(&head, other)
    }
}

/// A connection with a read timeout. A read also fails when this process is interrupted.
#[derive(Debug)]
struct Patient {
    /// Its own read timeout is `GLANCE`.
    stream: TcpStream,
    patience: Duration,
}

impl Patient {
    fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.wait_for(|stream| stream.peek(into))
    }

    fn wait_for(&self, mut read: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let deadline = Instant::now() + self.patience;
        loop {
            match read(&self.stream) {
                Err(error) if is_timeout(&error) => {
                    if interrupt::is_asked() {
                        return Err(io::Error::other(ToldToEnd));
                    }
                    if Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                other => return other,
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait_for(|mut stream| stream.read(into))
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The error of a read when this process is interrupted.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct ToldToEnd;

impl Secured {
    fn write(&mut self, stream: &mut Patient, bytes: &[u8]) -> io::Result<()> {
        self.session.writer().write_all(bytes)?;
        while self.session.wants_write() {
            if let Err(error) = self.session.write_tls(stream) {
                // A side that has closed the connection may have sent an alert before, which is
                // closer to the cause.
                if !is_timeout(&error) && self.session.read_tls(stream).is_ok() {
                    self.session.process_new_packets().map_err(io::Error::other)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn read(&mut self, stream: &mut Patient, into: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            match self.session.reader().read(&mut into[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.session.read_tls(stream)? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.session.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the failure of a read or write. In TLS 1.3 the server checks the client when the
    /// client's handshake is complete, so this may be where the client learns that it is refused.
    fn failure(&self, error: &io::Error) -> Failure {
        match tls_error(error) {
            Some(reason) => refused(&self.session, reason, self.other),
            None => ended(error),
        }
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The kind of the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    Server,
    Client,
}

fn check_head(head: &[u8; HEAD_LEN], other: Other) -> Result<(), Failure> {
    let (magic, version) = head.split_at(MAGIC.len());
    let (it, fix) = match other {
        Other::Server => ("the program on this port", "give the port that `farreach serve` printed"),
        Other::Client => ("the program that connected", "none: it is not a farreach client"),
    };
    if magic[0] == TLS_HANDSHAKE {
        let error = format!("{it} uses TLS, and this side does not");
        return Err(Failure::new(Exit::PeerLost, error)
            .fix(format!("start this side with TLS, too: --secret-file {SECRET_FILE} or --tls FOLDER")));
    }
    if magic == ENGINE_MAGIC {
        let error = format!("{it} uses the farreach library, not the command");
        return Err(Failure::new(Exit::PeerLost, error).fix(fix));
    }
    if magic != MAGIC {
        let error = format!("{it} does not use the farreach protocol");
        return Err(Failure::new(Exit::PeerLost, error).fix(fix));
    }
    let theirs = version.iter().fold(0_u16, |version, byte| version << 8 | u16::from(*byte));
    if theirs == PROTOCOL {
        return Ok(());
    }
    let (other, this) = match other {
        Other::Server => ("server", "client"),
        Other::Client => ("client", "server"),
    };
    let older = if theirs > PROTOCOL { this } else { other };
    let cause = format!("the {other} has protocol version {theirs}, this {this} has version {PROTOCOL}");
    Err(Failure::new(
        Exit::PeerLost,
        format!("client and server have different versions: upgrade the {older}"),
    )
    .cause(cause)
    .fix(format!("install the same version of farreach on both hosts; the {older} has the older one")))
}

fn ended(error: &io::Error) -> Failure {
    if error.get_ref().is_some_and(|inner| inner.is::<ToldToEnd>()) {
        return interrupt::before_anything();
    }
    let failure = Failure::new(Exit::PeerLost, "the handshake failed");
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => failure
            .cause("the other side is connected, but sends nothing")
            .fix("check that it is `farreach serve`, and that it does not hang"),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => failure
            .cause("the other side closed the connection")
            .fix("check the output and the log of the other side"),
        _ => failure.cause(error.to_string()).fix("check the network between the two hosts"),
    }
}

/// Returns the failure of a client with TLS whose server has none.
fn without_tls(security: &Security) -> Failure {
    let flags = security.shown_flags();
    Failure::new(Exit::PeerLost, "the server does not use TLS")
        .cause("its first bytes are not TLS")
        .fix(format!("start the server with TLS, too:\nfarreach serve {flags}"))
}

/// Returns why one side refuses the other one.
fn refused(session: &TlsSession, reason: &rustls::Error, other: Other) -> Failure {
    let other = match other {
        Other::Server => "the server",
        Other::Client => "the client",
    };
    let explained = session.explain(reason);
    let fix = match reason {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "give a PEER that is in the certificate, or the name in it with --tls-name:\n\
              farreach COMMAND PEER --tls FOLDER --tls-name NAME"
        }
        _ => explained.fix(),
    };
    Failure::new(Exit::PeerLost, format!("the TLS handshake with {other} failed"))
        .cause(explained.cause())
        .fix(fix)
}

fn garbled(cause: String) -> Failure {
    Failure::new(Exit::PeerLost, "cannot parse a message from the other side")
        .cause(cause)
        .fix("install the same version of farreach on both hosts")
}

/// Does the agent's side of the handshake, and returns the client's order.
pub(crate) fn handshake<T: DeserializeOwned>(
    line: &mut Line,
    welcome: &Welcome,
) -> Result<Order<T>, Failure> {
    line.say_head()?;
    line.recv_head(Other::Client)?;
    line.send(&Ok::<_, Failure>(welcome))?;
    line.recv()
}

/// Sends a client the reason why it is not served, instead of a welcome.
pub(crate) fn tell_refusal(line: &mut Line, refusal: &Failure) -> Result<(), Failure> {
    line.say_head()?;
    line.send(&Err::<Welcome, _>(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(magic: &[u8; 6], version: u16) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[..6].copy_from_slice(magic);
        head[6..].copy_from_slice(&version.to_be_bytes());
        head
    }

    #[test]
    fn the_older_side_is_named() {
        for (theirs, other, older) in [
            (PROTOCOL + 1, Other::Server, "upgrade the client"),
            (PROTOCOL - 1, Other::Server, "upgrade the server"),
            (PROTOCOL + 1, Other::Client, "upgrade the server"),
            (PROTOCOL - 1, Other::Client, "upgrade the client"),
        ] {
            let refused = check_head(&head(&MAGIC, theirs), other).expect_err("versions differ");
            assert!(refused.error.ends_with(older), "{refused:?}");
        }
        check_head(&head(&MAGIC, PROTOCOL), Other::Server).expect("the same");
    }

    #[test]
    fn an_engine_and_a_stranger_are_told_from_a_server() {
        let engine = check_head(&head(&ENGINE_MAGIC, 1), Other::Server).expect_err("no command");
        assert!(engine.error.contains("uses the farreach library"), "{engine:?}");
        let stranger = check_head(b"HTTP/1.1", Other::Server).expect_err("no farreach");
        assert!(stranger.error.contains("does not use the farreach protocol"), "{stranger:?}");
    }
}

//! The handshake of the command, on the connection itself, before an engine takes it over.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use farreach::rustls::CertificateError;
use farreach::{ControlStream, Tls, TlsSession, rustls};
use farreach_text::Untrusted;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{SECRET_FILE, Security, Welcome};
use crate::exit::{Exit, Failure};
use crate::interrupt::{self, GLANCE};

/// The version of the protocol between client and agent. Every change that the other side
/// would not understand raises it.
pub(crate) const PROTOCOL: u16 = 4;

/// The first bytes of both sides. The version follows, in big-endian order. This never changes.
const MAGIC: [u8; 6] = *b"frcmd\n";

pub(crate) const HEAD_LEN: usize = MAGIC.len() + 2;

/// The first bytes of the library's engine, which may connect to the command, or be connected to by
/// it, by mistake.
const ENGINE_MAGIC: [u8; 6] = *b"farrch";

/// The first byte of a TLS client.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

/// The size limit of a message of the handshake.
const WORD_MAX: usize = 64 * 1024;

/// How long the other side may take for its TLS handshake, and for its first message.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

/// How long the other side may take for its next message, from the first to the last byte.
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
        let stream = Patient { stream, patience: FIRST_PATIENCE, deadline: Instant::now() };
        Ok(Self { stream, session: None })
    }

    /// Sets the time that the other side may take for each of its next messages.
    pub(crate) fn be_patient(&mut self, patience: Duration) {
        self.stream.patience = patience;
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

    /// Switches to a new TLS session as the client, after the server has ended the one before: the
    /// server's process has the first session, and the agent the second.
    pub(crate) fn renew_as_client(
        &mut self,
        tls: &Tls,
        host: &str,
        security: &Security,
    ) -> Result<(), Failure> {
        if let Some(mut secured) = self.session.take() {
            self.stream.start();
            secured.await_close(&mut self.stream).map_err(|error| secured.failure(&error))?;
        }
        self.secure_as_client(tls, host, security)
    }

    /// Switches to TLS as the server.
    pub(crate) fn secure_as_server(&mut self, tls: &Tls, security: &Security) -> Result<(), Failure> {
        let session = tls.accepting().map_err(|error| Failure::of(&error.into()))?;
        self.shake_hands(session, Other::Client, security)
    }

    fn shake_hands(
        &mut self,
        session: impl Into<TlsSession>,
        other: Other,
        security: &Security,
    ) -> Result<(), Failure> {
        let mut secured = Secured { session: Box::new(session.into()), other };
        self.stream.start();
        if let Err(error) = secured.shake_hands(&mut self.stream) {
            // The other side learns why from the alert, which may be one of several records.
            let _ = secured.flush(&mut self.stream);
            return Err(match tls_error(&error) {
                // The server's first bytes are no TLS record. The client's first byte was checked.
                Some(rustls::Error::InvalidMessage(_)) if other == Other::Server => without_tls(security),
                _ => secured.failure(&error),
            });
        }
        self.session = Some(secured);
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
        self.write(&framed(&bytes))
    }

    /// Sends this side's version and a message at once.
    pub(crate) fn send_with_head(&mut self, word: &impl Serialize) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(word).map_err(|error| garbled(error.to_string()))?;
        self.write(&[&head()[..], &framed(&bytes)].concat())
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
        self.stream.start();
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
        self.write(&head())
    }

    /// Receives and checks the other side's version. `other` selects the words of the error.
    pub(crate) fn recv_head(&mut self, other: Other) -> Result<(), Failure> {
        let mut head = [0; HEAD_LEN];
        self.stream.start();
        self.read(&mut head)?;
        self.stream.patience = PATIENCE;
        check_head(&head, other)
    }
}

/// Returns the first bytes of this side.
pub(crate) fn head() -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    let (magic, version) = head.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    version.copy_from_slice(&PROTOCOL.to_be_bytes());
    head
}

/// Returns a message with its length before it.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut framed = (message.len() as u32).to_be_bytes().to_vec();
    framed.extend(message);
    framed
}

/// A connection whose reads have a deadline. A read also fails when this process is interrupted.
#[derive(Debug)]
struct Patient {
    /// Its own read timeout is `GLANCE`.
    stream: TcpStream,
    patience: Duration,
    /// When everything that is read now must have arrived. A deadline of each read would let the
    /// other side send a byte at a time for ever.
    deadline: Instant,
}

impl Patient {
    /// Starts the time for a message.
    fn start(&mut self) {
        self.deadline = Instant::now() + self.patience;
    }

    fn wait_for(&self, mut read: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match read(&self.stream) {
                Err(error) if is_timeout(&error) => {
                    if interrupt::is_asked() {
                        return Err(io::Error::other(ToldToEnd));
                    }
                    if Instant::now() >= self.deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                // Bytes that come one at a time do not extend the deadline for ever. This process may
                // have waited for a core itself, so they have twice the time.
                Ok(1..) if Instant::now() >= self.deadline + self.patience => {
                    return Err(io::ErrorKind::TimedOut.into());
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
    fn shake_hands(&mut self, stream: &mut Patient) -> io::Result<()> {
        loop {
            self.flush(stream)?;
            if !self.session.is_handshaking() {
                return Ok(());
            }
            self.fill(stream)?;
        }
    }

    fn write(&mut self, stream: &mut Patient, bytes: &[u8]) -> io::Result<()> {
        self.session.writing().writer().write_all(bytes)?;
        let Err(error) = self.flush(stream) else { return Ok(()) };
        // A side that has closed the connection may have sent an alert before, which is closer to the
        // cause.
        if !is_timeout(&error)
            && let Err(closer) = self.fill(stream)
            && tls_error(&closer).is_some()
        {
            return Err(closer);
        }
        Err(error)
    }

    fn read(&mut self, stream: &mut Patient, into: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < into.len() {
            let len = self.session.take(&mut into[filled..]);
            filled += len;
            if len == 0 && self.fill(stream)? && self.session.plaintext().is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Reads until the other side has ended its TLS session. It must send nothing else.
    fn await_close(&mut self, stream: &mut Patient) -> io::Result<()> {
        loop {
            let has_ended = self.fill(stream)?;
            if !self.session.plaintext().is_empty() {
                return Err(io::Error::other("it sends data where its session has to end"));
            }
            if has_ended {
                return Ok(());
            }
        }
    }

    fn flush(&mut self, stream: &mut Patient) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.writing().write_tls(stream)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Reads once, unless the other side has ended its session. Returns whether it has.
    fn fill(&mut self, stream: &mut Patient) -> io::Result<bool> {
        if self.session.receive(&[]).map_err(io::Error::other)?.has_ended {
            return Ok(true);
        }
        let mut bytes = [0; TlsSession::RECEIVE_MAX];
        let len = stream.read(&mut bytes)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let received = self.session.receive(&bytes[..len]).map_err(io::Error::other)?;
        Ok(received.has_ended)
    }

    fn failure(&self, error: &io::Error) -> Failure {
        failure(&self.session, error, self.other)
    }
}

/// Returns the failure of a read or write in a TLS session. In TLS 1.3 the server checks the client
/// when the client's handshake is complete, so this may be where the client learns that it is refused.
pub(crate) fn failure<C>(session: &TlsSession<C>, error: &io::Error, other: Other) -> Failure {
    match tls_error(error) {
        Some(reason) => refused(session, reason, other),
        None => ended(error),
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

pub(crate) fn check_head(head: &[u8; HEAD_LEN], other: Other) -> Result<(), Failure> {
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

/// The cause of a failed handshake whose connection was closed.
const CLOSED: &str = "the other side closed the connection";

/// Returns whether a handshake failed because the other side closed the connection without a reason.
pub(crate) fn is_closed(failure: &Failure) -> bool {
    failure.cause.as_deref() == Some(CLOSED)
}

pub(crate) fn ended(error: &io::Error) -> Failure {
    if error.get_ref().is_some_and(|inner| inner.is::<ToldToEnd>()) {
        return interrupt::before_anything();
    }
    let failure = Failure::new(Exit::PeerLost, "the handshake failed");
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => failure
            .cause("the other side is connected, but sends nothing")
            .fix("check that it is `farreach serve`, and that it does not hang"),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            failure.cause(CLOSED).fix("check the output and the log of the other side")
        }
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
fn refused<C>(session: &TlsSession<C>, reason: &rustls::Error, other: Other) -> Failure {
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

pub(crate) fn garbled(cause: String) -> Failure {
    Failure::new(Exit::PeerLost, "cannot parse a message from the other side")
        // The cause may quote the message.
        .cause(Untrusted::new(cause).shown())
        .fix("install the same version of farreach on both hosts")
}

/// Returns the bytes by which a client is told why it is not served, instead of a welcome.
pub(crate) fn refusal(refusal: &Failure) -> Vec<u8> {
    // A failure has strings only, which can always be encoded.
    let message = serde_json::to_vec(&Err::<Welcome, _>(refusal)).unwrap_or_default();
    [&head()[..], &framed(&message)].concat()
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

    /// Otherwise a side that sends a byte now and then would never be given up.
    #[test]
    fn a_message_has_one_deadline_for_all_its_bytes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        slow.set_nodelay(true).unwrap();
        let mut line = Line::new(listener.accept().unwrap().0).unwrap();
        line.be_patient(Duration::from_millis(300));
        let sends = std::thread::spawn(move || {
            slow.write_all(&1000_u32.to_be_bytes()).unwrap();
            // Fast enough for every single read.
            (0..1000)
                .take_while(|_| {
                    std::thread::sleep(Duration::from_millis(20));
                    slow.write_all(b" ").is_ok()
                })
                .count()
        });
        let failure = line.recv::<String>().expect_err("a thousand bytes take 20 s");
        assert!(failure.cause.unwrap().contains("sends nothing"), "{:?}", failure.error);
        drop(line);
        assert!(sends.join().unwrap() < 1000);
    }

    #[test]
    fn an_engine_and_a_stranger_are_told_from_a_server() {
        let engine = check_head(&head(&ENGINE_MAGIC, 1), Other::Server).expect_err("no command");
        assert!(engine.error.contains("uses the farreach library"), "{engine:?}");
        let stranger = check_head(b"HTTP/1.1", Other::Server).expect_err("no farreach");
        assert!(stranger.error.contains("does not use the farreach protocol"), "{stranger:?}");
    }
}

//! One client's connection, from its first byte until it is handed to an agent.
//!
//! Nothing here blocks. Everything that the server sends is short and fits the socket's send buffer;
//! a connection whose buffer is full does not read, and is closed. The bytes of an order are kept as
//! they arrive: a length that the client announces allocates nothing.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use farreach::{Tls, TlsSession};
use serde::Serialize;

use super::handshakes::Reached;
use super::refusal;
use crate::exit::Failure;
use crate::handover::ORDER_BYTES_MAX;
use crate::session::{
    self, HEAD_LEN, Notice, Other, Security, TLS_HANDSHAKE, check_head, ended, framed, garbled,
};

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) client: SocketAddr,
    record: Record,
    stage: Stage,
    /// Whether this side's head was sent.
    has_head: bool,
    /// The bytes of this stage that have arrived.
    received: Vec<u8>,
    /// The number of bytes that came after a refusal.
    discarded: usize,
}

#[derive(Debug)]
enum Record {
    /// The server uses TLS, and the client has sent nothing.
    Undecided(Box<TlsSession>),
    Plain,
    Tls(Box<TlsSession>),
}

/// What the client sends next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    OrderLen,
    Order(usize),
    /// Nothing: it has sent its order.
    Done,
    /// Nothing that matters: it was refused. What it still sends is discarded, because closing a
    /// socket with unread data would discard the refusal.
    Refused,
}

/// What came of reading.
#[derive(Debug)]
pub(super) enum Progress {
    /// The client has to send more.
    Pending,
    /// The client's order is complete.
    Order(Vec<u8>),
    /// The client has closed the connection, and had asked for nothing.
    Left,
    /// The connection is of no use. The failure is for the log; `None` if it was logged before.
    Failed(Option<Failure>),
}

/// How often the socket is read at once, so that a client that sends without a pause does not keep the
/// server from others.
const READS_MAX: usize = 16;

/// How much a refused client may still send: an order, and what comes with it.
const DISCARDED_MAX: usize = 4 * ORDER_BYTES_MAX;

impl Connection {
    /// Prepares a connection that was accepted, and sends this side's head if it is not encrypted.
    pub(super) fn new(stream: TcpStream, client: SocketAddr, tls: Option<&Tls>) -> Result<Self, Failure> {
        let configured = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        configured.map_err(|error| ended(&error))?;
        let record = match tls {
            Some(tls) => {
                let session = tls.accepting().map_err(|error| Failure::of(&error.into()))?;
                Record::Undecided(Box::new(session.into()))
            }
            None => Record::Plain,
        };
        let (stage, has_head) = (Stage::Head, tls.is_none());
        let mut connection =
            Self { stream, client, record, stage, has_head, received: Vec::new(), discarded: 0 };
        if has_head {
            connection.say(&session::head()).map_err(|error| ended(&error))?;
        }
        Ok(connection)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns how far the connection has got.
    pub(super) fn reached(&self) -> Reached {
        match (&self.record, self.stage) {
            (_, Stage::Refused) | (Record::Undecided(_), _) => Reached::Nothing,
            (Record::Tls(session), _) if session.is_handshaking() => Reached::Begun,
            (Record::Plain, Stage::Head) if self.received.is_empty() => Reached::Nothing,
            (Record::Plain, Stage::Head) => Reached::Begun,
            (Record::Plain | Record::Tls(_), _) => Reached::Client,
        }
    }

    /// Returns whether the connection was refused, and stays only until the client has closed it.
    pub(super) fn is_refused(&self) -> bool {
        self.stage == Stage::Refused
    }

    /// Returns whether the connection is encrypted.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self.record, Record::Tls(_))
    }

    /// Reads what has arrived. `welcome` is sent when the client has sent its head. `security` is that
    /// of the server, for a client without TLS.
    pub(super) fn advance(&mut self, welcome: &[u8], security: &Security) -> Progress {
        match self.read(welcome, security) {
            Ok(progress) => progress,
            Err(failure) => Progress::Failed(Some(failure)),
        }
    }

    fn read(&mut self, welcome: &[u8], security: &Security) -> Result<Progress, Failure> {
        let mut reads = 0;
        loop {
            // No event tells of plaintext that is here already.
            if !self.has_plaintext() {
                if reads == READS_MAX {
                    // More may have arrived; the next event comes at once.
                    return Ok(Progress::Pending);
                }
                reads += 1;
            }
            if let Record::Undecided(_) = self.record
                && !self.decide(security)?
            {
                return Ok(Progress::Pending);
            }
            let needed = match self.stage {
                Stage::Head => HEAD_LEN,
                Stage::OrderLen => size_of::<u32>(),
                Stage::Order(len) => len,
                Stage::Done => return Err(garbled("it sends data after its order".to_owned())),
                Stage::Refused => return Ok(self.discard()),
            };
            // At most what is needed: the bytes behind the order belong to the agent.
            let mut bytes = [0; 4096];
            let room = bytes.len().min(needed - self.received.len());
            match self.read_some(&mut bytes[..room]) {
                Ok(0) if room > 0 => {
                    let has_asked = self.stage != Stage::OrderLen || !self.received.is_empty();
                    return match has_asked {
                        true => Err(ended(&io::ErrorKind::UnexpectedEof.into())),
                        false => Ok(Progress::Left),
                    };
                }
                Ok(len) => self.received.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Pending),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.why(&error)),
            }
            if self.received.len() == needed
                && let Some(order) = self.complete(welcome)?
            {
                return Ok(Progress::Order(order));
            }
        }
    }

    fn has_plaintext(&self) -> bool {
        matches!(&self.record, Record::Tls(session) if !session.plaintext().is_empty())
    }

    /// Goes on to the next stage. Returns the order if it is complete.
    fn complete(&mut self, welcome: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let bytes = std::mem::take(&mut self.received);
        match self.stage {
            Stage::Head => {
                let head: [u8; HEAD_LEN] = bytes[..].try_into().map_err(|_| garbled("no head".to_owned()))?;
                check_head(&head, Other::Client)?;
                self.say(welcome).map_err(|error| ended(&error))?;
                self.stage = Stage::OrderLen;
            }
            Stage::OrderLen => {
                let len = bytes.iter().fold(0, |len: usize, byte| len << 8 | usize::from(*byte));
                if !(1..=ORDER_BYTES_MAX).contains(&len) {
                    return Err(garbled(format!(
                        "it announces an order of {len} bytes; the limit is {ORDER_BYTES_MAX} bytes"
                    )));
                }
                self.stage = Stage::Order(len);
            }
            Stage::Order(_) => {
                self.stage = Stage::Done;
                return Ok(Some(bytes));
            }
            Stage::Done | Stage::Refused => {}
        }
        Ok(None)
    }

    /// Finds out whether the client uses TLS, by its first byte. Returns `false` if it has sent none.
    fn decide(&mut self, security: &Security) -> Result<bool, Failure> {
        let mut first = [0];
        match self.stream.peek(&mut first) {
            Ok(0) => return Err(ended(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(ended(&error)),
        }
        let Record::Undecided(session) = std::mem::replace(&mut self.record, Record::Plain) else {
            return Ok(true);
        };
        if first[0] != TLS_HANDSHAKE {
            return Err(refusal::tls_only(security));
        }
        self.record = Record::Tls(session);
        Ok(true)
    }

    /// Reads plaintext, and the socket at most once. With TLS, also does the handshake, and sends this
    /// side's head behind it.
    fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Record::Tls(session) = &mut self.record else { return (&self.stream).read(into) };
        let taken = session.take(into);
        if taken > 0 || session.receive(&[]).map_err(io::Error::other)?.has_ended {
            return Ok(taken);
        }
        let was_handshaking = session.is_handshaking();
        let mut bytes = [0; TlsSession::RECEIVE_MAX];
        let len = (&self.stream).read(&mut bytes)?;
        if len == 0 {
            // Clients close the connection without a close of their session. What matters is
            // whether something is missing, which the stage tells.
            return if was_handshaking { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(0) };
        }
        let received = session.receive(&bytes[..len]);
        if received.is_ok() && was_handshaking && !session.is_handshaking() {
            session.writing().writer().write_all(&session::head())?;
            self.has_head = true;
        }
        // An alert that states what is wrong is sent, too.
        let flushed = flush(session, &self.stream);
        let has_ended = received.map_err(io::Error::other)?.has_ended;
        flushed?;
        match session.take(into) {
            // The socket may have more, and the next event comes at once if so.
            0 if !has_ended => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Discards what a refused client still sends, up to a limit.
    fn discard(&mut self) -> Progress {
        match (&self.stream).read(&mut [0; 4096]) {
            Ok(len @ 1..) => {
                self.discarded += len;
                if self.discarded > DISCARDED_MAX { Progress::Failed(None) } else { Progress::Pending }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Progress::Pending,
            _ => Progress::Failed(None),
        }
    }

    fn why(&self, error: &io::Error) -> Failure {
        match &self.record {
            Record::Tls(session) => session::failure(session, error, Other::Client),
            Record::Plain | Record::Undecided(_) => ended(error),
        }
    }

    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.record {
            Record::Tls(session) => {
                session.writing().writer().write_all(bytes)?;
                flush(session, &self.stream)
            }
            Record::Plain | Record::Undecided(_) => (&self.stream).write_all(bytes),
        }
    }

    /// Sends a notice.
    pub(super) fn notify(&mut self, notice: &Notice) -> Result<(), Failure> {
        self.say(&message(notice)).map_err(|error| ended(&error))
    }

    /// Refuses a connection that has sent no order, and tells it why if it can read that. The
    /// connection has to stay until the client has closed it.
    pub(super) fn refuse(&mut self, failure: &Failure) {
        let refusal = match (&self.record, self.stage) {
            // A TLS client reads nothing before its handshake is done.
            (Record::Undecided(_), _) => Vec::new(),
            (Record::Tls(session), _) if session.is_handshaking() => Vec::new(),
            (_, Stage::Head) if self.has_head => session::refusal(failure)[HEAD_LEN..].to_vec(),
            (_, Stage::Head) => session::refusal(failure),
            _ => message(&Notice::Refused(failure.clone())),
        };
        self.stage = Stage::Refused;
        // It may have closed the connection.
        let _ = self.say(&refusal);
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Refuses a connection that has sent something wrong. A client with a wrong head gets this
    /// side's head only: it has another version, or is no client.
    pub(super) fn dismiss(&mut self, failure: &Failure) {
        if self.stage == Stage::Head && self.has_head {
            self.stage = Stage::Refused;
            let _ = self.stream.shutdown(Shutdown::Write);
        } else {
            self.refuse(failure);
        }
    }

    /// Ends this side's part, and returns the connection for an agent. With TLS, the session is
    /// ended; the agent begins another one.
    pub(super) fn into_served(mut self) -> Result<TcpStream, Failure> {
        self.notify(&Notice::Served)?;
        if let Record::Tls(session) = &mut self.record {
            session.writing().send_close_notify();
            flush(session, &self.stream).map_err(|error| ended(&error))?;
        }
        Ok(self.stream)
    }
}

fn flush(session: &mut TlsSession, mut stream: &TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.writing().write_tls(&mut stream)?;
    }
    Ok(())
}

/// Returns the bytes of a message.
pub(super) fn message(word: &impl Serialize) -> Vec<u8> {
    // Messages have strings and numbers only, which can always be encoded.
    framed(&serde_json::to_vec(word).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::exit::Exit;

    const CLEAR_TEXT: Security = Security::ClearText { is_allowed: false };

    fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, address) = listener.accept().unwrap();
        (client, Connection::new(stream, address, None).unwrap())
    }

    /// Reads until something came of it: bytes take a moment on loopback, too.
    fn advance(connection: &mut Connection) -> Progress {
        loop {
            match connection.advance(b"welcome", &CLEAR_TEXT) {
                Progress::Pending => std::thread::yield_now(),
                other => return other,
            }
        }
    }

    fn order(len: usize) -> Vec<u8> {
        [&session::head()[..], &framed(&vec![b'x'; len])].concat()
    }

    /// Key updates are no part of an order. rustls begins to count them anew at each byte of content.
    #[test]
    fn records_without_content_end_the_connection() {
        let tls = Tls::from_secret("5f1d7a9c03e2b846d1f0a37c9be45826".parse().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, address) = listener.accept().unwrap();
        let mut connection = Connection::new(stream, address, Some(&tls)).unwrap();
        let mut session = tls.connecting("here").unwrap();
        let hand = std::thread::spawn(move || {
            while session.is_handshaking() {
                session.complete_io(&mut client).unwrap();
            }
            let mut bytes = Vec::new();
            for byte in &order(ORDER_BYTES_MAX)[..1000] {
                session.writer().write_all(&[*byte]).unwrap();
                (0..8).for_each(|_| session.refresh_traffic_keys().unwrap());
                while session.wants_write() {
                    session.write_tls(&mut bytes).unwrap();
                }
            }
            // The server closes the connection before it has all of them.
            let _ = client.write_all(&bytes);
            client
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        let progress = loop {
            match connection.advance(b"welcome", &Security::SecretVariable) {
                Progress::Pending if Instant::now() < deadline => std::thread::yield_now(),
                other => break other,
            }
        };
        let Progress::Failed(Some(failure)) = progress else { panic!("{progress:?}") };
        let sentence = failure.sentence();
        assert!(sentence.contains("TLS records without content") && failure.fix.is_some(), "{sentence}");
        drop(connection);
        hand.join().unwrap();
    }

    #[test]
    fn an_order_is_read_to_its_end_and_not_further() {
        for len in [1, 400, ORDER_BYTES_MAX] {
            let (mut client, mut connection) = pair();
            client.write_all(&order(len)).unwrap();
            client.write_all(b"for the agent").unwrap();
            assert!(matches!(advance(&mut connection), Progress::Order(it) if it.len() == len));
            let mut rest = connection.into_served().unwrap();
            rest.set_nonblocking(false).unwrap();
            let mut bytes = [0; 13];
            rest.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"for the agent");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_kept() {
        for len in [0, ORDER_BYTES_MAX as u32 + 1, u32::MAX] {
            let (mut client, mut connection) = pair();
            client.write_all(&session::head()).unwrap();
            client.write_all(&len.to_be_bytes()).unwrap();
            let Progress::Failed(Some(failure)) = advance(&mut connection) else { panic!("{len}") };
            assert!(failure.cause.unwrap().contains(&format!("an order of {len} bytes")));
        }
    }

    #[test]
    fn bytes_that_come_one_by_one_are_kept() {
        let (mut client, mut connection) = pair();
        client.set_nodelay(true).unwrap();
        let sent = order(3);
        for byte in &sent[..sent.len() - 1] {
            client.write_all(&[*byte]).unwrap();
            assert!(matches!(connection.advance(b"welcome", &CLEAR_TEXT), Progress::Pending));
        }
        client.write_all(b"x").unwrap();
        assert!(matches!(advance(&mut connection), Progress::Order(it) if it == b"xxx"));
    }

    #[test]
    fn who_only_looks_has_left_and_who_breaks_off_has_failed() {
        let (mut client, mut connection) = pair();
        client.write_all(&session::head()).unwrap();
        assert!(matches!(connection.advance(b"welcome", &CLEAR_TEXT), Progress::Pending));
        // What a client has not read would be lost with its connection, and be an error.
        client.read_exact(&mut [0; HEAD_LEN + b"welcome".len()]).unwrap();
        drop(client);
        assert!(matches!(advance(&mut connection), Progress::Left));
        for len in [0, 3, HEAD_LEN + 2, HEAD_LEN + 4, HEAD_LEN + 5] {
            let (mut client, mut connection) = pair();
            client.write_all(&order(100)[..len]).unwrap();
            drop(client);
            assert!(matches!(advance(&mut connection), Progress::Failed(Some(_))), "{len}");
        }
    }

    /// The refusal is read although the client has sent more than the server has read.
    #[test]
    fn a_refusal_is_read_by_one_that_goes_on_sending() {
        let (mut client, mut connection) = pair();
        client.write_all(&order(4000)).unwrap();
        let failure = Failure::new(Exit::PeerLost, "it is busy");
        connection.refuse(&failure);
        client.write_all(&[0; 4000]).unwrap();
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert!(said.ends_with(&session::refusal(&failure)[HEAD_LEN..]), "{said:?}");
        drop(client);
        assert!(matches!(advance(&mut connection), Progress::Failed(None)));
    }

    #[test]
    fn one_that_never_stops_sending_is_closed() {
        let (mut client, mut connection) = pair();
        connection.refuse(&Failure::new(Exit::PeerLost, "it is busy"));
        let sends = std::thread::spawn(move || {
            let mut sent = 0;
            while client.write_all(&[0; 4096]).is_ok() {
                sent += 4096;
            }
            sent
        });
        assert!(matches!(advance(&mut connection), Progress::Failed(None)));
        assert!(connection.discarded <= DISCARDED_MAX + 4096);
        drop(connection);
        assert!(sends.join().unwrap() >= DISCARDED_MAX);
    }
}

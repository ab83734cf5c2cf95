//! The control protocol as an attacker speaks it: frames over a plain connection, whatever they
//! contain. The other details of the protocol that attacks depend on are here, too, so that a
//! change of the protocol changes one file.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farreach_proto::counter::{CounterId, Immediate, LinkId};
use farreach_proto::ids::GrantId;
use farreach_proto::rail::Scope;
use farreach_proto::wire::{
    Decoder, Frame, GrantOffer, Hello, PREAMBLE_LEN, check_preamble, encode, preamble,
};

/// The secret of victims that use TLS, of their clients, and of attackers: one of them has it, too.
pub(crate) const SECRET: &str = "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e";

/// How long a victim may take to accept a connection, or to take bytes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The interval of pings. Victims wait for two seconds.
const PING_INTERVAL: Duration = Duration::from_millis(300);

/// The length of a message's header in bytes.
pub(crate) const HEADER: usize = 16;

/// Returns the header of a message over a rail: its mark and its number.
pub(crate) fn header(mark: u64, number: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&mark.to_le_bytes());
    header[8..].copy_from_slice(&number.to_le_bytes());
    header
}

/// Returns the announcement that an end of a link is connected, with the mark of its messages.
pub(crate) fn link_ready(link: LinkId, mark: u64) -> Frame {
    Frame::LinkReady { link, mark, needs_names: true, binds_keys: false }
}

/// Returns the immediate that counts one page for a counter.
pub(crate) fn immediate(counter: CounterId) -> u32 {
    Immediate::new(counter, 1).map_or(0, Immediate::to_bits)
}

/// Returns the hello of an engine with these rails.
pub(crate) fn hello(name: &str, rails: &[String]) -> Frame {
    Frame::Hello(Hello {
        name: name.to_owned(),
        rails: rails.to_vec(),
        messages: 64,
        // With none, a victim grants nothing.
        grants: 16_384,
        counters: 16_384,
        ..Hello::new(RandomState::new().hash_one(name))
    })
}

/// Returns a grant of memory, whether it exists or not.
pub(crate) fn grant(id: GrantId, len: u64, keys: Vec<Option<(u64, u64)>>) -> Frame {
    Frame::Grant(GrantOffer { grant: id, len, rights: 7, scope: Scope::Network, keys })
}

/// Returns the text by which a program names a grant.
pub(crate) fn grant_token(id: GrantId) -> String {
    format!("g-{:x}", id.to_raw())
}

/// Returns the encoded frames, one after the other.
pub(crate) fn encoded<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for frame in frames {
        encode(frame, &mut bytes)?;
    }
    Ok(bytes)
}

/// A control connection to a victim.
#[derive(Debug)]
pub(crate) struct Speaker {
    stream: TcpStream,
    decoder: Decoder,
    /// The victim's preamble, as far as it has arrived.
    opening: Vec<u8>,
    pinged_at: Instant,
    pings: u64,
}

impl Speaker {
    /// Connects, and sends the preamble.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = connect(address)?;
        let mut speaker = Self {
            stream,
            decoder: Decoder::new(),
            opening: Vec::new(),
            pinged_at: Instant::now(),
            pings: 0,
        };
        speaker.send_bytes(&preamble())?;
        Ok(speaker)
    }

    /// Connects, and sends a hello. The victim's answer is not awaited.
    pub(crate) fn greet(address: SocketAddr, name: &str, rails: &[String]) -> Result<Self> {
        let mut speaker = Self::connect(address)?;
        speaker.send(&hello(name, rails))?;
        Ok(speaker)
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, frame: &Frame) -> Result<()> {
        self.send_bytes(&encoded([frame])?)
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("the victim has closed the connection")
    }

    /// Sends a ping if one is due.
    pub(crate) fn ping_if_due(&mut self) -> Result<()> {
        if self.pinged_at.elapsed() < PING_INTERVAL {
            return Ok(());
        }
        self.pinged_at = Instant::now();
        self.pings += 1;
        self.send(&Frame::Ping { nonce: self.pings })
    }

    /// Receives the frames that arrive within `limit`. Returns as soon as there is one.
    pub(crate) fn receive(&mut self, limit: Duration) -> Result<Vec<Frame>> {
        let deadline = Instant::now() + limit;
        let mut chunk = [0; 16 << 10];
        loop {
            let frames = self.decoded()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !frames.is_empty() || left.is_zero() {
                return Ok(frames);
            }
            // A timeout of zero would mean none.
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the victim has closed the connection"),
                Ok(len) => self.take(&chunk[..len])?,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error).context("the victim has closed the connection"),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let missing = PREAMBLE_LEN.saturating_sub(self.opening.len()).min(bytes.len());
        let (opening, rest) = bytes.split_at(missing);
        self.opening.extend_from_slice(opening);
        if missing > 0
            && let Some(whole) = self.opening.first_chunk()
        {
            check_preamble(whole)?;
        }
        self.decoder.feed(rest);
        Ok(())
    }

    fn decoded(&mut self) -> Result<Vec<Frame>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.decoder.next()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Returns whether the victim has closed the connection. Discards the frames that have arrived.
    pub(crate) fn is_closed(&mut self) -> bool {
        is_closed(&mut self.stream)
    }
}

/// Returns the kinds of the victim's rails, as it tells everyone that greets it.
pub(crate) fn rails_of(address: SocketAddr) -> Result<Vec<String>> {
    let mut speaker = Speaker::greet(address, "attacker", &[])?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        for frame in speaker.receive(Duration::from_millis(100))? {
            if let Frame::Hello(hello) = frame {
                return Ok(hello.rails);
            }
        }
    }
    bail!("the victim sent no hello within {PATIENCE:?}")
}

/// Connects a socket, with limits on every wait.
pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)
        .with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Returns whether the other side has closed a connection. Discards what has arrived.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let mut chunk = [0; 4096];
    let is_closed = loop {
        match stream.read(&mut chunk) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => break !is_timeout(&error),
        }
    };
    is_closed || stream.set_nonblocking(false).is_err()
}

/// Returns whether a read ended because nothing has arrived yet.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Lets this process have as many descriptors as it may.
pub(crate) fn raise_descriptor_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

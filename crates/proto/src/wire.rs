//! Frames of the control connection between two engines: bounded and versioned.
//!
//! A connection begins with a preamble of fixed form on both sides, which contains the version, so
//! two engines with different frames can still report the mismatch. Each frame after it is its
//! length (four bytes, big-endian) and its content.

#[cfg(any(test, feature = "fields"))]
pub mod fields;

use serde::{Deserialize, Serialize};

use crate::counter::{CounterId, LinkId};
use crate::ids::{GrantId, PublicationId, SharedCounterId};
use crate::rail::Scope;

/// The version of the frames and of the header of messages. It changes with every change of them.
pub const VERSION: u16 = 6;

/// The maximum length of a frame in bytes. A side that announces a longer one is not an engine.
pub const FRAME_MAX: usize = 64 * 1024;

const MAGIC: [u8; 6] = *b"farrch";

/// The length of a preamble in bytes.
pub const PREAMBLE_LEN: usize = MAGIC.len() + 2;

/// Returns the preamble that a connection begins with.
pub fn preamble() -> [u8; PREAMBLE_LEN] {
    let [high, low] = VERSION.to_be_bytes();
    let [a, b, c, d, e, f] = MAGIC;
    [a, b, c, d, e, f, high, low]
}

/// Checks that the other side uses the same protocol and version.
///
/// ```
/// use farreach_proto::wire::{check_preamble, preamble};
///
/// check_preamble(&preamble()).unwrap();
/// let older = check_preamble(b"farrch\0\0").unwrap_err();
/// assert_eq!(older.to_string(), "the peer has protocol version 0, this side has 6: upgrade the peer");
/// ```
pub fn check_preamble(bytes: &[u8; PREAMBLE_LEN]) -> Result<(), WireError> {
    let (magic, version) = bytes.split_at(MAGIC.len());
    // Before the version: another protocol has none at this place.
    if magic != MAGIC {
        return Err(WireError::Stranger);
    }
    let theirs = version.iter().fold(0, |version, byte| version << 8 | u16::from(*byte));
    if theirs == VERSION { Ok(()) } else { Err(WireError::Version { theirs }) }
}

/// A message of one engine to the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Frame {
    /// The first frame of each side.
    Hello(Hello),
    /// Offers this side's end of a link for the other side to connect to.
    Link(LinkOffer),
    /// This side's end is connected: operations over it are served.
    LinkReady {
        /// The link.
        link: LinkId,
        /// The mark that messages over it must carry.
        mark: u64,
        /// Whether immediates over it must carry a counter's name on this link, because the rail of
        /// this side does not report over which link an immediate came.
        needs_names: bool,
        /// Whether keys of this side are good over one link only. Those of this link follow in
        /// `Keys` frames.
        binds_keys: bool,
    },
    /// Announces keys of grants that are bound to a link.
    Keys {
        /// The link.
        link: LinkId,
        /// At most [`KEYS_MAX`] of them.
        keys: Vec<BoundKey>,
    },
    /// A link can no longer be used.
    LinkLost {
        /// The link.
        link: LinkId,
        /// `true` if nothing that this side sent over the link is in flight: all of it is known to
        /// have landed.
        is_quiet: bool,
        /// The reason, as text.
        reason: String,
    },
    /// Grants memory to the other side.
    Grant(GrantOffer),
    /// Asks the other side to stop using a grant, and to confirm with `Revoked`.
    Revoke {
        /// The grant.
        grant: GrantId,
    },
    /// Confirms that this side no longer uses a grant.
    Revoked {
        /// The grant.
        grant: GrantId,
    },
    /// Asks for a grant of published memory.
    Open {
        /// The publication.
        publication: PublicationId,
    },
    /// Answers `Open`: the grant that the other side has of the memory.
    Opened {
        /// The publication.
        publication: PublicationId,
        /// The grant, which was announced before.
        grant: GrantId,
    },
    /// Answers `Open`: the other side gets no grant.
    NotOpened {
        /// The publication.
        publication: PublicationId,
        /// The reason, as text.
        reason: String,
    },
    /// Asks how many pages were counted from a lost link.
    Settle {
        /// The lost link.
        link: LinkId,
        /// The counter.
        counter: CounterId,
    },
    /// Answers `Settle`: the pages counted from the link. No more will be counted from it.
    Settled {
        /// The lost link.
        link: LinkId,
        /// The counter.
        counter: CounterId,
        /// The number of pages.
        pages: u64,
    },
    /// Announces a counter that the other side may raise, and its names on links whose immediates
    /// do not identify their link.
    Counter {
        /// The id of the counter.
        counter: CounterId,
        /// Its names on such links.
        names: Vec<(LinkId, CounterId)>,
    },
    /// A counter is closed.
    CounterClosed {
        /// The id of the counter.
        counter: CounterId,
    },
    /// Adds pages that have arrived and whose immediates were lost.
    Add {
        /// The counter.
        counter: CounterId,
        /// The number of pages.
        pages: u64,
    },
    /// A transfer was aborted.
    Abort {
        /// The transfer's counter.
        counter: CounterId,
        /// The reason, as text.
        reason: String,
    },
    /// A message of the application that no link carried.
    Message {
        /// Its position among all messages of this side.
        sequence: u64,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// The application took messages: there is room for as many more.
    Taken {
        /// The number of messages.
        count: u32,
    },
    /// All messages before this number are held for the application on this side, even if links are
    /// lost.
    Held {
        /// The number of the next message.
        next: u64,
    },
    /// Asks whether the other side is alive. It answers with a `Pong` at once.
    Ping {
        /// Identifies the ping.
        nonce: u64,
    },
    /// Operations follow over a rail that cannot wake the other side: it must poll that rail for a
    /// while.
    Look,
    /// This side does not accept the other one, and closes the connection. Sent instead of a hello.
    Refused {
        /// The reason, as text.
        reason: String,
    },
    /// The last frame of an orderly close.
    Goodbye,
    /// Answers a `Ping`.
    Pong {
        /// The nonce of the ping.
        nonce: u64,
    },
    /// Asks for a counter of its own to raise a shared counter.
    OpenCounter {
        /// The shared counter.
        shared: SharedCounterId,
    },
    /// Answers `OpenCounter`: the counter that the other side raises.
    CounterOpened {
        /// The shared counter.
        shared: SharedCounterId,
        /// The counter, which was announced before.
        counter: CounterId,
    },
    /// Answers `OpenCounter`: the other side gets no counter.
    CounterNotOpened {
        /// The shared counter.
        shared: SharedCounterId,
        /// The reason, as text.
        reason: String,
    },
}

/// Describes an engine to its peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// A number that differs with each start of an engine: a restarted peer is another peer.
    pub incarnation: u64,
    /// A name for people.
    pub name: String,
    /// The kinds of its rails: links connect rails of the same kind.
    pub rails: Vec<String>,
    /// The number of messages that it holds while its application has not taken them.
    pub messages: u32,
    /// The number of grants that it accepts from the other side at a time.
    pub grants: u32,
    /// The number of counters that it accepts from the other side at a time.
    pub counters: u32,
}

impl Hello {
    /// Describes an engine without a name. The [machine](crate::machine) that sends it fills in its
    /// rails, its room for messages and its budgets.
    pub fn new(incarnation: u64) -> Self {
        Self { incarnation, name: String::new(), rails: Vec::new(), messages: 0, grants: 0, counters: 0 }
    }
}

/// An offer of one end of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkOffer {
    /// The id of the link, within this connection.
    pub link: LinkId,
    /// The rail of the offering side.
    pub from: u16,
    /// The rail of the other side.
    pub to: u16,
    /// The address of this end, in the format of its rail.
    pub address: Vec<u8>,
}

/// An offer of memory that a peer may access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantOffer {
    /// The id of the grant.
    pub grant: GrantId,
    /// The length in bytes.
    pub len: u64,
    /// The [`Rights`](crate::rights::Rights) as bits: 1 read, 2 write, 4 atomics.
    pub rights: u8,
    /// The scope of the rails over which it can be accessed.
    pub scope: Scope,
    /// For each rail of the offering side, in order: the address where the memory begins, and its
    /// key. `None` if the rail has another scope, or if its keys are bound to links.
    pub keys: Vec<Option<(u64, u64)>>,
}

/// A key of a grant that is good over one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundKey {
    /// The id of the grant.
    pub grant: GrantId,
    /// The address where the memory begins.
    pub address: u64,
    /// The key.
    pub key: u64,
}

/// The maximum number of keys in one frame. They fit, whatever their numbers are.
pub const KEYS_MAX: usize = 1024;

/// Errors of the preamble and of frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The other side is not an engine.
    #[error("the other side is not a farreach engine")]
    Stranger,
    /// The other side has another version of the frames.
    #[error("the peer has protocol version {theirs}, this side has {VERSION}: upgrade {}", older_side(*.theirs))]
    Version {
        /// The version of the other side.
        theirs: u16,
    },
    /// A frame is too long.
    #[error("a frame of {len} bytes exceeds the maximum of {FRAME_MAX} bytes")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A frame cannot be encoded or decoded.
    #[error("a frame of {len} bytes cannot be decoded")]
    Meaningless {
        /// Its length in bytes.
        len: usize,
    },
}

/// Returns the side with the older version.
fn older_side(theirs: u16) -> &'static str {
    if theirs > VERSION { "this side" } else { "the peer" }
}

/// Appends an encoded frame to `bytes`.
///
/// ```
/// use farreach_proto::wire::{Decoder, Frame, encode};
///
/// let mut bytes = Vec::new();
/// encode(&Frame::Ping { nonce: 7 }, &mut bytes)?;
/// let mut decoder = Decoder::new();
/// decoder.feed(&bytes);
/// assert_eq!(decoder.next()?, Some(Frame::Ping { nonce: 7 }));
/// assert_eq!(decoder.next()?, None);
/// # Ok::<(), farreach_proto::wire::WireError>(())
/// ```
pub fn encode(frame: &Frame, bytes: &mut Vec<u8>) -> Result<(), WireError> {
    let content = postcard::to_allocvec(frame).map_err(|_| WireError::Meaningless { len: 0 })?;
    // The receiver would end the connection.
    if content.len() > FRAME_MAX {
        return Err(WireError::TooLong { len: content.len() });
    }
    // At most `FRAME_MAX`, so nothing is cut off.
    bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&content);
    Ok(())
}

/// Decodes frames from bytes that arrive in arbitrary chunks.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// The number of bytes at the front that are decoded already.
    done: usize,
}

impl Decoder {
    /// Creates a decoder that holds no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        // Dropping the decoded bytes here bounds the buffer to one frame and the chunk that
        // completed it.
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns `true` if all received bytes are decoded: the other side is between two frames.
    pub fn is_empty(&self) -> bool {
        self.done == self.bytes.len()
    }

    /// Returns the next frame if all of it has arrived. After an error, the decoder must not be
    /// used further.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would end where only more bytes are needed"
    )]
    pub fn next(&mut self) -> Result<Option<Frame>, WireError> {
        let rest = &self.bytes[self.done..];
        let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        // Checked before the content arrives, so that a peer cannot make the buffer grow without
        // limit.
        if len > FRAME_MAX {
            return Err(WireError::TooLong { len });
        }
        let Some(content) = rest.get(..len) else { return Ok(None) };
        let (frame, left) = postcard::take_from_bytes(content).map_err(|_| WireError::Meaningless { len })?;
        // Trailing bytes mean that the two sides disagree about the frame.
        if !left.is_empty() {
            return Err(WireError::Meaningless { len });
        }
        // The next `feed` removes them, once for all frames of a chunk.
        self.done += size_of::<u32>() + len;
        Ok(Some(frame))
    }
}

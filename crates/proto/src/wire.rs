//! What two engines tell each other beside the data: frames, bounded and versioned.
//!
//! A connection begins with a preamble of fixed form on both sides, which says the version; so two engines that do not understand each
//! other's frames can still say so. Then each frame is its length (four bytes, the highest first) and its content.

use serde::{Deserialize, Serialize};

use crate::counter::{CounterId, LinkId};

/// The version of the frames. It changes with every change of them.
pub const VERSION: u16 = 2;

/// The longest frame: who announces a longer one is not one of us.
pub const FRAME_MAX: usize = 64 * 1024;

const MAGIC: [u8; 6] = *b"farrch";

/// The length of a preamble.
pub const PREAMBLE_LEN: usize = MAGIC.len() + 2;

/// What a connection begins with.
pub fn preamble() -> [u8; PREAMBLE_LEN] {
    let [high, low] = VERSION.to_be_bytes();
    let [a, b, c, d, e, f] = MAGIC;
    [a, b, c, d, e, f, high, low]
}

/// Whether the other side speaks as this one does.
///
/// ```
/// use farreach_proto::wire::{check_preamble, preamble};
///
/// check_preamble(&preamble()).unwrap();
/// let older = check_preamble(b"farrch\0\0").unwrap_err();
/// assert_eq!(older.to_string(), "the peer speaks version 0 and this side version 2: upgrade the peer");
/// ```
pub fn check_preamble(bytes: &[u8; PREAMBLE_LEN]) -> Result<(), WireError> {
    let (magic, version) = bytes.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(WireError::Stranger);
    }
    let theirs = version.iter().fold(0, |version, byte| version << 8 | u16::from(*byte));
    if theirs == VERSION { Ok(()) } else { Err(WireError::Version { theirs }) }
}

/// What one engine tells the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Frame {
    /// The first frame of each side.
    Hello(Hello),
    /// This side's end of a link, for the other to connect to.
    Link(LinkOffer),
    /// This side's end is connected: what comes over it is served.
    LinkReady {
        /// Which.
        link: LinkId,
        /// What messages over it are to be marked with.
        mark: u32,
    },
    /// A link is of no use any more.
    LinkLost {
        /// Which.
        link: LinkId,
        /// Whether nothing that this side has sent over it is in flight: all of it is known to have landed.
        is_quiet: bool,
        /// Why, in words.
        reason: String,
    },
    /// Memory that the other side may reach.
    Grant(GrantOffer),
    /// The other side shall stop reaching it, and say so.
    Revoke {
        /// Which.
        grant: u64,
    },
    /// This side reaches it no more.
    Revoked {
        /// Which.
        grant: u64,
    },
    /// How many pages did you count from this link?
    Settle {
        /// The link that was lost.
        link: LinkId,
        /// For which counter.
        counter: CounterId,
    },
    /// So many, and no more will be.
    Settled {
        /// The link that was lost.
        link: LinkId,
        /// For which counter.
        counter: CounterId,
        /// The pages.
        pages: u64,
    },
    /// A counter that the other side may raise, and what it is called on links whose immediates do not say where they came from.
    Counter {
        /// Its name.
        counter: CounterId,
        /// Its names on such links.
        names: Vec<(LinkId, CounterId)>,
    },
    /// A counter is closed.
    CounterClosed {
        /// Its name.
        counter: CounterId,
    },
    /// So many pages are there whose immediates were lost.
    Add {
        /// For which counter.
        counter: CounterId,
        /// The pages.
        pages: u64,
    },
    /// A transfer was aborted.
    Abort {
        /// Its counter.
        counter: CounterId,
        /// Why, in words.
        reason: String,
    },
    /// A message of the user's that no link carried.
    Message {
        /// Its place among all messages of this side.
        sequence: u64,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// So many messages were taken by the user: there is room for as many more.
    Taken {
        /// How many.
        count: u32,
    },
    /// All messages before this number are held for the user here, whatever becomes of the links.
    Held {
        /// The number of the next one.
        next: u64,
    },
    /// Are you there?
    Ping {
        /// Comes back.
        nonce: u64,
    },
    /// Yes.
    Pong {
        /// What the ping had.
        nonce: u64,
    },
    /// Something comes over a rail that cannot wake the other side: it is to look there for a while.
    Look,
    /// The last frame: nothing follows, and nothing is wrong.
    Goodbye,
}

/// Who one is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Another one for each engine that is started: a peer that was restarted is another peer.
    pub incarnation: u64,
    /// A name for people.
    pub name: String,
    /// How often it says something, in milliseconds, even if there is nothing to say.
    pub heartbeat_ms: u32,
    /// What each of its rails is of: ends of the same kind go together.
    pub rails: Vec<String>,
    /// How many messages it holds that its user has not taken.
    pub messages: u32,
}

impl Hello {
    /// Of an engine without a name that says something every millisecond. Its rails and its room for messages are filled in by the
    /// [machine](crate::machine) that sends it.
    pub fn new(incarnation: u64) -> Self {
        Self { incarnation, name: String::new(), heartbeat_ms: 1, rails: Vec::new(), messages: 0 }
    }
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkOffer {
    /// Its name, for this connection.
    pub link: LinkId,
    /// Which rail of this side's.
    pub from: u16,
    /// Which rail of the other side's.
    pub to: u16,
    /// The address by which the other end reaches it, in its own words.
    pub address: Vec<u8>,
}

/// Memory that a peer may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantOffer {
    /// Its name.
    pub grant: u64,
    /// How long it is.
    pub len: u64,
    /// What may be done with it: 1 read, 2 write, 4 atomics.
    pub rights: u8,
    /// For each rail of this side's, in order: where it begins, and its key there.
    pub keys: Vec<Option<(u64, u64)>>,
}

/// Why frames were not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Something else connected.
    #[error("what connected is no farreach engine")]
    Stranger,
    /// Another version of the frames.
    #[error("the peer speaks version {theirs} and this side version {VERSION}: upgrade {}", older_side(*.theirs))]
    Version {
        /// The other side's.
        theirs: u16,
    },
    /// A frame that is longer than any.
    #[error("a frame of {len} bytes, where {FRAME_MAX} are the most")]
    TooLong {
        /// How long.
        len: usize,
    },
    /// A frame that means nothing.
    #[error("a frame of {len} bytes that means nothing")]
    Meaningless {
        /// How long.
        len: usize,
    },
}

/// The side with the older version.
fn older_side(theirs: u16) -> &'static str {
    if theirs > VERSION { "this side" } else { "the peer" }
}

/// Appends a frame.
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
    if content.len() > FRAME_MAX {
        return Err(WireError::TooLong { len: content.len() });
    }
    bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&content);
    Ok(())
}

/// Frames out of bytes that come in pieces.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// What was decoded already.
    done: usize,
}

impl Decoder {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// More bytes have come.
    pub fn feed(&mut self, bytes: &[u8]) {
        // What was decoded makes room: so that it holds no more than a frame and what came with it.
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether all that has come was decoded: the other side is between two frames.
    pub fn is_empty(&self) -> bool {
        self.done == self.bytes.len()
    }

    /// The next frame, if it is there whole. After an error nothing more can be understood.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would end where only more bytes are needed"
    )]
    pub fn next(&mut self) -> Result<Option<Frame>, WireError> {
        let rest = &self.bytes[self.done..];
        let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
        let len = u32::from_be_bytes(*len) as usize;
        if len > FRAME_MAX {
            return Err(WireError::TooLong { len });
        }
        let Some(content) = rest.get(..len) else { return Ok(None) };
        let (frame, left) = postcard::take_from_bytes(content).map_err(|_| WireError::Meaningless { len })?;
        if !left.is_empty() {
            return Err(WireError::Meaningless { len });
        }
        self.done += size_of::<u32>() + len;
        Ok(Some(frame))
    }
}

//! Memory that a peer may reach.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use farreach_memory::Exposed;
use farreach_proto::machine::PeerKey;
use farreach_rail::RevokeAnswer;

use crate::delivery::Waiter;
use crate::driver::{Command, Driver};
use crate::pending::{Answer, Pending, sealed::Sealed};
use crate::progress::{Awaited, Listener, oneshot};
use crate::time::nanoseconds;
use crate::{ParseTokenError, Peer, Rights};

/// Memory of ours that a peer may reach. It never derefs to bytes: the peer may change them at any time. It is copied in and out.
///
/// [`revoke`](Self::revoke) ends it. Dropped without, the engine does the same and frees the memory when the peer provably reaches it no more.
///
/// ```no_run
/// # fn grant(engine: &farreach::Engine, peer: &farreach::Peer) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use farreach::Rights;
///
/// let grant = peer.grant(engine.allocate(1 << 20)?, Rights::WRITE).map_err(|refused| refused.error)?;
/// peer.send(grant.token().to_string()).wait(Duration::from_secs(1))?;
/// // … the peer writes, and a counter says so …
/// match grant.revoke(Duration::from_secs(5))?.try_into_slice() {
///     Ok(slice) => println!("{:?}", &slice[..16]),
///     // Over tcp nothing proves that the peer has stopped: the bytes are copied, and the memory can be granted again.
///     Err(exposed) => {
///         let mut copy = [0; 16];
///         exposed.read_at(0, &mut copy);
///         println!("{copy:?}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Grant {
    /// Not let go of before the grant: who is gone cannot say that it has stopped.
    pub(crate) peer: Peer,
    pub(crate) id: u64,
    /// Taken out by whoever ends it.
    pub(crate) memory: Option<Arc<Exposed>>,
}

impl Grant {
    fn memory(&self) -> &Exposed {
        self.memory.as_ref().expect("it is taken out only at the end")
    }

    /// What the peer names it by.
    pub fn token(&self) -> GrantToken {
        GrantToken(self.id)
    }

    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty one is never made")]
    pub fn len(&self) -> usize {
        self.memory().len()
    }

    /// Copies out what lies at `offset`. Bytes that the peer writes meanwhile may be seen old or new, each by itself.
    ///
    /// # Panics
    ///
    /// If it reaches beyond the end.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        self.memory().read_at(offset, into);
    }

    /// Copies in at `offset`.
    ///
    /// # Panics
    ///
    /// If it reaches beyond the end.
    pub fn write_at(&self, offset: usize, from: &[u8]) {
        self.memory().write_at(offset, from);
    }

    /// The eight bytes at `offset`, to be read and changed atomically with respect to this process. Whether a card's atomics and a
    /// processor's exclude each other depends on the card.
    ///
    /// # Panics
    ///
    /// If they reach beyond the end, or their address is not a multiple of eight.
    pub fn atomic_at(&self, offset: usize) -> &AtomicU64 {
        self.memory().atomic_at(offset)
    }

    /// Ends it. The peer is told to stop. The keys are ended when the peer says that it has stopped, when it is lost, or after `timeout`. Then the memory comes
    /// back.
    ///
    /// [`Exposed::try_into_slice`] makes it a [`Slice`](crate::Slice) if it is proven that the peer reaches it no more. Over an RDMA card it always is: the card
    /// refuses a key that was ended. Over tcp a write that is under way goes on, and the peer's word is no proof. The memory can then be copied from,
    /// or granted again, where a last write of this peer may still land in it. It becomes a slice when the rail is reset, which the engine does
    /// at once for a peer that is lost or does not answer, and when the engine is closed. If the peer is known to have stopped by other means, the
    /// unsafe [`Exposed::into_slice_unchecked`] gives the slice.
    pub fn revoke(self, timeout: Duration) -> Result<Exposed, RevokeError> {
        self.begin_revoke(timeout).wait(timeout.saturating_add(MARGIN))
    }

    /// As [`revoke`](Self::revoke), to be awaited: it ends by itself after `timeout`.
    pub fn begin_revoke(mut self, timeout: Duration) -> Pending<Revoked> {
        let (sender, receiver) = oneshot::channel();
        let (id, peer) = (self.id, self.peer.clone());
        let handle = self.memory.take();
        let memory = handle.as_ref().map(Arc::downgrade).unwrap_or_default();
        let call = move |driver: &mut Driver, now: u64| {
            // Not before: without any handle of the user's, the engine may answer a revoke that was given up, and nobody reads that.
            drop(handle);
            // The largest number of all is for who does not want it back.
            let deadline = now.saturating_add(nanoseconds(timeout)).min(u64::MAX - 1);
            let op = driver.delivery.wait_for(Waiter::Revoked(sender));
            driver.machine.revoke(Some(op), id, deadline, now);
        };
        peer.running().submit(Command::Call(Box::new(call)));
        let progress = Arc::clone(peer.running());
        Pending { progress, answer: Revoked { receiver, grant: Some(Wanted { peer, id, memory }) } }
    }
}

/// The machine answers by the deadline; it is given a moment to do so.
const MARGIN: Duration = Duration::from_secs(1);

impl Drop for Grant {
    fn drop(&mut self) {
        if self.memory.take().is_some() {
            give_up(&self.peer, self.id);
        }
    }
}

/// Nobody wants it back: it is freed when the peer reaches it no more.
fn give_up(peer: &Peer, id: u64) {
    let call = move |driver: &mut Driver, now: u64| driver.machine.revoke(None, id, u64::MAX, now);
    peer.running().submit(Command::Call(Box::new(call)));
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("token", &self.token()).finish_non_exhaustive()
    }
}

/// Memory that is wanted back.
pub struct Revoked {
    receiver: oneshot::Receiver<RevokeAnswer>,
    /// Until it has ended, or the grant was handed back.
    grant: Option<Wanted>,
}

struct Wanted {
    peer: Peer,
    id: u64,
    memory: Weak<Exposed>,
}

impl Revoked {
    /// The grant goes back into the user's hand, unless the engine has taken the memory out of it.
    fn hand_back(&mut self) -> Option<Grant> {
        let memory = self.grant.as_ref()?.memory.upgrade()?;
        let Wanted { peer, id, .. } = self.grant.take()?;
        Some(Grant { peer, id, memory: Some(memory) })
    }
}

impl Drop for Revoked {
    fn drop(&mut self) {
        if let Some(Wanted { peer, id, .. }) = self.grant.take() {
            give_up(&peer, id);
        }
    }
}

impl fmt::Debug for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revoked").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

impl Answer for Revoked {
    type Output = Result<Exposed, RevokeError>;
}

impl Sealed for Revoked {
    type Found = Result<Exposed, RevokeError>;

    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Self::Found> {
        let answer = self.receiver.take()?;
        if !matches!(answer, Ok(RevokeAnswer::NotYet(_))) {
            self.grant = None;
        }
        Some(match answer {
            Ok(RevokeAnswer::Back(memory)) => Ok(memory),
            Ok(RevokeAnswer::NotYet(why)) => {
                Err(RevokeError { why: why.to_owned(), grant: self.hand_back() })
            }
            Err(_) => self.ended(),
        })
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        loop {
            let grant = self.hand_back();
            if grant.is_some() || self.grant.is_none() {
                return Err(RevokeError { why: format!("no answer within {after:?}"), grant });
            }
            // The engine has taken the memory out of the grant just now, and answers next: nothing of the user's runs in between.
            if let Some(found) = self.take() {
                return found;
            }
            thread::yield_now();
        }
    }

    fn ended(&mut self) -> Self::Found {
        Err(RevokeError { why: "the engine has ended".to_owned(), grant: None })
    }
}

/// Why memory is not back.
#[derive(Debug, thiserror::Error)]
#[error("the memory is not back: {why}")]
#[non_exhaustive]
pub struct RevokeError {
    /// Why.
    pub why: String,
    /// The grant, to be revoked again. There is none where the engine has ended: the memory went with it.
    pub grant: Option<Grant>,
}

/// What a peer names granted memory by: told to him in a message, or in any other way.
///
/// ```
/// use farreach::GrantToken;
///
/// let token: GrantToken = "g-7".parse()?;
/// assert_eq!(token.to_string(), "g-7");
/// assert_eq!(GrantToken::from_bytes(token.to_bytes()), token);
/// # Ok::<(), farreach::ParseTokenError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct GrantToken(u64);

impl GrantToken {
    /// As bytes, for a message.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// From such bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    pub(crate) fn id(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GrantToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g-{:x}", self.0)
    }
}

impl FromStr for GrantToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        crate::token::parse(text, "g-").map(Self).ok_or(ParseTokenError { what: "grant" })
    }
}

/// A peer's memory that we may reach: where it is, how long, and for what. Nothing reaches beyond it: every access is checked before it is posted.
///
/// ```no_run
/// # fn take(peer: &farreach::Peer, token: farreach::GrantToken) -> Result<(), farreach::Error> {
/// let memory = peer.remote(token).wait(std::time::Duration::from_secs(1))?;
/// let second_half = memory.get(memory.len() / 2, memory.len() / 2).expect("it has one");
/// assert!(second_half.rights().contains(farreach::Rights::WRITE));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSlice {
    pub(crate) peer: PeerKeyTag,
    pub(crate) grant: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) rights: Rights,
}

/// Whose memory: of another peer it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerKeyTag(pub(crate) PeerKey);

impl RemoteSlice {
    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty one is of no use")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What we may do with it.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The `len` bytes at `offset`, or nothing if it does not have them.
    pub fn get(&self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Self { offset: self.offset + offset, len, ..self.clone() })
    }
}

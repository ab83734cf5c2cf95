//! Memory that a peer may access, on both sides: the owner's grants, and the views of granted
//! memory.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::str::FromStr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use farreach_memory::Exposed;
use farreach_proto::ids::GrantId;
use farreach_proto::machine::PeerKey;
use farreach_proto::time::Time;
use farreach_rail::RevokeAnswer;

use crate::delivery::Waiter;
use crate::driver::{Command, Driver};
use crate::error::debug_as_its_error;
use crate::hung_call::Timeout;
use crate::pending::{Answer, Pending};
use crate::progress::{Awaited, Listener, oneshot};
use crate::time::nanoseconds;
use crate::{Error, ParseTokenError, Peer, Rights};

/// Local memory that a peer may access.
///
/// It does not deref to bytes, because the peer may change them at any time. Bytes are copied in
/// and out. [`revoke`](Self::revoke) ends the grant. A grant that is dropped is revoked by the
/// engine, which frees the memory when the peer provably cannot access it.
///
/// ```no_run
/// # fn grant(engine: &farreach::Engine, peer: &farreach::Peer) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use farreach::Rights;
///
/// const SOON: Duration = Duration::from_secs(5);
///
/// let memory = engine.allocate(1 << 20).wait(SOON)?;
/// let grant = peer.grant(memory, Rights::WRITE).wait(SOON)?;
/// peer.send(grant.token().to_string()).wait(SOON)?;
/// // … the peer writes, and a counter reports the pages …
/// match grant.revoke(SOON)?.try_into_slice() {
///     Ok(slice) => println!("{:?}", &slice[..16]),
///     // Over tcp nothing proves that the peer has stopped. The bytes are copied, and the memory can be granted again.
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
    /// Keeps the connection as long as the grant: without it, the peer cannot confirm that it has
    /// stopped.
    pub(crate) peer: Peer,
    pub(crate) id: GrantId,
    /// Taken when the grant is revoked.
    pub(crate) memory: Option<Arc<Exposed>>,
}

impl Grant {
    fn memory(&self) -> &Exposed {
        self.memory.as_ref().expect("only `begin_revoke` and `drop` take the memory")
    }

    /// Returns the token of the grant, for the peer.
    pub fn token(&self) -> GrantToken {
        GrantToken(self.id.to_raw())
    }

    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "a grant is never empty")]
    pub fn len(&self) -> usize {
        self.memory().len()
    }

    /// Copies bytes from `offset` into `into`. Of bytes that the peer writes at the same time, each
    /// may be old or new.
    ///
    /// # Panics
    ///
    /// Panics if the range exceeds the memory.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        self.memory().read_at(offset, into);
    }

    /// Copies `from` to `offset`.
    ///
    /// # Panics
    ///
    /// Panics if the range exceeds the memory.
    pub fn write_at(&self, offset: usize, from: &[u8]) {
        self.memory().write_at(offset, from);
    }

    /// Returns the eight bytes at `offset` as an atomic of this process. Whether a card's atomics
    /// and a processor's are atomic with respect to each other depends on the card.
    ///
    /// # Panics
    ///
    /// Panics if the eight bytes exceed the memory, or if their address is not a multiple of eight.
    pub fn atomic_at(&self, offset: usize) -> &AtomicU64 {
        self.memory().atomic_at(offset)
    }

    /// Revokes the grant and returns the memory. Blocks for at most `timeout` and two seconds; see
    /// [`begin_revoke`](Self::begin_revoke) for tasks.
    ///
    /// The engine asks the peer to stop. It ends the keys when the peer confirms that it has
    /// stopped, when the peer is lost, or after `timeout`. Then the memory is returned.
    ///
    /// [`Exposed::try_into_slice`] makes it a [`Slice`](crate::Slice) if it is proven that the peer
    /// cannot access it. Over an RDMA card it always is: the card refuses a key that was ended.
    /// Over tcp a write in flight continues, and the peer's confirmation is no proof. The memory
    /// can then be copied from, or granted again, while a last write of this peer may still land in
    /// it. It can become a slice after the rail was reset, which the engine does at once for a peer
    /// that is lost or does not answer, and after the engine was closed. If the program knows by
    /// other means that the peer has stopped, the unsafe [`Exposed::into_slice_unchecked`] returns
    /// the slice.
    pub fn revoke(self, timeout: Duration) -> Result<Exposed, RevokeError> {
        self.begin_revoke(timeout).wait(timeout.saturating_add(MARGIN))
    }

    /// Starts to [revoke](Self::revoke) the grant. The result is available within `timeout`, plus
    /// the time that a step of the engine takes.
    pub fn begin_revoke(mut self, timeout: Duration) -> Pending<Exposed, RevokeError> {
        let (sender, receiver) = oneshot::channel();
        let (id, peer) = (self.id, self.peer.clone());
        let handle = self.memory.take();
        // Weak, because the engine gives the memory back only when no handle is left.
        let memory = handle.as_ref().map(Arc::downgrade).unwrap_or_default();
        let call = move |driver: &mut Driver, now: Time| {
            // Not earlier: once the user's handle is gone, the engine may answer a revoke whose
            // wait timed out, and that answer would be lost.
            drop(handle);
            // The time that never comes is reserved for grants whose memory is not wanted back.
            let deadline = now.saturating_add(nanoseconds(timeout)).min(Time::LAST);
            let op = driver.delivery.wait_for(Waiter::Revoked(sender));
            driver.machine.revoke(Some(op), id, deadline, now);
        };
        peer.running().submit(Command::Call(Box::new(call)));
        let progress = Arc::clone(peer.running());
        Pending::new(&progress, Revocation { receiver, grant: Some(Wanted { peer, id, memory }) })
    }
}

/// The time for the machine's answer to arrive, which it gives at the deadline.
const MARGIN: Duration = Duration::from_secs(1);

impl Drop for Grant {
    fn drop(&mut self) {
        // `begin_revoke` has taken the memory of a grant that is being revoked.
        if self.memory.take().is_some() {
            give_up(&self.peer, self.id);
        }
    }
}

/// Revokes a grant whose memory is not wanted back. The engine frees the memory when the peer
/// provably cannot access it.
fn give_up(peer: &Peer, id: GrantId) {
    let call = move |driver: &mut Driver, now: Time| driver.machine.revoke(None, id, Time::NEVER, now);
    peer.running().submit(Command::Call(Box::new(call)));
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("token", &self.token()).finish_non_exhaustive()
    }
}

struct Revocation {
    receiver: oneshot::Receiver<RevokeAnswer>,
    /// `None` when the revocation has ended, or the grant was returned to the user.
    grant: Option<Wanted>,
}

struct Wanted {
    peer: Peer,
    id: GrantId,
    memory: Weak<Exposed>,
}

impl Revocation {
    /// Returns the grant to the user, unless the engine has taken the memory out of it.
    fn hand_back(&mut self) -> Option<Grant> {
        // From here on the engine cannot give the memory back, because its handle is not the only
        // one.
        let memory = self.grant.as_ref()?.memory.upgrade()?;
        let Wanted { peer, id, .. } = self.grant.take()?;
        Some(Grant { peer, id, memory: Some(memory) })
    }
}

impl Drop for Revocation {
    fn drop(&mut self) {
        // Nobody can revoke the grant any more, so the engine goes on without a deadline.
        if let Some(Wanted { peer, id, .. }) = self.grant.take() {
            give_up(&peer, id);
        }
    }
}

impl Answer<Result<Exposed, RevokeError>> for Revocation {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<Exposed, RevokeError>> {
        let answer = self.receiver.take()?;
        // The grant has ended, so the drop of this must not revoke it.
        if !matches!(answer, Ok(RevokeAnswer::NotYet(_))) {
            self.grant = None;
        }
        Some(match answer {
            Ok(RevokeAnswer::Back(memory)) => Ok(memory),
            Ok(RevokeAnswer::NotYet(why)) => Err(RevokeError::new(Error::not_revoked(why), self.hand_back())),
            Err(_) => self.ended(),
        })
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<Exposed, RevokeError> {
        let until = Instant::now() + MARGIN;
        loop {
            let grant = self.hand_back();
            // If the engine has just taken the memory out of the grant, it answers at the end of
            // its step, in which no user code runs. A call into a library may hang before that.
            let is_late = timeout.hung.is_some() || Instant::now() >= until;
            if grant.is_some() || self.grant.is_none() || is_late {
                return Err(RevokeError::new(Error::timed_out("revoke a grant", timeout), grant));
            }
            // The answer came after the wait has timed out.
            if let Some(found) = self.take() {
                return found;
            }
            thread::yield_now();
        }
    }

    fn ended(&mut self) -> Result<Exposed, RevokeError> {
        Err(RevokeError::new(Error::ended(), None))
    }
}

/// The error of a revocation, with the grant.
#[derive(thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct RevokeError {
    /// The error.
    pub error: Error,
    /// The grant, which can be revoked again. `None` if the engine has ended: the memory went with
    /// it. Also `None` if the engine hangs in a call into a library between the end of the grant and
    /// its answer: it frees the memory when the call returns.
    pub grant: Option<Grant>,
}

debug_as_its_error!(RevokeError);

/// Drops the grant, which the error may have.
impl From<RevokeError> for Error {
    fn from(failed: RevokeError) -> Self {
        failed.error
    }
}

impl RevokeError {
    pub(crate) fn new(error: Error, grant: Option<Grant>) -> Self {
        Self { error, grant }
    }
}

/// The token of a grant, for the peer that may access the memory. A program sends it as text, or by
/// serde.
///
/// ```
/// use farreach::GrantToken;
///
/// let token: GrantToken = "g-7".parse()?;
/// assert_eq!(token.to_string(), "g-7");
/// # Ok::<(), farreach::ParseTokenError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct GrantToken(u64);

impl GrantToken {
    pub(crate) fn id(self) -> GrantId {
        GrantId::from_raw(self.0)
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

/// Memory of a peer that this engine may access. Every access is checked against its bounds and
/// rights before it is posted.
///
/// ```no_run
/// # fn take(peer: &farreach::Peer, token: farreach::GrantToken) -> Result<(), farreach::Error> {
/// let memory = peer.remote(token).wait(std::time::Duration::from_secs(1))?;
/// let second_half = memory.get(memory.len() / 2..memory.len()).expect("it is within the memory");
/// assert!(second_half.rights().contains(farreach::Rights::WRITE));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSlice {
    pub(crate) peer: PeerKeyTag,
    pub(crate) grant: GrantId,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) rights: Rights,
}

/// The peer that owns the memory. Memory of another peer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerKeyTag(pub(crate) PeerKey);

impl RemoteSlice {
    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "granted memory is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the rights of this engine to it.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Returns the bytes from `offset` to the end.
    ///
    /// # Panics
    ///
    /// Panics if `offset` exceeds the length. [`get`](Self::get) returns `None` instead.
    #[track_caller]
    pub fn at(&self, offset: u64) -> Self {
        self.range(offset..)
    }

    /// Returns a part of it, to which a transfer is bounded.
    ///
    /// # Panics
    ///
    /// Panics if the range is not within it. [`get`](Self::get) returns `None` instead.
    ///
    /// ```
    /// # fn part(memory: &farreach::RemoteSlice) {
    /// let header = memory.range(..64);
    /// let rest = memory.at(64);
    /// assert_eq!(header.len() + rest.len(), memory.len());
    /// # }
    /// ```
    #[track_caller]
    pub fn range(&self, range: impl RangeBounds<u64>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(self.len),
        };
        // A bound that overflows is out of bounds as any other.
        let part = start.zip(end).and_then(|(start, end)| self.get(start..end));
        part.unwrap_or_else(|| {
            let (start, end) = (range.start_bound(), range.end_bound());
            panic!("the range {start:?} to {end:?} exceeds remote memory of {} bytes", self.len)
        })
    }

    /// Returns a part of it, or `None` if the range is not within it.
    pub fn get(&self, range: Range<u64>) -> Option<Self> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        Some(Self { offset: self.offset + range.start, len: range.end - range.start, ..self.clone() })
    }
}

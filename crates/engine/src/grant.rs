//! Memory that a peer may reach.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;
use std::time::Duration;

use farreach_memory::Exposed;

use crate::driver::{Command, Driver};
use crate::helm::{Awaited, Helm, Ticket, promise};
use crate::machine::{PeerKey, RevokeAnswer};
use crate::pending::{Answer, Pending, sealed::Sealed};
use crate::{ParseTokenError, Rights, Slice};

/// Memory of ours that a peer may reach. It never derefs to bytes: the peer may change them at any time. It is copied in and out.
///
/// [`revoke`](Self::revoke) gives the slice back when the peer provably reaches it no more. Dropped without, the engine does the same and
/// frees it.
///
/// ```no_run
/// # fn grant(engine: &farreach::Engine, peer: &farreach::Peer) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use farreach::Rights;
///
/// let grant = peer.grant(engine.allocate(1 << 20)?, Rights::WRITE).map_err(|refused| refused.error)?;
/// peer.send(grant.token().to_string()).wait(Duration::from_secs(1))?;
/// // … the peer writes, and a counter says so …
/// let slice = grant.revoke(Duration::from_secs(5))?;
/// println!("{:?}", &slice[..16]);
/// # Ok(())
/// # }
/// ```
pub struct Grant {
    pub(crate) helm: Arc<Helm<Driver>>,
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
    pub fn word_at(&self, offset: usize) -> &AtomicU64 {
        self.memory().word_at(offset)
    }

    /// Ends it, and gives the slice back when the peer reaches it no more: its key is dead, and nothing that was begun by it is under way. What
    /// that takes depends on the rail: a card's key is enough; elsewhere the peer's word, its end, or the rail's new beginning.
    ///
    /// Where that is not proven in time the grant is handed back, to be revoked again. The peer was told to stop.
    pub fn revoke(self, timeout: Duration) -> Result<Slice, RevokeError> {
        self.begin_revoke(timeout).wait(timeout + MARGIN)
    }

    /// As [`revoke`](Self::revoke), to be awaited: it ends by itself after `timeout`.
    pub fn begin_revoke(mut self, timeout: Duration) -> Pending<Revoked> {
        let (promise, ticket) = promise();
        let (id, helm) = (self.id, Arc::clone(&self.helm));
        let memory = self.memory.take().map(|memory| Arc::downgrade(&memory));
        let call = move |driver: &mut Driver, now: u64| {
            let deadline = now.saturating_add(timeout.as_nanos() as u64);
            driver.machine.revoke(id, deadline, Some(promise), now);
        };
        helm.submit(Command::Call(Box::new(call)));
        Pending {
            helm: Arc::clone(&helm),
            answer: Revoked { ticket, grant: Some((helm, id, memory.unwrap_or_default())) },
        }
    }
}

/// The machine answers by the deadline; it is given a moment to do so.
const MARGIN: Duration = Duration::from_secs(1);

impl Drop for Grant {
    fn drop(&mut self) {
        if self.memory.take().is_some() {
            let id = self.id;
            let call = move |driver: &mut Driver, now: u64| driver.machine.revoke(id, u64::MAX, None, now);
            self.helm.submit(Command::Call(Box::new(call)));
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("token", &self.token()).finish_non_exhaustive()
    }
}

/// Memory that is wanted back.
pub struct Revoked {
    ticket: Ticket<RevokeAnswer>,
    grant: Option<(Arc<Helm<Driver>>, u64, std::sync::Weak<Exposed>)>,
}

impl Revoked {
    fn not_yet(&mut self, why: String) -> RevokeError {
        let grant = self
            .grant
            .take()
            .and_then(|(helm, id, memory)| Some(Grant { helm, id, memory: Some(memory.upgrade()?) }));
        RevokeError { why, grant }
    }
}

impl fmt::Debug for Revoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revoked").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Answer for Revoked {
    type Output = Result<Slice, RevokeError>;
}

impl Sealed for Revoked {
    type Found = Result<Slice, RevokeError>;

    fn is_ready(&self) -> bool {
        self.ticket.is_ready()
    }

    fn wake(&self, waker: &Waker) {
        self.ticket.wake(waker);
    }

    fn take(&mut self) -> Option<Self::Found> {
        Some(match self.ticket.take()? {
            Ok(RevokeAnswer::Back(slice)) => Ok(slice),
            Ok(RevokeAnswer::NotYet(why)) => Err(self.not_yet(why)),
            Ok(RevokeAnswer::Leaked(why)) => Err(RevokeError { why, grant: None }),
            Err(_) => self.ended(),
        })
    }

    fn timed_out(&mut self, after: Duration) -> Self::Found {
        Err(self.not_yet(format!("no answer within {after:?}")))
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
    /// The grant, to be revoked again. Where there is none, the memory is leaked, and counted.
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

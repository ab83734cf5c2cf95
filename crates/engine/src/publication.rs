//! Memory that many peers may access: the owner publishes it once, and each peer opens it.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use farreach_memory::{Exposed, Shared};
use farreach_proto::error::{NotRevoked, OpenError};
use farreach_proto::ids::PublicationId;
use farreach_proto::machine::{Machine, OpId, OpenedMemory};
use farreach_proto::time::Time;
use farreach_rail::RevokeAnswer;

use crate::delivery::Waiter;
use crate::driver::{Command, Driver};
use crate::grant::PeerKeyTag;
use crate::hung_call::Timeout;
use crate::pending::{Answer, Making, Pending};
use crate::progress::{Awaited, Listener, oneshot};
use crate::running::Running;
use crate::time::nanoseconds;
use crate::watch::PeerCell;
use crate::{Access, Error, GrantError, ParseTokenError, Peer, RemoteSlice, Rights};

/// Local memory that many peers may access.
///
/// Each peer opens it by its [token](Self::token) ([`Peer::open`]) and gets keys of its own, so that
/// it can be revoked for one peer alone. A peer that is lost loses its keys; the memory stays
/// published.
///
/// - A `Publication<Shared>` ([`Engine::publish`](crate::Engine::publish)) is for reading. It derefs to
///   its bytes, which nobody changes while it exists.
/// - A `Publication<Exposed>` ([`Engine::publish_exposed`](crate::Engine::publish_exposed)) may give
///   any rights. As granted memory, it does not deref to bytes: peers may change them at any time.
///
/// A publication that is dropped is revoked by the engine, which frees the memory when it is proven
/// that no peer can access it.
///
/// ```
/// use std::time::Duration;
/// use farreach::{Access, Engine, Rights};
///
/// const SOON: Duration = Duration::from_secs(5);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Engine::new()?;
/// let memory = store.allocate(1 << 20).wait(SOON)?;
/// let blocks = store.publish_exposed(memory, Rights::READ, Access::Anyone).wait(SOON)?;
/// blocks.write_at(0, b"block 0");
///
/// let address = store.listen("127.0.0.1:0")?;
/// let reader = Engine::new()?;
/// let peer = reader.connect(address.to_string())?.wait(SOON)?;
/// let accepted = store.accept().wait(SOON)?;
///
/// let remote = peer.open(blocks.token()).wait(SOON)?;
/// assert_eq!(remote.len(), 1 << 20);
/// # drop(accepted);
/// # Ok(())
/// # }
/// ```
pub struct Publication<M: Published = Exposed> {
    progress: Arc<Running>,
    id: PublicationId,
    /// Taken when the publication is revoked.
    memory: Option<M::Held>,
}

/// A kind of memory that can be published: [`Shared`] or [`Exposed`].
pub trait Published: sealed::Memory {}

impl Published for Shared {}
impl Published for Exposed {}

mod sealed {
    use super::{Arc, Exposed, Shared};

    pub trait Memory: Sized + Send + Sync + 'static {
        /// What the handle of a publication holds.
        type Held: Send + Sync + 'static;
        /// Returns the memory as the engine needs it, and what the owner keeps.
        fn expose(self) -> (Exposed, Option<Self>);
        /// Returns what the handle of a publication holds.
        fn hold(kept: Option<Self>, exposed: Arc<Exposed>) -> Self::Held;
        /// Releases what the handle holds. Returns the memory if the owner may keep it while peers lose
        /// it.
        fn release(held: Self::Held) -> Option<Self>;
        /// Returns the memory after peers have lost it.
        fn back(released: Option<Self>, revoked: Exposed) -> Self;
    }

    impl Memory for Shared {
        type Held = Self;

        fn expose(self) -> (Exposed, Option<Self>) {
            // Both have the same bytes. The owner goes on reading its own handle.
            (Exposed::from(self.clone()), Some(self))
        }

        fn hold(kept: Option<Self>, _exposed: Arc<Exposed>) -> Self {
            kept.expect("`expose` has returned it")
        }

        fn release(held: Self) -> Option<Self> {
            Some(held)
        }

        fn back(released: Option<Self>, revoked: Exposed) -> Self {
            // The keys that are left hold the memory, so that it does not become a slice.
            drop(revoked);
            released.expect("`release` has returned it")
        }
    }

    impl Memory for Exposed {
        type Held = Arc<Self>;

        fn expose(self) -> (Exposed, Option<Self>) {
            (self, None)
        }

        fn hold(_kept: Option<Self>, exposed: Arc<Exposed>) -> Arc<Self> {
            exposed
        }

        fn release(held: Arc<Self>) -> Option<Self> {
            // The engine returns it when it holds the only handle.
            drop(held);
            None
        }

        fn back(_released: Option<Self>, revoked: Exposed) -> Self {
            revoked
        }
    }
}

impl Publication<Exposed> {
    fn memory(&self) -> &Exposed {
        self.held()
    }

    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "published memory is never empty")]
    pub fn len(&self) -> usize {
        self.memory().len()
    }

    /// Copies bytes from `offset` into `into`. Of bytes that a peer writes at the same time, each
    /// may be old or new.
    ///
    /// # Panics
    ///
    /// Panics if the range exceeds the memory.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        self.memory().read_at(offset, into);
    }

    /// Copies `from` to `offset`. A peer that reads the bytes at the same time may get old and new
    /// ones.
    ///
    /// # Panics
    ///
    /// Panics if the range exceeds the memory.
    pub fn write_at(&self, offset: usize, from: &[u8]) {
        self.memory().write_at(offset, from);
    }

    /// Returns the eight bytes at `offset` as an atomic of this process; see
    /// [`Grant::atomic_at`](crate::Grant::atomic_at). From then on, a writer that is stopped within the host
    /// cannot be proven to have stopped.
    ///
    /// # Panics
    ///
    /// Panics if the eight bytes exceed the memory, or if their address is not a multiple of eight.
    pub fn atomic_at(&self, offset: usize) -> &AtomicU64 {
        self.memory().atomic_at(offset)
    }
}

impl Publication<Shared> {
    /// Returns the memory, as a source of transfers for instance.
    pub fn memory(&self) -> &Shared {
        self.held()
    }
}

impl Deref for Publication<Shared> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory()
    }
}

impl<M: Published> Publication<M> {
    /// Publishes memory.
    pub(crate) fn make(
        progress: &Arc<Running>,
        memory: M,
        rights: Rights,
        access: Access,
    ) -> Pending<Self, GrantError<M>> {
        type Made<M> = (PublicationId, <M as sealed::Memory>::Held);

        let make = move |driver: &mut Driver, _| -> Made<M> {
            let (exposed, kept) = memory.expose();
            let (id, exposed) = driver.carrier.publish(&mut driver.machine, exposed, rights, access);
            (id, M::hold(kept, exposed))
        };
        let of = Arc::clone(progress);
        let finish = move |made: Result<Made<M>, Error>| match made {
            Ok((id, memory)) => Ok(Self { progress: Arc::clone(&of), id, memory: Some(memory) }),
            // After a timeout the command still has the memory: a later wait returns the
            // publication, or the drop ends it.
            Err(error) => Err(GrantError { error, memory: None }),
        };
        let undo = |driver: &mut Driver, now, (id, memory): Made<M>| {
            // The withdrawal needs that the user's handle is gone.
            drop(memory);
            driver.carrier.withdraw(&mut driver.machine, None, id, Time::NEVER, now);
        };
        Pending::new(progress, Making::new(progress, "publish memory", make, finish, undo))
    }

    fn held(&self) -> &M::Held {
        self.memory.as_ref().expect("only `begin_revoke` and `drop` take the memory")
    }

    /// Returns the token, for peers.
    pub fn token(&self) -> PublicationToken {
        PublicationToken(self.id.to_raw())
    }

    /// Permits peers whose certificate has this name, in addition to those before, and also if the
    /// publication was revoked for a peer of this name. An error if everybody may open it.
    pub fn admit(&self, name: &str) -> Pending<()> {
        let (id, name) = (self.id, name.to_owned());
        Pending::call(&self.progress, "admit a name", move |driver, _| {
            driver.machine.admit(id, &name).then_some(()).ok_or_else(Error::not_admitted)
        })
    }

    /// Revokes the publication for one peer. The result is available when the peer has stopped or
    /// cannot access the memory any more, within `timeout` and the time that a step of the engine
    /// takes; see [`Grant::revoke`](crate::Grant::revoke) for what proves that. It also holds for a peer
    /// that is about to open the publication, or is lost.
    ///
    /// **With certificates, it is for their DNS names**: everybody whose certificate has a name of this
    /// peer's loses access, over any connection, and cannot open the publication again until
    /// [`admit`](Self::admit) permits that name. If the publication is for names ([`Access::only`]), those
    /// count that were permitted, and others, which certificates may have in common, do not. Otherwise each
    /// name counts, so give certificates names of their own. After 16,384 names nobody can open it any more.
    ///
    /// **A peer without such a name** (no TLS, a shared secret, a certificate for an address) is known by
    /// its connection alone: it cannot open the publication again over this one, and can over another. To
    /// keep it out, publish for names, or publish the memory anew, and give the new token to the others.
    ///
    /// Over tcp, the links to the peer end and are made again, because its word that it has stopped is no proof:
    /// what it has in flight for other memory is sent again.
    ///
    /// Within the host, other peers that may write pause if this one does not answer: their links are lost and
    /// connected again, and they go on in new pages, for which a GiB takes about a second.
    ///
    /// An error of [`ErrorKind::Busy`](crate::ErrorKind::Busy) if nothing is proven in time: for instance, a
    /// peer within the host is stopped in the middle of a write, and the owner has used
    /// [`atomic_at`](Publication::atomic_at). The revocation goes on, and this function can be called again to
    /// wait for it. If a card could not end the key of the peer, nothing will ever prove it, and each call fails:
    /// publish the memory anew.
    pub fn revoke_peer(&self, peer: &Peer, timeout: Duration) -> Pending<()> {
        let (key, cell) = (peer.key(), Arc::clone(peer.cell()));
        self.end_access(timeout, move |machine, op, id, deadline, now| {
            // The machine forgets a peer that is lost, and its names.
            machine.withdraw_from(op, id, (key, cell.certificate_names()), deadline, now);
        })
    }

    /// Revokes the publication for all peers whose certificate has this DNS name, as
    /// [`revoke_peer`](Self::revoke_peer) does, also if none is connected. Names have no case, and one with
    /// an asterisk stands for itself only.
    pub fn expel(&self, name: &str, timeout: Duration) -> Pending<()> {
        // No peer is known by an address. The call would seem to work, and end no access.
        if name.is_empty() || name.parse::<IpAddr>().is_ok() {
            return Pending::finished(&self.progress, Err(Error::not_a_host_name(name)));
        }
        let name = name.to_owned();
        self.end_access(timeout, move |machine, op, id, deadline, now| {
            machine.expel(op, id, &name, deadline, now);
        })
    }

    fn end_access(
        &self,
        timeout: Duration,
        end: impl FnOnce(&mut Machine, OpId, PublicationId, Time, Time) + Send + 'static,
    ) -> Pending<()> {
        let (sender, receiver) = oneshot::channel();
        let id = self.id;
        let call = move |driver: &mut Driver, now: Time| {
            // No memory comes back: it stays published for the others.
            let op = driver.delivery.wait_for(Waiter::PeerRevoked(sender));
            end(&mut driver.machine, op, id, deadline(now, timeout), now);
        };
        self.progress.submit(Command::Call(Box::new(call)));
        Pending::new(&self.progress, PeerRevocation { receiver })
    }

    /// Revokes the publication for all peers, and returns the memory. Blocks for at most `timeout`
    /// and two seconds; see [`begin_revoke`](Self::begin_revoke) for tasks.
    ///
    /// [`Exposed::try_into_slice`] and [`Shared::try_unshare`] make it a [`Slice`](crate::Slice) if it is
    /// proven that no peer can access it; see [`Grant::revoke`](crate::Grant::revoke).
    pub fn revoke(self, timeout: Duration) -> Result<M, Error> {
        self.begin_revoke(timeout).wait(timeout.saturating_add(MARGIN))
    }

    /// Starts to [revoke](Self::revoke) the publication. The result is available within `timeout`,
    /// plus the time that a step of the engine takes. If it is dropped before, the engine frees the
    /// memory when no peer can access it.
    pub fn begin_revoke(mut self, timeout: Duration) -> Pending<M> {
        let (sender, receiver) = oneshot::channel();
        // The handle is released before the withdrawal: the engine returns memory of which it has
        // the only handle.
        let (id, released) = (self.id, self.memory.take().and_then(M::release));
        let call = move |driver: &mut Driver, now: Time| {
            let op = driver.delivery.wait_for(Waiter::Revoked(sender));
            driver.carrier.withdraw(&mut driver.machine, Some(op), id, deadline(now, timeout), now);
        };
        self.progress.submit(Command::Call(Box::new(call)));
        Pending::new(&self.progress, Withdrawal { receiver, released })
    }
}

/// The time for the machine's answer to arrive, which it gives at the deadline.
const MARGIN: Duration = Duration::from_secs(2);

/// Returns the deadline of a revocation. The time that never comes is reserved for memory that is not wanted
/// back.
fn deadline(now: Time, timeout: Duration) -> Time {
    now.saturating_add(nanoseconds(timeout)).min(Time::LAST)
}

impl<M: Published> Drop for Publication<M> {
    fn drop(&mut self) {
        // `begin_revoke` has taken the memory of a publication that is being revoked.
        let Some(memory) = self.memory.take() else { return };
        // As above: first the handle, then the withdrawal.
        drop(memory);
        let id = self.id;
        let call = move |driver: &mut Driver, now: Time| {
            driver.carrier.withdraw(&mut driver.machine, None, id, Time::NEVER, now);
        };
        self.progress.submit(Command::Call(Box::new(call)));
    }
}

impl<M: Published> fmt::Debug for Publication<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publication").field("token", &self.token()).finish_non_exhaustive()
    }
}

struct PeerRevocation {
    receiver: oneshot::Receiver<Result<(), NotRevoked>>,
}

impl Answer<Result<(), Error>> for PeerRevocation {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<(), Error>> {
        Some(match self.receiver.take()? {
            Ok(answer) => answer.map_err(Error::not_revoked),
            Err(_) => Err(Error::ended()),
        })
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<(), Error> {
        Err(Error::timed_out("revoke a publication for a peer", timeout))
    }

    fn ended(&mut self) -> Result<(), Error> {
        Err(Error::ended())
    }
}

struct Withdrawal<M> {
    receiver: oneshot::Receiver<RevokeAnswer>,
    /// What the owner kept while peers lost it.
    released: Option<M>,
}

impl<M: Published> Answer<Result<M, Error>> for Withdrawal<M> {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<M, Error>> {
        Some(match self.receiver.take()? {
            Ok(RevokeAnswer::Back(memory)) => Ok(M::back(self.released.take(), memory)),
            Ok(RevokeAnswer::NotYet(why)) => Err(Error::not_revoked(why)),
            Err(_) => Err(Error::ended()),
        })
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<M, Error> {
        Err(Error::timed_out("revoke a publication", timeout))
    }

    fn ended(&mut self) -> Result<M, Error> {
        Err(Error::ended())
    }
}

/// A request to open a publication of a peer.
pub(crate) struct OpeningPublication {
    pub(crate) receiver: oneshot::Receiver<Result<OpenedMemory, OpenError>>,
    pub(crate) cell: Arc<PeerCell>,
    pub(crate) peer: PeerKeyTag,
}

impl Answer<Result<RemoteSlice, Error>> for OpeningPublication {
    fn is_ready(&self) -> bool {
        self.receiver.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.receiver.listen(listener);
    }

    fn take(&mut self) -> Option<Result<RemoteSlice, Error>> {
        Some(match self.receiver.take()? {
            Ok(Ok(OpenedMemory { grant, len, rights })) => {
                Ok(RemoteSlice { peer: self.peer, grant, offset: 0, len, rights })
            }
            // The machine may have forgotten the peer. Its cell knows the reason.
            Ok(Err(OpenError::PeerLost { reason })) => Err(Error::peer_lost(&self.cell.why(reason))),
            Ok(Err(error)) => Err(Error::not_opened(&error)),
            Err(_) => Err(Error::ended()),
        })
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<RemoteSlice, Error> {
        Err(Error::timed_out("open published memory", timeout))
    }

    fn ended(&mut self) -> Result<RemoteSlice, Error> {
        Err(Error::ended())
    }
}

/// The token of a publication. A program sends it to peers as text, or by serde.
///
/// ```
/// use farreach::PublicationToken;
///
/// let token: PublicationToken = "p-7".parse()?;
/// assert_eq!(token.to_string(), "p-7");
/// # Ok::<(), farreach::ParseTokenError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct PublicationToken(u64);

impl PublicationToken {
    pub(crate) fn id(self) -> PublicationId {
        PublicationId::from_raw(self.0)
    }
}

impl fmt::Display for PublicationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p-{:x}", self.0)
    }
}

impl FromStr for PublicationToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        crate::token::parse(text, "p-").map(Self).ok_or(ParseTokenError { what: "publication" })
    }
}

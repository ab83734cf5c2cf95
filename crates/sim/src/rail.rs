//! A simulated card as a rail of the engine.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farreach_memory::{Buffer, Buffers, DomainId, Exposed, Memory};
use farreach_proto::rights::Rights;
use farreach_rail::{
    Event, Key, KeyId, LinkKey, PeerKey, Properties, Rail, RailError, Refusal, RequestError, WorkRequest,
};
use serde::{Deserialize, Serialize};

use super::card::{CardId, SimCard};
use super::end::{Card, CardState, End, EndState, Failure, Host, Ready};
use super::expose::EndedKey;
use super::memory;
use super::network::SimNetwork;
use super::poll::PollFailure;
use super::world::World;

/// One card of a host in a [`SimNetwork`].
///
/// ```
/// use farreach_rail::Rail;
/// use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};
///
/// let network = SimNetwork::new(SimSettings::new(7));
/// let provider = SimRail::new(&network, 0, SimCard::efa());
/// assert!(!provider.properties().limits.is_ordered);
/// ```
pub struct SimRail {
    network: SimNetwork,
    card: CardId,
    kind: SimCard,
    domain: DomainId,
    /// Events of a poll, moved out of the network before they are reported, because the sink may
    /// use the network.
    told: Vec<Ready>,
    /// Buffers of messages that were reported.
    spare: Vec<Vec<u8>>,
}

/// The address of an end.
#[derive(Serialize, Deserialize)]
struct EndName<'a> {
    kind: &'a str,
    end: u64,
}

impl SimRail {
    /// Adds a card to a host. The first card starts the host, or restarts it after it was killed.
    pub fn new(network: &SimNetwork, host: u32, card: SimCard) -> Self {
        let mut world = network.lock();
        let place = match world.hosts.iter().position(|there| there.number == host) {
            Some(place) => place,
            None => {
                world.hosts.push(Host { number: host, is_killed: false, stopped_until_ns: 0 });
                world.hosts.len() - 1
            }
        };
        world.hosts[place].is_killed = false;
        let kind = card.clone();
        let id = CardId(world.cards.len() as u32);
        world.note("card", id.0.into(), host.into());
        world.cards.push(Card::new(place, card));
        drop(world);
        let (network, domain) = (network.clone(), DomainId::unique());
        Self { network, card: id, kind, domain, told: Vec::new(), spare: Vec::new() }
    }

    /// Returns its id in the network.
    pub fn id(&self) -> CardId {
        self.card
    }

    fn card(&self) -> usize {
        self.card.index()
    }

    /// Checks that the card can be used. Also fails at random, as set by
    /// [`Odds::setup_fails`](super::Odds::setup_fails).
    fn check(&self, world: &mut World, operation: &str) -> Result<(), RailError> {
        self.check_is_there(world, operation)?;
        match world.draw(|odds| odds.setup_fails) {
            true => Err(RailError::new(operation, "the simulated card has no room for it", "try again")),
            false => Ok(()),
        }
    }

    /// Returns `true` if the host was killed. No code of such a host runs, except that a test drops
    /// its remains. Those calls must find everything ended, or they would leak memory.
    fn is_killed(&self, world: &World) -> bool {
        world.cards[self.card()].state == CardState::Killed
    }

    fn check_is_there(&self, world: &World, operation: &str) -> Result<(), RailError> {
        let cause = match world.cards[self.card()].state {
            CardState::Alive => return Ok(()),
            CardState::Lost => "a reset of this card has failed",
            CardState::Dropped | CardState::Killed => "the host of this card was killed",
        };
        Err(RailError::new(operation, cause, "use another rail"))
    }
}

impl Rail for SimRail {
    fn properties(&self) -> &Properties {
        &self.kind.properties
    }

    fn open_link(&mut self, peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
        let operation = "open a link of a simulated card";
        let mut world = self.network.lock();
        self.check(&mut world, operation)?;
        let end = world.ends.len();
        world.ends.push(End::new(self.card(), peer));
        world.cards[self.card()].ends.push(end);
        world.note("open", end as u64, self.card.0.into());
        let name = EndName { kind: &self.kind.properties.kind, end: end as u64 };
        let name = postcard::to_allocvec(&name).map_err(|error| {
            RailError::new(operation, error.to_string(), "this is a bug in farreach: report it")
        })?;
        Ok((LinkKey(end as u64), name))
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        let failed =
            |cause: String, fix: &str| RailError::new("connect a link of a simulated card", cause, fix);
        let mut world = self.network.lock();
        self.check(&mut world, "connect a link of a simulated card")?;
        let name: EndName<'_> = postcard::from_bytes(peer_end).map_err(|error| {
            failed(error.to_string(), "pass the address that the peer's open_link returned")
        })?;
        if name.kind != self.kind.properties.kind {
            let cause = format!("this card is {}, the peer's is {}", self.kind.properties.kind, name.kind);
            return Err(failed(cause, "connect cards of one kind"));
        }
        let peer = usize::try_from(name.end).ok().filter(|peer| *peer < world.ends.len());
        let end = world.end_of(self.card(), link);
        match (end, peer) {
            (Some(end), Some(peer)) if world.ends[end].state == EndState::Unconnected => {
                world.ends[end].state = EndState::Connected;
                world.ends[end].peer = Some(peer);
                world.note("connect", end as u64, peer as u64);
                Ok(())
            }
            (_, None) => Err(failed("no such end exists".to_owned(), "use the same network on both sides")),
            (..) => Err(failed(
                format!("link {} does not exist, or was connected before", link.0),
                "connect each link once",
            )),
        }
    }

    fn close_link(&mut self, link: LinkKey) {
        let mut world = self.network.lock();
        let is_there = self.check_is_there(&world, "close a link").is_ok();
        let end = world.end_of(self.card(), link).filter(|_| is_there);
        if let Some(end) = end.filter(|end| world.ends[*end].state != EndState::Closed) {
            world.close_link(end);
        }
    }

    fn reset(&mut self) -> Result<(), RailError> {
        let operation = "reset a simulated card";
        let mut world = self.network.lock();
        if self.is_killed(&world) {
            return Ok(());
        }
        self.check_is_there(&world, operation)?;
        if world.cards[self.card()].next_reset_fails || world.draw(|odds| odds.reset_fails) {
            world.note("lost", self.card.0.into(), 0);
            world.cards[self.card()].state = CardState::Lost;
            return Err(RailError::new(operation, "the card does not answer", "use another rail"));
        }
        world.reset(self.card());
        Ok(())
    }

    fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        let operation = "register memory with a simulated card";
        let mut world = self.network.lock();
        self.check(&mut world, operation)?;
        memory::register(memory, self.domain, || world.registrations += 1)
            .map_err(|reason| RailError::new(operation, reason.to_string(), "use fewer rails"))
    }

    fn make_key(&mut self, peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        let operation = "expose memory over a simulated card";
        let mut world = self.network.lock();
        self.check(&mut world, operation)?;
        world
            .make_key(self.card(), peer, memory, rights)
            .map_err(|error| RailError::new(operation, error.to_string(), error.fix()))
    }

    fn bind_key(&mut self, link: LinkKey, key: KeyId, tag: u64) -> Result<(), RailError> {
        let operation = "bind a key of a simulated card";
        let mut world = self.network.lock();
        self.check(&mut world, operation)?;
        match world.begin_binding(self.card(), link, key, tag) {
            true => Ok(()),
            false => Err(RailError::new(
                operation,
                "the key is not of this peer, or the link is not connected",
                "bind keys of a peer to connected links of this peer",
            )),
        }
    }

    fn end_key(&mut self, key: KeyId) -> Result<(), RailError> {
        let operation = "end a key of a simulated card";
        let mut world = self.network.lock();
        if self.is_killed(&world) {
            return Ok(());
        }
        self.check_is_there(&world, operation)?;
        let (cause, fix) = match world.end_key(self.card(), key) {
            EndedKey::Ended => return Ok(()),
            EndedKey::Leaked => ("the key cannot be ended", "none: the memory is leaked and counted"),
            EndedKey::Unknown => ("there is no such key", "end each key once"),
        };
        Err(RailError::new(operation, cause, fix))
    }

    fn prove_key(&mut self, key: KeyId) -> Result<(), RailError> {
        let operation = "prove the end of a key of a simulated card";
        let mut world = self.network.lock();
        self.check(&mut world, operation)?;
        world.begin_proof(self.card(), key).map_err(|cause| {
            RailError::new(operation, cause, "end the key first, and release all other keys")
        })
    }

    fn post(
        &mut self,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        self.network.lock().post(self.card(), self.domain, link, tag, request, buffers)
    }

    fn perform(
        &mut self,
        link: LinkKey,
        request: WorkRequest<'_>,
        buffer: &mut Buffer,
        offset: usize,
    ) -> bool {
        self.network.lock().perform(self.card(), link, request, buffer, offset)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        let operation = "poll a simulated card";
        let mut world = self.network.lock();
        for bytes in self.spare.drain(..) {
            world.recycle(bytes);
        }
        let polled = world.poll(self.card.index(), &mut self.told);
        match polled {
            Ok(()) => {}
            Err(PollFailure::ForGood) => {
                self.check_is_there(&world, operation)?;
            }
            Err(PollFailure::Once) => {
                return Err(RailError::new(operation, "the poll failed", "poll again"));
            }
        }
        drop(world);
        let count = self.told.len();
        let are_named = self.kind.properties.immediates_name_link;
        let named = |end: usize| are_named.then_some(LinkKey(end as u64));
        for ready in self.told.drain(..) {
            match ready {
                Ready::Completed { tag, buffers, outcome, .. } => {
                    let outcome = outcome.map_err(|failure| {
                        let error = failure.error("a request of a simulated card");
                        match failure {
                            _ if !failure.is_of_key(&self.kind) => RequestError::Link(error),
                            Failure::Refused => RequestError::Revoked(error),
                            _ => RequestError::Key(error),
                        }
                    });
                    sink(Event::Completed { tag, buffers, outcome });
                }
                Ready::Immediate { end, bits } => sink(Event::Immediate { link: named(end), bits }),
                Ready::Message { end, bytes } => {
                    sink(Event::Message { link: named(end), bytes: &bytes });
                    self.spare.push(bytes);
                }
                Ready::KeyBound { end, tag, bound } => {
                    let bound = bound.map_err(|failure| failure.error("a binding of a simulated card"));
                    sink(Event::KeyBound { link: LinkKey(end as u64), tag, bound });
                }
                Ready::KeyEnded { key } => sink(Event::KeyEnded { key: KeyId(key as u64) }),
                Ready::LinkDown { end, reason } => {
                    let reason = reason.error("a link of a simulated card");
                    sink(Event::LinkDown { link: LinkKey(end as u64), reason });
                }
            }
        }
        Ok(count)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        let world = self.network.lock();
        self.check_is_there(&world, "prepare a simulated card for sleep")?;
        let card = &world.cards[self.card()];
        Ok(card.ready.is_empty() && card.inbox.is_empty())
    }

    fn in_flight(&self) -> usize {
        self.network.lock().cards[self.card()].in_flight
    }
}

impl Drop for SimRail {
    fn drop(&mut self) {
        self.network.lock().drop_card(self.card());
    }
}

impl fmt::Debug for SimRail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRail")
            .field("card", &self.card)
            .field("name", &self.kind.properties.name)
            .finish_non_exhaustive()
    }
}

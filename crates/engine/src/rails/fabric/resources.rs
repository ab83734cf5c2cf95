//! The endpoint of a rail, and everything that belongs to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use farreach_fabric as fab;
use farreach_fabric::{
    AddressVector, Completion, CompletionQueue, Domain, Endpoint, EndpointBuilder, Error, ExposedKey,
    OperationKind, ReceiveRequest, RemoteAccess,
};
use farreach_memory::{Buffers, Exposed, Memory, Slice};
use farreach_rail::{Event, Key, KeyId, LinkKey, Properties, RailError};

use super::end::End;
use super::links::{Connected, Doubt, Link, Links};
use super::properties::{depth, properties};
use super::{FabricSettings, failure};
use crate::Rights;

/// Events that one poll reports at most for operations that a reset has returned.
const TOLD_MAX: usize = 64;

/// Limits of what ended keys may hold until a reset: memory that no user holds any more, and keys
/// of some hundred bytes each.
const HELD_BYTES_MAX: usize = 256 << 20;
const HELD_KEYS_MAX: usize = 1 << 18;
/// When to measure how much they hold: at this many keys at least, or after this many new bytes.
const LOOK_AT_LEAST: usize = 64;
const UNSEEN_BYTES_MAX: usize = 64 << 20;

/// Decides when to measure how much ended keys hold.
#[derive(Debug)]
struct Held {
    /// The number of keys at which to measure next.
    look_at: usize,
    /// Bytes of keys that ended since the last measurement.
    unseen_bytes: usize,
}

/// The resources of a rail. Invariant: the fields are declared in drop order. Closing the endpoint
/// ends operations that peers have begun, and only then may the memory behind the keys be freed.
#[derive(Debug)]
pub(super) struct Resources {
    /// `None` after a failed reset.
    pub(super) endpoint: Option<Endpoint>,
    keys: HashMap<u64, ExposedKey>,
    exposed_count: u64,
    held: Held,
    pub(super) links: Links,
    /// Operations that a reset has returned and that were not reported yet.
    returned: VecDeque<Returned>,
    /// Receive buffers that are not posted.
    rooms: Vec<Slice>,
    pub(super) unattributed: UnattributedErrors,
    pub(super) properties: Properties,
    settings: FabricSettings,
    av: AddressVector,
    domain: Domain,
}

/// Errors that name no operation.
#[derive(Debug, Default)]
pub(super) struct UnattributedErrors {
    pub(super) count: u64,
    pub(super) last: Option<RailError>,
}

/// An operation that a reset has returned.
#[derive(Debug)]
struct Returned {
    tag: u64,
    buffers: Buffers,
    reason: RailError,
}

impl Resources {
    pub(super) fn open(
        domain: &Domain,
        cq: &CompletionQueue,
        settings: &FabricSettings,
    ) -> Result<Self, Error> {
        let av = domain.open_av()?;
        let endpoint = open_endpoint(domain, cq, &av, settings)?;
        let properties = properties(domain, &endpoint, settings);
        let mut rail = Self {
            keys: HashMap::new(),
            exposed_count: 0,
            held: Held { look_at: LOOK_AT_LEAST, unseen_bytes: 0 },
            links: Links::default(),
            returned: VecDeque::new(),
            rooms: rooms(domain, settings.receive_count, properties.message_max)?,
            unattributed: UnattributedErrors::default(),
            properties,
            settings: settings.clone(),
            av,
            domain: domain.clone(),
            endpoint: Some(endpoint),
        };
        rail.make_room();
        Ok(rail)
    }

    /// Converts an error of the library, with the operation and this rail.
    pub(super) fn refused(&self, operation: &str, error: &Error) -> RailError {
        failure::of_error(format!("{operation} over {}", self.properties.name), error)
    }

    fn no_endpoint(&self) -> RailError {
        RailError::new(
            format!("use the rail {}", self.properties.name),
            "it could not be opened again after a reset",
            "use the other rails, or open a new engine",
        )
    }

    pub(super) fn open_link(&mut self) -> Result<(LinkKey, Vec<u8>), RailError> {
        let Some(endpoint) = &self.endpoint else { return Err(self.no_endpoint()) };
        let end = End { address: endpoint.address().clone() };
        let encoded = end.encode()?;
        Ok((self.links.open(), encoded))
    }

    pub(super) fn connect(&mut self, key: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        let end = End::decode(peer_end, self.domain.info().address_format())?;
        let peer = self.av.insert(&end.address);
        let peer = peer.map_err(|error| self.refused("connect a link", &error))?;
        let connected = Connected { peer, doubt: Doubt::new(self.unattributed.count) };
        match self.links.get_mut(key) {
            Some(link @ Link::Open) => {
                *link = Link::Connected(connected);
                Ok(())
            }
            Some(Link::Failed(reason)) => Err(reason.clone()),
            Some(Link::Connected(_)) => Err(misuse("connect a link", "the link is already connected")),
            None => Err(misuse("connect a link", "there is no such link, or it was closed")),
        }
    }

    /// Closes the endpoint and opens a new one.
    pub(super) fn reset(&mut self, cq: &mut CompletionQueue) -> Result<(), RailError> {
        let could_sleep = cq.wait_fd().is_some();
        self.close()?;
        self.reopen(cq, could_sleep).map_err(|error| self.refused("reset", &error))?;
        self.make_room();
        Ok(())
    }

    /// Closes the endpoint. Operations in flight are returned by the next poll.
    pub(super) fn close(&mut self) -> Result<(), RailError> {
        // First, so that no link stays open if the endpoint cannot be closed or opened again.
        self.links.close_all();
        let Some(endpoint) = self.endpoint.take() else { return Err(self.no_endpoint()) };
        let returned = endpoint.close().map_err(|error| self.refused("reset", &error))?;
        for operation in returned {
            if operation.kind == OperationKind::Receive {
                self.rooms.extend(operation.buffers.into_slice());
                continue;
            }
            // All operations are returned: a provider whose close does not stop peers cannot be a
            // rail.
            let reason = self.was_reset();
            self.returned.push_back(Returned { tag: operation.tag, buffers: operation.buffers, reason });
        }
        Ok(())
    }

    /// Opens an endpoint after the old one was closed: with a new queue if the old one cannot be
    /// slept on any more, and in a new domain if the old one is spent.
    fn reopen(&mut self, cq: &mut CompletionQueue, must_sleep: bool) -> Result<(), Error> {
        if self.domain.is_spent() {
            let domain = self.domain.renew()?;
            // Peers keep using the keys that they know. The cost is linear in the number of keys.
            self.keys.values_mut().try_for_each(|key| key.move_to(&domain))?;
            (*cq, self.domain) = (domain.open_cq()?, domain);
        } else if must_sleep && cq.wait_fd().is_none() {
            *cq = self.domain.open_cq()?;
        }
        // A new endpoint would contact all peers in the old address vector, and crashes if one of
        // them is gone (docs/PROVIDERS.md).
        self.av = self.domain.open_av()?;
        self.endpoint = Some(open_endpoint(&self.domain, cq, &self.av, &self.settings)?);
        Ok(())
    }

    fn was_reset(&self) -> RailError {
        let operation = format!("work request over {}", self.properties.name);
        let cause = "the rail was reset: it is unknown whether the operation took effect";
        RailError::new(operation, cause, "post it again over a new link")
    }

    pub(super) fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        self.domain.register(memory).map_err(|error| self.refused("register memory", &error))
    }

    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(super) fn make_key(&mut self, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        let key = self.domain.expose_also(memory, access(rights));
        let key = key.map_err(|error| self.refused("grant memory", &error))?;
        self.exposed_count += 1;
        let id = KeyId(self.exposed_count);
        let remote = key.remote();
        self.keys.insert(id.0, key);
        Ok(Key { id, address: remote.address(), key: remote.key() })
    }

    pub(super) fn end_key(&mut self, key: KeyId) -> Result<(), RailError> {
        let Some(key) = self.keys.remove(&key.0) else {
            return Err(misuse("end a key", "there is no such key, or it has ended"));
        };
        self.note_ended(key.remote().len() as usize);
        match key.end() {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused("end a key", &error)),
        }
    }

    /// Notes that a key of so many bytes has ended.
    pub(super) fn note_ended(&mut self, bytes: usize) {
        self.held.unseen_bytes += bytes;
    }

    /// Returns whether ended keys hold too much. Measuring is linear in their number, so it is done
    /// only when there are twice as many, or after much memory was added.
    pub(super) fn holds_too_much(&mut self) -> bool {
        let keys = self.domain.kept_keys();
        if keys < self.held.look_at && self.held.unseen_bytes < UNSEEN_BYTES_MAX {
            return false;
        }
        self.held = Held { look_at: (2 * keys).max(LOOK_AT_LEAST), unseen_bytes: 0 };
        keys > HELD_KEYS_MAX || self.domain.kept_bytes() > HELD_BYTES_MAX
    }

    /// Posts the receive buffers that are not posted. If the library refuses one, the next poll
    /// tries again.
    pub(super) fn make_room(&mut self) {
        let Some(endpoint) = &self.endpoint else { return };
        while let Some(room) = self.rooms.pop() {
            if let Err(refused) = endpoint.post_receive(ReceiveRequest::new(room)) {
                self.rooms.extend(refused.request.into_buffers().into_slice());
                return;
            }
        }
    }

    /// Reports operations that a reset has returned. Returns how many.
    pub(super) fn tell_returned(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let count = self.returned.len().min(TOLD_MAX);
        for Returned { tag, buffers, reason } in self.returned.drain(..count) {
            sink(Event::Completed { tag, buffers, outcome: Err(reason) });
        }
        count
    }

    /// Reports an event of the library. Returns how many events that makes for the engine.
    pub(super) fn tell(&mut self, event: fab::Event, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        match event {
            fab::Event::Completed(completion) if completion.kind() == OperationKind::Receive => {
                self.tell_message(completion, sink)
            }
            fab::Event::Completed(completion) => self.tell_completed(completion, sink),
            fab::Event::Written(written) => {
                sink(Event::Immediate { link: None, bits: written.immediate as u32 });
                1
            }
            fab::Event::Unattributed(failure) => {
                self.note_unattributed(&failure);
                0
            }
        }
    }

    fn tell_completed(&mut self, completion: Completion, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let tag = completion.tag();
        let (outcome, buffers) = completion.into_parts();
        let outcome = match outcome {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure::of_failure(&self.properties.name, &failure)),
        };
        sink(Event::Completed { tag, buffers, outcome });
        1
    }

    fn tell_message(&mut self, completion: Completion, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let (outcome, buffers) = completion.into_parts();
        let Ok(room) = buffers.into_slice() else { return 0 };
        let count = match outcome {
            Ok(success) => {
                let len = success.len.min(room.len());
                sink(Event::Message { link: None, bytes: &room[..len] });
                1
            }
            Err(failure) => {
                self.note_unattributed(&failure);
                0
            }
        };
        self.rooms.push(room);
        self.make_room();
        count
    }

    #[cold]
    fn note_unattributed(&mut self, failure: &fab::Failure) {
        self.unattributed.count += 1;
        self.unattributed.last = Some(failure::of_failure(&self.properties.name, failure));
    }

    /// Returns whether a poll would report something, regardless of the library.
    pub(super) fn has_something_to_tell(&self) -> bool {
        !self.returned.is_empty()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.endpoint.as_ref().map_or(0, Endpoint::transmits_in_flight) + self.returned.len()
    }
}

fn open_endpoint(
    domain: &Domain,
    cq: &CompletionQueue,
    av: &AddressVector,
    settings: &FabricSettings,
) -> Result<Endpoint, Error> {
    EndpointBuilder::new(cq, av)
        .transmit_depth(depth(domain.info(), settings))
        .receive_depth(settings.receive_count)
        .build(domain)
}

/// Allocates receive buffers, all in one allocation.
fn rooms(domain: &Domain, count: usize, len: usize) -> Result<Vec<Slice>, Error> {
    let count = count.clamp(1, domain.info().receive_queue_size().max(1));
    let mut rest = domain.allocate(count * len)?;
    Ok((0..count).map(|_| rest.split_to(len)).collect())
}

pub(super) fn access(rights: Rights) -> RemoteAccess {
    [
        (Rights::READ, RemoteAccess::READ),
        (Rights::WRITE, RemoteAccess::WRITE),
        // An atomic reads and writes.
        (Rights::ATOMIC, RemoteAccess::all()),
    ]
    .into_iter()
    .filter(|(right, _)| rights.contains(*right))
    .fold(RemoteAccess::empty(), |all, (_, access)| all | access)
}

fn misuse(operation: &str, cause: &str) -> RailError {
    RailError::new(operation, cause, "use keys that this rail has returned, until they are closed or ended")
}

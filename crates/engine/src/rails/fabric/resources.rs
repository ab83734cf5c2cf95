//! The endpoint of a rail, and everything that belongs to it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use farreach_fabric as fab;
use farreach_fabric::{
    AddressVector, Completion, CompletionQueue, Domain, Endpoint, EndpointBuilder, Error, ExposedKey,
    OperationKind, ReceiveRequest, RemoteAccess, TransmitRequest,
};
use farreach_memory::{Buffers, Exposed, Memory, Slice};
use farreach_rail::{Event, Key, KeyId, LinkKey, Proof, Properties, RailError, RequestError};

use super::end::End;
use super::groups::{Cause, Groups};
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
    /// Writes that share requests for delivery. `None` if each write asks for itself.
    pub(super) groups: Option<Groups<(LinkKey, TransmitRequest), Buffers>>,
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
            groups: None,
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

    /// Lets writes share requests for delivery, if the provider can. The rail has only one link from
    /// now on: an answer proves nothing about the connection of another one.
    pub(super) fn share_delivery(&mut self) {
        let covers_earlier =
            self.domain.profile().delivery_covers_earlier && self.properties.limits.is_ordered;
        if covers_earlier && self.properties.writes_prove == Proof::Delivered {
            self.groups = Some(Groups::new());
        }
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
        // If the link cannot be connected, dropping the `Peer` removes the address again.
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
        // Asked before the close, which may take the descriptor from the queue.
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
        let mut closed = endpoint.close().map_err(|error| self.refused("reset", &error));
        let reason = self.was_reset();
        // Also if the endpoint cannot be closed: it has none of these.
        self.fail_waiting(&reason);
        for operation in closed.as_mut().map(std::mem::take).unwrap_or_default() {
            // This rail has posted it, and nobody waits for it.
            if operation.kind == OperationKind::Receive {
                self.rooms.extend(operation.buffers.into_slice());
                continue;
            }
            // All operations are returned: a provider whose close does not stop peers cannot be a
            // rail.
            let tag = match &mut self.groups {
                Some(groups) if operation.kind == OperationKind::Write => groups.given_back(operation.tag),
                _ => Some(operation.tag),
            };
            let (buffers, reason) = (operation.buffers, reason.clone());
            self.returned.extend(tag.map(|tag| Returned { tag, buffers, reason }));
        }
        if let Some(groups) = &mut self.groups {
            let held = groups.end_posted();
            self.returned.extend(held.map(|(tag, buffers)| Returned {
                tag,
                buffers,
                reason: reason.clone(),
            }));
        }
        closed.map(drop)
    }

    /// Returns the writes that wait for their group, and those of a group that was broken off, with
    /// the next poll.
    pub(super) fn fail_waiting(&mut self, reason: &RailError) {
        let Some(groups) = &mut self.groups else { return };
        let returned = &mut self.returned;
        groups.break_off::<()>(&mut |tag, buffers, _| {
            returned.push_back(Returned { tag, buffers, reason: reason.clone() });
        });
        let waiting = groups.end_waiting();
        self.returned.extend(waiting.map(|waiting| Returned {
            tag: waiting.tag,
            buffers: waiting.request.1.into_buffers(),
            reason: reason.clone(),
        }));
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
        // Before the key ends: it cannot be asked afterwards.
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
            sink(Event::Completed { tag, buffers, outcome: Err(RequestError::Link(reason)) });
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
                // The field of libfabric has 64 bits, of which engines use 32.
                sink(Event::Immediate { link: None, bits: written.immediate as u32 });
                1
            }
            fab::Event::Unattributed(failure) => {
                // No event, because it names no operation. It may explain a refusal that follows
                // (`Doubt`).
                self.note_unattributed(&failure);
                0
            }
        }
    }

    fn tell_completed(&mut self, completion: Completion, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let (tag, kind) = (completion.tag(), completion.kind());
        let (outcome, buffers) = completion.into_parts();
        let name = &self.properties.name;
        let outcome = match outcome {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure::of_failure(name, &failure)),
        };
        // Only writes are numbered by their groups. The tag of any other operation is that of the
        // machine.
        let groups = self.groups.as_mut().filter(|_| kind == OperationKind::Write);
        let Some(groups) = groups else {
            sink(Event::Completed { tag, buffers, outcome: outcome.map_err(RequestError::Link) });
            return 1;
        };
        let mut count = 0;
        groups.completed(tag, buffers, outcome, &mut |tag, buffers, outcome| {
            let outcome = outcome.map_err(|cause| match cause {
                Cause::Own(error) => RequestError::Link(error),
                Cause::Unproven => RequestError::Link(unproven(name)),
            });
            sink(Event::Completed { tag, buffers, outcome });
            count += 1;
        });
        count
    }

    fn tell_message(&mut self, completion: Completion, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let (outcome, buffers) = completion.into_parts();
        // A receive has one slice, so this does not fail.
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
        // At once, so that many messages of one poll do not leave the peer without buffers.
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

    /// Returns whether writes wait for their group.
    pub(super) fn has_something_to_post(&self) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.waiting() > 0)
    }

    pub(super) fn in_flight(&self) -> usize {
        // Writes that wait or are held, and operations that were not reported, still have their
        // buffers.
        let kept = self.groups.as_ref().map_or(0, Groups::kept);
        self.endpoint.as_ref().map_or(0, Endpoint::transmits_in_flight) + kept + self.returned.len()
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
    // In one piece, so that it is registered once.
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

#[cold]
fn unproven(rail: &str) -> RailError {
    let cause = "a write after it has failed: it is unknown whether this one took effect";
    RailError::new(format!("write over {rail}"), cause, "post it again over a new link")
}

fn misuse(operation: &str, cause: &str) -> RailError {
    RailError::new(operation, cause, "use keys that this rail has returned, until they are closed or ended")
}

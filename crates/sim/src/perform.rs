//! Requests that a simulated card performs within the call that asks for them.

use farreach_memory::{Buffer, Buffers};
use farreach_rail::{LinkKey, RemoteSegment, WorkRequest};

use super::end::{CardState, EndState, Ready, Way};
use super::memory;
use super::operation::{Kind, Operation, State};
use super::world::World;

impl World {
    /// Performs a write or read of one remote segment at once. Returns `false` if something is queued
    /// before it, if it does not reach the peer, or by chance.
    pub(super) fn perform(
        &mut self,
        card: usize,
        link: LinkKey,
        request: WorkRequest<'_>,
        buffer: &mut Buffer,
        offset: usize,
    ) -> bool {
        let Some((kind @ (Kind::Write { .. } | Kind::Read), Some(target))) = Kind::of(request) else {
            return false;
        };
        let end = self.end_of(card, link).filter(|_| self.cards[card].state == CardState::Alive);
        let Some(end) = end.filter(|end| self.is_free(*end)) else { return false };
        let Some(peer) = self.ends[end].peer else { return false };
        let is_long = target.len > self.cards[card].kind.properties.performs_max;
        if is_long || self.draw(|odds| odds.post_refused) {
            return false;
        }
        // For the look at the key. It is never queued.
        let operation = self.performed(card, (end, peer), kind, target);
        let Ok(id) = self.operations.put(operation) else { return false };
        let is_told = matches!(kind, Kind::Write { immediate: Some(_) });
        let is_done = self.is_open(id)
            && !self.is_not_mapped(id)
            && (!is_told || self.has_room_to_tell(peer))
            && match kind {
                Kind::Write { .. } => {
                    let wire = &mut self.operation(id).wire;
                    memory::gather(std::slice::from_ref(buffer), offset, wire);
                    self.land_write(id, 0)
                }
                _ => self.read_part(id, 0),
            };
        let operation = self.operations.take(id).expect("it was put in above");
        if is_done && kind == Kind::Read {
            memory::scatter(std::slice::from_ref(buffer), offset, &operation.wire);
        }
        if let (true, Kind::Write { immediate: Some(bits) }) = (is_done, kind) {
            let card = self.ends[peer].card;
            self.cards[card].push(Ready::Immediate { end: peer, bits });
        }
        self.note("perform", operation.serial, is_done.into());
        self.draw_faults(card, end);
        is_done
    }

    /// Returns `true` if nothing is queued on an end, and it is connected.
    fn is_free(&self, end: usize) -> bool {
        let end = &self.ends[end];
        end.state == EndState::Connected && end.way == Way::Open && end.requests.is_empty()
    }

    /// Returns `true` if the peer's card takes a report over this end now.
    fn has_room_to_tell(&self, peer: usize) -> bool {
        self.ends[peer].held.is_empty() && self.cards[self.ends[peer].card].can_receive()
    }

    fn performed(
        &mut self,
        card: usize,
        (end, peer): (usize, usize),
        kind: Kind,
        target: RemoteSegment,
    ) -> Operation {
        let (serial, len) = (self.posted, target.len as usize);
        self.posted += 1;
        Operation {
            serial,
            card,
            end,
            peer,
            tag: 0,
            kind,
            target: Some(target),
            state: State::InFlight,
            buffers: Buffers::None,
            wire: vec![0; len],
            len,
            parts: 1,
            departed: 0,
            landed: 0,
            answered: 0,
            is_answered: false,
            failure: None,
            actions: 0,
            grip: None,
        }
    }
}

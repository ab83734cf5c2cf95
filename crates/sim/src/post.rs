//! Posts to simulated cards: checks, refusals and acceptance.

use farreach_memory::{Buffer, Buffers, DomainId};
use farreach_rail::{LinkKey, RailError, Refusal, RemoteSegment, WorkRequest};

use super::action::Action;
use super::end::{CardState, EndState};
use super::operation::{Kind, Operation, State};
use super::record::Rule;
use super::world::World;

const OPERATION: &str = "post a request to a simulated card";

impl World {
    pub(super) fn post(
        &mut self,
        card: usize,
        domain: DomainId,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        let looked_at = match Kind::of(request) {
            None => Err(never("this rail takes one remote segment per operation")),
            Some((kind, target)) => self
                .look_at_link(card, link)
                .and_then(|end| self.look_at_request(card, domain, (kind, target), &buffers).map(|()| end))
                .and_then(|end| self.look_for_room(card, end).map(|()| (end, kind, target))),
        };
        let (end, kind, target) = match looked_at {
            Ok(taken) => taken,
            Err(reason) => {
                let why = match &reason {
                    Refusal::Full => 0,
                    Refusal::LinkDown(_) => 1,
                    Refusal::Never(_) => 2,
                };
                self.note("refused", card as u64, why);
                return Err((reason, buffers));
            }
        };
        let peer = self.ends[end].peer.expect("an end without a peer was refused above");
        self.draw_faults(card, end);
        self.accept(card, (end, peer), tag, (kind, target), buffers);
        Ok(())
    }

    fn look_at_link(&mut self, card: usize, link: LinkKey) -> Result<usize, Refusal> {
        let down = |cause: &str, fix: &str| Refusal::LinkDown(RailError::new(OPERATION, cause, fix));
        if self.cards[card].state != CardState::Alive {
            return Err(down("the card can no longer be used", "use another rail"));
        }
        let end = self.end_of(card, link);
        match end.map(|end| self.ends[end].state) {
            Some(EndState::Connected) => Ok(end.unwrap_or_default()),
            Some(EndState::Broken) => Err(down("an earlier request on it failed", "open another link")),
            state => {
                let cause = match state {
                    Some(EndState::Closed) => "is closed",
                    Some(_) => "is not connected",
                    None => "does not belong to this card",
                };
                let what = format!("a request over link {}, which {cause}", link.0);
                self.violate(card, Rule::NoPeer, what.clone());
                Err(down(&what, "post only to links that are connected and not closed"))
            }
        }
    }

    pub(super) fn end_of(&self, card: usize, link: LinkKey) -> Option<usize> {
        let end = usize::try_from(link.0).ok()?;
        self.ends.get(end).is_some_and(|there| there.card == card).then_some(end)
    }

    /// Checks that this card supports the work request.
    fn look_at_request(
        &mut self,
        card: usize,
        domain: DomainId,
        (kind, target): (Kind, Option<RemoteSegment>),
        buffers: &Buffers,
    ) -> Result<(), Refusal> {
        let len = buffers.len() as u64;
        if let Some(what) = misuse(kind, buffers, domain) {
            self.violate(card, Rule::Buffers, what.to_owned());
            return Err(never(what));
        }
        let target_len = target.map_or(0, |target| target.len);
        let is_aligned = target.is_none_or(|target| target.address % 8 == 0);
        let is_atomic = matches!(kind, Kind::FetchAdd { .. } | Kind::CompareSwap { .. });
        if (kind != Kind::Send && target_len != len) || (is_atomic && !(len == 8 && is_aligned)) {
            let what =
                format!("{len} bytes for a target of {target_len}, or an atomic without 8 aligned bytes");
            self.violate(card, Rule::RemoteSegment, what.clone());
            return Err(never(&what));
        }
        let properties = &self.cards[card].kind.properties;
        let limits = &properties.limits;
        let is_message = kind == Kind::Send;
        let cause = match () {
            () if len > limits.bytes => "more bytes than the limit of one request",
            () if buffers.count() > limits.pieces => "more segments than the limit of one request",
            () if is_message && len > properties.message_max as u64 => "a message longer than the maximum",
            () if is_atomic && !properties.has_atomics => "this card has no atomics",
            () => return Ok(()),
        };
        Err(never(cause))
    }

    fn look_for_room(&mut self, card: usize, end: usize) -> Result<(), Refusal> {
        let window = self.cards[card].kind.properties.window as usize;
        if self.ends[end].in_flight >= window {
            let what = format!("more than {window} requests in flight on link {end}");
            self.violate(card, Rule::Window, what);
            return Err(Refusal::Full);
        }
        let there = &mut self.cards[card];
        let is_full = there.in_flight >= there.kind.queue_len && there.kind.refuses_overrun;
        let is_filled = there.full_until_ns > self.now_ns;
        let is_told_to = there.refusals_left > 0;
        there.refusals_left -= u32::from(is_told_to);
        let is_refused = is_told_to || self.draw(|odds| odds.post_refused);
        if is_refused {
            // Nothing else would wake a driver that waits for room.
            self.wake_soon(card);
        }
        match is_full || is_filled || is_refused {
            true => Err(Refusal::Full),
            false => Ok(()),
        }
    }

    fn accept(
        &mut self,
        card: usize,
        (end, peer): (usize, usize),
        tag: u64,
        (kind, target): (Kind, Option<RemoteSegment>),
        buffers: Buffers,
    ) {
        let len = buffers.len();
        let is_atomic = matches!(kind, Kind::FetchAdd { .. } | Kind::CompareSwap { .. });
        let parts_max =
            if is_atomic { 1 } else { self.settings.parts_max.max(1).min(len.clamp(1, 255) as u8) };
        let parts = 1 + self.chance.below(parts_max.into()) as u8;
        let mut wire = self.spare.pop().unwrap_or_default();
        wire.resize(len, 0);
        let operation = Operation {
            serial: self.posted,
            card,
            end,
            peer,
            tag,
            kind,
            target,
            state: State::InFlight,
            buffers,
            wire,
            len,
            parts,
            departed: 0,
            landed: 0,
            answered: 0,
            is_answered: false,
            failure: None,
            actions: 0,
            grip: None,
        };
        self.note("post", self.posted, tag);
        self.posted += 1;
        let Ok(id) = self.operations.put(operation) else {
            panic!("more than {} operations in flight", self.operations.len());
        };
        self.ends[end].requests.push_back(id);
        self.ends[end].in_flight += 1;
        self.cards[card].in_flight += 1;
        let longer_ns = std::mem::take(&mut self.ends[end].next_delay_ns);
        for part in 0..parts {
            let mut at_ns = self.after_step() + longer_ns;
            if self.cards[card].is_ordered() {
                at_ns = at_ns.max(self.ends[end].last_departure_ns);
                self.ends[end].last_departure_ns = at_ns;
            }
            self.schedule(at_ns, Action::Depart { operation: id, part });
        }
    }
}

fn never(cause: &str) -> Refusal {
    let fix = "stay within the card's properties";
    Refusal::Never(RailError::new(OPERATION, cause, fix))
}

fn misuse(kind: Kind, buffers: &Buffers, domain: DomainId) -> Option<&'static str> {
    let is_unregistered = |buffer: &Buffer| !buffer.is_empty() && buffer.local_key(domain).is_none();
    let is_written_to = !matches!(kind, Kind::Write { .. } | Kind::Send);
    match buffers {
        _ if buffers.as_slice().iter().any(is_unregistered) => {
            Some("a buffer that this card has not registered")
        }
        _ if is_written_to && !buffers.are_writable() => Some("a shared buffer that the card would write to"),
        _ => None,
    }
}

//! Shares counters with peers, and opens those of peers.

use super::admission::NotOpened;
use super::publish::take_answered;
use super::shared_counters::Joining;
use super::{Event, Machine, OpId, PeerKey};
use crate::access::Access;
use crate::counter::CounterId;
use crate::error::OpenError;
use crate::ids::SharedCounterId;
use crate::lost::LostReason;
use crate::machine::lose::told_by_peer;
use crate::time::Time;
use crate::wire::Frame;

impl Machine {
    /// Opens a counter that every permitted peer may raise. No peer can guess its id.
    /// [`Event::CounterJoined`] reports each peer that opens it, with the counter of this peer, to which
    /// further events refer.
    pub fn share_counter(&mut self, access: Access) -> SharedCounterId {
        self.shared_counters.add(access, &mut self.names)
    }

    /// Permits peers whose certificate has this name. Returns `false` if there is no such counter, or
    /// everybody may open it.
    pub fn admit_to_counter(&mut self, shared: SharedCounterId, name: &str) -> bool {
        self.shared_counters.admit(shared, name)
    }

    /// Closes a shared counter, and those of its peers.
    pub fn close_shared_counter(&mut self, shared: SharedCounterId, now: Time) {
        for counter in self.shared_counters.remove(shared) {
            self.close_counter(counter, now);
        }
    }

    /// Handles a peer's request to open a shared counter.
    pub(super) fn on_open_counter(&mut self, key: PeerKey, shared: SharedCounterId) {
        let peer = &self.peers[key];
        if peer.is_left() {
            return self.refuse_counter(key, shared, NotOpened::Leaving);
        }
        match self.shared_counters.open(shared, key, &peer.certificate_names) {
            // A peer has one counter of it, however often it asks.
            Joining::Known(counter) => self.send(key, Frame::CounterOpened { shared, counter }),
            Joining::Refused(why) => self.refuse_counter(key, shared, why),
            Joining::New => match self.open_counter(key, self.now) {
                Some(counter) => {
                    self.shared_counters.join(shared, key, counter);
                    self.report(Event::CounterJoined { shared, peer: key, counter });
                    // The counter was announced before.
                    self.send(key, Frame::CounterOpened { shared, counter });
                }
                // All slots are taken, or the peer accepts no more.
                None => self.refuse_counter(key, shared, NotOpened::TooManyCounters),
            },
        }
    }

    fn refuse_counter(&mut self, key: PeerKey, shared: SharedCounterId, why: NotOpened) {
        self.send(key, Frame::CounterNotOpened { shared, reason: why.to_string() });
    }

    /// Closes the counters of shared ones that a lost peer has. Nobody else does, and their number is
    /// limited.
    pub(super) fn part_from_shared_counters(&mut self, key: PeerKey) {
        let peer = &self.peers[key];
        // A copy, because `close_counter` removes from the list.
        for counter in peer.own_counters.clone() {
            if self.shared_counters.part(key, counter) {
                self.close_counter(counter, self.now);
            }
        }
    }

    /// Opens a shared counter of a peer. It is answered by [`Event::CounterOpened`].
    pub fn open_shared_counter(&mut self, op: OpId, key: PeerKey, shared: SharedCounterId, now: Time) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            let reason = LostReason::Gone;
            return self.report(Event::CounterOpened(op, Err(OpenError::PeerLost { reason })));
        };
        let asked = peer.counter_openings.entry(shared).or_default();
        asked.push(op);
        // One question at a time: its answer may serve all who ask.
        if asked.len() == 1 {
            self.send(key, Frame::OpenCounter { shared });
        }
        self.expect(key);
    }

    /// Handles the peer's answer that this side may raise a counter of it.
    pub(super) fn on_counter_opened(&mut self, key: PeerKey, shared: SharedCounterId, counter: CounterId) {
        let closed = || OpenError::Refused { reason: "it was closed meanwhile".into() };
        // It was announced before. If it is unknown, it was closed since, or the peer lies.
        let answer = self.knows_counter(key, counter).then_some(counter).ok_or_else(closed);
        self.answer_counter_opening(key, shared, &answer);
    }

    pub(super) fn on_counter_not_opened(&mut self, key: PeerKey, shared: SharedCounterId, reason: &str) {
        let reason = told_by_peer(reason);
        self.answer_counter_opening(key, shared, &Err(OpenError::Refused { reason }));
    }

    fn answer_counter_opening(
        &mut self,
        key: PeerKey,
        shared: SharedCounterId,
        answer: &Result<CounterId, OpenError>,
    ) {
        let openings = &mut self.peers[key].counter_openings;
        let answered = take_answered(openings, shared, answer.is_ok());
        if openings.contains_key(&shared) {
            self.send(key, Frame::OpenCounter { shared });
        }
        self.events.extend(answered.into_iter().map(|op| Event::CounterOpened(op, answer.clone())));
    }

    /// Answers all requests to open shared counters of a lost peer.
    pub(super) fn lose_counter_openings(&mut self, key: PeerKey, reason: &LostReason) {
        let peer = &mut self.peers[key];
        let asked = std::mem::take(&mut peer.counter_openings);
        let lost = |op| Event::CounterOpened(op, Err(OpenError::PeerLost { reason: reason.clone() }));
        self.events.extend(asked.into_values().flatten().map(lost));
    }
}

//! A link: this side's end of the connection of a local rail to a rail of the peer, and its phase.
//!
//! The machine decides when a link changes its phase; this module applies the change to the link. A
//! call that does not fit the phase changes nothing.

use crate::counter::LinkId;
use crate::outbox::Posted;
use crate::rail::LinkKey;
use crate::time::Time;

/// The time in nanoseconds after which a refusal belongs to another request. A request that waits
/// for room is tried in every step, so its refusals are closer together.
const REFUSALS_APART: u64 = 1_000_000_000;

/// The id of a link that was never offered: the peer cannot have posted to it.
pub(crate) const NO_LINK: LinkId = LinkId(u64::MAX);

/// A link to a peer. See the [module](self).
#[derive(Debug)]
pub(crate) struct Link {
    /// The local rail, and the rail of the peer.
    rail: usize,
    peer_rail: usize,
    id: LinkId,
    key: Option<LinkKey>,
    phase: Phase,
    in_flight: u32,
    /// Pages of failed operations. They go to another link when this one is lost.
    failed: Vec<Posted>,
    /// Whether an atomic was answered of which it is not known whether it has had its effect.
    has_unknown_atomic: bool,
    /// The generation of its rail when it was opened.
    generation: u64,
    /// Whether the peer reported that its end is lost.
    is_lost_there: bool,
    /// Whether the peer also reported that its operations in flight may still land.
    may_land_late: bool,
    /// What the peer expects on messages and immediates.
    there: Expected,
    /// The mark that this side expects on messages.
    own_mark: u64,
    /// Whether all completed operations on it have landed.
    is_quiet: bool,
    /// The time of the last completion, or of the first post after a pause.
    moved_at: Time,
    /// When it was ready for the last time, if it is not.
    ready_until: Time,
    /// The times of the first and the last refusal while nothing of this side was in flight: a
    /// connection that is never established looks like this.
    refusals: Option<(Time, Time)>,
    /// The cause of its failure, if it was detected on this side.
    why: String,
}

/// The phase of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not connected. The initiator tries again at this time.
    Down { retry_at: Time },
    /// This side's end is being created.
    Opening,
    /// This side's end was sent to the peer.
    Offered,
    /// This side's end is being connected. Contains what the peer expects, if the peer's end was
    /// connected first.
    Connecting { theirs: Option<Expected> },
    /// This side's end is connected.
    Connected,
    /// Both ends are connected.
    Ready,
    /// It has failed, and operations of this side are still in flight on it.
    Draining { since: Time },
}

/// What a side expects of the other one over a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The mark of messages.
    pub(crate) mark: u64,
    /// Whether immediates must carry a counter's name on this link.
    pub(crate) needs_names: bool,
    /// Whether keys of grants must be bound to this link.
    pub(crate) binds_keys: bool,
}

/// Time limits of a link, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkTimes {
    /// For progress, and for answers of the peer.
    pub(crate) stall: u64,
    /// For operations in flight to come back after a failure.
    pub(crate) drain: u64,
}

/// An action that is due for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Offer it to the peer.
    Offer,
    /// Nothing of this side is in flight on it any more: it is lost.
    Drained,
    /// Operations in flight do not come back: its rail must be reset.
    Reset,
    /// It makes no progress.
    Fail(&'static str),
    /// The peer must poll for operations in flight, because nothing wakes it.
    Look,
}

/// This side's end of a link, once created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeEnd {
    pub(crate) key: LinkKey,
    /// The generation of its rail.
    pub(crate) generation: u64,
    /// The mark that this side expects on messages over it.
    pub(crate) own_mark: u64,
}

/// The remains of a link on which nothing of this side is in flight any more.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) key: Option<LinkKey>,
    /// Pages that go to another link.
    pub(crate) failed: Vec<Posted>,
    /// Whether an atomic may still have its effect, which nobody waits for.
    pub(crate) has_unknown_atomic: bool,
    /// Whether all posted operations have landed.
    pub(crate) is_quiet: bool,
    /// The cause of its failure, if it was detected on this side.
    pub(crate) why: String,
}

impl Link {
    /// Creates a link that is to be offered at once.
    pub(crate) fn new((rail, peer_rail): (usize, usize), now: Time) -> Self {
        Self {
            rail,
            peer_rail,
            id: NO_LINK,
            key: None,
            phase: Phase::Down { retry_at: now },
            in_flight: 0,
            failed: Vec::new(),
            has_unknown_atomic: false,
            generation: 0,
            is_lost_there: false,
            may_land_late: false,
            there: Expected::default(),
            own_mark: 0,
            is_quiet: true,
            moved_at: now,
            ready_until: Time::ZERO,
            refusals: None,
            why: String::new(),
        }
    }

    /// Returns the local rail.
    #[inline]
    pub(crate) fn rail(&self) -> usize {
        self.rail
    }

    /// Returns the rail of the peer.
    #[inline]
    pub(crate) fn peer_rail(&self) -> usize {
        self.peer_rail
    }

    /// Returns the id that both sides use.
    #[inline]
    pub(crate) fn id(&self) -> LinkId {
        self.id
    }

    /// Returns the name of this side's end on its rail, if it was created.
    #[inline]
    pub(crate) fn key(&self) -> Option<LinkKey> {
        self.key
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the number of work requests in flight on it.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the generation of its rail when it was opened.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the mark that the peer expects on messages.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.there.mark
    }

    /// Returns whether the peer expects a counter's name on this link in immediates.
    #[inline]
    pub(crate) fn needs_names(&self) -> bool {
        self.there.needs_names
    }

    /// Returns whether the peer binds its keys to this link.
    #[inline]
    pub(crate) fn binds_keys(&self) -> bool {
        self.there.binds_keys
    }

    /// Returns this side's end, if it is connected, so that keys can be bound to it.
    pub(crate) fn connected_end(&self) -> Option<LinkKey> {
        self.key.filter(|_| matches!(self.phase, Phase::Connected | Phase::Ready))
    }

    /// Returns the mark that this side expects on messages over it.
    pub(crate) fn own_mark(&self) -> u64 {
        self.own_mark
    }

    /// Returns `true` if it connects these rails: first the local one.
    pub(crate) fn is_between(&self, pair: (usize, usize)) -> bool {
        (self.rail, self.peer_rail) == pair
    }

    /// Returns until when it was ready; `None` if it is.
    pub(crate) fn ready_until(&self) -> Option<Time> {
        (self.phase != Phase::Ready).then_some(self.ready_until)
    }

    pub(crate) fn is_down(&self) -> bool {
        matches!(self.phase, Phase::Down { .. })
    }

    /// Returns `true` if it can no longer be used.
    pub(crate) fn is_failing(&self) -> bool {
        matches!(self.phase, Phase::Down { .. } | Phase::Draining { .. })
    }

    /// Returns `true` if it is being connected.
    pub(crate) fn is_coming(&self) -> bool {
        !self.is_failing() && self.phase != Phase::Ready
    }

    /// Returns the time at which it is to be looked at, if nothing happens before. `must_be_polled`:
    /// the peer is told again and again to poll while operations are in flight.
    pub(crate) fn next_due(
        &self,
        now: Time,
        is_initiator: bool,
        must_be_polled: bool,
        times: &LinkTimes,
    ) -> Time {
        match self.phase {
            Phase::Down { retry_at } if is_initiator => retry_at,
            // The other side offers it, or its rail answers.
            Phase::Down { .. } | Phase::Opening => Time::NEVER,
            Phase::Offered | Phase::Connecting { .. } | Phase::Connected => {
                self.moved_at.saturating_add(times.stall)
            }
            // A request that waits for room is tried again.
            Phase::Ready if self.is_refusing(now) || (self.in_flight > 0 && must_be_polled) => now,
            Phase::Ready if self.in_flight > 0 => self.moved_at.saturating_add(times.stall),
            Phase::Ready => Time::NEVER,
            // Its last completion may be the one that was just handled.
            Phase::Draining { .. } => now,
        }
    }

    /// Returns `true` if operations of the peer may still land over this generation of its rail.
    pub(crate) fn may_land_over(&self, rail: usize, generation: u64) -> bool {
        self.may_land_late && (self.rail, self.generation) == (rail, generation)
    }

    /// Returns `true` if the peer knows this side's end and has not reported the loss of its own.
    pub(crate) fn is_known_there(&self) -> bool {
        !self.is_lost_there && self.id != NO_LINK
    }

    /// Lets one that is down wait until [`end_wait`](Self::end_wait).
    pub(crate) fn wait(&mut self) {
        if self.is_down() {
            self.phase = Phase::Down { retry_at: Time::NEVER };
        }
    }

    /// Lets one that is down be connected now.
    pub(crate) fn end_wait(&mut self, now: Time) {
        if self.is_down() {
            self.phase = Phase::Down { retry_at: now };
        }
    }

    /// Begins the creation of this side's end, with this id.
    pub(crate) fn open(&mut self, id: LinkId) {
        (self.id, self.phase) = (id, Phase::Opening);
        // What the peer has said was of the link before.
        (self.is_lost_there, self.may_land_late) = (false, false);
    }

    /// Returns `true` if the end created for this id is still wanted.
    pub(crate) fn is_opening(&self, id: LinkId) -> bool {
        self.phase == Phase::Opening && self.id == id
    }

    /// Handles a failed creation of this side's end.
    pub(crate) fn not_opened(&mut self, retry_at: Time) {
        // The peer has no end of this side to post to.
        (self.id, self.phase) = (NO_LINK, Phase::Down { retry_at });
    }

    /// Handles the creation of this side's end, which is sent to the peer.
    pub(crate) fn opened(&mut self, end: MadeEnd, now: Time) {
        let MadeEnd { key, generation, own_mark } = end;
        (self.key, self.phase) = (Some(key), Phase::Offered);
        (self.generation, self.own_mark, self.is_quiet) = (generation, own_mark, true);
        // The peer has as long for its end as for an operation.
        (self.moved_at, self.in_flight, self.refusals) = (now, 0, None);
    }

    /// Begins to connect this side's end. Returns its name on the rail.
    pub(crate) fn connect(&mut self) -> LinkKey {
        assert_eq!(self.phase, Phase::Offered, "an end is connected once, when the peer's is known");
        self.phase = Phase::Connecting { theirs: None };
        self.key.expect("an end that was offered was created")
    }

    /// Handles the connection of this side's end. Returns what the peer expects, if the peer was
    /// ready before.
    pub(crate) fn connected(&mut self, now: Time) -> Option<Expected> {
        let Phase::Connecting { theirs } = self.phase else {
            unreachable!("an end that is not being connected was connected: {:?}", self.phase)
        };
        (self.phase, self.moved_at) = (Phase::Connected, now);
        theirs
    }

    /// Handles the connection of the peer's end. Returns `true` if this side may post.
    pub(crate) fn peer_is_ready(&mut self, there: Expected, now: Time) -> bool {
        match &mut self.phase {
            Phase::Connected => {
                (self.phase, self.there, self.moved_at) = (Phase::Ready, there, now);
                true
            }
            // The peer was faster than the local rail.
            Phase::Connecting { theirs } => {
                *theirs = Some(there);
                false
            }
            // It has failed on this side while the frame was on its way, or the peer does not keep the order.
            _ => false,
        }
    }

    /// Notes that the peer's end is lost.
    pub(crate) fn lost_there(&mut self) {
        self.is_lost_there = true;
    }

    /// Notes that operations of the peer may still land.
    pub(crate) fn expect_late(&mut self) {
        self.may_land_late = true;
    }

    /// Notes the cause of a failure that is about to follow.
    pub(crate) fn note_why(&mut self, why: String) {
        self.why = why;
    }

    /// Ends the use of the link. It waits for its operations in flight. Returns `true` if it was
    /// usable until now.
    pub(crate) fn fail(&mut self, now: Time) -> bool {
        if self.is_failing() {
            return false;
        }
        if self.phase == Phase::Ready {
            // A peer that is left is given up if its links have been down for long.
            self.ready_until = now;
        }
        self.phase = Phase::Draining { since: now };
        true
    }

    /// Ends a link on which nothing of this side is in flight any more.
    pub(crate) fn drained(&mut self, retry_at: Time) -> Remains {
        self.phase = Phase::Down { retry_at };
        Remains {
            key: self.key.take(),
            failed: std::mem::take(&mut self.failed),
            has_unknown_atomic: std::mem::take(&mut self.has_unknown_atomic),
            is_quiet: self.is_quiet,
            why: std::mem::take(&mut self.why),
        }
    }

    /// Ends a link of a dead rail: its operations in flight never come back, and it is never
    /// offered again. Returns `None` if it is down already.
    pub(crate) fn abandon(&mut self) -> Option<Remains> {
        if self.is_down() {
            return None;
        }
        // None of them comes back. Their pages are in `failed`, or were abandoned with their slots.
        self.in_flight = 0;
        // Never offered again: a dead rail stays dead.
        Some(self.drained(Time::NEVER))
    }

    /// Accounts an operation that was posted to it.
    #[inline]
    pub(crate) fn took_one(&mut self, now: Time) {
        // The stall timer starts with the first operation after a pause, and restarts with each
        // completion.
        if self.in_flight == 0 {
            self.moved_at = now;
        }
        self.in_flight += 1;
        // What was accepted shows that it is connected.
        self.refusals = None;
    }

    /// Accounts a completion.
    #[inline]
    pub(crate) fn completed(&mut self, is_ok: bool, now: Time) {
        debug_assert!(self.in_flight > 0, "a completion of more than was posted");
        self.in_flight -= 1;
        self.moved_at = now;
        // It is unknown whether the bytes of a failed operation land later.
        self.is_quiet &= is_ok;
    }

    /// Keeps pages that go to another link when this one is lost.
    pub(crate) fn keep_failed(&mut self, posted: Posted) {
        // Their bytes may land until the link has stopped, so nobody else may send them before.
        self.failed.push(posted);
    }

    /// Notes an atomic that has failed with it.
    pub(crate) fn keep_unknown_atomic(&mut self) {
        self.has_unknown_atomic = true;
    }

    /// Returns `true` if an atomic that was answered may still have its effect.
    pub(crate) fn has_unknown_atomic(&self) -> bool {
        self.has_unknown_atomic
    }

    /// Notes that it had no room.
    pub(crate) fn has_refused(&mut self, now: Time) {
        // With operations in flight a full queue is normal: their completions make room.
        if self.in_flight == 0 {
            // A refusal long after the last one begins a new series.
            let since = self
                .refusals
                .filter(|(_, last)| now < *last + REFUSALS_APART)
                .map_or(now, |(since, _)| since);
            self.refusals = Some((since, now));
        }
    }

    /// Returns pages of failed operations.
    pub(crate) fn failed(&self) -> &[Posted] {
        &self.failed
    }

    /// Checks that it has what its phase says, and nothing else.
    pub(crate) fn check(&self, name: &dyn std::fmt::Debug) {
        let (has_end, is_used) = (self.key.is_some(), self.in_flight > 0 || !self.failed.is_empty());
        let is_so = match self.phase {
            Phase::Down { .. } | Phase::Opening => !has_end && !is_used,
            Phase::Offered | Phase::Connecting { .. } | Phase::Connected => has_end && !is_used,
            Phase::Ready => has_end && self.failed.is_empty(),
            // It may have failed before its end was created.
            Phase::Draining { .. } => has_end || !is_used,
        };
        assert!(is_so, "links: end {:?}, {} in flight on {name:?}", self.key, self.in_flight);
        assert!(self.id != NO_LINK || self.is_down(), "links: no id on {name:?}");
    }

    /// Returns the action that is due. The initiator offers links.
    pub(crate) fn due(&self, now: Time, is_initiator: bool, times: &LinkTimes) -> Due {
        match self.phase {
            Phase::Down { retry_at } if is_initiator && now >= retry_at => Due::Offer,
            // Before the reset: there is nothing to reset a rail for.
            Phase::Draining { .. } if self.in_flight == 0 => Due::Drained,
            Phase::Draining { since } if now >= since + times.drain => Due::Reset,
            Phase::Ready if self.hangs(now, times.stall) => {
                Due::Fail("no progress, although the peer answers")
            }
            // The machine sends the frame only over a rail that cannot wake the peer.
            Phase::Ready if self.in_flight > 0 => Due::Look,
            // An answer was lost with a rail: the link is offered anew.
            Phase::Offered | Phase::Connecting { .. } | Phase::Connected
                if now >= self.moved_at.saturating_add(times.stall) =>
            {
                Due::Fail("the peer's end was not connected in time")
            }
            _ => Due::Nothing,
        }
    }

    /// Returns `true` if it makes no progress: no operation completed for `stall`, or it accepted
    /// none.
    fn hangs(&self, now: Time, stall: u64) -> bool {
        let is_long_ago = |since: Time| now >= since.saturating_add(stall);
        let refuses = self.is_refusing(now) && self.refusals.is_some_and(|(since, _)| is_long_ago(since));
        (self.in_flight > 0 && is_long_ago(self.moved_at)) || refuses
    }

    /// Returns `true` if it has refused a request lately. Old refusals do not count: the request that
    /// was refused may be gone.
    fn is_refusing(&self, now: Time) -> bool {
        self.refusals.is_some_and(|(_, last)| now < last.saturating_add(REFUSALS_APART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: MadeEnd = MadeEnd { key: LinkKey(7), generation: 3, own_mark: 11 };

    fn offered() -> Link {
        let mut link = Link::new((0, 1), Time::ZERO);
        link.open(LinkId(5));
        link.opened(END, Time(10));
        link
    }

    fn ready() -> Link {
        let mut link = offered();
        assert_eq!(
            (
                link.connect(),
                link.connected(Time(20)),
                link.peer_is_ready(Expected { mark: 9, needs_names: false, binds_keys: false }, Time(30))
            ),
            (LinkKey(7), None, true)
        );
        assert_eq!((link.phase(), link.mark()), (Phase::Ready, 9));
        link
    }

    #[test]
    fn a_peer_that_is_ready_first_is_remembered() {
        let mut link = offered();
        assert!(
            !link.peer_is_ready(Expected { mark: 9, needs_names: false, binds_keys: false }, Time(20))
                && link.phase() == Phase::Offered,
            "ours is not connected"
        );
        link.connect();
        assert!(!link.peer_is_ready(Expected { mark: 9, needs_names: false, binds_keys: false }, Time(20)));
        assert_eq!(
            (link.connected(Time(30)), link.phase()),
            (Some(Expected { mark: 9, needs_names: false, binds_keys: false }), Phase::Connected)
        );
        assert!(link.peer_is_ready(Expected { mark: 9, needs_names: false, binds_keys: false }, Time(40)));
    }

    #[test]
    fn one_that_fails_keeps_what_it_had_until_it_is_drained() {
        let mut link = ready();
        link.took_one(Time(40));
        link.note_why("it was cut".to_owned());
        assert!(link.fail(Time(50)) && !link.fail(Time(60)), "once");
        assert!(link.is_failing() && !link.is_down() && !link.is_coming());
        link.completed(false, Time(70));
        let remains = link.drained(Time(100));
        assert_eq!(
            (remains.key, remains.is_quiet, remains.why.as_str()),
            (Some(LinkKey(7)), false, "it was cut")
        );
        assert_eq!(
            (link.phase(), link.key(), link.in_flight()),
            (Phase::Down { retry_at: Time(100) }, None, 0)
        );
        assert!(!link.fail(Time(110)), "it is down");
    }

    #[test]
    fn one_of_a_dead_rail_is_never_tried_again() {
        let mut link = ready();
        link.took_one(Time(40));
        assert_eq!(link.abandon().and_then(|remains| remains.key), Some(LinkKey(7)));
        assert_eq!((link.phase(), link.in_flight()), (Phase::Down { retry_at: Time::NEVER }, 0));
        assert!(link.abandon().is_none());
    }

    #[test]
    fn one_that_was_opened_anew_has_nothing_of_the_one_before() {
        let mut link = ready();
        link.lost_there();
        link.expect_late();
        link.took_one(Time(30));
        link.completed(false, Time(40));
        assert!(link.may_land_over(0, 3) && !link.may_land_over(0, 4) && !link.is_known_there());
        link.fail(Time(50));
        link.drained(Time(60));
        link.open(LinkId(6));
        assert!(link.is_opening(LinkId(6)) && !link.is_opening(LinkId(5)));
        link.opened(MadeEnd { generation: 4, ..END }, Time(70));
        assert!(link.is_known_there() && !link.may_land_over(0, 4));
        assert!(link.drained(Time(80)).is_quiet);
    }

    #[test]
    fn nothing_hangs_that_moves() {
        let mut link = ready();
        assert!(!link.hangs(Time::NEVER, 10), "nothing is in flight");
        link.took_one(Time(100));
        link.took_one(Time(105));
        assert!(!link.hangs(Time(109), 10) && link.hangs(Time(110), 10), "since the first");
        link.completed(true, Time(110));
        assert!(!link.hangs(Time(119), 10) && link.hangs(Time(120), 10));
        link.completed(true, Time(120));
        link.has_refused(Time(130));
        assert!(!link.hangs(Time(139), 10), "it refuses not for long enough");
        link.has_refused(Time(140));
        assert!(link.hangs(Time(140), 10), "it takes nothing though nothing is in flight");
        assert!(!link.hangs(Time(140 + REFUSALS_APART), 10), "that was another request");
        link.took_one(Time(150));
        assert!(!link.hangs(Time(151), 10));
    }

    const TIMES: LinkTimes = LinkTimes { stall: 10, drain: 5 };

    fn due(link: &Link, now: Time) -> Due {
        link.due(now, true, &TIMES)
    }

    #[test]
    fn an_answer_is_awaited_no_longer_than_that() {
        let mut link = offered();
        assert_eq!(due(&link, Time(19)), Due::Nothing);
        assert!(matches!(due(&link, Time(20)), Due::Fail(_)));
        link.connect();
        link.connected(Time(25));
        assert_eq!(due(&link, Time(34)), Due::Nothing);
        assert!(matches!(due(&link, Time(35)), Due::Fail(_)));
        link.peer_is_ready(Expected { mark: 1, needs_names: false, binds_keys: false }, Time(40));
        assert_eq!(due(&link, Time(1000)), Due::Nothing);
    }

    #[test]
    fn what_is_due_follows_from_the_phase_and_the_time() {
        let mut link = Link::new((0, 0), Time(10));
        assert_eq!((due(&link, Time(9)), due(&link, Time(10))), (Due::Nothing, Due::Offer));
        assert_eq!(link.due(Time(10), false, &TIMES), Due::Nothing, "the other side offers");
        link.open(LinkId(1));
        assert_eq!(due(&link, Time(1000)), Due::Nothing, "its rail is asked");
        link = ready();
        link.took_one(Time(40));
        assert_eq!(due(&link, Time(49)), Due::Look);
        assert!(matches!(due(&link, Time(50)), Due::Fail(_)));
        link.fail(Time(50));
        assert_eq!((due(&link, Time(54)), due(&link, Time(55))), (Due::Nothing, Due::Reset));
        link.completed(true, Time(60));
        assert_eq!(due(&link, Time(60)), Due::Drained);
    }
}

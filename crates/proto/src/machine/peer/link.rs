//! A link: this side's end of the connection of one rail of ours to one of the peer's, and how far it is.
//!
//! The machine decides when a link goes on; a link knows what that means for itself. A call that does not fit the phase changes nothing.

use crate::counter::LinkId;
use crate::outbox::Posted;
use crate::rail::LinkKey;

/// What waits for room is tried with every step; refusals that are further apart are of different requests.
const REFUSALS_APART: u64 = 1_000_000_000;

/// The name of a link that was never offered: nobody can have posted to it.
pub(crate) const NO_LINK: LinkId = LinkId(u64::MAX);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Link {
    /// Which rail of ours, and which of the peer's.
    rail: usize,
    peer_rail: usize,
    id: LinkId,
    key: Option<LinkKey>,
    phase: Phase,
    in_flight: u32,
    /// Pages of requests that have failed: they go to another link when this one is lost.
    failed: Vec<Posted>,
    /// That of its rail, when it was opened.
    generation: u64,
    /// Whether the peer has said that its end is lost.
    is_lost_there: bool,
    /// Whether it has said, too, that what it had in flight may land yet.
    may_land_late: bool,
    /// What the peer wants its messages marked with.
    mark: u32,
    /// What we want ours marked with.
    own_mark: u32,
    /// Whether all that was posted to it has landed, as far as it is done.
    is_quiet: bool,
    /// When something of it was last done, or first posted.
    moved_at: u64,
    /// Since when it takes nothing, though nothing of ours is in flight on it, and when it last did not: a connection that is never made looks so.
    refusals: Option<(u64, u64)>,
    /// Why it fails, where that was found here.
    why: String,
}

/// How far a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not there; the initiator tries again then.
    Down { retry_at: u64 },
    /// Our end is being made.
    Opening,
    /// Our end is told to the peer.
    Offered,
    /// Our end is being connected. The peer may have said already that its end is, and what it wants its messages marked with.
    Connecting { mark: Option<u32> },
    /// Our end is connected.
    Connected,
    /// Both are.
    Ready,
    /// It failed, and something of it is still in flight.
    Draining { since: u64 },
}

/// How long a link may take for what, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkTimes {
    /// To move, or to be answered by the peer.
    pub(crate) stall: u64,
    /// To bring back what is in flight after it has failed.
    pub(crate) drain: u64,
}

/// What is due for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// To be offered to the peer.
    Offer,
    /// Nothing of ours is in flight on it any more: it is lost.
    Drained,
    /// What is in flight does not come back: its rail is to be reset.
    Reset,
    /// It hangs.
    Fail(&'static str),
    /// The peer is to look for what is in flight, where nothing wakes it.
    Look,
}

/// Our end of a link, when it is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeEnd {
    pub(crate) key: LinkKey,
    /// That of its rail.
    pub(crate) generation: u64,
    /// What we want messages marked with that come over it.
    pub(crate) own_mark: u32,
}

/// What is left of a link on which nothing of ours is in flight any more.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) key: Option<LinkKey>,
    /// Pages that go to another link.
    pub(crate) failed: Vec<Posted>,
    /// Whether all that was posted to it has landed.
    pub(crate) is_quiet: bool,
    /// Why it has failed, where that was found here.
    pub(crate) why: String,
}

impl Link {
    /// One that is to be tried at once.
    pub(crate) fn new((rail, peer_rail): (usize, usize), now: u64) -> Self {
        Self {
            rail,
            peer_rail,
            id: NO_LINK,
            key: None,
            phase: Phase::Down { retry_at: now },
            in_flight: 0,
            failed: Vec::new(),
            generation: 0,
            is_lost_there: false,
            may_land_late: false,
            mark: 0,
            own_mark: 0,
            is_quiet: true,
            moved_at: now,
            refusals: None,
            why: String::new(),
        }
    }

    /// Which rail of ours.
    #[inline]
    pub(crate) fn rail(&self) -> usize {
        self.rail
    }

    /// Which rail of the peer's.
    #[inline]
    pub(crate) fn peer_rail(&self) -> usize {
        self.peer_rail
    }

    /// What both sides call it.
    #[inline]
    pub(crate) fn id(&self) -> LinkId {
        self.id
    }

    /// What its rail calls our end, where that is made.
    #[inline]
    pub(crate) fn key(&self) -> Option<LinkKey> {
        self.key
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// How many requests of ours are in flight on it.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// That of its rail, when it was opened.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// What the peer wants its messages marked with.
    #[inline]
    pub(crate) fn mark(&self) -> u32 {
        self.mark
    }

    /// What we want messages marked with that come over it.
    pub(crate) fn own_mark(&self) -> u32 {
        self.own_mark
    }

    /// Whether it is between these rails: first ours.
    pub(crate) fn is_between(&self, pair: (usize, usize)) -> bool {
        (self.rail, self.peer_rail) == pair
    }

    pub(crate) fn is_down(&self) -> bool {
        matches!(self.phase, Phase::Down { .. })
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_failing(&self) -> bool {
        matches!(self.phase, Phase::Down { .. } | Phase::Draining { .. })
    }

    /// Whether it is being made.
    pub(crate) fn is_coming(&self) -> bool {
        !self.is_failing() && self.phase != Phase::Ready
    }

    /// Whether something of it is in flight, or about to change by time alone.
    pub(crate) fn is_active(&self) -> bool {
        self.phase != Phase::Ready || self.in_flight > 0
    }

    /// Whether the peer has said that what it had in flight may land yet, over its rail as it was.
    pub(crate) fn may_land_over(&self, rail: usize, generation: u64) -> bool {
        self.may_land_late && (self.rail, self.generation) == (rail, generation)
    }

    /// Whether the peer has not said that its end is lost, and knows of ours.
    pub(crate) fn is_known_there(&self) -> bool {
        !self.is_lost_there && self.id != NO_LINK
    }

    /// Our end is being made, under this name.
    pub(crate) fn open(&mut self, id: LinkId) {
        (self.id, self.phase) = (id, Phase::Opening);
        (self.is_lost_there, self.may_land_late) = (false, false);
    }

    /// Whether the end that is made under this name is still wanted.
    pub(crate) fn is_opening(&self, id: LinkId) -> bool {
        self.phase == Phase::Opening && self.id == id
    }

    /// Our end could not be made.
    pub(crate) fn not_opened(&mut self, retry_at: u64) {
        (self.id, self.phase) = (NO_LINK, Phase::Down { retry_at });
    }

    /// Our end is made, and the peer is told of it.
    pub(crate) fn opened(&mut self, end: MadeEnd, now: u64) {
        let MadeEnd { key, generation, own_mark } = end;
        (self.key, self.phase) = (Some(key), Phase::Offered);
        (self.generation, self.own_mark, self.is_quiet) = (generation, own_mark, true);
        (self.moved_at, self.in_flight, self.refusals) = (now, 0, None);
    }

    /// Our end is being connected: what its rail calls it.
    pub(crate) fn connect(&mut self) -> Option<LinkKey> {
        let key = self.key?;
        self.phase = Phase::Connecting { mark: None };
        Some(key)
    }

    /// Our end is connected. The peer's mark, where the peer was ready before.
    pub(crate) fn connected(&mut self, now: u64) -> Option<u32> {
        let Phase::Connecting { mark } = self.phase else { return None };
        (self.phase, self.moved_at) = (Phase::Connected, now);
        mark
    }

    /// The peer's end is connected, and it wants its messages marked so; whether we may post.
    pub(crate) fn peer_is_ready(&mut self, mark: u32, now: u64) -> bool {
        match &mut self.phase {
            Phase::Connected => {
                (self.phase, self.mark, self.moved_at) = (Phase::Ready, mark, now);
                true
            }
            Phase::Connecting { mark: theirs } => {
                *theirs = Some(mark);
                false
            }
            _ => false,
        }
    }

    /// The peer has said that its end is lost.
    pub(crate) fn lost_there(&mut self) {
        self.is_lost_there = true;
    }

    /// The peer has said that what it had in flight may land yet.
    pub(crate) fn expect_late(&mut self) {
        self.may_land_late = true;
    }

    /// Why it is about to fail.
    pub(crate) fn note_why(&mut self, why: String) {
        self.why = why;
    }

    /// It is of no use any more, and waits for what is in flight; whether it was until now.
    pub(crate) fn fail(&mut self, now: u64) -> bool {
        if self.is_failing() {
            return false;
        }
        self.phase = Phase::Draining { since: now };
        true
    }

    /// Nothing of ours is in flight on it any more.
    pub(crate) fn drained(&mut self, retry_at: u64) -> Remains {
        self.phase = Phase::Down { retry_at };
        Remains {
            key: self.key.take(),
            failed: std::mem::take(&mut self.failed),
            is_quiet: self.is_quiet,
            why: std::mem::take(&mut self.why),
        }
    }

    /// Its rail is dead: what is in flight on it never comes back, and it is never tried again. None where it is down already.
    pub(crate) fn abandon(&mut self) -> Option<Remains> {
        if self.is_down() {
            return None;
        }
        self.in_flight = 0;
        Some(self.drained(u64::MAX))
    }

    /// Something was posted to it.
    #[inline]
    pub(crate) fn took_one(&mut self, now: u64) {
        if self.in_flight == 0 {
            self.moved_at = now;
        }
        self.in_flight += 1;
        self.refusals = None;
    }

    /// Something that was posted to it is done.
    #[inline]
    pub(crate) fn completed(&mut self, is_ok: bool, now: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.moved_at = now;
        self.is_quiet &= is_ok;
    }

    /// These pages go to another link when it is lost.
    pub(crate) fn keep_failed(&mut self, posted: Posted) {
        self.failed.push(posted);
    }

    /// It has no room.
    pub(crate) fn has_refused(&mut self, now: u64) {
        if self.in_flight == 0 {
            let since =
                self.refusals.filter(|(_, last)| now < last + REFUSALS_APART).map_or(now, |(since, _)| since);
            self.refusals = Some((since, now));
        }
    }

    /// What is due now. The initiator of the peer offers links.
    pub(crate) fn due(&self, now: u64, is_initiator: bool, times: &LinkTimes) -> Due {
        match self.phase {
            Phase::Down { retry_at } if is_initiator && now >= retry_at => Due::Offer,
            Phase::Draining { .. } if self.in_flight == 0 => Due::Drained,
            Phase::Draining { since } if now >= since + times.drain => Due::Reset,
            Phase::Ready if self.hangs(now, times.stall) => {
                Due::Fail("nothing moves on it, though the peer is well")
            }
            Phase::Ready if self.in_flight > 0 => Due::Look,
            // The peer's answer, or ours, was lost with a rail: it is tried anew.
            Phase::Offered | Phase::Connecting { .. } | Phase::Connected
                if now >= self.moved_at.saturating_add(times.stall) =>
            {
                Due::Fail("the peer's end was not connected in time")
            }
            _ => Due::Nothing,
        }
    }

    /// Whether it hangs: nothing has moved on it for so long, or it has taken nothing.
    fn hangs(&self, now: u64, stall: u64) -> bool {
        let is_long_ago = |since: u64| now >= since.saturating_add(stall);
        let refuses = |(since, last)| is_long_ago(since) && now < last + REFUSALS_APART;
        (self.in_flight > 0 && is_long_ago(self.moved_at)) || self.refusals.is_some_and(refuses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: MadeEnd = MadeEnd { key: LinkKey(7), generation: 3, own_mark: 11 };

    fn offered() -> Link {
        let mut link = Link::new((0, 1), 0);
        link.open(LinkId(5));
        link.opened(END, 10);
        link
    }

    fn ready() -> Link {
        let mut link = offered();
        assert_eq!(
            (link.connect(), link.connected(20), link.peer_is_ready(9, 30)),
            (Some(LinkKey(7)), None, true)
        );
        assert_eq!((link.phase(), link.mark()), (Phase::Ready, 9));
        link
    }

    #[test]
    fn a_peer_that_is_ready_first_is_remembered() {
        let mut link = offered();
        assert!(!link.peer_is_ready(9, 20) && link.phase() == Phase::Offered, "ours is not connected");
        link.connect();
        assert!(!link.peer_is_ready(9, 20));
        assert_eq!((link.connected(30), link.phase()), (Some(9), Phase::Connected));
        assert_eq!(link.connected(40), None, "once");
        assert!(link.peer_is_ready(9, 40));
    }

    #[test]
    fn one_that_fails_keeps_what_it_had_until_it_is_drained() {
        let mut link = ready();
        link.took_one(40);
        link.note_why("it was cut".to_owned());
        assert!(link.fail(50) && !link.fail(60), "once");
        assert!(link.is_failing() && !link.is_down() && !link.is_coming());
        link.completed(false, 70);
        let remains = link.drained(100);
        assert_eq!(
            (remains.key, remains.is_quiet, remains.why.as_str()),
            (Some(LinkKey(7)), false, "it was cut")
        );
        assert_eq!((link.phase(), link.key(), link.in_flight()), (Phase::Down { retry_at: 100 }, None, 0));
        assert!(!link.fail(110), "it is down");
    }

    #[test]
    fn one_of_a_dead_rail_is_never_tried_again() {
        let mut link = ready();
        link.took_one(40);
        assert_eq!(link.abandon().and_then(|remains| remains.key), Some(LinkKey(7)));
        assert_eq!((link.phase(), link.in_flight()), (Phase::Down { retry_at: u64::MAX }, 0));
        assert!(link.abandon().is_none());
    }

    #[test]
    fn one_that_was_opened_anew_has_nothing_of_the_one_before() {
        let mut link = ready();
        link.lost_there();
        link.expect_late();
        link.completed(false, 40);
        assert!(link.may_land_over(0, 3) && !link.may_land_over(0, 4) && !link.is_known_there());
        link.fail(50);
        link.drained(60);
        link.open(LinkId(6));
        assert!(link.is_opening(LinkId(6)) && !link.is_opening(LinkId(5)));
        link.opened(MadeEnd { generation: 4, ..END }, 70);
        assert!(link.is_known_there() && !link.may_land_over(0, 4));
        assert!(link.drained(80).is_quiet);
    }

    #[test]
    fn nothing_hangs_that_moves() {
        let mut link = ready();
        assert!(!link.hangs(u64::MAX, 10), "nothing is in flight");
        link.took_one(100);
        link.took_one(105);
        assert!(!link.hangs(109, 10) && link.hangs(110, 10), "since the first");
        link.completed(true, 110);
        assert!(!link.hangs(119, 10) && link.hangs(120, 10));
        link.completed(true, 120);
        link.has_refused(130);
        assert!(!link.hangs(139, 10), "it refuses not for long enough");
        link.has_refused(140);
        assert!(link.hangs(140, 10), "it takes nothing though nothing is in flight");
        assert!(!link.hangs(140 + REFUSALS_APART, 10), "that was another request");
        link.took_one(150);
        assert!(!link.hangs(151, 10));
    }

    const TIMES: LinkTimes = LinkTimes { stall: 10, drain: 5 };

    fn due(link: &Link, now: u64) -> Due {
        link.due(now, true, &TIMES)
    }

    #[test]
    fn an_answer_is_awaited_no_longer_than_that() {
        let mut link = offered();
        assert_eq!(due(&link, 19), Due::Nothing);
        assert!(matches!(due(&link, 20), Due::Fail(_)));
        link.connect();
        link.connected(25);
        assert_eq!(due(&link, 34), Due::Nothing);
        assert!(matches!(due(&link, 35), Due::Fail(_)));
        link.peer_is_ready(1, 40);
        assert_eq!(due(&link, 1000), Due::Nothing);
    }

    #[test]
    fn what_is_due_follows_from_the_phase_and_the_time() {
        let mut link = Link::new((0, 0), 10);
        assert_eq!((due(&link, 9), due(&link, 10)), (Due::Nothing, Due::Offer));
        assert_eq!(link.due(10, false, &TIMES), Due::Nothing, "the other side offers");
        link.open(LinkId(1));
        assert_eq!(due(&link, 1000), Due::Nothing, "its rail is asked");
        link = ready();
        link.took_one(40);
        assert_eq!(due(&link, 49), Due::Look);
        assert!(matches!(due(&link, 50), Due::Fail(_)));
        link.fail(50);
        assert_eq!((due(&link, 54), due(&link, 55)), (Due::Nothing, Due::Reset));
        link.completed(true, 60);
        assert_eq!(due(&link, 60), Due::Drained);
    }
}

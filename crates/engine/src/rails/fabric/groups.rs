//! Bookkeeping of writes that share a request for delivery.
//!
//! A provider that delivers the bytes of one connection in order needs one answer for a **group** of
//! writes: the last one asks for delivery, and its completion proves that the earlier ones have
//! landed, too. Their own completions only say that the bytes have left, so they are held until then,
//! with their buffers.
//!
//! The writes of a group are posted one after the other, and the completion queue is not read in
//! between. A provider makes a lost connection anew when it is polled, so an answer that comes over
//! another connection than the bytes cannot end their group.
//!
//! So a group has to be complete before its first write is posted. A write waits for others only
//! while [`AHEAD`] writes are ahead of it, and only until the group is complete, the completions have
//! come, or [`IDLE_POLLS`] polls have found nothing: then nobody posts more at the moment, and waiting
//! would only make the connection idle.

use std::collections::VecDeque;

/// The maximum number of writes in a group.
pub(super) const GROUP_MAX: usize = 16;

/// The number of bytes with which a group is complete. With more, an answer costs next to nothing,
/// and the buffers would be held for long.
pub(super) const GROUP_BYTES: usize = 1 << 20;

/// The number of unreported writes with which another one waits for its group. They keep the
/// connection busy meanwhile.
pub(super) const AHEAD: usize = 2;

/// Polls without an event, since the last write has joined, after which waiting writes are posted.
/// They take a few microseconds, which is less than an answer takes.
pub(super) const IDLE_POLLS: u32 = 8;

/// The writes of a link: requests `R` that wait for their group, and posted ones with buffers `B`.
///
/// Invariant: of the posted writes since the last one that asks, none exists while the completion
/// queue is read, unless they were [broken off](Self::break_off).
#[derive(Debug)]
pub(super) struct Groups<R, B> {
    /// In the order in which they will be posted.
    waiting: VecDeque<Waiting<R>>,
    waiting_bytes: usize,
    /// Polls without an event since a write has joined.
    idle_polls: u32,
    /// In the order in which they were posted. The first one is not [`State::Reported`].
    posted: VecDeque<Posted<B>>,
    /// The number of the first posted write.
    first: u64,
    /// Posted writes that were not reported.
    unreported: usize,
}

/// A write that waits for its group.
#[derive(Debug)]
pub(super) struct Waiting<R> {
    pub(super) tag: u64,
    pub(super) bytes: usize,
    pub(super) request: R,
}

#[derive(Debug)]
struct Posted<B> {
    tag: u64,
    /// Whether it asks for delivery. It is the last one of its group then.
    asks: bool,
    state: State<B>,
}

#[derive(Debug)]
enum State<B> {
    /// The library has it.
    InFlight,
    /// The library has completed it, and whether it has landed is open.
    Sent(B),
    /// It failed and was reported, and its group has not ended.
    Failed,
    /// The library has it, and it has landed.
    Proven,
    /// The library has it, and it will never be known whether it has landed.
    Unproven,
    Reported,
}

/// Why a write has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause<E> {
    /// Its own error.
    Own(E),
    /// Its bytes have left, and nothing proves that they have landed.
    Unproven,
}

/// Takes the tag, the buffers and the outcome of a write that is to be reported.
type Tell<'a, B, E> = &'a mut dyn FnMut(u64, B, Result<(), Cause<E>>);

impl<R, B> Groups<R, B> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(GROUP_MAX),
            waiting_bytes: 0,
            idle_polls: 0,
            posted: VecDeque::new(),
            first: 0,
            unreported: 0,
        }
    }

    /// Returns whether the next write waits for others. If not, it is posted at once and asks for
    /// delivery.
    #[inline]
    pub(super) fn must_wait(&self) -> bool {
        self.unreported >= AHEAD || !self.waiting.is_empty()
    }

    /// Returns whether another write can wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < GROUP_MAX
    }

    pub(super) fn wait(&mut self, waiting: Waiting<R>) {
        // Another write has come, so more may follow.
        self.idle_polls = 0;
        self.waiting_bytes += waiting.bytes;
        self.waiting.push_back(waiting);
    }

    /// Notes that a poll has found nothing.
    #[inline]
    pub(super) fn polled_nothing(&mut self) {
        self.idle_polls = self.idle_polls.saturating_add(1);
    }

    /// Returns the number of writes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether the waiting writes are to be posted.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        !self.waiting.is_empty()
            && (self.unreported < AHEAD
                || self.idle_polls >= IDLE_POLLS
                || self.waiting.len() >= GROUP_MAX
                || self.waiting_bytes >= GROUP_BYTES)
    }

    /// Takes the write that has waited for longest. It is posted, or put back.
    pub(super) fn take_waiting(&mut self) -> Option<Waiting<R>> {
        let waiting = self.waiting.pop_front()?;
        self.waiting_bytes -= waiting.bytes;
        Some(waiting)
    }

    /// Puts a write back that could not be posted.
    pub(super) fn put_back(&mut self, waiting: Waiting<R>) {
        self.waiting_bytes += waiting.bytes;
        self.waiting.push_front(waiting);
    }

    /// Returns the number that the library returns with the completion of the next posted write.
    #[inline]
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.posted.len() as u64
    }

    /// Notes that a write was posted with the [next number](Self::next_number).
    #[inline]
    pub(super) fn posted(&mut self, tag: u64, asks: bool) {
        self.posted.push_back(Posted { tag, asks, state: State::InFlight });
        self.unreported += 1;
    }

    /// Notes the completion of the write with this number. Reports everything that is decided by it,
    /// its own outcome first.
    #[inline]
    pub(super) fn completed<E>(
        &mut self,
        number: u64,
        buffers: B,
        outcome: Result<(), E>,
        tell: Tell<'_, B, E>,
    ) {
        // A number before the first one wraps, and is no index of anything.
        let index = number.wrapping_sub(self.first) as usize;
        let Some(it) = self.posted.get_mut(index) else { return };
        let (tag, asks, is_ok) = (it.tag, it.asks, outcome.is_ok());
        let outcome = match (&it.state, outcome) {
            (State::InFlight, Ok(())) if !asks => {
                it.state = State::Sent(buffers);
                return;
            }
            // Its group has ended without a proof before the library was done with it.
            (State::Unproven, Ok(())) => Err(Cause::Unproven),
            (_, Ok(())) => Ok(()),
            (_, Err(error)) => Err(Cause::Own(error)),
        };
        // It stays in the row until its group ends: the end must find that one has failed.
        let is_group_open = matches!(it.state, State::InFlight) && !asks;
        it.state = if is_group_open { State::Failed } else { State::Reported };
        self.unreported -= 1;
        tell(tag, buffers, outcome);
        if asks {
            self.end_group(index, is_ok, tell);
        }
        self.forget_reported();
    }

    /// Ends the group of the writes before `end`.
    #[inline]
    fn end_group<E>(&mut self, end: usize, is_delivered: bool, tell: Tell<'_, B, E>) {
        // A group that was broken off has no write that asks, so this may begin with its writes.
        // They are decided already.
        let start = self.posted.range(..end).rposition(|it| it.asks).map_or(0, |last| last + 1);
        // A failed write leaves open what its successors over the same connection prove.
        let is_proven =
            is_delivered && !self.posted.range(start..end).any(|it| matches!(it.state, State::Failed));
        for it in self.posted.range_mut(start..end) {
            match std::mem::replace(&mut it.state, State::Reported) {
                State::Sent(buffers) => {
                    self.unreported -= 1;
                    tell(it.tag, buffers, if is_proven { Ok(()) } else { Err(Cause::Unproven) });
                }
                // The library still has its buffers, so it is reported when it completes.
                State::InFlight => it.state = if is_proven { State::Proven } else { State::Unproven },
                State::Failed | State::Reported => {}
                decided @ (State::Proven | State::Unproven) => it.state = decided,
            }
        }
    }

    #[inline]
    fn forget_reported(&mut self) {
        // Only from the front, because a number is a distance from the first one.
        while self.posted.front().is_some_and(|it| matches!(it.state, State::Reported)) {
            self.posted.pop_front();
            self.first += 1;
        }
    }

    /// Ends a group of which only the beginning could be posted: no later answer proves it.
    pub(super) fn break_off<E>(&mut self, tell: Tell<'_, B, E>) {
        self.end_group(self.posted.len(), false, tell);
        self.forget_reported();
    }

    /// Returns the tag of a write that the library has given back without a completion, because its
    /// endpoint was closed.
    pub(super) fn given_back(&mut self, number: u64) -> Option<u64> {
        let it = self.posted.get_mut(number.wrapping_sub(self.first) as usize)?;
        it.state = State::Failed;
        Some(it.tag)
    }

    /// Takes the waiting writes.
    pub(super) fn end_waiting(&mut self) -> impl Iterator<Item = Waiting<R>> + '_ {
        self.waiting_bytes = 0;
        self.waiting.drain(..)
    }

    /// Takes the writes that the library has completed and that nothing will prove any more, because
    /// their endpoint was closed. It forgets all posted writes.
    pub(super) fn end_posted(&mut self) -> impl Iterator<Item = (u64, B)> + '_ {
        // Numbers go on, so that a late completion finds nothing.
        self.first += self.posted.len() as u64;
        self.unreported = 0;
        self.posted.drain(..).filter_map(|it| match it.state {
            State::Sent(buffers) => Some((it.tag, buffers)),
            _ => None,
        })
    }

    /// Returns the number of writes that the library does not have, and that were not reported.
    pub(super) fn kept(&self) -> usize {
        self.waiting.len() + self.posted.iter().filter(|it| matches!(it.state, State::Sent(_))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was reported: the tag, which is also that of its buffers, and the outcome.
    type Told = Vec<(u64, Result<(), Cause<&'static str>>)>;

    /// A link whose writes have their numbers as tags and buffers.
    struct Writes {
        groups: Groups<(), u64>,
        told: Told,
    }

    impl Writes {
        /// Posts groups of these lengths.
        fn posted(lens: &[usize]) -> Self {
            let mut writes = Self { groups: Groups::new(), told: Told::new() };
            for len in lens {
                (1..=*len).for_each(|place| writes.post(place == *len));
            }
            writes
        }

        fn post(&mut self, asks: bool) {
            let number = self.groups.next_number();
            self.groups.posted(number, asks);
        }

        fn completed(&mut self, number: u64, outcome: Result<(), &'static str>) {
            let told = &mut self.told;
            self.groups.completed(number, number, outcome, &mut |tag, buffers, outcome| {
                assert_eq!(tag, buffers, "the buffers are its own");
                told.push((tag, outcome));
            });
        }

        fn all_completed(&mut self, numbers: impl IntoIterator<Item = u64>) {
            numbers.into_iter().for_each(|number| self.completed(number, Ok(())));
        }

        fn told(&mut self) -> Told {
            std::mem::take(&mut self.told)
        }
    }

    fn ok(numbers: impl IntoIterator<Item = u64>) -> Told {
        numbers.into_iter().map(|number| (number, Ok(()))).collect()
    }

    fn unproven(numbers: impl IntoIterator<Item = u64>) -> Told {
        numbers.into_iter().map(|number| (number, Err(Cause::Unproven))).collect()
    }

    fn waiting(tag: u64, bytes: usize) -> Waiting<()> {
        Waiting { tag, bytes, request: () }
    }

    #[test]
    fn a_write_that_has_left_is_held_until_the_end_of_its_group_is_delivered() {
        let mut writes = Writes::posted(&[4, 3]);
        writes.all_completed([0, 1, 2, 4, 5]);
        assert_eq!((writes.told(), writes.groups.kept()), (ok([]), 5));
        writes.completed(3, Ok(()));
        assert_eq!(writes.told(), ok([3, 0, 1, 2]), "and the next group is still open");
        writes.completed(6, Ok(()));
        assert_eq!((writes.told(), writes.groups.kept()), (ok([6, 4, 5]), 0));
        assert_eq!((writes.groups.unreported, writes.groups.posted.len()), (0, 0));
        assert_eq!(writes.groups.next_number(), 7, "numbers are not used again");
    }

    #[test]
    fn a_group_is_proven_by_its_own_end_only() {
        let mut writes = Writes::posted(&[2, 2]);
        writes.all_completed([0, 2]);
        writes.completed(3, Ok(()));
        assert_eq!(writes.told(), ok([3, 2]), "a later answer may have come over another connection");
        writes.completed(1, Err("reset"));
        assert_eq!(writes.told(), [vec![(1, Err(Cause::Own("reset")))], unproven([0])].concat());
    }

    #[test]
    fn completions_may_come_in_any_order() {
        let mut writes = Writes::posted(&[3, 1]);
        writes.completed(2, Ok(()));
        assert_eq!(writes.told(), ok([2]), "the library still has the others");
        writes.all_completed([3, 1, 0]);
        assert_eq!((writes.told(), writes.groups.posted.len()), (ok([3, 1, 0]), 0));
    }

    #[test]
    fn the_error_of_a_write_is_told_first_and_proves_nothing_of_its_group() {
        let mut writes = Writes::posted(&[4]);
        writes.completed(0, Ok(()));
        writes.completed(1, Err("broken pipe"));
        assert_eq!(writes.told(), [(1, Err(Cause::Own("broken pipe")))]);
        // Such an answer is not to be trusted.
        writes.completed(3, Ok(()));
        assert_eq!(writes.told(), [ok([3]), unproven([0])].concat());
        writes.completed(2, Ok(()));
        assert_eq!((writes.told(), writes.groups.posted.len()), (unproven([2]), 0));
    }

    #[test]
    fn a_group_whose_end_fails_has_failed() {
        let mut writes = Writes::posted(&[4]);
        writes.all_completed([0, 1]);
        writes.completed(3, Err("reset"));
        assert_eq!(writes.told(), [vec![(3, Err(Cause::Own("reset")))], unproven([0, 1])].concat());
        writes.completed(2, Err("canceled"));
        assert_eq!(writes.told(), [(2, Err(Cause::Own("canceled")))]);
        assert_eq!((writes.groups.unreported, writes.groups.kept()), (0, 0));
    }

    #[test]
    fn the_beginning_of_a_group_without_an_end_has_failed() {
        let mut writes = Writes::posted(&[2]);
        (0..3).for_each(|_| writes.post(false));
        writes.all_completed([0, 2]);
        let mut told = Told::new();
        writes.groups.break_off(&mut |tag, _, outcome| told.push((tag, outcome)));
        assert_eq!(told, unproven([2]), "and the group before it still waits for its answer");
        writes.all_completed([1, 3, 4]);
        assert_eq!(writes.told(), [ok([1, 0]), unproven([3, 4])].concat());
        // Not even the end of a later group proves it.
        let mut writes = Writes::posted(&[]);
        writes.post(false);
        writes.groups.break_off::<()>(&mut |_, _, _| panic!("the library has it"));
        writes.post(true);
        writes.all_completed([1, 0]);
        assert_eq!(writes.told(), [ok([1]), unproven([0])].concat());
    }

    #[test]
    fn the_end_of_a_link_gives_everything_back_once() {
        let mut writes = Writes::posted(&[4, 2]);
        writes.all_completed([0, 1, 4]);
        writes.groups.wait(waiting(6, 1));
        assert_eq!(writes.groups.kept(), 4);
        let given_back: Vec<_> = [2, 3, 5].map(|number| writes.groups.given_back(number)).into();
        assert_eq!(given_back, [Some(2), Some(3), Some(5)]);
        assert_eq!(writes.groups.end_waiting().map(|it| it.tag).collect::<Vec<_>>(), [6]);
        assert_eq!(writes.groups.end_posted().collect::<Vec<_>>(), [(0, 0), (1, 1), (4, 4)]);
        assert_eq!((writes.groups.kept(), writes.groups.next_number()), (0, 6));
        writes.completed(2, Ok(()));
        assert_eq!((writes.told(), writes.groups.given_back(5)), (ok([]), None));
    }

    #[test]
    fn a_write_waits_only_while_enough_are_ahead_of_it() {
        let mut writes = Writes::posted(&[1; AHEAD - 1]);
        assert!(!writes.groups.must_wait());
        writes.post(true);
        assert!(writes.groups.must_wait() && !writes.groups.is_due(), "nothing waits");
        writes.groups.wait(waiting(100, 1));
        assert!(!writes.groups.is_due());
        writes.completed(0, Ok(()));
        assert!(writes.groups.is_due(), "too few are ahead of it");
        assert!(writes.groups.must_wait(), "no write overtakes it");
        let first = writes.groups.take_waiting().unwrap();
        assert!(first.tag == 100 && !writes.groups.must_wait());
    }

    #[test]
    fn held_writes_are_ahead_of_others_until_their_group_is_proven() {
        let mut writes = Writes::posted(&[AHEAD]);
        writes.all_completed(0..AHEAD as u64 - 1);
        assert!(writes.groups.must_wait());
        writes.completed(AHEAD as u64 - 1, Ok(()));
        assert!(!writes.groups.must_wait());
    }

    #[test]
    fn a_group_is_due_when_polls_find_nothing() {
        let mut writes = Writes::posted(&[AHEAD]);
        for _ in 0..2 {
            writes.groups.wait(waiting(100, 1));
            for _ in 0..IDLE_POLLS {
                assert!(!writes.groups.is_due());
                writes.groups.polled_nothing();
            }
            assert!(writes.groups.is_due());
        }
    }

    #[test]
    fn a_group_is_due_when_it_is_complete() {
        let mut writes = Writes::posted(&[AHEAD]);
        for tag in 0..GROUP_MAX as u64 {
            assert!(writes.groups.has_room() && !writes.groups.is_due());
            writes.groups.wait(waiting(tag, 1));
        }
        assert!(writes.groups.is_due() && !writes.groups.has_room());
        let first = writes.groups.take_waiting().unwrap();
        writes.groups.put_back(first);
        let tags: Vec<_> = std::iter::from_fn(|| writes.groups.take_waiting()).map(|it| it.tag).collect();
        assert_eq!(tags, Vec::from_iter(0..GROUP_MAX as u64), "the order is kept");
        for (bytes, is_due) in [(GROUP_BYTES - 1, false), (1, true)] {
            writes.groups.wait(waiting(0, bytes));
            assert_eq!(writes.groups.is_due(), is_due);
        }
        assert!(writes.groups.take_waiting().is_some() && !writes.groups.is_due());
    }
}

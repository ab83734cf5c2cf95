//! A line of free places: whoever was free for longest is next.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// Numbers that stand in line. Any thread may take the first one, and any may put one at the end; nobody waits for another.
///
/// Turns are counted, modulo 2^32. What stands at a turn is written down together with the turn, so that who comes to take it sees
/// whether it is there already, and what stood there one round ago is nobody's.
pub(super) struct Line {
    /// By turn, modulo how many there are: each is a [`Ticket`].
    tickets: Box<[AtomicU64]>,
    /// One less than there are tickets.
    mask: u32,
    /// The turn that is taken next.
    first: Apart<AtomicU32>,
    /// The turn of who comes next.
    end: Apart<AtomicU32>,
}

/// Written by other threads than its neighbour: not on the same cache line.
#[repr(align(64))]
struct Apart<T>(T);

/// A number that was taken out of the line, with its turn: no other one is the same, until four billion were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

impl Ticket {
    #[inline(always)]
    fn new(turn: u32, number: u32) -> Self {
        Self(u64::from(turn) << 32 | u64::from(number))
    }

    #[inline(always)]
    fn turn(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) fn number(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(super) fn to_raw(self) -> u64 {
        self.0
    }
}

impl Line {
    /// All numbers below `count`, in order.
    pub(super) fn of_all(count: u32) -> Self {
        Self::beginning_at(0, count)
    }

    /// The same, where the first one has this turn.
    fn beginning_at(first: u32, count: u32) -> Self {
        // A power of two, so that turns that wrap keep their tickets.
        let size = count.max(1).next_power_of_two();
        let mut tickets: Box<[AtomicU64]> = (0..size).map(|_| AtomicU64::new(0)).collect();
        for number in 0..size {
            let turn = first.wrapping_add(number);
            // Beyond those that are there, as if something had stood there one round ago.
            let turn_written = if number < count { turn } else { turn.wrapping_sub(size) };
            tickets[(turn & (size - 1)) as usize] =
                AtomicU64::new(Ticket::new(turn_written, number).to_raw());
        }
        Self {
            tickets,
            mask: size - 1,
            first: Apart(AtomicU32::new(first)),
            end: Apart(AtomicU32::new(first.wrapping_add(count))),
        }
    }

    /// The number that stood in line for longest. None may also be the answer while another thread is about to put one there.
    #[inline(always)]
    pub(super) fn take(&self) -> Option<Ticket> {
        let mut turn = self.first.0.load(Ordering::Relaxed);
        loop {
            // Acquired: whoever put the number there is done with its place.
            let ticket = Ticket(self.ticket(turn).load(Ordering::Acquire));
            if ticket.turn() != turn {
                turn = self.moved_on(turn)?;
                continue;
            }
            let next = turn.wrapping_add(1);
            match self.first.0.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(ticket),
                Err(now) => turn = now,
            }
        }
    }

    /// The turn that is next, if it is another one by now: then somebody else has taken the one that was looked for.
    #[cold]
    fn moved_on(&self, turn: u32) -> Option<u32> {
        let now = self.first.0.load(Ordering::Relaxed);
        (now != turn).then_some(now)
    }

    /// Puts a number, which is not in line, at the end.
    #[inline(always)]
    pub(super) fn put(&self, number: u32) {
        let turn = self.end.0.fetch_add(1, Ordering::Relaxed);
        // Released: see `take`.
        self.ticket(turn).store(Ticket::new(turn, number).to_raw(), Ordering::Release);
    }

    /// How many stand in line, at about this time.
    pub(super) fn len(&self) -> u32 {
        let first = self.first.0.load(Ordering::Relaxed);
        self.end.0.load(Ordering::Relaxed).wrapping_sub(first)
    }

    #[inline(always)]
    fn ticket(&self, turn: u32) -> &AtomicU64 {
        // SAFETY: no turn has more bits than the largest one of a ticket.
        unsafe { self.tickets.get_unchecked((turn & self.mask) as usize) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbers(line: &Line) -> Vec<u32> {
        std::iter::from_fn(|| line.take().map(Ticket::number)).collect()
    }

    #[test]
    fn who_came_first_is_taken_first() {
        for count in 0..9 {
            let line = Line::of_all(count);
            assert_eq!(line.len(), count);
            assert_eq!(numbers(&line), (0..count).collect::<Vec<_>>());
            assert_eq!(line.take(), None);
            for number in (0..count).rev() {
                line.put(number);
            }
            assert_eq!(numbers(&line), (0..count).rev().collect::<Vec<_>>());
            assert_eq!(line.len(), 0);
        }
    }

    #[test]
    fn turns_wrap() {
        let line = Line::beginning_at(u32::MAX - 1, 3);
        assert_eq!(numbers(&line), [0, 1, 2]);
        assert_eq!(line.take(), None);
        for number in [2, 0] {
            line.put(number);
        }
        assert_eq!(line.len(), 2);
        assert_eq!(numbers(&line), [2, 0]);
    }

    #[test]
    fn no_two_tickets_are_the_same() {
        let line = Line::of_all(1);
        let first = line.take().unwrap();
        line.put(first.number());
        let second = line.take().unwrap();
        assert_eq!(first.number(), second.number());
        assert_ne!(first, second);
    }
}

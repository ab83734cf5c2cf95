//! All orders of a few events, depth first.
//!
//! Machines and cards cannot be copied, so each order runs from the start: first along a prefix of choices,
//! then on by the first choice that is left, until there is none, or until a state that was there before.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Something that runs from the start, and chooses what happens next.
pub(super) trait Chooses {
    /// Something that may happen next.
    type Event: Copy;

    /// Returns everything that may happen now. The same choices before it return the same events.
    fn events(&self) -> Vec<Self::Event>;

    /// Has an event happen, and checks everything that must always hold.
    fn happen(&mut self, event: Self::Event);

    /// Returns a digest of the whole state.
    fn digest(&self) -> u64;

    /// Checks what must hold when nothing happens any more.
    fn end(&mut self);
}

/// The size of what was explored.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Explored {
    /// The number of different states, and of the events between them.
    pub(super) states: u64,
    pub(super) events: u64,
    /// The number of states in which nothing happens any more.
    pub(super) ends: u64,
    /// The number of different orders, from the start to an end.
    pub(super) orders: f64,
    /// The largest number of events of one order.
    pub(super) longest: usize,
}

/// One choice of the current order.
struct Choice {
    state: u64,
    chosen: usize,
    /// The number of events to choose from.
    count: usize,
    /// The number of orders that go on from the state, as far as they were explored.
    orders: f64,
}

/// Runs all orders. `begin` returns the start, and is told whether somebody reads what happens: an order that
/// fails is run once more, to be read.
///
/// A state is visited once, because what follows from it does not depend on how it was reached. An event that
/// changes nothing leads to a state on the current order; no order goes on from there.
pub(super) fn explore<C: Chooses>(begin: impl Fn(bool) -> C) -> Explored {
    let mut explored = Explored::default();
    let mut known: HashMap<u64, f64> = HashMap::new();
    let mut path: Vec<Choice> = Vec::new();
    loop {
        let order = catch_unwind(AssertUnwindSafe(|| {
            let mut run = begin(false);
            repeat(&mut run, &path);
            go_on(&mut run, &mut path, &mut known, &mut explored)
        }));
        let orders = order.unwrap_or_else(|failure| {
            let mut run = begin(true);
            repeat(&mut run, &path);
            if run.events().is_empty() {
                run.end();
            }
            resume_unwind(failure)
        });
        if let Some(orders) = add_orders(&mut path, &mut known, orders) {
            return Explored { orders, ..explored };
        }
    }
}

/// Makes the same choices again.
fn repeat<C: Chooses>(run: &mut C, path: &[Choice]) {
    for choice in path {
        let events = run.events();
        assert_eq!(events.len(), choice.count, "the same choices lead to the same state");
        run.happen(events[choice.chosen]);
    }
}

/// Goes on by first choices, up to an end, or to a known state. Returns the number of orders from there.
fn go_on<C: Chooses>(
    run: &mut C,
    path: &mut Vec<Choice>,
    known: &mut HashMap<u64, f64>,
    explored: &mut Explored,
) -> f64 {
    loop {
        let state = run.digest();
        explored.events += u64::from(!path.is_empty());
        if let Some(orders) = known.get(&state) {
            return *orders;
        }
        explored.states += 1;
        let events = run.events();
        let Some(first) = events.first() else {
            run.end();
            known.insert(state, 1.0);
            explored.ends += 1;
            return 1.0;
        };
        // Until all orders from here are known.
        known.insert(state, 0.0);
        path.push(Choice { state, chosen: 0, count: events.len(), orders: 0.0 });
        explored.longest = explored.longest.max(path.len());
        run.happen(*first);
    }
}

/// Adds the orders of the last choice, and goes to the next one. Returns the number of all orders if there is
/// none.
fn add_orders(path: &mut Vec<Choice>, known: &mut HashMap<u64, f64>, mut orders: f64) -> Option<f64> {
    while let Some(last) = path.last_mut() {
        last.orders += orders;
        last.chosen += 1;
        if last.chosen < last.count {
            return None;
        }
        orders = last.orders;
        known.insert(last.state, orders);
        path.pop();
    }
    Some(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two users with two events each, and a state that forgets which user did what.
    struct Counters([u8; 2]);

    impl Chooses for Counters {
        type Event = usize;

        fn events(&self) -> Vec<usize> {
            (0..2).filter(|user| self.0[*user] < 2).collect()
        }

        fn happen(&mut self, user: usize) {
            self.0[user] += 1;
        }

        fn digest(&self) -> u64 {
            u64::from(self.0[0]) * 10 + u64::from(self.0[1])
        }

        fn end(&mut self) {
            assert_eq!(self.0, [2, 2]);
        }
    }

    #[test]
    fn all_orders_are_counted_and_each_state_is_visited_once() {
        let Explored { states, events, ends, orders, longest } = explore(|_| Counters([0, 0]));
        assert_eq!((states, events, ends, longest), (9, 12, 1, 4));
        assert!((orders - 6.0).abs() < 0.1, "four events, two of which are one user's: {orders}");
    }
}

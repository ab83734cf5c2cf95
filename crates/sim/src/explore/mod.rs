//! Small scenarios in every order: a few calls of users, and everything that machines, carriers and cards do
//! because of them.
//!
//! Random seeds find what is frequent; a race of three events is found by trying all orders. Real machines with
//! their carriers run over [simulated cards](crate) whose time stands still. What happens next is a choice: an
//! action of a card, a packet on a control connection (each direction keeps its order), a step of a host, the
//! next call of a user, a loss, or time that advances to the next moment of the scenario. [`choices`] goes
//! through all of them, depth first, and visits equal states once.
//!
//! In every state: no byte lands in memory that is its user's again, or in a page whose write was done before; a
//! counter counts no page that has not arrived; each request is answered once; nobody misuses a card, and nobody
//! who is well is lost. When nothing happens any more, everything is answered within the time that machines
//! take, also if nothing fails; and when all have left, nothing is kept.
//!
//! Three things are no choices, because no other event could tell them apart: the machine's outputs go to their
//! connection at once, where they keep their order; a step that would do nothing is left out; and cards read the
//! bytes that they send at once, unless a failed link tells bytes that have left from others.
//!
//! The tests print the longest order, the number of states, of events between them, of ends and of orders:
//!
//! | scenario | longest | states | events | orders |
//! |---|---|---|---|---|
//! | rc: open, write, withdraw, peer lost | 20 | 830 | 1,826 | 2.4e5 |
//! | windows: open, write, withdraw, peer lost | 24 | 2,509 | 6,493 | 5.7e7 |
//! | rc: write, revoke, link lost | 17 | 2,411 | 6,868 | 2.3e6 |
//! | shared: write, revoke, link lost | 21 | 4,669 | 13,839 | 3.8e7 |
//! | shared: short write, revoke, link lost | 17 | 2,973 | 8,226 | 1.5e6 |
//! | efa: counted write over two cards, link lost | 15 | 501 | 1,215 | 1.3e5 |
//! | rc: counted write, close, link lost | 17 | 3,676 | 11,458 | 9.9e6 |
//! | rc: counted write, link lost, lie about the count | 19 | 5,494 | 19,088 | 5.8e7 |
//! | rc: counted write, abort, deadline | 13 | 295 | 639 | 5.0e3 |
//! | shared: exchange, another opens over rc and writes | 20 | 2,437 | 4,725 | 1.4e5 |
//! | shared: exchange, another writes, owner has atomics | 18 | 2,803 | 7,710 | 1.1e6 |
//!
//! `FARREACH_SIM_SCENARIO` chooses the scenarios whose names contain it.

mod check;
mod choices;
mod scenario;
mod scenarios;
mod user;
mod world;

use std::io::Write;

use choices::{Explored, explore};
use scenario::Scenario;
use world::World;

/// Prints a line for the reader of a failed order.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Tries all orders of some scenarios, and prints how many there are.
fn explore_all(scenarios: &[Scenario]) {
    let chosen = std::env::var("FARREACH_SIM_SCENARIO").unwrap_or_default();
    for scenario in scenarios.iter().filter(|it| it.name.contains(&chosen)) {
        let begun = std::time::Instant::now();
        let Explored { states, events, ends, orders, longest } =
            explore(|is_logged| World::new(scenario, is_logged));
        let (name, took) = (&scenario.name, begun.elapsed().as_secs_f64());
        print(&format!(
            "{name:<60} {longest:>4} {states:>9} {events:>9} {ends:>6} {orders:>10.2e} {took:>6.1} s"
        ));
    }
}

#[test]
fn publications() {
    explore_all(&scenarios::publications());
}

#[test]
fn grants() {
    explore_all(&scenarios::grants());
}

#[test]
fn transfers() {
    explore_all(&scenarios::transfers());
}

#[test]
fn counters() {
    explore_all(&scenarios::counters());
}

#[test]
fn exchanges() {
    explore_all(&scenarios::exchanges());
}

#[test]
#[ignore = "it takes minutes: `cargo xtask sim --explore` runs it"]
fn long_scenarios() {
    explore_all(&scenarios::long());
}

//! The decisions by themselves, without a thread.

use super::super::seats::{Look, Next, PlaceId, Seats, Submitted, Turn, Wheel};
use super::*;

struct Nothing;

impl Ring for Nothing {
    fn ring(&self) {}
}

impl Drive for Nothing {
    type Command = u32;
    type Bell = Self;

    fn bell(&self) -> Self {
        Self
    }

    fn apply(&mut self, _command: u32) {}

    fn step(&mut self) -> bool {
        false
    }

    fn sleep(&mut self, _until: Instant) {}
}

fn parker() -> Arc<Parker> {
    Arc::new(Parker::default())
}

fn is_it(next: Next<Nothing>, expected: &Arc<Parker>) -> bool {
    matches!(next, Next::Wake(parker) if Arc::ptr_eq(&parker, expected))
}

fn take(seats: &mut Seats<Nothing>) -> Box<Wheel<Nothing>> {
    match seats.take_or_park(&mut None, || panic!("it is free"), false) {
        Turn::Drive(wheel) => wheel,
        _ => panic!("it is free"),
    }
}

fn park(seats: &mut Seats<Nothing>, parker: &Arc<Parker>) -> (Option<PlaceId>, bool) {
    let mut place = None;
    match seats.take_or_park(&mut place, || Arc::clone(parker), false) {
        Turn::Park { must_ring } => (place, must_ring),
        _ => panic!("it is taken"),
    }
}

fn worker_drives(seats: &mut Seats<Nothing>) -> Box<Wheel<Nothing>> {
    match seats.look() {
        Look::Drive(wheel) => wheel,
        _ => panic!("nobody else does"),
    }
}

#[test]
fn the_parked_have_their_turns_in_order() {
    let (mut seats, first, second) = (Seats::new(Nothing), parker(), parker());
    let wheel = take(&mut seats);
    let ((one, _), (other, _)) = (park(&mut seats, &first), park(&mut seats, &second));
    assert!(is_it(seats.let_go(wheel), &first));
    assert!(is_it(seats.leave(one), &second), "the first one has given up");
    assert!(matches!(seats.leave(other), Next::Nothing));
}

#[test]
fn commands_that_were_left_are_kept_for_the_next_driver_in_order() {
    let mut seats = Seats::new(Nothing);
    let mut wheel = take(&mut seats);
    for command in [1, 2] {
        assert!(matches!(seats.submit(command), Submitted::Left { must_ring: false }));
    }
    seats.collect(&mut wheel);
    assert!(matches!(seats.submit(3), Submitted::Left { .. }));
    seats.collect(&mut wheel);
    assert_eq!(wheel.commands, [1, 2, 3]);
    wheel.commands.clear();
    assert!(matches!(seats.submit(4), Submitted::Left { .. }));
    match seats.let_go(wheel) {
        Next::Drive(wheel) => assert_eq!(wheel.commands, [4]),
        _ => panic!("there is nobody else to apply it"),
    }
}

#[test]
fn a_sleeper_is_rung_for_once() {
    let mut seats = Seats::new(Nothing);
    let _wheel = take(&mut seats);
    assert!(seats.fall_asleep());
    assert!(matches!(seats.submit(1), Submitted::Left { must_ring: true }));
    assert!(matches!(seats.submit(2), Submitted::Left { must_ring: false }));
    seats.wake_up();
    assert!(!seats.fall_asleep(), "there are commands");
}

#[test]
fn a_sleeping_worker_is_rung_for_by_who_waits_and_another_driver_is_not() {
    let mut seats = Seats::new(Nothing);
    seats.hire(parker());
    let wheel = worker_drives(&mut seats);
    assert!(seats.fall_asleep());
    let (place, must_ring) = park(&mut seats, &parker());
    assert!(must_ring && seats.is_worker_to_let_go());
    seats.wake_up();
    assert!(!seats.fall_asleep(), "somebody waits for the helm");
    seats.let_go(wheel);
    seats.leave(place);

    let _wheel = take(&mut seats);
    assert!(seats.fall_asleep());
    assert!(!park(&mut seats, &parker()).1, "who drives for itself goes on");
}

#[test]
fn the_worker_keeps_away_while_others_come_and_go() {
    let (mut seats, worker) = (Seats::new(Nothing), parker());
    seats.hire(Arc::clone(&worker));
    for _ in 0..3 {
        let wheel = take(&mut seats);
        assert!(matches!(seats.let_go(wheel), Next::Nothing), "and is not woken by each");
        assert!(matches!(seats.look(), Look::Again));
    }
    worker_drives(&mut seats);
}

#[test]
fn the_worker_rests_while_one_stays_and_is_woken_after() {
    let (mut seats, worker) = (Seats::new(Nothing), parker());
    seats.hire(Arc::clone(&worker));
    let wheel = take(&mut seats);
    assert!(matches!(seats.look(), Look::Again));
    assert!(matches!(seats.look(), Look::Rest));
    assert!(is_it(seats.let_go(wheel), &worker));
}

#[test]
fn the_worker_is_called_at_once_or_by_who_lets_go() {
    let (mut seats, worker) = (Seats::new(Nothing), parker());
    seats.hire(Arc::clone(&worker));
    let wheel = take(&mut seats);
    assert!(seats.call_worker().is_none(), "somebody drives");
    assert!(is_it(seats.let_go(wheel), &worker));
    assert!(seats.call_worker().is_some_and(|called| Arc::ptr_eq(&called, &worker)));
    let _wheel = worker_drives(&mut seats);
    assert!(seats.call_worker().is_none(), "it drives");
}

#[test]
fn who_finds_a_single_step_looks_again_before_it_parks() {
    let mut seats = Seats::new(Nothing);
    let Submitted::Drive(wheel, 1) = seats.submit(1) else { panic!("nobody else drives") };
    let again = seats.take_or_park(&mut None, || panic!("it does not park"), true);
    assert!(matches!(again, Turn::Again));
    seats.let_go(wheel);
}

//! Unit tests of the decisions, without threads.

use super::super::backoff::{WORKER_RETRY, WORKER_RETRY_BUSY};
use super::super::followers::{Followers, Handover, PlaceId, SubmitAction, WaitAction, WorkerAction};
use super::super::leader::Leader;
use super::*;

/// A machine that does nothing, and may be busy.
#[derive(Default)]
struct Nothing(Vec<Waker>, bool);

impl crate::progress::Wakeup for Nothing {
    fn wake(&self) {}
}

impl Drive for Nothing {
    type Command = u32;
    type Wakeup = Self;
    type Leading = ();

    fn wakeup(&self) -> Self {
        Self::default()
    }

    fn apply(&mut self, _command: u32) {}

    fn step(&mut self) -> bool {
        false
    }

    fn is_busy(&self) -> bool {
        self.1
    }

    fn sleep(&mut self, _until: Instant) {}

    fn lead(&self) {}

    fn wakers(&mut self) -> &mut Vec<Waker> {
        &mut self.0
    }
}

fn parker() -> Arc<Parker> {
    Arc::new(Parker::default())
}

fn is_it(next: Handover<Nothing>, expected: &Arc<Parker>) -> bool {
    matches!(next, Handover::Wake(parker) if Arc::ptr_eq(&parker, expected))
}

fn take(followers: &mut Followers<Nothing>) -> Box<Leader<Nothing>> {
    match followers.lead_or_park(&mut None, || panic!("it is free"), false) {
        WaitAction::Lead(leader) => leader,
        _ => panic!("it is free"),
    }
}

fn park(followers: &mut Followers<Nothing>, parker: &Arc<Parker>) -> (Option<PlaceId>, bool) {
    let mut place = None;
    match followers.lead_or_park(&mut place, || Arc::clone(parker), false) {
        WaitAction::Park { must_wake } => (place, must_wake),
        _ => panic!("it is taken"),
    }
}

fn worker_leads(followers: &mut Followers<Nothing>) -> Box<Leader<Nothing>> {
    match followers.worker_action() {
        WorkerAction::Lead(leader) => leader,
        _ => panic!("nobody else does"),
    }
}

#[test]
fn the_parked_have_their_turns_in_order() {
    let (mut followers, first, second) = (Followers::new(Nothing::default()), parker(), parker());
    let leader = take(&mut followers);
    let ((one, _), (other, _)) = (park(&mut followers, &first), park(&mut followers, &second));
    assert!(is_it(followers.step_down(leader), &first));
    assert!(is_it(followers.leave(one), &second), "the first one has given up");
    assert!(matches!(followers.leave(other), Handover::Nothing));
}

#[test]
fn commands_that_were_left_are_kept_for_the_next_driver_in_order() {
    let mut followers = Followers::new(Nothing::default());
    let mut leader = take(&mut followers);
    for command in [1, 2] {
        assert!(matches!(followers.submit(&mut Some(command)), SubmitAction::Queued { must_wake: false }));
    }
    followers.collect(&mut leader);
    assert!(matches!(followers.submit(&mut Some(3)), SubmitAction::Queued { .. }));
    followers.collect(&mut leader);
    assert_eq!(leader.commands, [1, 2, 3]);
    leader.commands.clear();
    assert!(matches!(followers.submit(&mut Some(4)), SubmitAction::Queued { .. }));
    match followers.step_down(leader) {
        Handover::Lead(leader) => assert_eq!(leader.commands, [4]),
        _ => panic!("there is nobody else to apply it"),
    }
}

#[test]
fn a_sleeper_is_rung_for_once() {
    let mut followers = Followers::new(Nothing::default());
    let _leader = take(&mut followers);
    assert!(followers.fall_asleep());
    assert!(matches!(followers.submit(&mut Some(1)), SubmitAction::Queued { must_wake: true }));
    assert!(matches!(followers.submit(&mut Some(2)), SubmitAction::Queued { must_wake: false }));
    followers.wake_up();
    assert!(!followers.fall_asleep(), "there are commands");
}

#[test]
fn a_sleeping_worker_is_rung_for_by_who_waits_and_another_driver_is_not() {
    let mut followers = Followers::new(Nothing::default());
    followers.add_worker(parker());
    let leader = worker_leads(&mut followers);
    assert!(followers.fall_asleep());
    let (place, must_wake) = park(&mut followers, &parker());
    assert!(must_wake && followers.must_worker_step_down());
    followers.wake_up();
    assert!(!followers.fall_asleep(), "somebody waits for the progress");
    followers.step_down(leader);
    followers.leave(place);

    let _leader = take(&mut followers);
    assert!(followers.fall_asleep());
    assert!(!park(&mut followers, &parker()).1, "who drives for itself goes on");
}

#[test]
fn the_worker_keeps_away_while_others_come_and_go() {
    let (mut followers, worker) = (Followers::new(Nothing::default()), parker());
    followers.add_worker(Arc::clone(&worker));
    for _ in 0..3 {
        let leader = take(&mut followers);
        assert!(matches!(followers.step_down(leader), Handover::Nothing), "and is not woken by each");
        assert!(matches!(followers.worker_action(), WorkerAction::Retry(WORKER_RETRY)));
    }
    worker_leads(&mut followers);
}

#[test]
fn the_worker_asks_again_soon_if_something_is_in_flight() {
    let mut followers = Followers::new(Nothing(Vec::new(), true));
    followers.add_worker(parker());
    let leader = take(&mut followers);
    assert!(matches!(followers.worker_action(), WorkerAction::Retry(WORKER_RETRY)), "one who waits leads");
    assert!(matches!(followers.step_down(leader), Handover::Nothing));
    let leader = take(&mut followers);
    assert!(matches!(followers.step_down(leader), Handover::Nothing));
    assert!(matches!(followers.worker_action(), WorkerAction::Retry(WORKER_RETRY_BUSY)));
    worker_leads(&mut followers);
}

#[test]
fn the_worker_rests_while_one_stays_and_is_woken_after() {
    let (mut followers, worker) = (Followers::new(Nothing::default()), parker());
    followers.add_worker(Arc::clone(&worker));
    let leader = take(&mut followers);
    assert!(matches!(followers.worker_action(), WorkerAction::Retry(WORKER_RETRY)));
    assert!(matches!(followers.worker_action(), WorkerAction::Rest));
    assert!(is_it(followers.step_down(leader), &worker));
}

#[test]
fn the_worker_is_called_at_once_or_by_who_lets_go() {
    let (mut followers, worker) = (Followers::new(Nothing::default()), parker());
    followers.add_worker(Arc::clone(&worker));
    let leader = take(&mut followers);
    assert!(followers.call_worker().is_none(), "somebody drives");
    assert!(is_it(followers.step_down(leader), &worker));
    assert!(followers.call_worker().is_some_and(|called| Arc::ptr_eq(&called, &worker)));
    let _leader = worker_leads(&mut followers);
    assert!(followers.call_worker().is_none(), "it drives");
}

#[test]
fn who_finds_a_single_step_looks_again_before_it_parks() {
    let mut followers = Followers::new(Nothing::default());
    let SubmitAction::Lead(leader) = followers.submit(&mut Some(1)) else { panic!("nobody else drives") };
    let again = followers.lead_or_park(&mut None, || panic!("it does not park"), true);
    assert!(matches!(again, WaitAction::Retry));
    followers.step_down(leader);
}

#[test]
fn a_worker_that_steps_down_to_wake_tasks_leads_again_though_another_one_led() {
    for is_recalled in [true, false] {
        let mut followers = Followers::new(Nothing::default());
        followers.add_worker(parker());
        let leader = worker_leads(&mut followers);
        if is_recalled {
            followers.recall_worker();
        }
        followers.step_down(leader);
        let leader = take(&mut followers);
        followers.step_down(leader);
        assert_eq!(matches!(followers.worker_action(), WorkerAction::Lead(_)), is_recalled);
    }
}

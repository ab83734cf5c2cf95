//! The helm under every order in which its threads can run, with every value that a load may see: `cargo xtask model`.
//!
//! Time does not pass here: what nobody wakes sleeps for ever, and loom tells of it as a deadlock. The worker's looks, which come by time,
//! may come at any moment.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::sync::{FAR_AWAY, Parker};
use super::ticket::Broken;
use super::{Awaited, Drive, Helm, HelmLost, Progress, Promise, Ring, Ticket, promise};
use crate::control::Clapper;

/// What a machine sleeps on: the bell, and answers of a peer.
struct Outside {
    clapper: Clapper,
    state: Mutex<OutsideState>,
    has_come: Condvar,
}

#[derive(Default)]
struct OutsideState {
    /// Somebody rang for one who slept: what an eventfd is for.
    is_signalled: bool,
    /// Came, and nobody took them.
    answers: u32,
}

impl Outside {
    fn new() -> Arc<Self> {
        Arc::new(Self { clapper: Clapper::new(), state: Mutex::default(), has_come: Condvar::new() })
    }

    /// A peer answers.
    fn answer(&self) {
        self.state.lock().unwrap().answers += 1;
        self.has_come.notify_one();
    }
}

impl Ring for Arc<Outside> {
    fn ring(&self) {
        if self.clapper.strike() {
            self.state.lock().unwrap().is_signalled = true;
            self.has_come.notify_one();
        }
    }
}

enum Command {
    /// Is answered at once.
    Answer(Promise<()>),
    /// Is answered when the peer does.
    AskPeer(Promise<()>),
    Panic,
}

struct Machine {
    outside: Arc<Outside>,
    asked: VecDeque<Promise<()>>,
    /// Loom sees two that touch it at a time.
    touched: UnsafeCell<()>,
}

impl Machine {
    fn touch(&self) {
        self.touched.with_mut(|_| ());
    }
}

impl Drive for Machine {
    type Command = Command;
    type Bell = Arc<Outside>;

    fn bell(&self) -> Self::Bell {
        Arc::clone(&self.outside)
    }

    fn apply(&mut self, command: Command) {
        self.touch();
        match command {
            Command::Answer(promise) => promise.keep(()),
            Command::AskPeer(promise) => self.asked.push_back(promise),
            Command::Panic => std::panic::resume_unwind(Box::new("as the model wants it")),
        }
    }

    fn step(&mut self) -> bool {
        self.touch();
        let mut outside = self.outside.state.lock().unwrap();
        let Some(promise) = (outside.answers > 0).then(|| self.asked.pop_front()).flatten() else {
            return false;
        };
        outside.answers -= 1;
        drop(outside);
        promise.keep(());
        true
    }

    fn sleep(&mut self, _until: Instant) {
        self.touch();
        if !self.outside.clapper.fall_asleep() {
            return;
        }
        let mut outside = self.outside.state.lock().unwrap();
        while !outside.is_signalled && (outside.answers == 0 || self.asked.is_empty()) {
            outside = self.outside.has_come.wait(outside).unwrap();
        }
        outside.is_signalled = false;
        drop(outside);
        self.outside.clapper.wake_up();
    }
}

#[derive(Clone)]
struct Engine {
    helm: Arc<Helm<Machine>>,
    outside: Arc<Outside>,
}

impl Engine {
    fn new() -> Self {
        let outside = Outside::new();
        let touched = UnsafeCell::new(());
        let machine = Machine { outside: Arc::clone(&outside), asked: VecDeque::new(), touched };
        Self { helm: Arc::new(Helm::new(machine, Progress::Event)), outside }
    }

    fn submit(&self, command: impl FnOnce(Promise<()>) -> Command) -> Ticket<()> {
        let (promise, ticket) = promise();
        self.helm.submit(command(promise));
        ticket
    }

    fn wait(&self, ticket: &Ticket<()>) -> Result<bool, HelmLost> {
        self.helm.wait(ticket, Instant::now() + FAR_AWAY)
    }

    /// As an executor does: it never drives.
    fn wait_as_future(&self, ticket: &Ticket<()>) {
        let parker = Arc::new(Parker::default());
        ticket.wake(&Waker::from(Arc::clone(&parker)));
        self.helm.call_worker();
        while !ticket.is_ready() {
            parker.park(None);
        }
    }

    fn start_worker(&self) -> thread::JoinHandle<()> {
        let helm = Arc::clone(&self.helm);
        thread::spawn(move || helm.run_worker())
    }

    fn stop_worker(&self, worker: thread::JoinHandle<()>) {
        self.helm.tell_worker_to_stop();
        worker.join().unwrap();
    }
}

/// A thread with this engine.
fn spawn<T: 'static>(engine: &Engine, run: impl FnOnce(Engine) -> T + 'static) -> thread::JoinHandle<T> {
    let engine = engine.clone();
    thread::spawn(move || run(engine))
}

/// Each order with up to so many switches away from a thread that could have gone on.
fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// One drives and sleeps. What the other leaves is applied, whenever it comes.
#[test]
fn a_command_reaches_a_driver_that_falls_asleep() {
    check(5, || {
        let engine = Engine::new();
        let (promise, ticket) = promise();
        let submitter = spawn(&engine, |engine| engine.helm.submit(Command::Answer(promise)));
        assert_eq!(engine.wait(&ticket), Ok(true));
        submitter.join().unwrap();
    });
}

/// One lets go while another one leaves a command, and nobody waits afterwards.
#[test]
fn a_command_is_applied_though_nobody_waits() {
    check(5, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| engine.submit(Command::Answer));
        let ticket = engine.submit(Command::Answer);
        let others = other.join().unwrap();
        assert!(ticket.is_ready() && others.is_ready());
    });
}

/// Two wait. Whoever drives first lets the other one drive afterwards.
#[test]
fn the_helm_is_passed_on() {
    check(4, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| {
            let ticket = engine.submit(Command::AskPeer);
            engine.outside.answer();
            engine.wait(&ticket)
        });
        let ticket = engine.submit(Command::AskPeer);
        engine.outside.answer();
        assert_eq!(engine.wait(&ticket), Ok(true));
        assert_eq!(other.join().unwrap(), Ok(true));
    });
}

/// One drives, and goes on after the other one was answered, whose next word it waits for.
#[test]
fn an_answer_reaches_who_is_parked() {
    check(4, || {
        let engine = Engine::new();
        let driver = spawn(&engine, |engine| {
            let ticket = engine.submit(Command::AskPeer);
            engine.wait(&ticket)
        });
        let ticket = engine.submit(Command::Answer);
        assert_eq!(engine.wait(&ticket), Ok(true));
        engine.outside.answer();
        assert_eq!(driver.join().unwrap(), Ok(true));
    });
}

/// Two wait, and one of them gives up, perhaps just when the helm was to be its own. The other one is answered by the peer at the end.
#[test]
fn who_gives_up_leaves_the_helm_to_another() {
    check(3, || {
        let engine = Engine::new();
        let (never, ticket) = promise::<()>();
        let hasty = spawn(&engine, move |engine| engine.helm.wait(&ticket, Instant::now()));
        let patient = spawn(&engine, |engine| {
            let ticket = engine.submit(Command::AskPeer);
            engine.wait(&ticket)
        });
        // Either of the two may be woken when this step is over.
        engine.submit(Command::Answer);
        engine.outside.answer();
        assert_eq!(hasty.join().unwrap(), Ok(false));
        assert_eq!(patient.join().unwrap(), Ok(true));
        drop(never);
    });
}

/// A future is answered by the worker, also if the last one who waited lets go at that moment.
#[test]
fn the_worker_drives_for_a_future() {
    check(4, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        let ticket = engine.submit(Command::AskPeer);
        engine.outside.answer();
        engine.wait_as_future(&ticket);
        engine.stop_worker(worker);
    });
}

/// Somebody who waits gets the helm from the worker, asleep or not.
#[test]
fn the_worker_lets_somebody_who_waits_drive() {
    check(4, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        let ticket = engine.submit(Command::AskPeer);
        engine.outside.answer();
        assert_eq!(engine.wait(&ticket), Ok(true));
        engine.stop_worker(worker);
    });
}

/// A future of one thread, a wait of another, and the worker.
#[test]
fn a_future_is_not_forgotten_by_one_who_waits() {
    check(2, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        let waiter = spawn(&engine, |engine| {
            let ticket = engine.submit(Command::Answer);
            engine.wait(&ticket)
        });
        let ticket = engine.submit(Command::AskPeer);
        engine.outside.answer();
        engine.wait_as_future(&ticket);
        assert_eq!(waiter.join().unwrap(), Ok(true));
        engine.stop_worker(worker);
    });
}

/// The worker ends, whatever it does just then.
#[test]
fn the_worker_ends_when_told() {
    check(5, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        engine.stop_worker(worker);
    });
}

/// The same while another one drives.
#[test]
fn the_worker_ends_though_another_drives() {
    check(3, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        let driver = spawn(&engine, |engine| {
            let ticket = engine.submit(Command::AskPeer);
            engine.wait(&ticket)
        });
        engine.stop_worker(worker);
        engine.outside.answer();
        assert_eq!(driver.join().unwrap(), Ok(true));
    });
}

/// One panics at the helm. The other one, who has it next or waits for it, is told.
#[test]
fn a_panic_ends_every_wait() {
    check(4, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| {
            // Either of the two may be at the helm when the panic comes.
            let waited = catch_unwind(AssertUnwindSafe(|| {
                let ticket = engine.submit(Command::AskPeer);
                (engine.wait(&ticket), ticket.take())
            }));
            if let Ok((waited, answer)) = waited {
                assert!(waited == Err(HelmLost) || answer == Some(Err(Broken)));
            }
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| engine.helm.submit(Command::Panic)));
        other.join().unwrap();
        drop(panicked);
        let ticket = engine.submit(Command::Answer);
        assert_eq!(engine.wait(&ticket), Ok(true), "it is ready, since it is broken");
        assert_eq!(ticket.take(), Some(Err(Broken)));
    });
}

/// The same for one who waits for something that the machine knows nothing of.
#[test]
fn a_panic_ends_a_wait_that_nothing_else_ends() {
    check(4, || {
        let engine = Engine::new();
        let (never, ticket) = promise::<()>();
        let waiter = spawn(&engine, move |engine| {
            let waited = catch_unwind(AssertUnwindSafe(|| engine.wait(&ticket)));
            assert!(waited.is_err() || waited.is_ok_and(|waited| waited == Err(HelmLost)));
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| engine.helm.submit(Command::Panic)));
        waiter.join().unwrap();
        drop((panicked, never));
    });
}

/// A ticket is answered while somebody registers for it.
#[test]
fn an_answer_wakes_who_registers_meanwhile() {
    check(5, || {
        let (promise, ticket) = promise();
        let keeper = thread::spawn(move || promise.keep(()));
        let parker = Arc::new(Parker::default());
        ticket.wake(&Waker::from(Arc::clone(&parker)));
        while !ticket.is_ready() {
            parker.park(None);
        }
        assert_eq!(ticket.take(), Some(Ok(())));
        keeper.join().unwrap();
    });
}

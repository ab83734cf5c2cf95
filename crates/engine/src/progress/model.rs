//! Leader and followers in every order in which their threads can run, with every value that a load may see: `cargo xtask model`.
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

use super::oneshot::Closed;
use super::sync::{FAR_AWAY, Parker};
use super::{Awaited, Drive, LeaderFollowers, LeaderPanicked, Listener, Progress, Wakeup, oneshot};
use crate::control::WakeupState;

/// What a machine sleeps on: the wakeup, and answers of a peer.
struct Outside {
    wakeup: WakeupState,
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
        Arc::new(Self { wakeup: WakeupState::new(), state: Mutex::default(), has_come: Condvar::new() })
    }

    /// A peer answers.
    fn answer(&self) {
        self.state.lock().unwrap().answers += 1;
        self.has_come.notify_one();
    }
}

impl Wakeup for Arc<Outside> {
    fn wake(&self) {
        if self.wakeup.signal() {
            self.state.lock().unwrap().is_signalled = true;
            self.has_come.notify_one();
        }
    }
}

enum Command {
    /// Is answered at once.
    Answer(oneshot::Sender<()>),
    /// Is answered when the peer does.
    AskPeer(oneshot::Sender<()>),
    Panic,
}

struct Machine {
    outside: Arc<Outside>,
    asked: VecDeque<oneshot::Sender<()>>,
    wakers: Vec<Waker>,
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
    type Wakeup = Arc<Outside>;

    fn wakeup(&self) -> Self::Wakeup {
        Arc::clone(&self.outside)
    }

    fn apply(&mut self, command: Command) {
        self.touch();
        match command {
            Command::Answer(sender) => sender.send((), &mut self.wakers),
            Command::AskPeer(sender) => self.asked.push_back(sender),
            Command::Panic => std::panic::resume_unwind(Box::new("as the model wants it")),
        }
    }

    fn step(&mut self) -> bool {
        self.touch();
        let mut outside = self.outside.state.lock().unwrap();
        let Some(sender) = (outside.answers > 0).then(|| self.asked.pop_front()).flatten() else {
            return false;
        };
        outside.answers -= 1;
        drop(outside);
        sender.send((), &mut self.wakers);
        true
    }

    fn sleep(&mut self, _until: Instant) {
        self.touch();
        if !self.outside.wakeup.fall_asleep() {
            return;
        }
        let mut outside = self.outside.state.lock().unwrap();
        while !outside.is_signalled && (outside.answers == 0 || self.asked.is_empty()) {
            outside = self.outside.has_come.wait(outside).unwrap();
        }
        outside.is_signalled = false;
        drop(outside);
        self.outside.wakeup.wake_up();
    }

    fn wakers(&mut self) -> &mut Vec<Waker> {
        &mut self.wakers
    }
}

#[derive(Clone)]
struct Engine {
    progress: Arc<LeaderFollowers<Machine>>,
    outside: Arc<Outside>,
}

impl Engine {
    fn new() -> Self {
        let outside = Outside::new();
        let touched = UnsafeCell::new(());
        let machine =
            Machine { outside: Arc::clone(&outside), asked: VecDeque::new(), wakers: Vec::new(), touched };
        Self { progress: Arc::new(LeaderFollowers::new(machine, Progress::Event)), outside }
    }

    fn submit(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) -> oneshot::Receiver<()> {
        let (sender, oneshot) = oneshot::channel();
        self.progress.submit(command(sender));
        oneshot
    }

    fn wait(&self, oneshot: &oneshot::Receiver<()>) -> Result<bool, LeaderPanicked> {
        self.progress.wait(oneshot, Instant::now() + FAR_AWAY)
    }

    /// As an executor does: it never drives.
    fn wait_as_future(&self, oneshot: &oneshot::Receiver<()>) {
        let parker = Arc::new(Parker::default());
        oneshot.listen(&Listener::Task(Waker::from(Arc::clone(&parker))));
        self.progress.call_worker();
        while !oneshot.is_ready() {
            parker.park(None);
        }
    }

    fn start_worker(&self) -> thread::JoinHandle<()> {
        let progress = Arc::clone(&self.progress);
        thread::spawn(move || progress.run_worker())
    }

    fn stop_worker(&self, worker: thread::JoinHandle<()>) {
        self.progress.tell_worker_to_stop();
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
fn a_command_reaches_a_leader_that_falls_asleep() {
    check(5, || {
        let engine = Engine::new();
        let (sender, oneshot) = oneshot::channel();
        let submitter = spawn(&engine, |engine| engine.progress.submit(Command::Answer(sender)));
        assert_eq!(engine.wait(&oneshot), Ok(true));
        submitter.join().unwrap();
    });
}

/// One lets go while another one leaves a command, and nobody waits afterwards.
#[test]
fn a_command_is_applied_though_nobody_waits() {
    check(5, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| engine.submit(Command::Answer));
        let oneshot = engine.submit(Command::Answer);
        let others = other.join().unwrap();
        assert!(oneshot.is_ready() && others.is_ready());
    });
}

/// Two wait. Whoever drives first lets the other one drive afterwards.
#[test]
fn leadership_is_passed_on() {
    check(4, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| {
            let oneshot = engine.submit(Command::AskPeer);
            engine.outside.answer();
            engine.wait(&oneshot)
        });
        let oneshot = engine.submit(Command::AskPeer);
        engine.outside.answer();
        assert_eq!(engine.wait(&oneshot), Ok(true));
        assert_eq!(other.join().unwrap(), Ok(true));
    });
}

/// One drives, and goes on after the other one was answered, whose next word it waits for.
#[test]
fn an_answer_reaches_who_is_parked() {
    check(4, || {
        let engine = Engine::new();
        let driver = spawn(&engine, |engine| {
            let oneshot = engine.submit(Command::AskPeer);
            engine.wait(&oneshot)
        });
        let oneshot = engine.submit(Command::Answer);
        assert_eq!(engine.wait(&oneshot), Ok(true));
        engine.outside.answer();
        assert_eq!(driver.join().unwrap(), Ok(true));
    });
}

/// Two wait, and one of them gives up, perhaps just when it was to lead. The other one is answered by the peer at the end.
#[test]
fn a_waiter_that_gives_up_lets_another_lead() {
    check(3, || {
        let engine = Engine::new();
        let (never, oneshot) = oneshot::channel::<()>();
        let hasty = spawn(&engine, move |engine| engine.progress.wait(&oneshot, Instant::now()));
        let patient = spawn(&engine, |engine| {
            let oneshot = engine.submit(Command::AskPeer);
            engine.wait(&oneshot)
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
fn the_worker_leads_for_a_future() {
    check(4, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        let oneshot = engine.submit(Command::AskPeer);
        engine.outside.answer();
        engine.wait_as_future(&oneshot);
        engine.stop_worker(worker);
    });
}

/// A waiter takes over from the worker, asleep or not.
#[test]
fn the_worker_lets_somebody_who_waits_drive() {
    check(4, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        let oneshot = engine.submit(Command::AskPeer);
        engine.outside.answer();
        assert_eq!(engine.wait(&oneshot), Ok(true));
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
            let oneshot = engine.submit(Command::Answer);
            engine.wait(&oneshot)
        });
        let oneshot = engine.submit(Command::AskPeer);
        engine.outside.answer();
        engine.wait_as_future(&oneshot);
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
            let oneshot = engine.submit(Command::AskPeer);
            engine.wait(&oneshot)
        });
        engine.stop_worker(worker);
        engine.outside.answer();
        assert_eq!(driver.join().unwrap(), Ok(true));
    });
}

/// One panics while it leads. The other one, which leads next or waits to, is told.
#[test]
fn a_panic_ends_every_wait() {
    check(4, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| {
            // Either of the two may lead when the panic comes.
            let waited = catch_unwind(AssertUnwindSafe(|| {
                let oneshot = engine.submit(Command::AskPeer);
                (engine.wait(&oneshot), oneshot.take())
            }));
            if let Ok((waited, answer)) = waited {
                assert!(waited == Err(LeaderPanicked) || answer == Some(Err(Closed)));
            }
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| engine.progress.submit(Command::Panic)));
        other.join().unwrap();
        drop(panicked);
        let oneshot = engine.submit(Command::Answer);
        assert_eq!(engine.wait(&oneshot), Ok(true), "it is ready, since it is broken");
        assert_eq!(oneshot.take(), Some(Err(Closed)));
    });
}

/// The same for one who waits for something that the machine knows nothing of.
#[test]
fn a_panic_ends_a_wait_that_nothing_else_ends() {
    check(4, || {
        let engine = Engine::new();
        let (never, oneshot) = oneshot::channel::<()>();
        let waiter = spawn(&engine, move |engine| {
            let waited = catch_unwind(AssertUnwindSafe(|| engine.wait(&oneshot)));
            assert!(waited.is_err() || waited.is_ok_and(|waited| waited == Err(LeaderPanicked)));
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| engine.progress.submit(Command::Panic)));
        waiter.join().unwrap();
        drop((panicked, never));
    });
}

/// A oneshot is answered while somebody registers for it.
#[test]
fn an_answer_wakes_who_registers_meanwhile() {
    check(5, || {
        let (sender, oneshot) = oneshot::channel();
        let keeper = thread::spawn(move || sender.send((), &mut Vec::new()));
        let parker = Arc::new(Parker::default());
        oneshot.listen(&Listener::Thread(Arc::clone(&parker)));
        while !oneshot.is_ready() {
            parker.park(None);
        }
        assert_eq!(oneshot.take(), Some(Ok(())));
        keeper.join().unwrap();
    });
}

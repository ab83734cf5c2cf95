//! A loom model of leader and followers: every thread interleaving, with every value that a load
//! may return. `cargo xtask model` runs it.
//!
//! Time does not pass in a model. A thread that no other thread wakes sleeps for ever, and loom
//! reports a deadlock. The worker's retries, which depend on time, may happen at any moment.

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
use super::{Awaited, Drive, Group, LeaderFollowers, LeaderPanicked, Listener, Progress, Wakeup, oneshot};
use crate::control::WakeupState;

/// The event sources of the machine's sleep: the wakeup, and answers of a peer.
struct Outside {
    wakeup: WakeupState,
    state: Mutex<OutsideState>,
    has_come: Condvar,
}

#[derive(Default)]
struct OutsideState {
    /// A wakeup was sent to a sleeping leader; stands for the eventfd.
    is_signalled: bool,
    /// Answers that have arrived and were not taken yet.
    answers: u32,
}

impl Outside {
    fn new() -> Arc<Self> {
        Arc::new(Self { wakeup: WakeupState::new(), state: Mutex::default(), has_come: Condvar::new() })
    }

    /// Delivers an answer of the peer.
    fn answer(&self) {
        self.state.lock().unwrap().answers += 1;
        self.has_come.notify_one();
    }
}

impl Wakeup for Arc<Outside> {
    fn wake(&self) {
        // The state of the real wakeup. `is_signalled` stands for its eventfd only.
        if self.wakeup.signal() {
            self.state.lock().unwrap().is_signalled = true;
            self.has_come.notify_one();
        }
    }
}

enum Command {
    /// Answered at once.
    Answer(oneshot::Sender<()>),
    /// Answered when the peer answers.
    AskPeer(oneshot::Sender<()>),
    Panic,
}

struct Machine {
    outside: Arc<Outside>,
    asked: VecDeque<oneshot::Sender<()>>,
    wakers: Vec<Waker>,
    /// Lets loom detect concurrent accesses to the machine.
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
    type Leading = ();

    fn wakeup(&self) -> Self::Wakeup {
        Arc::clone(&self.outside)
    }

    fn apply(&mut self, command: Command) {
        self.touch();
        match command {
            Command::Answer(sender) => sender.send((), &mut self.wakers),
            Command::AskPeer(sender) => self.asked.push_back(sender),
            // Not `panic!`: its hook would print a message for each interleaving.
            Command::Panic => std::panic::resume_unwind(Box::new("a panic of the model")),
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

    fn is_busy(&self) -> bool {
        !self.asked.is_empty()
    }

    fn sleep(&mut self, _until: Instant) {
        self.touch();
        // A wakeup has arrived since the last sleep.
        if !self.outside.wakeup.fall_asleep() {
            return;
        }
        let mut outside = self.outside.state.lock().unwrap();
        // An answer that nobody has asked for is left for a later step, and ends no sleep.
        while !outside.is_signalled && (outside.answers == 0 || self.asked.is_empty()) {
            outside = self.outside.has_come.wait(outside).unwrap();
        }
        outside.is_signalled = false;
        drop(outside);
        self.outside.wakeup.wake_up();
    }

    fn lead(&self) {}

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
        // This mode never spins: each further step would add interleavings that show nothing new.
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

    /// Waits as an executor does: this thread never leads.
    fn wait_as_future(&self, oneshot: &oneshot::Receiver<()>) {
        let parker = Arc::new(Parker::default());
        oneshot.listen(&Listener::Task(Waker::from(Arc::clone(&parker))));
        // After the listener is registered, as a future does it.
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

/// Spawns a thread with a handle of the engine.
fn spawn<T: 'static>(engine: &Engine, run: impl FnOnce(Engine) -> T + 'static) -> thread::JoinHandle<T> {
    let engine = engine.clone();
    thread::spawn(move || run(engine))
}

/// Checks every interleaving with at most `switches` preemptions.
fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

/// One thread leads and sleeps. A command of another thread is applied, whenever it is submitted.
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

/// One thread steps down while another one submits a command, and no thread waits afterwards.
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

/// One thread does its work at once, or queues it for the other one, which steps down meanwhile.
#[test]
fn work_is_performed_or_submitted_though_nobody_waits() {
    check(5, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| engine.submit(Command::Answer));
        let (sender, oneshot) = oneshot::channel();
        let perform = |machine: &mut Machine, _: &mut _| Some(machine.touch());
        let performed = engine.progress.perform_or_submit(sender, perform, Command::Answer).is_some();
        let others = other.join().unwrap();
        assert!((performed || oneshot.is_ready()) && others.is_ready());
    });
}

/// Two threads wait. The one that leads first lets the other one lead afterwards.
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

/// One thread leads. It keeps leading after the other thread was answered, because its own answer
/// depends on that thread.
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

/// Two threads wait. The deadline of one of them passes, possibly at the moment when it is about to
/// lead. The peer answers the other one at the end.
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
        // Either waiter may be woken after this step.
        engine.submit(Command::Answer);
        engine.outside.answer();
        assert_eq!(hasty.join().unwrap(), Ok(false));
        assert_eq!(patient.join().unwrap(), Ok(true));
        // Not earlier: a sender that is dropped ends the wait.
        drop(never);
    });
}

/// One thread waits for one of two results, while another one leads or wants to. Its result comes before
/// or after it has registered for it.
#[test]
fn a_wait_for_several_ends_with_one_of_them() {
    check(3, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| {
            let oneshot = engine.submit(Command::AskPeer);
            engine.wait(&oneshot)
        });
        let (never, first) = oneshot::channel::<()>();
        let second = engine.submit(Command::Answer);
        let group = Arc::new(Group::new());
        first.listen(&Listener::Member(Arc::clone(&group), 0));
        second.listen(&Listener::Member(Arc::clone(&group), 1));
        if !second.is_ready() {
            assert_eq!(engine.progress.wait(&*group, Instant::now() + FAR_AWAY), Ok(true));
            let mut told = Vec::new();
            group.take(&mut told);
            assert_eq!(told, [1]);
        }
        assert!(second.is_ready());
        engine.outside.answer();
        assert_eq!(other.join().unwrap(), Ok(true));
        // Not earlier: a sender that is dropped ends the wait.
        drop(never);
    });
}

/// The worker leads for a future, also if the last waiter steps down at that moment.
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

/// A waiter takes over from the worker, whether the worker sleeps or not.
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

/// One thread polls a future, another one waits, and there is a worker.
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

/// The worker ends, whatever it is doing when it is stopped.
#[test]
fn the_worker_ends_when_told() {
    check(5, || {
        let engine = Engine::new();
        let worker = engine.start_worker();
        engine.stop_worker(worker);
    });
}

/// The same while another thread leads.
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

/// One thread panics while it leads. The other one, which leads next or is parked, gets an error.
#[test]
fn a_panic_ends_every_wait() {
    check(4, || {
        let engine = Engine::new();
        let other = spawn(&engine, |engine| {
            // Either thread may lead when the panic happens.
            let waited = catch_unwind(AssertUnwindSafe(|| {
                let oneshot = engine.submit(Command::AskPeer);
                (engine.wait(&oneshot), oneshot.take())
            }));
            if let Ok((waited, answer)) = waited {
                assert!(waited == Err(LeaderPanicked) || answer == Some(Err(Closed)));
            }
        });
        // The thread that leads panics, which may be this one or the other one.
        let panicked = catch_unwind(AssertUnwindSafe(|| engine.progress.submit(Command::Panic)));
        other.join().unwrap();
        drop(panicked);
        let oneshot = engine.submit(Command::Answer);
        assert_eq!(engine.wait(&oneshot), Ok(true), "the receiver of a closed channel is ready");
        assert_eq!(oneshot.take(), Some(Err(Closed)));
    });
}

/// The same for a waiter whose oneshot the machine does not hold.
#[test]
fn a_panic_ends_a_wait_that_nothing_else_ends() {
    check(4, || {
        let engine = Engine::new();
        let (never, oneshot) = oneshot::channel::<()>();
        let waiter = spawn(&engine, move |engine| {
            let waited = catch_unwind(AssertUnwindSafe(|| engine.wait(&oneshot)));
            assert!(waited.is_err() || waited.is_ok_and(|waited| waited == Err(LeaderPanicked)));
        });
        // As above: either thread may apply the command.
        let panicked = catch_unwind(AssertUnwindSafe(|| engine.progress.submit(Command::Panic)));
        waiter.join().unwrap();
        // The sender must outlive the wait, which the panic alone has to end.
        drop((panicked, never));
    });
}

/// Two values are sent while a thread registers for either, and while it takes note of the first one.
#[test]
fn no_answer_of_several_is_missed() {
    check(4, || {
        let channels = [oneshot::channel(), oneshot::channel()];
        let [(one, first), (two, second)] = channels;
        let keepers = [one, two].map(|sender| thread::spawn(move || sender.send((), &mut Vec::new())));
        let group = Arc::new(Group::new());
        let parker = Arc::new(Parker::default());
        let mut told = Vec::new();
        for (index, receiver) in [&first, &second].into_iter().enumerate() {
            receiver.listen(&Listener::Member(Arc::clone(&group), index));
        }
        while !(first.is_ready() && second.is_ready()) {
            group.listen(&Listener::Thread(Arc::clone(&parker)));
            if !group.is_ready() {
                parker.park(None);
            }
            group.take(&mut told);
            told.clear();
        }
        keepers.map(|keeper| keeper.join().unwrap());
    });
}

/// A value is sent while a thread registers for it.
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

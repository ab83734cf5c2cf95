//! Tests with real threads, and a machine that asks a peer over a real socket.

mod asking;
mod ends;
mod followers;
mod performing;
mod worker;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use farreach_proto::wire::Frame;

use super::*;
use crate::budgets::ControlBudgets;
use crate::control::{ConnectionId, Control, ControlEvent, RecordLayer, Wakeup};

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn patience() -> Instant {
    Instant::now() + PATIENCE
}

enum Command {
    /// Answered at once, with the number of commands before this one.
    Count(oneshot::Sender<u64>),
    /// Answered when the peer answers.
    AskPeer(oneshot::Sender<u64>),
    Panic,
}

/// A machine that sends pings to a peer.
struct Asker {
    control: Control,
    peer: ConnectionId,
    count: u64,
    asked: HashMap<u64, oneshot::Sender<u64>>,
    wakers: Vec<Waker>,
    log: Arc<Log>,
}

/// Counts of what a machine did.
#[derive(Default)]
struct Log {
    steps: AtomicU64,
    sleeps: AtomicU64,
    /// Steps by thread.
    by: Mutex<HashMap<ThreadId, u64>>,
}

impl Log {
    fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    fn steps_by(&self, thread: ThreadId) -> u64 {
        self.by.lock().unwrap().get(&thread).copied().unwrap_or(0)
    }
}

impl Drive for Asker {
    type Command = Command;
    type Wakeup = Wakeup;
    type Leading = ();

    fn wakeup(&self) -> Wakeup {
        self.control.wakeup()
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Count(sender) => sender.send(self.count, &mut self.wakers),
            Command::AskPeer(sender) => {
                self.control.send(self.peer, &Frame::Ping { nonce: self.count }).unwrap();
                self.asked.insert(self.count, sender);
            }
            Command::Panic => panic!("as the test wants it"),
        }
        self.count += 1;
    }

    fn step(&mut self) -> bool {
        self.log.steps.fetch_add(1, Ordering::Relaxed);
        *self.log.by.lock().unwrap().entry(thread::current().id()).or_default() += 1;
        let (asked, wakers) = (&mut self.asked, &mut self.wakers);
        let told = self.control.poll(Instant::now(), &mut |event| {
            if let ControlEvent::Frame(_, Frame::Ping { nonce }) = event {
                asked.remove(&nonce).unwrap().send(nonce, wakers);
            }
        });
        told.unwrap() > 0
    }

    fn is_busy(&self) -> bool {
        !self.asked.is_empty()
    }

    fn sleep(&mut self, until: Instant) {
        self.log.sleeps.fetch_add(1, Ordering::Relaxed);
        self.control.sleep(Some(until.saturating_duration_since(Instant::now()))).unwrap();
    }

    fn lead(&self) {}

    fn wakers(&mut self) -> &mut Vec<Waker> {
        &mut self.wakers
    }
}

/// A `LeaderFollowers` with an asker, and the peer that it asks.
struct Rig {
    progress: Arc<LeaderFollowers<Asker>>,
    log: Arc<Log>,
    _peer: Peer,
}

impl Rig {
    fn new(progress: Progress) -> Self {
        let peer = Peer::start();
        let (mut control, log) =
            (Control::new(&ControlBudgets::default()).unwrap(), Arc::new(Log::default()));
        let id = control.connect(peer.address, RecordLayer::Plain).unwrap();
        let (asked, wakers) = (HashMap::new(), Vec::new());
        let asker = Asker { control, peer: id, count: 0, asked, wakers, log: Arc::clone(&log) };
        Self { progress: Arc::new(LeaderFollowers::new(asker, progress)), log, _peer: peer }
    }

    fn with_worker(progress: Progress) -> Self {
        let rig = Self::new(progress);
        rig.progress.start_worker().unwrap();
        rig
    }

    fn submit(&self, command: impl FnOnce(oneshot::Sender<u64>) -> Command) -> oneshot::Receiver<u64> {
        let (sender, oneshot) = oneshot::channel();
        self.progress.submit(command(sender));
        oneshot
    }

    fn wait(&self, oneshot: &oneshot::Receiver<u64>) -> u64 {
        assert_eq!(self.progress.wait(oneshot, patience()), Ok(true), "in time");
        oneshot.take().unwrap().unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        Arc::clone(&self.progress).stop(PATIENCE);
    }
}

/// A peer that answers each ping, on its own thread.
struct Peer {
    address: SocketAddr,
    wakeup: Wakeup,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    fn start() -> Self {
        let mut control = Control::new(&ControlBudgets::default()).unwrap();
        let address = control.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (wakeup, is_over) = (control.wakeup(), Arc::new(AtomicBool::new(false)));
        let is_told = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut pings = Vec::new();
            while !is_told.load(Ordering::Acquire) {
                let mut note = |event| {
                    if let ControlEvent::Frame(id, Frame::Ping { nonce }) = event {
                        pings.push((id, nonce));
                    }
                };
                if control.poll(Instant::now(), &mut note).unwrap() == 0 {
                    control.sleep(None).unwrap();
                }
                for (id, nonce) in pings.drain(..) {
                    control.send(id, &Frame::Ping { nonce }).unwrap();
                }
            }
        });
        Self { address, wakeup, is_over, thread: Some(thread) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        super::Wakeup::wake(&self.wakeup);
        self.thread.take().unwrap().join().unwrap();
    }
}

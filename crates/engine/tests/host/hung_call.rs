//! Calls into a rail's library that do not return: every wait of another thread ends by its deadline
//! and names the call, and the engine goes on when the call returns.

use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use farreach::{Engine, Error, ErrorKind, GrantToken, Memory, PageMap, Rights, Settings, WarningKind};
use farreach_dylib::in_call;
use farreach_memory::{Buffers, Exposed};
use farreach_rail::{
    Event, Key, KeyId, LinkKey, PeerKey, Properties, Rail, RailCall, RailError, Refusal, WorkRequest,
};
use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};

use crate::suite::{Pair, SOON, settings};

/// The timeout of waits that the hung call must not prolong. Longer than the second after which a
/// call counts as hung.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// The tolerance for it, on a busy machine.
const GRACE: Duration = Duration::from_secs(4);

/// How a poll is named.
const POLL: &str = "fi_cq_read (by Rail::poll)";

/// Holds one kind of call until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    has_changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    held: Option<RailCall>,
    is_inside: bool,
    /// The call that panics.
    panics: Option<RailCall>,
}

impl Gate {
    pub(crate) fn hold(&self, call: RailCall) {
        self.state.lock().unwrap().held = Some(call);
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().held = None;
        self.has_changed.notify_all();
    }

    /// Lets a call panic from now on.
    pub(crate) fn panic_in(&self, call: RailCall) {
        self.state.lock().unwrap().panics = Some(call);
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.state.lock().unwrap().is_inside
    }

    fn pass(&self, call: RailCall) {
        let mut state = self.state.lock().unwrap();
        if state.panics == Some(call) {
            drop(state);
            // Without the hook, whose backtrace takes long.
            std::panic::resume_unwind(Box::new("as the test wants it"));
        }
        while state.held == Some(call) {
            state.is_inside = true;
            self.has_changed.notify_all();
            state = self.has_changed.wait(state).unwrap();
        }
        state.is_inside = false;
    }

    /// Waits until a thread is in the held call.
    #[track_caller]
    fn wait_inside(&self) {
        let state = self.state.lock().unwrap();
        let (state, waited) =
            self.has_changed.wait_timeout_while(state, SOON, |state| !state.is_inside).unwrap();
        assert!(!waited.timed_out(), "no thread has made the call {:?}", state.held);
    }
}

/// A rail whose calls pass the gate.
#[derive(Debug)]
struct Gated {
    rail: SimRail,
    gate: Arc<Gate>,
}

impl Rail for Gated {
    fn properties(&self) -> &Properties {
        self.rail.properties()
    }

    fn open_link(&mut self, peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
        self.gate.pass(RailCall::OpenLink);
        self.rail.open_link(peer)
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        self.gate.pass(RailCall::Connect);
        self.rail.connect(link, peer_end)
    }

    fn close_link(&mut self, link: LinkKey) {
        self.gate.pass(RailCall::CloseLink);
        self.rail.close_link(link);
    }

    fn reset(&mut self) -> Result<(), RailError> {
        self.gate.pass(RailCall::Reset);
        self.rail.reset()
    }

    fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        self.gate.pass(RailCall::Register);
        self.rail.register(memory)
    }

    fn make_key(&mut self, peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        self.gate.pass(RailCall::MakeKey);
        self.rail.make_key(peer, memory, rights)
    }

    fn end_key(&mut self, key: KeyId) -> Result<(), RailError> {
        self.gate.pass(RailCall::EndKey);
        self.rail.end_key(key)
    }

    fn post(
        &mut self,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        self.gate.pass(RailCall::Post);
        self.rail.post(link, tag, request, buffers)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        // As the functions of a C library do.
        in_call(&"fi_cq_read", || self.gate.pass(RailCall::Poll));
        self.rail.poll(sink)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.rail.wait_fd()
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        self.rail.may_sleep()
    }

    fn in_flight(&self) -> usize {
        self.rail.in_flight()
    }
}

/// Closing the rail counts as a reset.
impl Drop for Gated {
    fn drop(&mut self) {
        self.gate.pass(RailCall::Reset);
    }
}

/// Two engines; the calls of A pass the gate. The peer timeout is so long that a hung call loses no
/// peer.
pub(crate) fn pair() -> (Pair, Arc<Gate>) {
    let network = SimNetwork::real_time(SimSettings::new(1));
    let gate = Arc::new(Gate::default());
    let times = |settings: Settings| settings.peer_timeout(Duration::from_secs(120));
    let card = || SimRail::new(&network, 0, SimCard::tcp());
    let gated = Gated { rail: card(), gate: Arc::clone(&gate) };
    let a = Engine::over(vec![Box::new(gated)], times(settings("a"))).unwrap();
    let b = Engine::over(vec![Box::new(card())], times(settings("b"))).unwrap();
    (Pair::of(a, b), gate)
}

/// Runs a wait, which must time out in time.
#[track_caller]
fn timed_out<T, E>(what: &str, most: Duration, wait: impl FnOnce() -> Result<T, E>) -> E {
    let begun = Instant::now();
    let Err(error) = wait() else { panic!("{what}: it has a result") };
    assert!(begun.elapsed() < most + GRACE, "{what}: it took {:?}", begun.elapsed());
    error
}

#[track_caller]
fn names(error: &Error, kind: ErrorKind, call: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(&format!("the call {call} on rail ")), "{text}");
    assert!(text.contains("has not returned for "), "{text}");
    assert!(error.fix().contains("\ngdb -p "), "{}", error.fix());
}

/// A waker that unparks its thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Awaits a future as an executor does, with a timeout.
fn await_for<F: Future>(future: F, timeout: Duration) -> Option<F::Output> {
    let (mut future, deadline) = (pin!(future), Instant::now() + timeout);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

/// Starts a wait in a thread of its own. It must end in time, with an error.
fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    what: &'static str,
    wait: impl FnOnce() -> Error + Send + 'scope,
) -> (&'static str, ScopedJoinHandle<'scope, Error>) {
    (what, scope.spawn(move || timed_out(what, TIMEOUT, || Err::<(), _>(wait()))))
}

/// Each kind of wait, while the worker or another waiter is in a poll that does not return.
#[test]
fn every_wait_of_another_thread_ends_by_its_deadline_and_names_the_call() {
    for is_waiter_inside in [false, true] {
        let (pair, gate) = pair();
        let map = PageMap::of(4096).first(4);
        let (_theirs, there) = pair.granted(4 * 4096, Rights::WRITE | Rights::ATOMIC);
        let own = pair.a_to_b.grant(pair.source(4096, 1), Rights::WRITE).wait(SOON).unwrap();
        let counter = pair.a_to_b.open_counter().wait(SOON).unwrap();
        let (source, more) = (pair.source(4 * 4096, 2), pair.source(4096, 3));
        let word = there.get(0..8).unwrap();
        let never: GrantToken = "g-1".parse().unwrap();
        let elsewhere = pair.b.listen("127.0.0.1:0").unwrap();
        let (a, peer, transfer) = (&pair.a, &pair.a_to_b, Mutex::new(None));

        thread::scope(|scope| {
            let inside = is_waiter_inside.then(|| scope.spawn(|| peer.recv().wait(2 * SOON)));
            // The waiter leads soon.
            thread::sleep(Duration::from_millis(300));
            gate.hold(RailCall::Poll);
            gate.wait_inside();
            *transfer.lock().unwrap() = Some(peer.write_pages(source, &map, &there, None));
            let connect = scope.spawn(|| {
                let connect = || a.connect(elsewhere).unwrap().wait(TIMEOUT);
                timed_out("connect", TIMEOUT, connect)
            });
            let revoke = scope.spawn(|| timed_out("revoke", 2 * TIMEOUT, || own.revoke(TIMEOUT)));
            let future = scope.spawn(|| await_for(peer.recv(), TIMEOUT));
            let waits = [
                start(scope, "transfer", || {
                    transfer.lock().unwrap().as_mut().unwrap().wait(TIMEOUT).unwrap_err().error
                }),
                start(scope, "recv", || peer.recv().wait(TIMEOUT).unwrap_err()),
                start(scope, "send", || peer.send("x").wait(TIMEOUT).unwrap_err()),
                start(scope, "flush", || peer.flush().wait(TIMEOUT).unwrap_err()),
                start(scope, "atomic", || peer.fetch_add(&word, 1).wait(TIMEOUT).unwrap_err()),
                start(scope, "reach", || counter.reach(1).wait(TIMEOUT).unwrap_err()),
                start(scope, "counter", || peer.open_counter().wait(TIMEOUT).unwrap_err()),
                start(scope, "remote", || peer.remote(never).wait(TIMEOUT).unwrap_err()),
                start(scope, "accept", || a.accept().wait(TIMEOUT).unwrap_err()),
                start(scope, "allocate", || a.allocate(4096).wait(TIMEOUT).unwrap_err()),
                start(scope, "grant", || peer.grant(more, Rights::READ).wait(TIMEOUT).unwrap_err().error),
            ];
            for (what, wait) in waits {
                let error = wait.join().unwrap();
                eprintln!("{what}: {error}");
                names(&error, ErrorKind::TimedOut, POLL);
            }
            names(&connect.join().unwrap(), ErrorKind::Connect, POLL);
            let revoked = revoke.join().unwrap();
            names(&revoked.error, ErrorKind::TimedOut, POLL);
            assert!(revoked.grant.is_some(), "the grant can be revoked again");
            assert!(future.join().unwrap().is_none(), "the timeout of a future ends it");
            let closes = [
                start(scope, "close a peer", || peer.clone().close(TIMEOUT).unwrap_err()),
                start(scope, "close", || a.clone().close(TIMEOUT).unwrap_err()),
            ];
            for (_, close) in closes {
                names(&close.join().unwrap(), ErrorKind::TimedOut, POLL);
            }

            let hung = || a.warnings().into_iter().filter(|it| it.kind() == WarningKind::HungCall);
            let warnings: Vec<_> = hung().collect();
            assert_eq!(warnings.len(), 1, "once: {warnings:?}");
            let warning = warnings[0].to_string();
            assert!(warning.starts_with(&format!("the call {POLL} on rail ")), "{warning}");

            // The call returns, and what was begun meanwhile is done.
            gate.open();
            let done = transfer.lock().unwrap().as_mut().unwrap().wait(SOON);
            assert!(done.is_ok(), "{done:?}");
            assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), b"x");
            if let Some(inside) = inside {
                // Its peer was told to close.
                assert!(inside.join().unwrap().is_err());
            }
            assert_eq!(hung().count(), 1, "it is not repeated");
        });
    }
}

/// Each call is named, wherever it is made.
#[test]
fn each_call_that_hangs_is_named() {
    let of = |call: RailCall, make: fn(&Pair)| {
        let (pair, gate) = pair();
        gate.hold(call);
        thread::scope(|scope| {
            scope.spawn(|| make(&pair));
            gate.wait_inside();
            let error = timed_out(call.name(), TIMEOUT, || pair.a.accept().wait(TIMEOUT));
            names(&error, ErrorKind::TimedOut, if call == RailCall::Poll { POLL } else { call.name() });
            gate.open();
        });
    };
    of(RailCall::Register, |pair| drop(pair.a.allocate(4096).wait(SOON).unwrap()));
    of(RailCall::MakeKey, |pair| {
        let memory = Memory::allocate(4096).unwrap();
        drop(pair.a_to_b.grant(memory, Rights::WRITE).wait(SOON).unwrap());
    });
    of(RailCall::EndKey, |pair| {
        let memory = Memory::allocate(4096).unwrap();
        pair.a_to_b.grant(memory, Rights::WRITE).wait(SOON).unwrap().revoke(SOON).unwrap();
    });
    of(RailCall::OpenLink, |pair| {
        drop(pair.a.connect(pair.b.listen("127.0.0.1:0").unwrap()).unwrap().wait(SOON))
    });
    of(RailCall::Connect, |pair| {
        drop(pair.a.connect(pair.b.listen("127.0.0.1:0").unwrap()).unwrap().wait(SOON))
    });
    of(RailCall::CloseLink, |pair| pair.a_to_b.clone().close(SOON).unwrap());
    of(RailCall::Post, |pair| pair.a_to_b.send("x").wait(SOON).unwrap());
    of(RailCall::Poll, |pair| drop(pair.a_to_b.send("x").wait(SOON)));
}

/// A short call, and one that takes long but returns, are not reported.
#[test]
fn a_timeout_without_a_hung_call_names_none() {
    let (pair, gate) = pair();
    let error = pair.a_to_b.recv().wait(TIMEOUT).unwrap_err();
    assert_eq!(error.to_string(), format!("receive a message: no result within {TIMEOUT:?}"));
    gate.hold(RailCall::Poll);
    gate.wait_inside();
    let error = pair.a_to_b.recv().wait(Duration::from_millis(200)).unwrap_err();
    assert!(!error.to_string().contains("the call"), "{error}");
    gate.open();
    assert!(pair.a.warnings().is_empty());
}

/// The last handle goes while the worker is in a call: the drop waits for five seconds at most, and
/// not at all if the call is known to hang. The rails are closed when the call returns.
#[test]
fn dropping_the_engine_ends_although_a_call_does_not_return() {
    for hung_for in [Duration::ZERO, TIMEOUT] {
        let (pair, gate) = pair();
        let Pair { a, b, a_to_b, b_to_a } = pair;
        gate.hold(RailCall::Poll);
        gate.wait_inside();
        thread::sleep(hung_for);
        let (begun, most) = (Instant::now(), if hung_for.is_zero() { 5 } else { 0 });
        drop((a, a_to_b));
        assert!(begun.elapsed() < Duration::from_secs(most) + GRACE, "{:?}", begun.elapsed());
        assert!(b_to_a.lost().is_none(), "the engine has not ended yet");
        gate.open();
        assert_eq!(b_to_a.recv().wait(SOON).unwrap_err().kind(), ErrorKind::PeerLost);
        drop(b);
    }
}

/// A drop of the rails that does not return keeps the worker, and not the thread that drops the last
/// handle.
#[test]
fn dropping_the_engine_ends_although_a_rail_does_not_close() {
    let network = SimNetwork::real_time(SimSettings::new(1));
    let gate = Arc::new(Gate::default());
    let rail = SimRail::new(&network, 0, SimCard::tcp());
    let gated = Gated { rail, gate: Arc::clone(&gate) };
    let engine = Engine::over(vec![Box::new(gated)], settings("a")).unwrap();
    gate.hold(RailCall::Reset);
    let begun = Instant::now();
    drop(engine);
    assert!(begun.elapsed() < Duration::from_secs(5) + GRACE, "{:?}", begun.elapsed());
    gate.wait_inside();
    gate.open();
}

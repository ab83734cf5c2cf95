//! Waits for any peer: lists of peers, events, and messages.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use farreach::{Engine, ErrorKind, Peer, PeerEvent, PeerId, Pending};
use farreach_testkit::wait_for;

use super::pair::{Pair, RailUnderTest, SOON, join};
use super::peers::block_on;

const BRIEF: Duration = Duration::from_millis(100);

/// A hub, and peers of it.
struct Hub {
    engine: Engine,
    spokes: Vec<Spoke>,
}

struct Spoke {
    engine: Engine,
    /// The hub, as the spoke sees it.
    to_hub: Peer,
    /// The spoke, as the hub sees it.
    peer: Peer,
}

impl Hub {
    fn new(provider: &RailUnderTest, spokes: usize) -> Self {
        let engine = provider.engine("hub");
        let spokes = (0..spokes).map(|number| Spoke::of(provider, &engine, number)).collect();
        Self { engine, spokes }
    }

    fn ids(&self) -> Vec<PeerId> {
        self.engine.peers().iter().map(Peer::id).collect()
    }
}

impl Spoke {
    fn of(provider: &RailUnderTest, hub: &Engine, number: usize) -> Self {
        let engine = provider.engine(&format!("spoke {number}"));
        let (to_hub, peer) = join(&engine, hub);
        Self { engine, to_hub, peer }
    }

    fn send(&self, message: &str) {
        self.to_hub.send(message).wait(SOON).unwrap();
    }
}

fn kind<T>(result: Result<T, farreach::Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("there is a result"),
        Err(error) => error.kind(),
    }
}

/// A waker that does something, once, on whatever thread it runs.
struct Act(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Act {
    fn waker(act: impl FnOnce() + Send + 'static) -> Waker {
        Waker::from(Arc::new(Self(Mutex::new(Some(Box::new(act))))))
    }
}

impl Wake for Act {
    fn wake(self: Arc<Self>) {
        let act = self.0.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
    }
}

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll<T>(pending: &mut Pending<T>, waker: &Waker) -> Poll<Result<T, farreach::Error>> {
    Pin::new(pending).poll(&mut Context::from_waker(waker))
}

/// Waits for the next event that is not of a link: links of a peer may end before it does.
fn next_of(events: &mut Pending<PeerEvent>) -> Result<PeerEvent, farreach::Error> {
    loop {
        match events.wait(SOON)? {
            PeerEvent::LinkLost { .. } => {}
            event => return Ok(event),
        }
    }
}

pub(crate) fn peers_are_listed_while_they_are_connected_and_held(provider: &RailUnderTest) {
    let mut hub = Hub::new(provider, 3);
    let expected: Vec<PeerId> = hub.spokes.iter().map(|spoke| spoke.peer.id()).collect();
    assert_eq!(hub.ids(), expected);
    assert_eq!(expected.iter().collect::<BTreeSet<_>>().len(), 3);
    // One that is not accepted is not listed, and dropping the list does not end it.
    let late = provider.engine("late");
    let address = hub.engine.listen("127.0.0.1:0").unwrap();
    let late_to_hub = late.connect(address).unwrap().wait(SOON).unwrap();
    assert_eq!(hub.ids(), expected);
    let accepted = hub.engine.accept().wait(SOON).unwrap();
    assert_eq!(hub.ids().len(), 4);
    drop(late_to_hub);
    wait_for("one that left is not listed", || (hub.ids() == expected).then_some(()));
    drop(accepted);
    // A listed handle is one as any other: the last one ends the peer.
    let listed = hub.engine.peers();
    let Spoke { engine, to_hub, peer } = hub.spokes.remove(0);
    drop(peer);
    assert_eq!(hub.ids(), expected);
    to_hub.send("still connected").wait(SOON).unwrap();
    assert_eq!(listed[0].recv().wait(SOON).unwrap(), b"still connected");
    drop(listed);
    assert_eq!(hub.ids(), expected[1..]);
    wait_for("the last handle ends the peer", || to_hub.lost().map(drop));
    drop(engine);
}

pub(crate) fn events_tell_of_connections_and_losses(provider: &RailUnderTest) {
    let hub = provider.engine("hub");
    let mut events = hub.next_event();
    assert_eq!(kind(events.wait(BRIEF)), ErrorKind::TimedOut);
    for number in 0..3 {
        let spoke = Spoke::of(provider, &hub, number);
        let event = next_of(&mut events).unwrap();
        let PeerEvent::Connected { peer, name } = event else { panic!("{event:?}") };
        assert_eq!((peer, name), (spoke.peer.id(), format!("spoke {number}")));
        // An event outlives the wait that was begun for it.
        let mut unfinished = hub.next_event();
        assert!(poll(&mut unfinished, Waker::noop()).is_pending());
        drop(spoke.to_hub);
        wait_for("the loss", || spoke.peer.lost().map(drop));
        drop(unfinished);
        let event = next_of(&mut hub.next_event()).unwrap();
        let PeerEvent::Lost { peer, reason } = event else { panic!("{event:?}") };
        assert_eq!((peer, Some(&reason)), (spoke.peer.id(), spoke.peer.lost()));
    }
    assert_eq!(kind(events.wait(Duration::ZERO)), ErrorKind::TimedOut);
}

pub(crate) fn a_message_of_any_peer_is_received_once(provider: &RailUnderTest) {
    const MESSAGES: usize = 50;
    let hub = Hub::new(provider, 4);
    let senders: Vec<_> = hub
        .spokes
        .iter()
        .map(|spoke| {
            let to_hub = spoke.to_hub.clone();
            thread::spawn(move || {
                (0..MESSAGES).for_each(|number| to_hub.send(number.to_string()).wait(SOON).unwrap());
            })
        })
        .collect();
    let received = Mutex::new(Vec::new());
    let total = AtomicUsize::new(0);
    // Two at once: a thread that waits, and a task.
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut any = hub.engine.recv_any();
            while total.load(Ordering::SeqCst) < 4 * MESSAGES {
                if let Ok((peer, message)) = any.wait(BRIEF) {
                    received.lock().unwrap().push((peer.id(), message));
                    total.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        scope.spawn(|| {
            let count = Waker::from(Arc::new(Count::default()));
            let mut any = hub.engine.recv_any();
            while total.load(Ordering::SeqCst) < 4 * MESSAGES {
                if let Poll::Ready(result) = poll(&mut any, &count) {
                    let (peer, message) = result.unwrap();
                    received.lock().unwrap().push((peer.id(), message));
                    total.fetch_add(1, Ordering::SeqCst);
                }
                thread::yield_now();
            }
        });
    });
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    let received = received.into_inner().unwrap();
    for spoke in &hub.spokes {
        let of_it = received.iter().filter(|(peer, _)| *peer == spoke.peer.id());
        let distinct: BTreeSet<&Vec<u8>> = of_it.map(|(_, message)| message).collect();
        assert_eq!(distinct.len(), MESSAGES);
    }
    assert_eq!(received.len(), 4 * MESSAGES);
    // Alone, they come in order.
    hub.spokes.iter().for_each(|spoke| (0..9).for_each(|number| spoke.send(&number.to_string())));
    let mut next = [0; 4];
    for _ in 0..36 {
        let (peer, message) = hub.engine.recv_any().wait(SOON).unwrap();
        let from = hub.spokes.iter().position(|spoke| spoke.peer.id() == peer.id()).unwrap();
        assert_eq!(message, next[from].to_string().into_bytes());
        next[from] += 1;
    }
}

pub(crate) fn a_peer_that_floods_does_not_starve_another(provider: &RailUnderTest) {
    let hub = Hub::new(provider, 2);
    let is_over = Arc::new(AtomicBool::new(false));
    let flood = {
        let (to_hub, is_over) = (hub.spokes[0].to_hub.clone(), Arc::clone(&is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                let _ = to_hub.send("flood").wait(SOON);
            }
        })
    };
    let mut any = hub.engine.recv_any();
    let flooding = hub.spokes[0].peer.id();
    for _ in 0..20 {
        hub.spokes[1].send("quiet");
        // The engine has confirmed the message within a step, at the end of which it can be received.
        hub.engine.peer_count().unwrap();
        let mut before = 0;
        while any.wait(SOON).unwrap().0.id() == flooding {
            before += 1;
        }
        assert!(before <= 1, "{before} messages of the other one went before");
    }
    is_over.store(true, Ordering::SeqCst);
    while !flood.is_finished() {
        let _ = any.wait(Duration::from_millis(10));
    }
    flood.join().unwrap();
}

pub(crate) fn a_wait_for_one_peer_goes_before_a_wait_for_any(provider: &RailUnderTest) {
    let hub = Hub::new(provider, 2);
    let [one, two] = &hub.spokes[..] else { unreachable!("there are two") };
    let mut any = hub.engine.recv_any();
    let woken = Arc::new(Count::default());
    let mut alone = one.peer.recv();
    assert!(poll(&mut alone, &Waker::from(Arc::clone(&woken))).is_pending());
    one.send("first");
    one.send("second");
    wait_for("the task is woken", || (woken.0.load(Ordering::SeqCst) > 0).then_some(()));
    assert_eq!(kind(any.wait(BRIEF)), ErrorKind::TimedOut);
    two.send("of another one");
    assert_eq!(any.wait(SOON).unwrap().1, b"of another one");
    assert_eq!(alone.wait(SOON).unwrap(), b"first");
    assert_eq!(any.wait(SOON).unwrap().1, b"second", "nobody waits for it any more");
    // A wait that ends without a message leaves those that came meanwhile.
    assert_eq!(kind(one.peer.recv().wait(Duration::ZERO)), ErrorKind::TimedOut);
    let mut alone = one.peer.recv();
    assert!(poll(&mut alone, Waker::noop()).is_pending());
    let mut woken_any = hub.engine.recv_any();
    let woken = Arc::new(Count::default());
    assert!(poll(&mut woken_any, &Waker::from(Arc::clone(&woken))).is_pending());
    one.send("third");
    assert_eq!(kind(any.wait(BRIEF)), ErrorKind::TimedOut);
    drop(alone);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1, "it can have the message now");
    assert_eq!(block_on(woken_any).unwrap().1, b"third");
    // One that has timed out does not wait.
    let mut alone = one.peer.recv();
    assert_eq!(kind(alone.wait(BRIEF)), ErrorKind::TimedOut);
    one.send("fourth");
    assert_eq!(any.wait(SOON).unwrap().1, b"fourth");
    assert_eq!(kind(alone.wait(Duration::ZERO)), ErrorKind::TimedOut);
}

pub(crate) fn a_wait_for_any_that_is_dropped_loses_no_message(provider: &RailUnderTest) {
    const MESSAGES: usize = 200;
    let hub = Hub::new(provider, 2);
    let to_hub = hub.spokes[0].to_hub.clone();
    let sending = thread::spawn(move || {
        (0..MESSAGES).for_each(|number| to_hub.send(number.to_string()).wait(SOON).unwrap());
    });
    let (mut next, deadline) = (0, Instant::now() + SOON);
    for round in 0.. {
        assert!(Instant::now() < deadline, "{next} messages have arrived");
        if next == MESSAGES {
            break;
        }
        // Not polled at all, polled and dropped, or given up by a thread.
        let mut any = hub.engine.recv_any();
        let received = match round % 4 {
            0 => None,
            1 => match poll(&mut any, Waker::noop()) {
                Poll::Ready(result) => Some(result.unwrap()),
                Poll::Pending => None,
            },
            2 => any.wait(Duration::from_micros(50)).ok(),
            _ => any.try_take().map(Result::unwrap),
        };
        drop(any);
        if let Some((_, message)) = received {
            assert_eq!(message, next.to_string().into_bytes());
            next += 1;
        }
    }
    sending.join().unwrap();
}

pub(crate) fn messages_of_a_lost_peer_are_received(provider: &RailUnderTest) {
    let mut hub = Hub::new(provider, 2);
    let mut any = hub.engine.recv_any();
    let Spoke { engine, to_hub, peer } = hub.spokes.remove(0);
    to_hub.send("before the loss").wait(SOON).unwrap();
    drop((to_hub, engine));
    wait_for("the peer is lost", || peer.lost().map(drop));
    assert_eq!(any.wait(SOON).unwrap().1, b"before the loss");
    // A loss does not end the wait, and others are heard.
    assert_eq!(kind(any.wait(BRIEF)), ErrorKind::TimedOut);
    hub.spokes[0].send("of another one");
    assert_eq!(any.wait(SOON).unwrap().0.id(), hub.spokes[0].peer.id());
    // Messages of a peer that the program drops go with it.
    hub.spokes[0].send("too late");
    wait_for("the message", || (hub.spokes[0].peer.memory().unwrap() > 0).then_some(()));
    let Spoke { engine, to_hub, peer } = hub.spokes.remove(0);
    drop(peer);
    assert_eq!(kind(any.wait(BRIEF)), ErrorKind::TimedOut);
    drop((to_hub, engine));
}

pub(crate) fn messages_from_before_the_first_wait_are_received(provider: &RailUnderTest) {
    let hub = Hub::new(provider, 2);
    hub.spokes.iter().for_each(|spoke| spoke.send("early"));
    // Of a peer that is accepted later, too.
    let late = provider.engine("late");
    let address = hub.engine.listen("127.0.0.1:0").unwrap();
    let late_to_hub = late.connect(address).unwrap().wait(SOON).unwrap();
    late_to_hub.send("early").wait(SOON).unwrap();
    let mut any = hub.engine.recv_any();
    let from: BTreeSet<PeerId> = (0..2).map(|_| any.wait(SOON).unwrap().0.id()).collect();
    assert_eq!(from.len(), 2);
    assert_eq!(kind(any.wait(BRIEF)), ErrorKind::TimedOut, "nobody has accepted the third one");
    let woken = Arc::new(Count::default());
    assert!(poll(&mut any, &Waker::from(Arc::clone(&woken))).is_pending());
    let accepted = hub.engine.accept().wait(SOON).unwrap();
    assert!(woken.0.load(Ordering::SeqCst) > 0);
    assert_eq!(any.wait(SOON).unwrap().0.id(), accepted.id());
}

pub(crate) fn waits_for_any_peer_end_with_the_engine(provider: &RailUnderTest) {
    // Closed while a thread and a task wait.
    let hub = Hub::new(provider, 1);
    hub.spokes[0].send("the last one");
    let (mut any, mut events) = (hub.engine.recv_any(), hub.engine.next_event());
    let waiting = thread::spawn(move || {
        assert_eq!(any.wait(SOON).unwrap().1, b"the last one");
        any.wait(SOON)
    });
    let task = thread::spawn(move || {
        loop {
            match block_on(&mut events)? {
                PeerEvent::LinkLost { .. } => {}
                PeerEvent::Lost { .. } => return block_on(events),
                event => panic!("{event:?}"),
            }
        }
    });
    let Hub { engine, spokes } = hub;
    thread::sleep(BRIEF);
    engine.close(SOON).unwrap();
    assert_eq!(kind(waiting.join().unwrap()), ErrorKind::Ended);
    assert_eq!(kind(task.join().unwrap()), ErrorKind::Ended);
    drop(spokes);
    // Dropped: a wait lasts as long as a peer is left.
    let Hub { engine, mut spokes } = Hub::new(provider, 1);
    let (mut any, mut events) = (engine.recv_any(), engine.next_event());
    drop(engine);
    spokes[0].send("still there");
    assert_eq!(any.wait(SOON).unwrap().1, b"still there");
    let waiting = thread::spawn(move || kind(block_on(any)));
    thread::sleep(BRIEF);
    assert!(!waiting.is_finished());
    let Spoke { engine: spoke, to_hub, peer } = spokes.remove(0);
    drop((to_hub, spoke));
    assert_eq!(waiting.join().unwrap(), ErrorKind::Ended);
    assert!(matches!(next_of(&mut events), Ok(PeerEvent::Lost { .. })));
    assert_eq!(kind(events.wait(SOON)), ErrorKind::Ended);
    drop(peer);
}

pub(crate) fn a_waker_may_wait_for_any_peer(provider: &RailUnderTest) {
    let Pair { a, b, a_to_b, b_to_a } = Pair::new(provider);
    let (sender, told) = std::sync::mpsc::channel();
    let mut any = b.recv_any();
    let waker = {
        let (b, b_to_a) = (b.clone(), b_to_a.clone());
        Act::waker(move || {
            let peers = b.peers().len();
            let received = b.recv_any().wait(SOON).map(|(peer, message)| (peer.id(), message));
            b_to_a.send("received").wait(SOON).unwrap();
            sender.send((peers, received)).unwrap();
        })
    };
    assert!(poll(&mut any, &waker).is_pending());
    a_to_b.send("wake").wait(SOON).unwrap();
    let (peers, received) = told.recv_timeout(SOON).unwrap();
    assert_eq!(peers, 1);
    assert_eq!(received.unwrap(), (b_to_a.id(), b"wake".to_vec()));
    assert_eq!(a_to_b.recv().wait(SOON).unwrap(), b"received");
    assert!(poll(&mut any, Waker::noop()).is_pending());
    drop(a);
}

//! The rail on which peers are separated: its contract, and peers that try the keys of others.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use farreach::rails::fabric::{FabricSettings, IsolatedRail};
use farreach_fabric::Library;
use farreach_memory::{Buffers, Exposed, Memory};
use farreach_proto::rights::Rights;
use farreach_rail::{Event, Key, LinkKey, PeerKey, Rail, Refusal, RemoteSegment, WorkRequest};
use farreach_testkit::wait_for;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::contract::pair::Pair;

fn open(receive_count: usize) -> IsolatedRail {
    let settings = FabricSettings { receive_count, ..FabricSettings::default() };
    let opened = IsolatedRail::open_named("tcp", Some(Ipv4Addr::LOCALHOST.into()), &settings);
    opened.unwrap_or_else(|error| panic!("{error}\nfix: {}", error.fix)).expect("tcp can separate peers")
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_link_has_the_depth_of_the_settings_and_no_more_than_its_queue() {
    for (link_depth, transmit_depth, window) in [(7, 64, 7), (64, 7, 7), (0, 64, 1)] {
        let settings = FabricSettings { link_depth, transmit_depth, ..FabricSettings::default() };
        let opened = IsolatedRail::open_named("tcp", Some(Ipv4Addr::LOCALHOST.into()), &settings).unwrap();
        assert_eq!(opened.expect("tcp can separate peers").properties().window, window);
    }
}

/// Calls a part of the contract. More messages come than there are receive buffers.
fn over(part: fn(Pair<IsolatedRail>)) {
    part(Pair::new([open(4), open(4)], || {}));
}

crate::contract::contract! { [#[ignore = "needs libfabric: cargo xtask test runs it"]] over }

/// A target with two peers.
struct Three {
    target: IsolatedRail,
    /// The links of the target to each peer.
    links: [LinkKey; 2],
    peers: [(IsolatedRail, LinkKey); 2],
    /// Immediates that came to the target, with their links.
    immediates: Vec<(LinkKey, u32)>,
}

impl Three {
    fn new() -> Self {
        let mut target = open(8);
        let mut links = [LinkKey(0); 2];
        let peers = [0, 1].map(|number| {
            let mut peer = open(8);
            let (here, end_here) = target.open_link(PeerKey(number)).unwrap();
            let (there, end_there) = peer.open_link(PeerKey(0)).unwrap();
            target.connect(here, &end_there).unwrap();
            peer.connect(there, &end_here).unwrap();
            links[number as usize] = here;
            (peer, there)
        });
        Self { target, links, peers, immediates: Vec::new() }
    }

    /// Grants memory of the target to a peer.
    fn grant(&mut self, number: u32) -> (Arc<Exposed>, Key) {
        let memory = Arc::new(Memory::allocate(4096).unwrap().expose());
        let key = self.target.make_key(PeerKey(number), &memory, Rights::all()).unwrap();
        (memory, key)
    }

    /// Polls all. Returns the outcome of a completion at a peer.
    fn progress(&mut self) -> Option<bool> {
        let immediates = &mut self.immediates;
        self.target
            .poll(&mut |event| {
                if let Event::Immediate { link, bits } = event {
                    immediates.push((link.expect("it names its link"), bits));
                }
            })
            .unwrap();
        let mut done = None;
        for (peer, _) in &mut self.peers {
            peer.poll(&mut |event| {
                if let Event::Completed { outcome, .. } = event {
                    done = Some(outcome.is_ok());
                }
            })
            .unwrap();
        }
        done
    }

    /// Posts a write of `0x77` with a key, as this peer. While the connection is made, the queue is
    /// full.
    fn post(&mut self, number: usize, key: Key, immediate: Option<u32>) {
        let mut source = Memory::allocate(64).unwrap();
        source.fill(0x77);
        let mut waiting = Some(Buffers::from(source));
        let target = RemoteSegment { address: key.address, key: key.key, len: 64 };
        wait_for("room", || {
            let (peer, link) = &mut self.peers[number];
            let buffers = waiting.take().expect("they were handed back");
            match peer.post(*link, 1, WorkRequest::Write { target, immediate }, buffers) {
                Ok(()) => Some(()),
                Err((Refusal::Full, buffers)) => {
                    waiting = Some(buffers);
                    self.progress();
                    None
                }
                Err((reason, _)) => panic!("{reason:?}"),
            }
        });
    }

    /// Writes, and returns whether the write succeeded.
    fn write(&mut self, number: usize, key: Key, immediate: Option<u32>) -> bool {
        self.post(number, key, immediate);
        wait_for("completion", || self.progress())
    }

    fn immediate(&mut self) -> (LinkKey, u32) {
        wait_for("immediate", || {
            self.progress();
            self.immediates.pop()
        })
    }
}

fn first_byte(memory: &Exposed) -> u8 {
    let mut byte = [0];
    memory.read_at(0, &mut byte);
    byte[0]
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_key_is_of_no_use_to_another_peer() {
    let mut three = Three::new();
    let (memory, key) = three.grant(0);
    assert!(!three.write(1, key, None), "the other peer has no such key");
    assert_eq!(first_byte(&memory), 0);
    assert!(three.write(0, key, Some(7)), "and it costs its own peer nothing");
    assert_eq!(first_byte(&memory), 0x77);
    assert_eq!(three.immediate(), (three.links[0], 7));
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_end_of_a_link_proves_many_revokes_and_costs_the_others_nothing() {
    let mut three = Three::new();
    let granted: Vec<_> = (0..16).map(|_| three.grant(0)).collect();
    let (other, other_key) = three.grant(1);
    assert!(three.write(0, granted[0].1, None) && three.write(1, other_key, None));
    for (memory, key) in &granted {
        three.target.end_key(key.id).unwrap();
        assert_eq!(memory.keys(), 1, "a write that has begun may still land");
    }
    three.target.close_link(three.links[0]);
    assert!(granted.iter().all(|(memory, _)| memory.keys() == 0), "none can land any more");
    other.write_at(0, &[0; 64]);
    assert!(three.write(1, other_key, None), "the other link goes on");
    assert_eq!(first_byte(&other), 0x77);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_key_holds_for_links_that_are_opened_later() {
    let mut three = Three::new();
    let (memory, key) = three.grant(0);
    three.target.close_link(three.links[0]);
    let (peer, _) = &mut three.peers[0];
    let (here, end_here) = three.target.open_link(PeerKey(0)).unwrap();
    let (there, end_there) = peer.open_link(PeerKey(0)).unwrap();
    three.target.connect(here, &end_there).unwrap();
    peer.connect(there, &end_here).unwrap();
    three.peers[0].1 = there;
    assert!(three.write(0, key, None));
    assert_eq!(first_byte(&memory), 0x77);
    three.target.end_key(key.id).unwrap();
    assert!(!three.write(0, key, None), "a key that has ended takes nothing");
}

const ALONE: &str = "FARREACH_TEST_ALONE";

/// A link needs some descriptors. Where there are none, it is an error that costs nothing else.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn links_are_refused_when_descriptors_have_run_out() {
    // In a process of its own, because other tests need descriptors.
    if std::env::var_os(ALONE).is_none() {
        let name = thread::current().name().expect("the harness names threads by tests").to_owned();
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let ended = alone.args(["--ignored", "--exact", &name]).env(ALONE, "1").output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "it has run");
        return;
    }
    let mut three = Three::new();
    let (memory, key) = three.grant(0);
    assert!(three.write(0, key, None));
    for _ in 0..3 {
        // The limit is that of the process, so descriptors are used up instead.
        let mut spent = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            spent.push(file);
        }
        for _ in 0..12 {
            if let Ok((link, _)) = three.target.open_link(PeerKey(7)) {
                three.target.close_link(link);
            }
            spent.pop();
        }
    }
    memory.write_at(0, &[0; 64]);
    assert!(three.write(0, key, None), "the other link goes on");
    assert_eq!(first_byte(&memory), 0x77);
    let (link, _) = three.target.open_link(PeerKey(7)).unwrap();
    three.target.close_link(link);
}

/// Many quiet links are not polled one by one, and each of them ends a sleep.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_quiet_link_ends_a_sleep() {
    let mut three = Three::new();
    // tcp of libfabric 1.x has no descriptors to sleep on.
    if Library::open().unwrap().version().major < 2 {
        assert!(three.target.wait_fd().is_none() && !three.target.may_sleep().unwrap());
        return;
    }
    let (memory, key) = three.grant(1);
    let (_other, other_key) = three.grant(0);
    assert!(three.write(0, other_key, None) && three.write(1, key, None));
    wait_for("sleep", || {
        let happened = three.target.poll(&mut |_| {}).unwrap() > 0;
        (!happened && three.target.may_sleep().unwrap()).then_some(())
    });
    memory.write_at(0, &[0; 64]);
    let is_woken = |rail: &IsolatedRail, ms: i64| {
        let fd = rail.wait_fd().expect("it has a descriptor");
        let timeout = Timespec::try_from(Duration::from_millis(ms as u64)).unwrap();
        poll(&mut [PollFd::new(&fd.as_fd(), PollFlags::IN)], Some(&timeout)).unwrap() > 0
    };
    assert!(!is_woken(&three.target, 50), "nothing happens");
    let Three { peers: [_, (peer, link)], .. } = &mut three;
    let mut source = Memory::allocate(64).unwrap();
    source.fill(0x77);
    let target = RemoteSegment { address: key.address, key: key.key, len: 64 };
    peer.post(*link, 2, WorkRequest::Write { target, immediate: Some(3) }, source.into()).unwrap();
    assert!(is_woken(&three.target, 5000), "the write ends the sleep");
    assert_eq!(three.immediate(), (three.links[1], 3));
    assert_eq!(first_byte(&memory), 0x77);
}

/// Writes of which each has its own bytes and its own page at the target.
struct Writes {
    three: Three,
    memory: Arc<Exposed>,
    /// By write; `None` while it is in flight.
    outcomes: Vec<Option<bool>>,
}

impl Writes {
    /// More than a group, and more than the connection needs to be busy.
    const COUNT: usize = 72;
    const PAGE: usize = 4096;

    /// Posts all writes, over a connection that exists. The target is not polled.
    fn posted() -> Self {
        Self::posted_with_wrong_key(None)
    }

    /// As [`posted`](Self::posted), where the target refuses one of the writes.
    fn posted_with_wrong_key(wrong: Option<usize>) -> Self {
        let mut three = Three::new();
        let (_first, key) = three.grant(0);
        assert!(three.write(0, key, None));
        let memory = Arc::new(Memory::allocate(Self::COUNT * Self::PAGE).unwrap().expose());
        let key = three.target.make_key(PeerKey(0), &memory, Rights::all()).unwrap();
        let mut writes = Self { three, memory, outcomes: vec![None; Self::COUNT] };
        for number in 0..Self::COUNT {
            let mut source = Memory::allocate(Self::PAGE).unwrap();
            source.fill(number as u8 + 1);
            let (address, len) = (key.address + (number * Self::PAGE) as u64, Self::PAGE as u64);
            let is_wrong = wrong == Some(number);
            let target = RemoteSegment { address, key: key.key ^ u64::from(is_wrong) << 20, len };
            let (sender, link) = &mut writes.three.peers[0];
            let request = WorkRequest::Write { target, immediate: None };
            sender.post(*link, number as u64, request, source.into()).expect("there is room");
        }
        writes
    }

    fn poll_sender(&mut self) {
        let Self { three, outcomes, .. } = self;
        let (sender, _) = &mut three.peers[0];
        let polled = sender.poll(&mut |event| match event {
            Event::Completed { tag, buffers, outcome } => {
                assert!(buffers.as_slice()[0].len() == Self::PAGE, "its buffer comes back");
                let before = outcomes[tag as usize].replace(outcome.is_ok());
                assert_eq!(before, None, "write {tag} is reported once");
            }
            Event::LinkDown { .. } => {}
            other => panic!("{other:?}"),
        });
        polled.unwrap();
    }

    fn poll_target(&mut self) {
        let _ = self.three.target.poll(&mut |event| panic!("{event:?}"));
    }

    fn count(&self, outcome: Option<bool>) -> usize {
        self.outcomes.iter().filter(|it| **it == outcome).count()
    }

    /// Ends the sender's link, after which nothing is in flight.
    fn end(&mut self) {
        let (sender, link) = &mut self.three.peers[0];
        sender.close_link(*link);
        (0..10).for_each(|_| self.poll_sender());
        assert_eq!((self.count(None), self.three.peers[0].0.in_flight()), (0, 0));
    }

    /// Checks that all writes which were reported as completed have landed.
    fn check(&self) {
        let mut page = vec![0; Self::PAGE];
        for number in (0..Self::COUNT).filter(|number| self.outcomes[*number] == Some(true)) {
            self.memory.read_at(number * Self::PAGE, &mut page);
            assert!(page.iter().all(|byte| *byte == number as u8 + 1), "write {number} has landed");
        }
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn writes_that_share_a_request_for_delivery_complete_once_each() {
    let mut writes = Writes::posted();
    wait_for("completions", || {
        writes.poll_sender();
        writes.poll_target();
        (writes.count(None) == 0).then_some(())
    });
    assert_eq!(writes.count(Some(true)), Writes::COUNT);
    writes.check();
    writes.end();
}

/// The bytes have left, and the target does not take them.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_write_is_not_completed_before_it_has_landed() {
    let mut writes = Writes::posted();
    for _ in 0..200 {
        writes.poll_sender();
        thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(writes.count(None), Writes::COUNT, "nobody has taken them");
    assert_eq!(writes.three.peers[0].0.in_flight(), Writes::COUNT);
    writes.end();
    assert_eq!(writes.count(Some(false)), Writes::COUNT);
}

/// The target ends the link after it has taken some of the writes.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_link_that_ends_completes_no_write_that_has_not_landed() {
    let mut has_failed = false;
    for polls in (0..40).step_by(2) {
        let mut writes = Writes::posted();
        for _ in 0..polls {
            writes.poll_sender();
            writes.poll_target();
        }
        let link = writes.three.links[0];
        writes.three.target.close_link(link);
        for _ in 0..20 {
            writes.poll_sender();
            thread::sleep(Duration::from_micros(100));
        }
        writes.end();
        writes.check();
        has_failed |= writes.count(Some(false)) > 0;
    }
    assert!(has_failed, "a link has ended before all writes had landed");
}

/// The target ends the connection when it refuses a write, and the error is that of a later one.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_refused_write_proves_nothing_of_its_group() {
    for wrong in [0, 2, 9, 17, 40, Writes::COUNT - 1] {
        let mut writes = Writes::posted_with_wrong_key(Some(wrong));
        wait_for("error", || {
            writes.poll_sender();
            writes.poll_target();
            (writes.count(Some(false)) > 0).then_some(())
        });
        writes.end();
        writes.check();
        assert_eq!(writes.outcomes[wrong], Some(false));
        assert!(writes.outcomes[wrong..].iter().all(|outcome| *outcome == Some(false)));
    }
}

/// A message arrives after the writes that were posted before it, also if they wait for their group.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_message_does_not_overtake_writes() {
    let mut writes = Writes::posted();
    let (sender, link) = &mut writes.three.peers[0];
    let mut message = Memory::allocate(8).unwrap();
    message.fill(5);
    sender.post(*link, 0, WorkRequest::Send, message.into()).expect("there is room");
    let mut arrived = false;
    wait_for("message", || {
        let (sender, _) = &mut writes.three.peers[0];
        sender.poll(&mut |_| {}).unwrap();
        writes.three.target.poll(&mut |event| arrived |= matches!(event, Event::Message { .. })).unwrap();
        arrived.then_some(())
    });
    writes.outcomes.fill(Some(true));
    writes.check();
}

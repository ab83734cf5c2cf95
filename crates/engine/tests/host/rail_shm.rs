//! The rail over memory that two processes map, without an engine. Both rails are in this process;
//! a peer that does not answer is a rail that is not polled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farreach::Rights;
use farreach::rails::shm::ShmRail;
use farreach_memory::{Buffers, Exposed, Memory};
use farreach_rail::{
    Event, KeyId, LinkKey, PeerKey, Rail, RailError, Refusal, RemoteSegment, RequestError, WorkRequest,
};

use crate::contract::contract;
use crate::contract::pair::Pair;

fn open() -> ShmRail {
    ShmRail::open(64, 4096).unwrap()
}

fn over_shm(test: fn(Pair<ShmRail>)) {
    test(Pair::new([open(), open()], || {}));
}

contract! { [] over_shm }

/// The kind is sent to every peer.
#[test]
fn the_kind_tells_nothing_of_the_host() {
    let volume = tempfile::tempdir().unwrap();
    let in_directory = || ShmRail::open_in(Some(volume.path()), 64, 4096).unwrap();
    let [abstract_kind, kind] = [open(), in_directory()].map(|rail| rail.properties().kind.clone());
    assert!(abstract_kind != kind && kind == in_directory().properties().kind);
    for kind in [abstract_kind, kind] {
        let digest = kind.strip_prefix("shm/").unwrap();
        assert!(digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{kind}");
    }
}

const LEN: usize = 64 << 10;

type Bound = Result<(u64, u64), RailError>;

/// A rail, and what it has reported.
struct Side {
    rail: ShmRail,
    bound: Vec<(LinkKey, Bound)>,
    ended: Vec<KeyId>,
    down: Vec<(LinkKey, RailError)>,
    completed: Vec<Result<(), RequestError>>,
}

impl Side {
    fn new() -> Self {
        let (bound, ended, down, completed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { rail: open(), bound, ended, down, completed }
    }

    fn poll(&mut self) {
        let Self { rail, bound, ended, down, completed } = self;
        rail.poll(&mut |event| match event {
            Event::KeyBound { link, bound: result, .. } => bound.push((link, result)),
            Event::KeyEnded { key } => ended.push(key),
            Event::LinkDown { link, reason } => down.push((link, reason)),
            Event::Completed { outcome, .. } => completed.push(outcome),
            Event::Immediate { .. } | Event::Message { .. } => {}
        })
        .unwrap();
    }

    fn grant(&mut self) -> (Arc<Exposed>, KeyId) {
        let memory = Arc::new(Memory::allocate(LEN).unwrap().expose());
        let key = self.rail.make_key(PeerKey(0), &memory, Rights::all()).unwrap();
        (memory, key.id)
    }

    fn write(&mut self, link: LinkKey, key: u64, byte: u8) -> Result<(), Refusal> {
        let mut page = Memory::allocate(LEN).unwrap();
        page.fill(byte);
        let target = RemoteSegment { address: 0, key, len: LEN as u64 };
        let request = WorkRequest::Write { target, immediate: None };
        self.rail.post(link, 1, request, Buffers::from(page)).map_err(|(refusal, _)| refusal)
    }
}

#[track_caller]
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !step() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

/// Connects two sides. Returns the ends.
fn connect(here: &mut Side, there: &mut Side) -> (LinkKey, LinkKey) {
    let (one, address) = here.rail.open_link(PeerKey(0)).unwrap();
    let (other, other_address) = there.rail.open_link(PeerKey(0)).unwrap();
    here.rail.connect(one, &other_address).unwrap();
    there.rail.connect(other, &address).unwrap();
    (one, other)
}

/// Posts a write when both sides have met.
fn write(from: &mut Side, to: &mut Side, link: LinkKey, key: u64, byte: u8) {
    until("there is no room", || match from.write(link, key, byte) {
        Ok(()) => true,
        Err(Refusal::Full) => {
            from.poll();
            to.poll();
            false
        }
        Err(refusal) => panic!("{refusal:?}"),
    });
}

/// Binds a key, and returns its number on the link.
fn bind(here: &mut Side, there: &mut Side, link: LinkKey, key: KeyId) -> u64 {
    here.rail.bind_key(link, key, 1).unwrap();
    until("the key is not bound", || {
        here.poll();
        there.poll();
        !here.bound.is_empty()
    });
    let (of, bound) = here.bound.pop().unwrap();
    assert_eq!(of, link);
    bound.unwrap().1
}

#[test]
fn a_key_is_proven_on_every_link_that_it_was_bound_to() {
    for asks in [false, true] {
        let (mut here, mut there) = (Side::new(), Side::new());
        let (memory, key) = here.grant();
        let (first, there_first) = connect(&mut here, &mut there);
        let (second, _) = connect(&mut here, &mut there);
        let old = bind(&mut here, &mut there, first, key);
        bind(&mut here, &mut there, second, key);
        write(&mut there, &mut here, there_first, old, 7);
        // A link is lost here, and the peer does not notice: it is not polled.
        here.rail.close_link(first);
        for _ in 0..1000 {
            here.poll();
        }
        assert_eq!(memory.keys(), 2, "a link has ended, and nothing is proven");
        here.rail.end_key(key).unwrap();
        for _ in 0..1000 {
            here.poll();
        }
        assert!(here.ended.is_empty() && memory.keys() == 2, "the peer has not confirmed");
        match asks {
            // By itself: the peer is never polled again.
            true => {
                here.rail.prove_key(key).unwrap();
                until("the exchange does not end", || {
                    here.poll();
                    !here.ended.is_empty()
                });
            }
            false => until("the peer does not confirm", || {
                here.poll();
                there.poll();
                !here.ended.is_empty()
            }),
        }
        assert_eq!((here.ended.as_slice(), memory.keys()), (&[key][..], 0));
        let mut slice = Arc::into_inner(memory).expect("the rail has no handle").try_into_slice().unwrap();
        assert!(slice.iter().all(|byte| *byte == 7), "what had arrived stays");
        slice.fill(9);
        // The peer goes on with the old link, and with the number of the old grant.
        let _ = there.write(there_first, old, 8);
        for _ in 0..1000 {
            here.poll();
            there.poll();
        }
        assert!(slice.iter().all(|byte| *byte == 9), "a late byte");
    }
}

#[test]
fn a_key_that_was_bound_to_no_link_ends_at_once() {
    let mut here = Side::new();
    let (memory, key) = here.grant();
    here.rail.end_key(key).unwrap();
    here.poll();
    assert_eq!((here.ended.as_slice(), memory.keys()), (&[key][..], 0));
    here.rail.end_key(key).unwrap_err();
    here.rail.prove_key(key).unwrap();
}

/// A peer that reads shared bytes learns nothing new, so its key is reported as ended. The memory stays shared
/// as long as the peer may read.
#[test]
fn shared_memory_stays_shared_until_its_readers_have_stopped() {
    let mut here = Side::new();
    let mut readers = [Side::new(), Side::new()];
    let mut bytes = Memory::allocate(4096).unwrap();
    bytes.fill(7);
    let shared = bytes.share();
    let memory = Arc::new(Exposed::from(shared.clone()));
    let keys = readers.each_mut().map(|there| {
        let key = here.rail.make_key(PeerKey(0), &memory, Rights::READ).unwrap().id;
        let (link, _) = connect(&mut here, there);
        bind(&mut here, there, link, key);
        key
    });
    for key in keys {
        here.rail.end_key(key).unwrap();
        here.poll();
        assert!(!here.ended.contains(&key), "its peer has not confirmed");
        here.rail.prove_key(key).unwrap();
        here.rail.prove_key(key).unwrap();
        here.poll();
        assert!(here.ended.contains(&key));
    }
    assert_eq!((here.ended.len(), memory.keys()), (2, 2), "each is told once, and none is proven");
    drop(memory);
    let mut shared = Some(shared.try_unshare().expect_err("they may be reading"));
    until("the peers do not confirm", || {
        here.poll();
        readers.iter_mut().for_each(Side::poll);
        let unshared = shared.take().expect("it was put back").try_unshare();
        shared = unshared.err();
        shared.is_none()
    });
    assert_eq!(here.ended.len(), 2);
}

/// A reader is in the middle of a copy when its key ends. Its owner gets a slice when the pages were exchanged.
#[test]
fn keys_for_reading_end_by_an_exchange() {
    let (mut here, mut there) = (Side::new(), Side::new());
    let memory = Arc::new(Memory::allocate(4096).unwrap().expose());
    let key = here.rail.make_key(PeerKey(0), &memory, Rights::READ).unwrap().id;
    let (link, _) = connect(&mut here, &mut there);
    bind(&mut here, &mut there, link, key);
    here.rail.end_key(key).unwrap();
    here.rail.prove_key(key).unwrap();
    assert!(memory.is_exchanging() && memory.keys() == 1, "nothing is proven yet");
    until("the exchange does not end", || {
        here.poll();
        !here.ended.is_empty()
    });
    assert!(Arc::into_inner(memory).unwrap().try_into_slice().is_ok());
}

/// The owner has its memory back before the exchange is over, which then proves it.
#[test]
fn an_exchange_goes_on_when_the_memory_was_given_back() {
    let (mut here, mut there) = (Side::new(), Side::new());
    // Several steps.
    let memory = Arc::new(Memory::allocate(8 << 20).unwrap().expose());
    let key = here.rail.make_key(PeerKey(0), &memory, Rights::WRITE).unwrap().id;
    let (link, _) = connect(&mut here, &mut there);
    bind(&mut here, &mut there, link, key);
    here.rail.prove_key(key).unwrap_err();
    here.rail.end_key(key).unwrap();
    here.rail.prove_key(key).unwrap();
    here.poll();
    assert!(!here.rail.may_sleep().unwrap(), "there is more to exchange");
    let memory = Arc::into_inner(memory).expect("the rail has no handle");
    memory.write_at(0, &[3]);
    memory.guard_key(farreach_memory::KeyAccess::Write).expect_err("a key to the old pages");
    until("the exchange does not end", || {
        here.poll();
        memory.keys() == 0
    });
    assert_eq!(memory.try_into_slice().unwrap()[0], 3);
}

/// What a user changes by a reference to an atomic cannot be changed again, and must not be lost. Nobody pauses
/// for an exchange that is refused, nothing is polled for it, and the end of the peer is the proof.
#[test]
fn there_is_no_exchange_while_the_user_may_have_an_atomic() {
    let (mut here, mut there, mut other) = (Side::new(), Side::new(), Side::new());
    let (memory, one) = here.grant();
    let two = here.rail.make_key(PeerKey(0), &memory, Rights::all()).unwrap().id;
    let (link, _) = connect(&mut here, &mut there);
    bind(&mut here, &mut there, link, one);
    let (to_other, at_other) = connect(&mut here, &mut other);
    let of_other = bind(&mut here, &mut other, to_other, two);
    let handle = Arc::clone(&memory);
    handle.atomic_at(8);
    here.rail.end_key(one).unwrap();
    for _ in 0..3 {
        assert!(here.rail.prove_key(one).unwrap_err().to_string().contains("atomic"));
    }
    until("the rail does not sleep", || {
        here.poll();
        other.poll();
        here.rail.may_sleep().unwrap()
    });
    assert!(here.down.is_empty() && here.ended.is_empty());
    write(&mut other, &mut here, at_other, of_other, 3);
    until("the peer does not confirm", || {
        here.poll();
        there.poll();
        !here.ended.is_empty()
    });
    assert_eq!((here.ended.as_slice(), memory.keys()), (&[one][..], 1));
}

/// A long exchange keeps no other memory from being proven.
#[test]
fn exchanges_take_turns() {
    let (mut here, mut there) = (Side::new(), Side::new());
    let [(long, one), (short, two)] = [64 << 20, 4096].map(|len| {
        let memory = Arc::new(Memory::allocate(len).unwrap().expose());
        let key = here.rail.make_key(PeerKey(0), &memory, Rights::all()).unwrap().id;
        (memory, key)
    });
    let (link, _) = connect(&mut here, &mut there);
    for key in [one, two] {
        bind(&mut here, &mut there, link, key);
        here.rail.end_key(key).unwrap();
        here.rail.prove_key(key).unwrap();
    }
    until("the short one is not proven", || {
        here.poll();
        !here.ended.is_empty()
    });
    assert_eq!((here.ended.as_slice(), short.keys(), long.keys()), (&[two][..], 0, 1));
    until("the long one is not proven", || {
        here.poll();
        here.ended.len() == 2
    });
}

/// Three peers may write. The first one is stopped; the second one is as well, and keeps its key; the third one
/// goes on in the new pages. The owner writes all the time.
#[test]
fn others_pause_for_an_exchange_and_go_on_in_the_new_pages() {
    let mut here = Side::new();
    let [mut first, mut second, mut third] = [Side::new(), Side::new(), Side::new()];
    let memory = Arc::new(Memory::allocate(8 << 20).unwrap().expose());
    let [one, two, three] =
        [(); 3].map(|()| here.rail.make_key(PeerKey(0), &memory, Rights::all()).unwrap().id);
    let (to_first, at_first) = connect(&mut here, &mut first);
    let (to_second, _) = connect(&mut here, &mut second);
    let (to_third, at_third) = connect(&mut here, &mut third);
    let of_first = bind(&mut here, &mut first, to_first, one);
    bind(&mut here, &mut second, to_second, two);
    let of_third = bind(&mut here, &mut third, to_third, three);
    write(&mut first, &mut here, at_first, of_first, 7);

    here.rail.end_key(one).unwrap();
    here.rail.prove_key(one).unwrap();
    here.poll();
    let mut down: Vec<LinkKey> = here.down.drain(..).map(|(link, _)| link).collect();
    down.sort();
    assert_eq!(down, [to_second, to_third], "the links of the others");
    // As the engine does.
    down.into_iter().for_each(|link| here.rail.close_link(link));
    let (again, at_third_again) = connect(&mut here, &mut third);
    here.rail.bind_key(again, three, 1).unwrap();
    here.rail.prove_key(one).unwrap();
    let mut written = 0u64;
    until("the exchange does not end", || {
        assert!(here.bound.is_empty(), "the old pages are not for anybody");
        written += 1;
        memory.write_at((written as usize * 4096 + 8) % (8 << 20), &written.to_ne_bytes());
        here.poll();
        third.poll();
        here.ended == [one]
    });
    until("the third one does not go on", || {
        here.poll();
        third.poll();
        !here.bound.is_empty()
    });
    let (link, bound) = here.bound.pop().unwrap();
    assert_eq!((link, memory.keys()), (again, 1), "the second one has no pages either");
    let last = (written as usize * 4096 + 8) % (8 << 20);
    let mut bytes = [0; 8];
    memory.read_at(last, &mut bytes);
    assert_eq!(u64::from_ne_bytes(bytes), written);
    // The first one continues with the pages that it has, and the third one with its old number.
    let _ = first.write(at_first, of_first, 8);
    until("the third one does not notice that its link is lost", || {
        third.poll();
        third.write(at_third, of_third, 8).is_err()
    });
    for _ in 0..1000 {
        here.poll();
        first.poll();
    }
    memory.read_at(0, &mut bytes);
    assert_eq!(bytes, [7; 8]);
    write(&mut third, &mut here, at_third_again, bound.unwrap().1, 9);
    until("nothing arrives in the new pages", || {
        here.poll();
        third.poll();
        memory.read_at(0, &mut bytes);
        bytes == [9; 8]
    });
}

/// Two memories, each with a writer that is stopped and one that is not.
#[test]
fn exchanges_with_pauses_follow_each_other() {
    let mut here = Side::new();
    let (mut stopped, mut other) = (Side::new(), Side::new());
    let mut ended = [(); 2].map(|()| {
        let (memory, key) = here.grant();
        let key_of_other = here.rail.make_key(PeerKey(0), &memory, Rights::all()).unwrap().id;
        let (link, _) = connect(&mut here, &mut stopped);
        bind(&mut here, &mut stopped, link, key);
        let (link, _) = connect(&mut here, &mut other);
        bind(&mut here, &mut other, link, key_of_other);
        (memory, key)
    });
    ended.iter().for_each(|(_, key)| here.rail.end_key(*key).unwrap());
    until("the exchanges do not end", || {
        // As the machine does: it asks for each again and again, and closes links that are lost.
        for (_, key) in &ended {
            here.rail.prove_key(*key).unwrap();
        }
        here.poll();
        other.poll();
        let down: Vec<LinkKey> = here.down.drain(..).map(|(link, _)| link).collect();
        down.into_iter().for_each(|link| here.rail.close_link(link));
        here.ended.len() == 2
    });
    for (memory, key) in &mut ended {
        assert!(here.ended.contains(key) && memory.keys() == 0);
    }
}

/// Two writers are stopped, and both keys are ended. One exchange proves both, and nothing is proven before.
#[test]
fn no_key_is_reported_before_the_exchange_that_proves_it_is_over() {
    let (mut here, mut first, mut second) = (Side::new(), Side::new(), Side::new());
    // Several steps.
    let memory = Arc::new(Memory::allocate(8 << 20).unwrap().expose());
    let keys = [&mut first, &mut second].map(|there| {
        let key = here.rail.make_key(PeerKey(0), &memory, Rights::all()).unwrap().id;
        let (link, _) = connect(&mut here, there);
        bind(&mut here, there, link, key);
        here.rail.end_key(key).unwrap();
        key
    });
    until("the exchange does not end", || {
        for key in keys {
            here.rail.prove_key(key).unwrap();
        }
        here.poll();
        assert!(here.ended.is_empty() || memory.keys() == 0, "it is not proven");
        here.ended.len() == 2
    });
    assert!(Arc::into_inner(memory).unwrap().try_into_slice().is_ok());
}

/// Memory that another rail has a key to cannot be exchanged.
#[test]
fn others_go_on_if_there_is_no_exchange() {
    let (mut here, mut first, mut second) = (Side::new(), Side::new(), Side::new());
    let (memory, one) = here.grant();
    let two = here.rail.make_key(PeerKey(0), &memory, Rights::all()).unwrap().id;
    let (to_first, _) = connect(&mut here, &mut first);
    let (to_second, at_second) = connect(&mut here, &mut second);
    bind(&mut here, &mut first, to_first, one);
    let of_second = bind(&mut here, &mut second, to_second, two);
    let elsewhere = memory.guard_key(farreach_memory::KeyAccess::Write).unwrap();
    here.rail.end_key(one).unwrap();
    let error = here.rail.prove_key(one).unwrap_err();
    assert!(error.to_string().contains("other keys"), "{error}");
    here.poll();
    assert!(here.down.is_empty(), "nobody pauses for nothing");
    write(&mut second, &mut here, at_second, of_second, 3);
    // Its key was made for nobody; dropping the guard leaks the memory of the test.
    drop(elsewhere);
}

#[test]
fn a_binding_is_answered_even_if_its_link_or_key_has_ended() {
    for ends_link in [true, false] {
        let (mut here, mut there) = (Side::new(), Side::new());
        let (_memory, key) = here.grant();
        let (link, _) = here.rail.open_link(PeerKey(0)).unwrap();
        let (_, address) = there.rail.open_link(PeerKey(0)).unwrap();
        here.rail.connect(link, &address).unwrap();
        // The other side does not come.
        here.rail.bind_key(link, key, 1).unwrap();
        match ends_link {
            true => here.rail.close_link(link),
            false => here.rail.end_key(key).unwrap(),
        }
        here.poll();
        assert!(matches!(&here.bound[..], [(of, Err(_))] if *of == link), "{:?}", here.bound);
    }
    let (mut here, mut there) = (Side::new(), Side::new());
    let memory = Arc::new(Memory::allocate(LEN).unwrap().expose());
    let key = here.rail.make_key(PeerKey(1), &memory, Rights::all()).unwrap().id;
    let (link, _) = connect(&mut here, &mut there);
    here.rail.bind_key(link, key, 1).expect_err("a link of another peer");
}

#[test]
fn a_post_waits_until_both_have_met_and_a_meeting_without_a_peer_ends() {
    let (mut here, there) = (Side::new(), Side::new());
    let (link, _) = here.rail.open_link(PeerKey(0)).unwrap();
    assert!(matches!(here.write(link, 1, 0), Err(Refusal::LinkDown(_))), "it is not connected");
    let address = [&[0xff; 32][..], b"@farreach-0123456789abcdef0123456789abcdef"].concat();
    here.rail.connect(link, &address).unwrap();
    assert!(matches!(here.write(link, 1, 0), Err(Refusal::Full)));
    assert!(here.rail.may_sleep().unwrap(), "the timer wakes it");
    until("the meeting does not end", || {
        here.poll();
        !here.down.is_empty()
    });
    let (of, reason) = &here.down[0];
    assert_eq!(*of, link);
    assert!(!reason.cause.is_empty() && !reason.fix.is_empty(), "{reason:?}");
    assert!(matches!(here.write(link, 1, 0), Err(Refusal::LinkDown(_))));
    drop(there);
}

#[test]
fn operations_of_a_closed_link_come_back_with_the_next_poll() {
    let (mut here, mut there) = (Side::new(), Side::new());
    let (memory, key) = there.grant();
    let (link, there_link) = connect(&mut here, &mut there);
    let number = bind(&mut there, &mut here, there_link, key);
    for byte in 0..4 {
        write(&mut here, &mut there, link, number, byte);
    }
    assert_eq!(here.rail.in_flight(), 4);
    here.rail.close_link(link);
    here.poll();
    assert_eq!((here.completed.len(), here.rail.in_flight()), (4, 0));
    assert!(here.down.is_empty(), "whoever closes it knows");
    until("the other side does not notice", || {
        there.poll();
        !there.down.is_empty()
    });
    there.rail.close_link(there_link);
    until("its end proves that nobody uses the grant", || {
        there.poll();
        memory.keys() == 0
    });
}

/// A request with a key that the peer never gave fails alone: the others go on over the same link.
#[test]
fn a_wrong_key_fails_alone() {
    let (mut here, mut there) = (Side::new(), Side::new());
    let (memory, key) = here.grant();
    let (first, there_first) = connect(&mut here, &mut there);
    let number = bind(&mut here, &mut there, first, key);
    for (byte, wrong) in [(1, number + (1 << 16)), (2, number + 1), (3, u64::MAX)] {
        write(&mut there, &mut here, there_first, wrong, 9);
        write(&mut there, &mut here, there_first, number, byte);
        until("not all is completed", || {
            there.poll();
            there.completed.len() == 2
        });
        let outcomes = std::mem::take(&mut there.completed);
        let failed: Vec<&RequestError> = outcomes.iter().filter_map(|it| it.as_ref().err()).collect();
        assert!(matches!(failed[..], [RequestError::Key(_)]), "{outcomes:?}");
        let mut found = [0; LEN];
        memory.read_at(0, &mut found);
        assert!(found.iter().all(|it| *it == byte) && there.down.is_empty(), "{byte}");
    }
}

//! Transfers of one range, with memory of every form.

use std::time::Duration;

use farreach::{Buffer, ErrorKind, Memory, Rights, Settings, Slice};
use farreach_testkit::wait_for;

use super::pair::{Pair, RailUnderTest, SOON, copy_of, fill, join};

/// Returns bytes that depend on their place. The length of a block is a prime number, so that bytes in
/// a wrong place are noticed.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut block = vec![0; 4093];
    fill(&mut block, seed);
    let mut bytes = block.repeat(len.div_ceil(block.len()));
    bytes.truncate(len);
    bytes
}

pub(crate) fn ranges_of_any_length_arrive_and_are_counted_once(provider: &RailUnderTest) {
    // Beyond the longest operation of the rail shm, whose operations overtake each other.
    const LONG: usize = (17 << 20) + 3;
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(LONG + 100, Rights::WRITE | Rights::READ);
    let (arrived, raises) = pair.counter();
    let mut counted = 0;
    for (seed, len) in [1, 8, 4095, 16 << 10, (16 << 10) + 1, 1 << 20, LONG].into_iter().enumerate() {
        let seed = seed as u64;
        for offset in [0, 1, 100] {
            granted.write_at(offset, &[0]);
            let mut transfer =
                pair.a_to_b.write_and_count(bytes(len, seed), &remote.at(offset as u64), &raises);
            counted += 1;
            arrived.reach(counted).wait(SOON).unwrap();
            let mut there = vec![0; len];
            granted.read_at(offset, &mut there);
            let expected = bytes(len, seed);
            assert!(there == expected, "{len} bytes at {offset}");
            assert!(transfer.wait(SOON).unwrap().buffer == expected, "a vector comes back");
            if len == LONG {
                break;
            }
        }
        let into = pair.a.allocate(len).wait(SOON).unwrap();
        granted.write_at(3, &bytes(len, seed + 50));
        let read = pair.a_to_b.read(&remote.range(3..3 + len as u64), into).wait(SOON).unwrap();
        assert!(
            read.stats.bytes() == len as u64 && *read.buffer == bytes(len, seed + 50),
            "{len} bytes read"
        );
    }
    assert_eq!(arrived.reached(), counted, "each once");
}

pub(crate) fn memory_comes_back_in_the_form_in_which_it_was_given(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    for len in [100, 100_000] {
        let (granted, remote) = pair.granted(len, Rights::WRITE | Rights::READ);
        let slice: Slice = pair.a_to_b.write(pair.source(len, 1), &remote).wait(SOON).unwrap().buffer;
        let shared = pair.a_to_b.write(slice.share(), &remote).wait(SOON).unwrap().buffer;
        let buffer = Buffer::from(shared.get(1..).unwrap());
        let part = pair.a_to_b.write(buffer, &remote.at(1)).wait(SOON).unwrap().buffer;
        assert!(matches!(part, Buffer::Shared(_)) && copy_of(&granted) == *shared);

        let boxed = bytes(len, 2).into_boxed_slice();
        let start = boxed.as_ptr();
        let boxed = pair.a_to_b.write(boxed, &remote).wait(SOON).unwrap().buffer;
        assert!(boxed.as_ptr() == start && copy_of(&granted) == *boxed);

        // The length counts, and the capacity comes back.
        let mut vec = Vec::with_capacity(2 * len);
        vec.resize(len - 1, 0);
        let (start, capacity) = (vec.as_ptr(), vec.capacity());
        let vec = pair.a_to_b.read(&remote, vec).wait(SOON).unwrap().buffer;
        assert_eq!(
            (vec.as_ptr(), vec.len(), vec.capacity()),
            (start, len - 1, capacity),
            "nothing was copied"
        );
        assert!(vec == boxed[..len - 1]);
    }
}

pub(crate) fn a_refused_range_gives_its_memory_back(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let c = provider.engine("c");
    let (a_to_c, _c_to_a) = join(&pair.a, &c);
    let (granted, remote) = pair.granted(4096, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let peer = &pair.a_to_b;
    let vec = || bytes(4096, 7);
    let refused = [
        (peer.write(vec(), &remote.at(1)), ErrorKind::Argument),
        (peer.write(vec(), &remote.range(..100)), ErrorKind::Argument),
        (peer.write_and_count(vec(), &remote.at(4096), &raises), ErrorKind::Argument),
        (peer.read(&remote, vec()), ErrorKind::NotGranted),
        (a_to_c.write(vec(), &remote), ErrorKind::NotGranted),
        (a_to_c.write_and_count(vec(), &remote, &raises), ErrorKind::NotGranted),
    ];
    for (mut transfer, kind) in refused {
        let error = transfer.wait(SOON).unwrap_err();
        assert_eq!(error.error.kind(), kind, "{error}");
        assert!(error.buffer.expect("nothing was posted") == vec());
    }
    let nothing = peer.write_and_count(Vec::new(), &remote, &raises).wait(SOON).unwrap_err();
    assert!(nothing.error.kind() == ErrorKind::Argument && nothing.buffer.unwrap().is_empty());
    assert!(arrived.reached() == 0 && copy_of(&granted).iter().all(|byte| *byte == 0));

    // Also if it was granted and is no more.
    drop(granted);
    wait_for("the revoke", || {
        let late = peer.write(vec(), &remote).wait(SOON);
        late.err().map(|error| assert!(error.buffer.expect("it is back") == vec()))
    });
}

pub(crate) fn a_vector_in_flight_is_freed_after_its_transfer(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(1 << 20, Rights::WRITE | Rights::READ);
    let (arrived, raises) = pair.counter();
    for round in 1..=20 {
        drop(pair.a_to_b.write_and_count(bytes(1 << 20, round), &remote, &raises));
        drop(pair.a_to_b.read(&remote, vec![0; 1 << 17]));
        let aborted = pair.a_to_b.read(&remote, vec![0; 1 << 20]);
        aborted.abort();
        drop(aborted);
    }
    arrived.reach(20).wait(SOON).unwrap();
    // Writes of several transfers arrive in any order, so that bytes of each may be on top.
    let there = copy_of(&granted);
    let sources: Vec<_> = (1..=20).map(|round| bytes(1 << 20, round)).collect();
    let is_of_one = |at: usize| sources.iter().any(|source| source[at] == there[at]);
    assert!((0..there.len()).step_by(4093).all(is_of_one));
    // The engine ends while vectors are in flight, and before a slice that is made of one.
    let slice = Memory::from_vec(bytes(1 << 20, 1));
    pair.a.register(slice.memory()).wait(SOON).unwrap();
    let transfers: Vec<_> = (0..4).map(|_| pair.a_to_b.write(bytes(1 << 20, 3), &remote)).collect();
    let Pair { a, b, a_to_b, b_to_a } = pair;
    drop((a_to_b, a, transfers));
    drop((granted, arrived, b_to_a, b));
    let memory = slice.memory().clone();
    let slice = slice.into_vec().expect_err("a handle is left");
    drop(memory);
    let vec = wait_for("the engine's handle", {
        let mut slice = Some(slice);
        move || match slice.take()?.into_vec() {
            Ok(vec) => Some(vec),
            Err(back) => {
                slice = Some(back);
                None
            }
        }
    });
    assert!(vec == bytes(1 << 20, 1));
}

/// Within a host, a vector cannot be mapped: its grant goes over another rail, or is refused.
pub(crate) fn a_vector_is_granted_where_a_rail_can(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let mut whole = Memory::from_vec(bytes(10_000, 9));
    let tail = whole.split_off(9_001);
    let granted = whole.split_off(1_001);
    match pair.b_to_a.grant(granted, Rights::WRITE | Rights::READ).wait(SOON) {
        Err(error) => {
            let is_mapped = pair.b.rail_properties().iter().all(|rail| rail.name == "shm");
            assert!(is_mapped, "{error}");
            assert!(error.to_string().contains("not allocated by Farreach"), "{error}");
            let back = error.memory.expect("no rail keeps it").try_into_slice().expect("no key was made");
            assert!(*back == bytes(10_000, 9)[1_001..9_001]);
        }
        Ok(granted) => {
            let remote = pair.a_to_b.remote(granted.token()).wait(SOON).unwrap();
            assert_eq!(remote.len(), 8_000);
            pair.a_to_b.write(vec![0xEE; 8_000], &remote).wait(SOON).unwrap();
            let read = pair.a_to_b.read(&remote.at(7_000), vec![0; 1_000]).wait(SOON).unwrap();
            assert!(read.buffer.iter().all(|byte| *byte == 0xEE));
            let beside = (&whole[..], &tail[..]);
            assert!(beside == (&bytes(10_000, 9)[..1_001], &bytes(10_000, 9)[9_001..]), "beside the grant");
            let memory = granted.revoke(SOON).unwrap();
            assert!(memory.to_vec().iter().all(|byte| *byte == 0xEE));
        }
    }
    let error = whole.into_vec().expect_err("parts of it are missing");
    drop(error);
}

pub(crate) fn parts_of_remote_memory_are_bounded(provider: &RailUnderTest) {
    let engines = Pair::of(
        (provider.open)(super::pair::settings("a")),
        (provider.open)(Settings::new().name("b").peer_timeout(Duration::from_secs(5))),
    );
    let (granted, remote) = engines.granted(4096, Rights::WRITE);
    let part = remote.range(1000..3000);
    assert_eq!(
        (part.len(), part.at(500).len(), part.range(..=9).len(), part.range(..)),
        (2000, 1500, 10, part.clone())
    );
    assert_eq!(part.at(2000).len(), 0);
    for beyond in [(2001, u64::MAX), (u64::MAX, u64::MAX), (5, 4), (0, 2001), (0, u64::MAX)] {
        let range = beyond.0..beyond.1;
        let refused = std::panic::catch_unwind(|| part.range(range.clone()));
        assert!(refused.is_err() && part.get(range.clone()).is_none(), "{range:?}");
    }
    assert!(std::panic::catch_unwind(|| part.at(2001)).is_err());
    assert!(std::panic::catch_unwind(|| part.range(..=u64::MAX)).is_err());
    engines.a_to_b.write(vec![1; 2], &part.at(1998)).wait(SOON).unwrap();
    let there = copy_of(&granted);
    assert!(there[2998..3000] == [1, 1] && there.iter().filter(|byte| **byte != 0).count() == 2);
}

//! Pages.

use std::time::Duration;

use farreach::{Buffer, ErrorKind, PageMap, Pages, Rights};
use rand_mt::Mt;

use super::pair::{Pair, RailUnderTest, SOON, byte_at, copy_of, counter, fill, grant, join};

/// Returns this many different numbers below a bound, in random order.
fn some(random: &mut Mt, count: usize, bound: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..bound).collect();
    for place in 0..count {
        let other = place + random.next_u32() as usize % (all.len() - place);
        all.swap(place, other);
    }
    all.truncate(count);
    all
}

pub(crate) fn pages_arrive_where_the_map_says(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(8 * 4096, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let source = pair.source(8 * 4096, 1);
    let map = PageMap::of(4096).from([0, 1, 2]).to([5, 6, 1]);
    let done = pair.a_to_b.write_pages(source, &map, &remote, Some(&raises)).wait(SOON).unwrap();
    arrived.reach(3).wait(SOON).unwrap();
    assert_eq!(arrived.reached(), 3);
    let source = done.buffer.into_slice().expect("a slice was given, and a slice comes back");
    let bytes = copy_of(&granted);
    for (from, to) in [(0, 5), (1, 6), (2, 1)] {
        assert_eq!(bytes[to * 4096..][..4096], source[from * 4096..][..4096], "page {from} to {to}");
    }
    let untouched =
        [0, 2, 3, 4, 7].iter().all(|page| bytes[page * 4096..][..4096].iter().all(|byte| *byte == 0));
    assert!(untouched, "other pages were written to");
}

pub(crate) fn scattered_pages_of_many_sizes_are_there_when_the_counter_says_so(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let mut random = Mt::new(7);
    let len = 2 << 20;
    for page_len in [8_usize, 64, 1000, 4096, 65536, 1 << 20] {
        let places = (len / page_len) as u32;
        let count = (places as usize / 2).min(1500);
        // Two regions, like weights and their scales.
        for seed in [1, 2] {
            let (granted, remote) = pair.granted(len, Rights::WRITE);
            let (arrived, raises) = pair.counter();
            let from = some(&mut random, count, places);
            let to = some(&mut random, count, places);
            let map = PageMap::of(page_len as u64).from(from.clone()).to(to.clone());
            let source = pair.source(len, seed).share();
            let mut transfer = pair.a_to_b.write_pages(source, &map, &remote, Some(&raises));
            let arrival = arrived.reach(count as u64).wait(SOON);
            assert!(
                arrival.is_ok(),
                "pages of {page_len}: {arrival:?}, {:?}, {:?}",
                pair.a_to_b,
                pair.b_to_a
            );
            let bytes = copy_of(&granted);
            for (from, to) in from.iter().zip(&to) {
                let (from, to) = (*from as usize * page_len, *to as usize * page_len);
                let is_same = (0..page_len).all(|at| bytes[to + at] == byte_at((from + at) as u64, seed));
                assert!(is_same, "a page of {page_len} bytes, from {from} to {to}");
            }
            transfer.wait(SOON).unwrap();
            assert_eq!(arrived.reached(), count as u64, "counted once each");
        }
    }
}

pub(crate) fn a_shared_source_goes_to_two_peers_at_once(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let c = provider.engine("c");
    let (a_to_c, c_to_a) = join(&pair.a, &c);
    let (at_b, to_b) = pair.granted(1 << 20, Rights::WRITE);
    let (at_c, to_c) = grant(&c, &c_to_a, &a_to_c, 1 << 20, Rights::WRITE);
    let source = pair.source(1 << 20, 3).share();
    let map = PageMap::of(65536).first(16);
    let mut transfers = [(&pair.a_to_b, &to_b), (&a_to_c, &to_c)]
        .map(|(peer, to)| peer.write_pages(source.clone(), &map, to, None));
    for transfer in &mut transfers {
        let done = transfer.wait(SOON).unwrap();
        assert!(matches!(done.buffer, Buffer::Shared(_)));
    }
    assert!(copy_of(&at_b) == *source && copy_of(&at_c) == *source);
}

pub(crate) fn pages_are_read_from_where_the_map_says(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(64 * 4096, Rights::READ);
    let mut bytes = vec![0; granted.len()];
    fill(&mut bytes, 5);
    granted.write_at(0, &bytes);
    // Reading one page twice is allowed.
    let map = PageMap::of(4096).from([63, 9, 9, 10, 11, 0]).to([0, 1, 5, 2, 3, 7]);
    let into = pair.a.allocate(8 * 4096).wait(SOON).unwrap();
    let done = pair.a_to_b.read_pages(&remote, &map, into).wait(SOON).unwrap();
    let into = done.buffer.into_slice().unwrap();
    for (from, to) in map.source.indices.iter_from(0).zip(map.destination.indices.iter_from(0)) {
        let (from, to) = (from as usize * 4096, to as usize * 4096);
        assert!(into[to..][..4096] == bytes[from..][..4096], "from {from} to {to}");
    }
}

pub(crate) fn what_is_out_of_bounds_is_refused_before_it_is_posted(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(8 * 4096, Rights::WRITE);
    let source = pair.source(8 * 4096, 1);
    let half = remote.get(0..4 * 4096).unwrap();
    assert!(remote.get(4 * 4096..8 * 4096 + 1).is_none());
    let refused =
        pair.a_to_b.write_pages(source, &PageMap::of(4096).first(5), &half, None).wait(SOON).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Argument, "{refused}");
    let source = refused.buffer.expect("nothing was posted");
    let far = Pages { indices: [u32::MAX].into(), stride: u64::MAX / 2, offset: 0 };
    let map = PageMap { page_len: 4096, source: Pages::contiguous(1, 4096), destination: far };
    let refused = pair.a_to_b.write_pages(source, &map, &remote, None).wait(SOON).unwrap_err();
    let source = refused.buffer.expect("nothing was posted");
    assert!(copy_of(&granted).iter().all(|byte| *byte == 0));
    // The link works as before.
    pair.a_to_b.write_pages(source, &PageMap::of(4096).first(8), &remote, None).wait(SOON).unwrap();
}

pub(crate) fn a_transfer_that_nobody_waits_for_arrives(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(1 << 20, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let map = PageMap::of(4096).first(256);
    drop(pair.a_to_b.write_pages(pair.source(1 << 20, 4), &map, &remote, Some(&raises)));
    arrived.reach(256).wait(SOON).unwrap();
    assert!(copy_of(&granted).iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, 4)));
}

pub(crate) fn many_transfers_at_once_through_a_small_queue(provider: &RailUnderTest) {
    let open = |name| (provider.open)(super::pair::settings(name).depth(16));
    let pair = Pair::of(open("a"), open("b"));
    let (arrived, raises) = counter(&pair.b_to_a, &pair.a_to_b);
    let (granted, remote) = pair.granted(100 * 8192, Rights::WRITE);
    let source = pair.source(100 * 8192, 6).share();
    let mut transfers: Vec<_> = (0..100)
        .map(|number| {
            let part = source.get(number * 8192..(number + 1) * 8192).unwrap();
            let start = number as u64 * 8192;
            let to = remote.get(start..start + 8192).unwrap();
            pair.a_to_b.write_pages(part, &PageMap::of(64).first(128), &to, Some(&raises))
        })
        .collect();
    for transfer in &mut transfers {
        transfer.wait(SOON).unwrap();
    }
    arrived.reach(100 * 128).wait(SOON).unwrap();
    assert!(copy_of(&granted) == *source);
}

pub(crate) fn an_explanation_adds_up(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let deadline = std::time::Instant::now() + SOON;
    while pair.a_to_b.rails().len() < provider.rails {
        assert!(std::time::Instant::now() < deadline, "{:?}: {:?}", pair.a_to_b, pair.a_to_b.link_errors());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_granted, remote) = pair.granted(8 << 20, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let map = PageMap::of(16384).first(512);
    let source = pair.source(8 << 20, 1);
    let done = pair.a_to_b.write_pages(source, &map, &remote, Some(&raises)).wait(SOON).unwrap();
    arrived.reach(512).wait(SOON).unwrap();
    let stats = done.stats;
    assert_eq!((stats.pages, stats.bytes()), (512, 8 << 20), "{stats}");
    let used = stats.links.iter().filter(|share| share.bytes > 0);
    assert_eq!(used.clone().count(), provider.rails, "{stats}");
    assert!(used.clone().all(|share| share.immediates > 0), "each tells of its own pages: {stats}");
    assert!(stats.elapsed() > Duration::ZERO);
}

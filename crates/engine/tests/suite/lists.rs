//! Transfers of many regions, and transfers that are prepared.

use std::time::Duration;

use farreach::{Buffer, ErrorKind, PageMap, Prepared, Rights, Shared, Slice, TransferList};
use farreach_testkit::wait_for;

use super::pair::{Pair, RailUnderTest, SOON, byte_at, copy_of, counter, fill, join};

const PAGE: usize = 4096;

/// The ends of transfers to a grant that is revoked meanwhile: before they are begun, or after it.
const REVOKED: [ErrorKind; 2] = [ErrorKind::NotGranted, ErrorKind::Revoked];

pub(crate) fn regions_arrive_where_the_list_says(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (first, to_first) = pair.granted(64 * PAGE, Rights::WRITE);
    let (second, to_second) = pair.granted(64 * PAGE, Rights::WRITE);
    let (arrived, raises) = pair.counter();

    // Memory of every form, of lengths that are no multiples of anything.
    let whole: Slice = pair.source(1001, 1);
    let shared = pair.source(8 * PAGE, 2).share();
    let mut neighbours = pair.source(3000, 3);
    let tail = neighbours.split_off(1000);
    let places: Vec<_> = [&whole, &neighbours, &tail].map(|slice| slice.address()).into();
    let map = PageMap::of(PAGE as u64).from([7, 0, 3]).to([1, 9, 2]);

    let mut list = TransferList::with_capacity(5);
    list.push(Buffer::from(whole), &to_first.at(5 * PAGE as u64 + 1));
    list.push_pages(Buffer::from(shared.clone()), &map, &to_second.at(10));
    list.push(Buffer::from(neighbours), &to_first);
    list.push(Buffer::from(tail), &to_first.at(1000));
    list.push(Buffer::from(shared.get(5..10).unwrap()), &to_second.range(2..7));
    assert_eq!((list.len(), list.segments(), list.is_empty()), (5, 7, false));
    let done = pair.a_to_b.write_list(list, Some(&raises)).wait(SOON).unwrap();

    arrived.reach(7).wait(SOON).unwrap();
    let there = copy_of(&first);
    assert!((0..1001).all(|at| there[5 * PAGE + 1 + at] == byte_at(at as u64, 1)));
    assert!((0..3000).all(|at| there[at] == byte_at(at as u64, 3)));
    assert!(there[3000..=5 * PAGE].iter().chain(&there[5 * PAGE + 1002..]).all(|byte| *byte == 0));
    let there = copy_of(&second);
    for (from, to) in [(7, 1), (0, 9), (3, 2)] {
        assert_eq!(there[10 + to * PAGE..][..PAGE], shared[from * PAGE..][..PAGE], "page {from}");
    }
    assert_eq!(there[2..7], shared[5..10]);

    // In the form and the order in which it was given.
    assert_eq!(done.stats.bytes(), 1001 + 3 * PAGE as u64 + 3000 + 5);
    let slices: Vec<_> = [0, 2, 3].map(|place| &done.buffer[place]).into();
    assert_eq!(slices.iter().map(|buffer| buffer.address()).collect::<Vec<_>>(), places);
    assert!(slices.iter().all(|buffer| matches!(buffer, Buffer::Slice(_))), "{slices:?}");
    let lens: Vec<_> = done.buffer.iter().map(Buffer::len).collect();
    assert_eq!(lens, [1001, 8 * PAGE, 1000, 2000, 5]);
    assert_eq!(arrived.reached(), 7, "each segment once");
}

pub(crate) fn regions_are_read_into_their_memory(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (first, of_first) = pair.granted(16 * PAGE, Rights::READ);
    let (second, of_second) = pair.granted(300, Rights::READ);
    let mut bytes = vec![0; 16 * PAGE];
    fill(&mut bytes, 4);
    first.write_at(0, &bytes);
    second.write_at(0, &bytes[..300]);

    // The same bytes may be read twice.
    let mut list = TransferList::<Vec<u8>>::new();
    list.push(vec![0; 299], &of_second.at(1));
    list.push(vec![0; 299], &of_second.at(1));
    list.push_pages(vec![0; 4 * PAGE], &PageMap::of(PAGE as u64).from([3, 15]).to([1, 0]), &of_first);
    list.push(vec![0; 7], &of_first.range(99..));
    let read = pair.a_to_b.read_list(list).wait(SOON).unwrap().buffer;
    assert!(read[0] == bytes[1..300] && read[1] == bytes[1..300]);
    assert!(read[2][..PAGE] == bytes[15 * PAGE..] && read[2][PAGE..2 * PAGE] == bytes[3 * PAGE..4 * PAGE]);
    assert!(read[2][2 * PAGE..].iter().all(|byte| *byte == 0) && read[3] == bytes[99..106]);
}

pub(crate) fn ten_thousand_segments_are_one_transfer(provider: &RailUnderTest) {
    const COUNT: usize = 10_000;
    let pair = Pair::new(provider);
    // Of 1 to 97 bytes, in places of 128 bytes of two grants, in no order.
    let grants = [1, 2].map(|_| pair.granted(COUNT * 128, Rights::WRITE));
    let (arrived, raises) = pair.counter();
    let place = |number: usize| number * 7919 % COUNT;
    let len = |number: usize| 1 + number % 97;
    let mut rest = pair.source(COUNT * 97, 5);
    let mut list = TransferList::<Slice>::with_capacity(COUNT);
    for number in 0..COUNT {
        list.push(rest.split_to(len(number)), &grants[number % 2].1.at(place(number) as u64 * 128));
    }
    let done = pair.a_to_b.write_list(list, Some(&raises)).wait(SOON).unwrap();
    arrived.reach(COUNT as u64).wait(SOON).unwrap();
    let there = [copy_of(&grants[0].0), copy_of(&grants[1].0)];
    let mut bytes = 0;
    for (number, slice) in done.buffer.iter().enumerate() {
        let at = &there[number % 2][place(number) * 128..][..len(number)];
        assert!(**slice == *at, "segment {number}");
        bytes += slice.len();
    }
    let there: usize = there.iter().map(|bytes| bytes.iter().filter(|byte| **byte != 0).count()).sum();
    assert!(there <= bytes && there > bytes / 2, "{there} of {bytes}");
    assert_eq!((done.buffer.len(), arrived.reached()), (COUNT, COUNT as u64));
}

pub(crate) fn a_refused_list_gives_its_memory_back(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let c = provider.engine("c");
    let (a_to_c, c_to_a) = join(&pair.a, &c);
    let (granted, remote) = pair.granted(2 * PAGE, Rights::WRITE);
    let (_kept, readable) = pair.granted(2 * PAGE, Rights::READ);
    let (_of_c, of_c) = counter(&c_to_a, &a_to_c);
    let (arrived, raises) = pair.counter();
    let list = |regions: &[(usize, u64)]| {
        let mut list = TransferList::<Vec<u8>>::new();
        for (len, at) in regions {
            list.push(vec![9; *len], &remote.at(*at));
        }
        list
    };
    let two = [(100, 0), (200, 100)];
    let (page, pages) = (PageMap::of(PAGE as u64), 2 * PAGE);
    let with_pages = |map: &PageMap, own: usize| {
        let mut list = list(&two);
        list.push_pages(vec![9; own], map, &remote);
        list
    };
    let mut readable_too = list(&two);
    readable_too.push(vec![9; 5], &readable);
    let refused = [
        (pair.a_to_b.write_list(list(&[]), Some(&raises)), ErrorKind::Argument, 0),
        (pair.a_to_b.write_list(list(&[(100, 0), (0, 5)]), Some(&raises)), ErrorKind::Argument, 2),
        (pair.a_to_b.write_list(list(&[(100, 0), (200, 99)]), Some(&raises)), ErrorKind::Argument, 2),
        (pair.a_to_b.write_list(list(&[(100, 0), (PAGE, PAGE as u64 + 1)]), None), ErrorKind::Argument, 2),
        (pair.a_to_b.write_list(with_pages(&page.clone().first(1), pages), None), ErrorKind::Argument, 3),
        (
            pair.a_to_b.write_list(with_pages(&page.clone().from([2]).to([1]), pages), None),
            ErrorKind::Argument,
            3,
        ),
        (
            pair.a_to_b.write_list(with_pages(&page.clone().from([0]).to([2]), pages), None),
            ErrorKind::Argument,
            3,
        ),
        (pair.a_to_b.write_list(readable_too, Some(&raises)), ErrorKind::NotGranted, 3),
        (pair.a_to_b.write_list(list(&two), Some(&of_c)), ErrorKind::NotGranted, 2),
        (pair.a_to_b.read_list(list(&two)), ErrorKind::NotGranted, 2),
        (a_to_c.write_list(list(&two), None), ErrorKind::NotGranted, 2),
    ];
    for (place, (mut transfer, kind, regions)) in refused.into_iter().enumerate() {
        let error = transfer.wait(SOON).unwrap_err();
        assert_eq!(error.error.kind(), kind, "{place}: {error}");
        let back = error.buffer.as_ref().expect("nothing was posted");
        assert!(back.len() == regions && back.concat().iter().all(|byte| *byte == 9), "{place}: {error}");
    }
    assert!(arrived.reached() == 0 && copy_of(&granted).iter().all(|byte| *byte == 0));
    // What is refused has no effect on what follows.
    pair.a_to_b.write_list(list(&two), Some(&raises)).wait(SOON).unwrap();
    arrived.reach(2).wait(SOON).unwrap();
}

pub(crate) fn a_list_ends_with_the_first_grant_that_is_revoked(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_kept, to_kept) = pair.granted(64 * PAGE, Rights::WRITE);
    let (revoked, to_revoked) = pair.granted(64 * PAGE, Rights::WRITE);
    let list = || {
        let mut list = TransferList::<Shared>::new();
        list.push(pair.source(64 * PAGE, 6).share(), &to_kept);
        list.push(pair.source(64 * PAGE, 7).share(), &to_revoked);
        list
    };
    let mut transfers: Vec<_> = (0..4).map(|_| pair.a_to_b.write_list(list(), None)).collect();
    let prepared = pair.a_to_b.prepare_write(list(), None).wait(SOON).unwrap();
    let (all, mut started) = (prepared.all().unwrap(), Vec::new());
    (0..4).for_each(|_| started.push(prepared.start(&all)));
    // The grant comes back when nothing can write to it any more.
    let memory = revoked.revoke(SOON).unwrap().to_vec();
    for transfer in &mut transfers {
        let back = match transfer.wait(SOON) {
            Ok(done) => done.buffer,
            Err(error) => {
                assert!(REVOKED.contains(&error.error.kind()), "{error}");
                error.buffer.expect("no card keeps it")
            }
        };
        assert!(back.len() == 2 && back.iter().all(|shared| shared.len() == 64 * PAGE));
    }
    for start in &mut started {
        let kind = start.wait(SOON).map_or_else(|error| Some(error.error.kind()), |_| None);
        assert!(kind.is_none_or(|kind| REVOKED.contains(&kind)), "{kind:?}");
    }
    assert!(memory.iter().enumerate().all(|(at, byte)| [0, byte_at(at as u64, 7)].contains(byte)));
    // Later starts end at once, and segments of the other grant still arrive.
    let late = prepared.start(&all).wait(SOON).unwrap_err();
    assert_eq!(late.error.kind(), ErrorKind::NotGranted, "{late}");
    let late = pair.a_to_b.prepare_write(list(), None).wait(SOON).unwrap_err();
    assert_eq!((late.error.kind(), late.buffer.map(|back| back.len())), (ErrorKind::NotGranted, Some(2)));
    assert_eq!(prepared.finish().wait(SOON).unwrap().len(), 2);
}

pub(crate) fn a_prepared_write_starts_many_times_at_once(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(64 * PAGE, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let (first, second) = (pair.source(32 * PAGE, 1).share(), pair.source(100, 2).share());
    let mut list = TransferList::new();
    list.push_pages(first.clone(), &PageMap::of(PAGE as u64).first(32), &remote);
    list.push(second.clone(), &remote.at(40 * PAGE as u64));
    let prepared = pair.a_to_b.prepare_write(list, Some(&raises)).wait(SOON).unwrap();
    assert_eq!((prepared.regions(), prepared.segments()), (2, 33));
    assert!(prepared.memory(0)[..] == first[..] && prepared.memory(1)[..] == second[..]);

    let (some, all) = (prepared.subset(&[32, 3, 31]).unwrap(), prepared.all().unwrap());
    let mut starts: Vec<_> = (0..10).map(|_| prepared.start(&some)).collect();
    starts.iter_mut().for_each(|start| drop(start.wait(SOON).unwrap()));
    arrived.reach(30).wait(SOON).unwrap();
    let there = copy_of(&granted);
    for (page, is_there) in [(0, false), (3, true), (30, false), (31, true)] {
        assert_eq!(there[page * PAGE..][..PAGE] == first[page * PAGE..][..PAGE], is_there, "page {page}");
    }
    assert!(there[40 * PAGE..][..100] == *second);
    // Also those that nobody waits for are counted, and end before `finish` returns the memory.
    (0..20).for_each(|_| drop(prepared.start(&all)));
    let back: Vec<Shared> = prepared.finish().wait(SOON).unwrap();
    assert!(back.len() == 2 && *back[0] == *first && *back[1] == *second);
    arrived.reach(30 + 20 * 33).wait(SOON).unwrap();
    assert!(copy_of(&granted)[..32 * PAGE] == *first && arrived.reached() == 30 + 20 * 33);
}

pub(crate) fn a_prepared_read_gives_its_memory_back_at_the_end(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(64 * PAGE, Rights::READ);
    let mut list = TransferList::<Slice>::new();
    for region in 0..4 {
        // In the reverse order.
        let part = remote.at((3 - region) * 16 * PAGE as u64);
        list.push_pages(
            pair.a.allocate(16 * PAGE).wait(SOON).unwrap(),
            &PageMap::of(PAGE as u64).first(16),
            &part,
        );
    }
    let prepared = pair.a_to_b.prepare_read(list).wait(SOON).unwrap();
    let (all, mut bytes) = (prepared.all().unwrap(), vec![0; 64 * PAGE]);
    for round in 0..5 {
        fill(&mut bytes, round);
        granted.write_at(0, &bytes);
        prepared.start(&all).wait(SOON).unwrap();
        for region in 0..4 {
            let mut read = vec![0; 16 * PAGE];
            prepared.memory(region).read_at(0, &mut read);
            assert!(read == bytes[(3 - region) * 16 * PAGE..][..16 * PAGE], "round {round}, region {region}");
        }
    }
    // Bytes may be copied out while starts run; they are of one of the rounds.
    let starts: Vec<_> = (0..20).map(|_| prepared.start(&all)).collect();
    let mut read = vec![0; 16 * PAGE];
    prepared.memory(2).read_at(0, &mut read);
    assert!(read == bytes[16 * PAGE..][..16 * PAGE]);
    drop(starts);
    let memory: Vec<Slice> = prepared.finish().wait(SOON).unwrap();
    for (region, slice) in memory.iter().enumerate() {
        assert!(**slice == bytes[(3 - region) * 16 * PAGE..][..16 * PAGE]);
    }
}

pub(crate) fn subsets_are_checked_when_they_are_made(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(64 * PAGE, Rights::WRITE | Rights::READ);
    let prepared = |at: [u64; 3]| {
        let mut list = TransferList::<Shared>::new();
        let memory = pair.source(PAGE, 1).share();
        at.into_iter().for_each(|at| list.push(memory.clone(), &remote.at(at)));
        pair.a_to_b.prepare_write(list, None).wait(SOON).unwrap()
    };
    // The last two overlap: that is an error only for a subset with both.
    let (one, other) = (prepared([0, 10_000, 14_000]), prepared([0, 10_000, 20_000]));
    let kind = |prepared: &Prepared<Shared>, segments: &[u32]| {
        prepared.subset(segments).map_or_else(|error| Some(error.kind()), |_| None)
    };
    let argument = Some(ErrorKind::Argument);
    assert_eq!(kind(&one, &[0, 1]), None);
    assert_eq!(kind(&one, &[2, 0]), None);
    assert_eq!((kind(&one, &[2, 0, 1]), kind(&one, &[0, 0])), (argument, argument));
    assert_eq!(
        (kind(&one, &[]), kind(&one, &[3]), kind(&one, &[0, u32::MAX])),
        (argument, argument, argument)
    );
    assert!(one.all().is_err() && other.all().is_ok());
    let theirs = other.subset(&[1]).unwrap();
    let mixed = one.start(&theirs).wait(SOON).unwrap_err();
    assert!(mixed.error.kind() == ErrorKind::Argument && mixed.buffer.is_none(), "{mixed}");
    other.start(&theirs).wait(SOON).unwrap();
}

pub(crate) fn a_prepared_transfer_ends_with_its_peer(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(256 * PAGE, Rights::READ);
    let mut list = TransferList::<Slice>::new();
    list.push(pair.a.allocate(256 * PAGE).wait(SOON).unwrap(), &remote);
    let prepared = pair.a_to_b.prepare_read(list).wait(SOON).unwrap();
    let all = prepared.all().unwrap();
    let mut starts: Vec<_> = (0..8).map(|_| prepared.start(&all)).collect();
    let Pair { a: _a, b, a_to_b, b_to_a } = pair;
    drop((granted, b_to_a, b));
    // Some may be done, and the others end with a reason; nothing hangs.
    for start in &mut starts {
        if let Err(error) = start.wait(SOON) {
            let kind = error.error.kind();
            assert!(kind == ErrorKind::PeerLost || REVOKED.contains(&kind), "{error}");
        }
    }
    wait_for("the loss of the peer", || a_to_b.lost().map(drop));
    let late = prepared.start(&all).wait(SOON).unwrap_err();
    assert_eq!(late.error.kind(), ErrorKind::PeerLost, "{late}");
    // A card may still have a part that it was to fill from the lost peer. That comes back to the engine.
    match prepared.finish().wait(SOON) {
        Ok(memory) => assert_eq!(memory[0].len(), 256 * PAGE),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Rail, "{error}"),
    }
}

/// Whatever is dropped, and whenever, the engine gives the memory up when its transfers are over.
pub(crate) fn a_prepared_transfer_may_be_dropped_at_any_point(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(256 * PAGE, Rights::WRITE);
    let mut memory = pair.source(256 * PAGE, 1);
    for round in 0..12 {
        let shared = memory.share();
        let mut list = TransferList::new();
        list.push(shared.clone(), &remote);
        let mut preparing = pair.a_to_b.prepare_write(list, None);
        if round % 4 == 0 {
            drop(preparing);
        } else {
            let prepared = preparing.wait(SOON).unwrap();
            let all = prepared.all().unwrap();
            let starts: Vec<_> = (0..4).map(|_| prepared.start(&all)).collect();
            match round % 4 {
                1 => drop((prepared, starts)),
                2 => {
                    let mut finishing = prepared.finish();
                    drop(finishing.wait(Duration::ZERO));
                    drop((finishing, starts));
                }
                _ => {
                    starts.iter().for_each(|start| start.abort());
                    assert_eq!(prepared.finish().wait(SOON).unwrap()[0].len(), 256 * PAGE);
                }
            }
        }
        let mut shared = Some(shared);
        memory = wait_for("the engine's handles", || match shared.take()?.try_unshare() {
            Ok(slice) => Some(slice),
            Err(back) => {
                shared = Some(back);
                None
            }
        });
    }
}

//! Handles of a peer with a priority or a deadline.

use std::time::{Duration, Instant};

use farreach::{ErrorKind, PageMap, Peer, Priority, Rights, Shared, Slice, TransferError, TransferList};

use super::pair::{Pair, RailUnderTest, SOON};

const LEN: usize = 4 << 20;

/// Checks an error of a transfer whose deadline had passed when it began, and returns its memory.
fn late<B>(error: TransferError<B>) -> B {
    let TransferError { error, buffer, stats, .. } = error;
    assert_eq!(error.kind(), ErrorKind::DeadlinePassed, "{error:?}");
    assert!(!error.fix().is_empty() && stats.delivered == 0);
    buffer.expect("no card has had it")
}

pub(crate) fn a_deadline_that_has_passed_refuses_every_transfer(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(64 << 10, Rights::WRITE | Rights::READ);
    granted.write_at(0, b"as it was");
    let hasty = pair.a_to_b.with_deadline(Duration::ZERO).with_priority(Priority::Urgent);
    for len in [8, 64 << 10] {
        let source = pair.source(len, 1);
        let first = source.to_vec();
        let source: Slice = late(hasty.write(source, &remote).wait(SOON).unwrap_err());
        assert!(*source == first);
        let source = late(hasty.read(&remote, source).wait(SOON).unwrap_err());
        let map = PageMap::of(len as u64).first(1);
        let buffer = late(hasty.write_pages(source, &map, &remote, None).wait(SOON).unwrap_err());
        let source = buffer.into_slice().expect("it was given as a slice");
        let buffer = late(hasty.read_pages(&remote, &map, source).wait(SOON).unwrap_err());
        let source = buffer.into_slice().expect("it was given as a slice");
        let mut list = TransferList::new();
        list.push(source, &remote);
        let mut memory: Vec<Slice> = late(hasty.write_list(list, None).wait(SOON).unwrap_err());
        let source = memory.pop().unwrap();
        assert!(*source == first, "nothing was read");
        let mut list = TransferList::new();
        list.push(source.share(), &remote);
        let prepared = hasty.prepare_write(list, None).wait(SOON).unwrap();
        let start = prepared.start(&prepared.all().unwrap()).wait(SOON).unwrap_err();
        assert_eq!(start.error.kind(), ErrorKind::DeadlinePassed);
        assert_eq!(prepared.finish().wait(SOON).unwrap().len(), 1);
    }
    let mut bytes = [0; 9];
    granted.read_at(0, &mut bytes);
    assert_eq!(&bytes, b"as it was");
    // Messages have no deadline.
    hasty.send("hello").wait(SOON).unwrap();
    assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), b"hello");
}

pub(crate) fn a_deadline_ends_a_transfer_and_gives_its_memory_back(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(LEN, Rights::WRITE);
    let (source, mut late) = (pair.source(LEN, 1).share(), 0);
    for micros in [1, 30, 1000, 30_000] {
        // Of a bulk transfer, 2 MiB are in flight: at no time all of it.
        let bulk = pair.a_to_b.with_priority(Priority::Bulk);
        let hasty = bulk.with_deadline(Duration::from_micros(micros));
        let (arrived, raises) = pair.counter();
        let begin = Instant::now();
        let write = |_| hasty.write_and_count(source.clone(), &remote, &raises);
        let mut transfers: Vec<_> = (0..6).map(write).collect();
        let (mut done, late_before) = (0, late);
        for transfer in &mut transfers {
            let (buffer, stats) = match transfer.wait(SOON) {
                Ok(it) => {
                    done += 1;
                    assert_eq!(it.stats.delivered, LEN as u64);
                    (it.buffer, Box::new(it.stats))
                }
                Err(TransferError { error, buffer, stats, .. }) => {
                    late += 1;
                    assert_eq!(error.kind(), ErrorKind::DeadlinePassed, "{error:?}");
                    assert!(stats.delivered < LEN as u64 && begin.elapsed().as_micros() >= micros.into());
                    (buffer.expect("it is back"), stats)
                }
            };
            assert!(buffer.len() == LEN && stats.delivered <= stats.bytes());
        }
        if late > late_before {
            let ended = arrived.reach(7).wait(SOON).unwrap_err();
            assert_eq!(ended.kind(), ErrorKind::Aborted);
        } else {
            arrived.reach(done).wait(SOON).unwrap();
        }
    }
    // Nothing copies so much in a microsecond. But what a card has copied within the step in which the
    // deadline passes is done, and simulated cards copy all of it in one.
    assert!(late > 0);
    pair.a_to_b.write(source, &remote).wait(SOON).unwrap();
}

/// Beside bulk transfers, of which few bytes are in flight. Tests of the machine have the other
/// priorities.
pub(crate) fn an_urgent_transfer_is_done_before_large_ones_that_began_earlier(provider: &RailUnderTest) {
    const AT_ONCE: usize = 32;
    const PART: usize = LEN / 8;
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(PART, Rights::WRITE | Rights::READ);
    let source: Shared = pair.source(PART, 1).share();
    let (bulk, urgent) =
        (pair.a_to_b.with_priority(Priority::Bulk), pair.a_to_b.with_priority(Priority::Urgent));
    // The thread may be interrupted, and the worker moves the rest meanwhile: beside other programs, many times in
    // a row.
    let until = Instant::now() + SOON;
    let overtakes = || {
        let mut large: Vec<_> = (0..AT_ONCE).map(|_| bulk.write(source.clone(), &remote)).collect();
        let read = urgent.read(&remote, vec![0; 4096]).wait(SOON).unwrap();
        assert_eq!(read.stats.delivered, 4096);
        let left = large.iter_mut().filter_map(|it| it.try_take().is_none().then_some(it));
        let left: Vec<_> = left.collect();
        // More than what is in flight, which is posted already if it does not overtake.
        let is_early = left.len() > AT_ONCE / 4;
        for transfer in left {
            transfer.wait(SOON).unwrap();
        }
        is_early
    };
    while !overtakes() {
        assert!(Instant::now() < until, "no urgent transfer is done before most of the large ones");
    }
}

pub(crate) fn a_handle_with_other_terms_is_the_same_peer(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let others: [Peer; 2] = [
        pair.a_to_b.with_priority(Priority::Bulk),
        pair.a_to_b.with_deadline(Duration::MAX).with_priority(Priority::Urgent),
    ];
    let (_granted, remote) = pair.granted(4096, Rights::WRITE);
    for other in &others {
        assert_eq!((other.id(), other.name()), (pair.a_to_b.id(), "b"));
        other.write(vec![1; 4096], &remote).wait(SOON).unwrap();
        other.write(vec![1; 8], &remote).wait(SOON).unwrap();
    }
    let [first, second] = others;
    first.close(SOON).unwrap();
    assert!(second.lost().is_some() && pair.a_to_b.lost().is_some());
}

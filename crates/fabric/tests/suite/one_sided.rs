//! One-sided access: write, read, atomics, and the guarantees of completions.

use std::time::{Duration, Instant};

use farreach_fabric::{Event, OperationKind, PostError, Proof, Refusal, TransmitRequest};
use farreach_memory::{Buffer, Memory};

use super::pair::{A, B, Pair, Provider, copy, pattern, vouched};

const IMMEDIATE: u64 = 0xfa77_eac4;

pub(crate) fn a_write_with_immediate_has_landed_when_its_target_is_told(provider: &Provider) {
    let mut pair = Pair::open(provider);
    // More than any provider sends eagerly.
    let data = pattern(3, 40_000);
    let region = pair[B].expose(65_536);
    let place = vouched(region.remote()).get(100, data.len() as u64).unwrap();
    let buffers: Vec<Buffer> =
        vec![pair[A].slice(&data[..10_000]).into(), pair[A].slice(&data[10_000..]).into()];
    let request = TransmitRequest::write(buffers, &pair[A].peer(), place).immediate(IMMEDIATE).tag(5);
    pair.post(A, request);

    assert_eq!(pair.written(B).immediate, IMMEDIATE);
    assert_eq!(copy(&region, 100, data.len()), data);
    assert_eq!(copy(&region, 0, 100), [0; 100], "nothing before it");
    assert_eq!(copy(&region, 40_100, 100), [0; 100], "nothing behind it");

    let written = pair.completion(A);
    assert_eq!((written.tag(), written.kind()), (5, OperationKind::Write));
    assert_eq!(written.outcome().as_ref().unwrap().proof, Proof::Sent, "nothing more was asked for");
    assert_eq!(written.into_buffers().len(), data.len());
    pair.assert_quiet();
}

pub(crate) fn a_write_without_immediate_is_silent_at_its_target(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let data = pattern(4, 256);
    let region = pair[B].expose(4096);
    let request = TransmitRequest::write(pair[A].slice(&data), &pair[A].peer(), vouched(region.remote()));
    pair.post(A, request);
    pair.success(A);
    // A completion at the sender does not prove that the bytes have landed.
    farreach_testkit::wait_for("landing", || {
        pair.progress();
        (copy(&region, 0, data.len()) == data).then_some(())
    });
    pair.assert_quiet();
}

pub(crate) fn a_delivered_write_is_there_when_it_completes(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let data = pattern(6, 30_000);
    let region = pair[B].expose(65_536);
    let place = vouched(region.remote());
    let request = TransmitRequest::write(pair[A].slice(&data), &pair[A].peer(), place).delivered();
    if !pair[A].domain.delivers() {
        let Err(PostError { reason, .. }) = pair[A].endpoint.post(request) else {
            panic!("delivery is not supported")
        };
        assert!(matches!(reason, Refusal::Unsupported(_)), "{reason}");
        return;
    }
    // The first one connects, which needs both sides.
    pair.post(A, request);
    assert_eq!(pair.success(A).0.proof, Proof::Delivered);
    assert_eq!(copy(&region, 0, data.len()), data);

    let data = pattern(7, 30_000);
    let request = TransmitRequest::write(pair[A].slice(&data), &pair[A].peer(), place).delivered();
    pair.post(A, request);
    // The target does not poll, so the write is not delivered; if it is reported as delivered, the
    // bytes must be there.
    let end = Instant::now() + Duration::from_millis(300);
    let mut told = None;
    while told.is_none() && Instant::now() < end {
        told = pair[A].cq.poller().poll().unwrap().next().map(Event::into_owned);
        if told.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(told.is_none() || copy(&region, 0, data.len()) == data, "it was said to be there");
    assert_eq!(told.is_some(), provider.delivers_unpolled, "{told:?}");
    let completion = match told {
        Some(Event::Completed(completion)) => completion,
        Some(other) => panic!("{other:?}"),
        None => pair.completion(A),
    };
    assert_eq!(completion.outcome().as_ref().unwrap().proof, Proof::Delivered);
    assert_eq!(copy(&region, 0, data.len()), data);
    pair.assert_quiet();
}

pub(crate) fn a_read_brings_the_peers_memory(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let data = pattern(5, 40_000);
    let region = pair[B].expose(65_536);
    region.bytes().write_at(200, &data);
    let place = vouched(region.remote()).get(200, data.len() as u64).unwrap();
    let mut rest = pair[A].domain.allocate(data.len()).unwrap();
    let first = rest.split_to(12_345);
    let request = TransmitRequest::read_scattered(vec![first, rest], &pair[A].peer(), place).tag(6);
    pair.post(A, request);
    let done = pair.completion(A);
    assert_eq!((done.tag(), done.kind()), (6, OperationKind::Read));
    assert_eq!(done.outcome().as_ref().unwrap().proof, Proof::Delivered);
    let bytes: Vec<u8> =
        done.into_buffers().into_list().iter().flat_map(|buffer| buffer.bytes().unwrap().to_vec()).collect();
    assert_eq!(bytes, data);
    pair.assert_quiet();
}

pub(crate) fn an_injected_write_lands(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let data = pattern(8, pair[A].domain.info().inject_size().min(48));
    let region = pair[B].expose(4096);
    let (peer, place) = (pair[A].peer(), vouched(region.remote()).get(64, 48).unwrap());
    let told = Some(IMMEDIATE);
    while let Err(reason) = pair[A].endpoint.inject_write(&data, &peer, place, told) {
        assert!(matches!(reason, Refusal::QueueFull { .. }), "{reason}");
        pair.progress();
    }
    assert_eq!(pair.written(B).immediate, IMMEDIATE);
    assert_eq!(copy(&region, 64, data.len()), data);
    pair.assert_quiet();
}

pub(crate) fn atomics_are_there_where_the_endpoint_says_so(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let atomics = pair[A].endpoint.atomics();
    assert_eq!((atomics.fetch_add, atomics.compare_swap), (provider.has_atomics, provider.has_atomics));
    let region = pair[B].expose(4096);
    let word = vouched(region.remote()).get(64, 8).unwrap();
    let slice = pair[A].domain.allocate(8).unwrap();
    let peer = pair[A].peer();
    if !atomics.fetch_add {
        let refused = pair[A].endpoint.post(TransmitRequest::fetch_add(slice, &peer, word, 1)).unwrap_err();
        assert!(matches!(refused.reason, Refusal::Unsupported(_)), "{}", refused.reason);
        assert_eq!(refused.request.into_buffers().len(), 8);
        return;
    }
    region.bytes().write_at(64, &40_u64.to_ne_bytes());
    let value = |pair: &mut Pair| {
        let slice = pair.success(A).1.into_slice().unwrap();
        (u64::from_ne_bytes((*slice).try_into().unwrap()), slice)
    };
    pair.post(A, TransmitRequest::fetch_add(slice, &peer, word, 2));
    let (old, slice) = value(&mut pair);
    assert_eq!((old, copy(&region, 64, 8)), (40, 42_u64.to_ne_bytes().to_vec()));

    pair.post(A, TransmitRequest::compare_swap(slice, &peer, word, 41, 7));
    let (old, slice) = value(&mut pair);
    assert_eq!((old, copy(&region, 64, 8)), (42, 42_u64.to_ne_bytes().to_vec()), "it was not 41");
    pair.post(A, TransmitRequest::compare_swap(slice, &peer, word, 42, 7));
    let (old, slice) = value(&mut pair);
    assert_eq!((old, copy(&region, 64, 8)), (42, 7_u64.to_ne_bytes().to_vec()));

    let unaligned = vouched(region.remote()).get(3, 8).unwrap();
    let refused = pair[A].endpoint.post(TransmitRequest::fetch_add(slice, &peer, unaligned, 1)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::NotEightAlignedBytes), "{}", refused.reason);
    let long = Memory::allocate(16).unwrap();
    let refused = pair[A].endpoint.post(TransmitRequest::fetch_add(long, &peer, word, 1)).unwrap_err();
    assert!(
        matches!(refused.reason, Refusal::NotEightAlignedBytes | Refusal::NotRegistered),
        "{}",
        refused.reason
    );
    pair.assert_quiet();
}

//! Messages: sent, injected, too long, many.

use farreach_fabric::{OperationKind, Proof, ReceiveRequest, TransmitRequest};
use farreach_memory::{Buffer, Buffers};

use super::pair::{A, B, Pair, Provider, pattern, vouched};

const IMMEDIATE: u64 = 0xfa77_eac4;

pub(crate) fn a_message_arrives_with_its_length_and_immediate(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let data = pattern(1, 3000);
    let mut rest = pair[B].domain.allocate(4096).unwrap();
    let first = rest.split_to(1000);
    pair[B].endpoint.post_receive(ReceiveRequest::scattered(vec![first, rest]).tag(9)).unwrap();

    // Two buffers, of which one is shared.
    let (head, tail) = (pair[A].slice(&data[..700]), pair[A].slice(&data[700..]).share());
    let kept = tail.clone();
    let buffers: Vec<Buffer> = vec![head.into(), tail.into()];
    let request = TransmitRequest::send(buffers, &pair[A].peer()).immediate(IMMEDIATE).tag(4);
    pair.post(A, request);

    let sent = pair.completion(A);
    assert_eq!((sent.tag(), sent.kind()), (4, OperationKind::Send));
    assert_eq!(sent.outcome().as_ref().unwrap().proof, Proof::Sent);
    assert_eq!(sent.into_buffers().count(), 2);
    assert_eq!(*kept, data[700..]);

    let received = pair.completion(B);
    assert_eq!((received.tag(), received.kind()), (9, OperationKind::Receive));
    let (success, buffers) = received.into_parts();
    let success = success.unwrap();
    assert_eq!((success.len, success.immediate), (data.len(), Some(IMMEDIATE)));
    assert_eq!(success.proof, Proof::Delivered, "it is in the buffers");
    let bytes: Vec<u8> =
        buffers.into_list().iter().flat_map(|buffer| buffer.bytes().unwrap().to_vec()).collect();
    assert_eq!(bytes[..data.len()], data);
    pair.assert_quiet();
}

pub(crate) fn an_empty_message_and_an_empty_write_arrive(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let region = pair[B].expose(64);
    let (peer, room) = (pair[A].peer(), pair[B].domain.allocate(64).unwrap());
    pair.post_receive(B, room);
    pair.post(A, TransmitRequest::send(Buffers::None, &peer).immediate(IMMEDIATE));
    let (success, buffers) = pair.success(B);
    assert_eq!((success.len, success.immediate, buffers.len()), (0, Some(IMMEDIATE), 64));
    assert!(pair.success(A).1.is_empty());

    pair.post(
        A,
        TransmitRequest::write(Buffers::None, &peer, vouched(region.remote())).immediate(IMMEDIATE + 1),
    );
    assert_eq!(pair.written(B).immediate, IMMEDIATE + 1);
    assert!(pair.success(A).1.is_empty());
    pair.assert_quiet();
}

pub(crate) fn an_injected_message_arrives_without_a_completion(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let len = pair[A].domain.info().inject_size().min(48);
    assert!(len >= 8, "the provider injects {len} bytes");
    let mut data = pattern(2, len);
    let expected = data.clone();
    let room = pair[B].domain.allocate(64).unwrap();
    pair.post_receive(B, room);
    let peer = pair[A].peer();
    while pair[A].endpoint.inject(&data, &peer, None).is_err() {
        pair.progress();
    }
    data.fill(0);
    let (success, buffers) = pair.success(B);
    assert_eq!(success.len, len);
    assert_eq!(buffers.into_slice().unwrap()[..len], expected);
    pair.assert_quiet();
}

pub(crate) fn a_message_longer_than_its_room_is_told_and_the_room_comes_back(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let room = pair[B].domain.allocate(100).unwrap();
    pair.post_receive(B, room);
    let request = TransmitRequest::send(pair[A].slice(&pattern(3, 1000)), &pair[A].peer());
    pair.post(A, request);
    let (failure, buffers) = pair.failure(B);
    assert_eq!(failure.operation, Some(OperationKind::Receive));
    assert!(failure.cause().contains("longer than the buffers"), "{failure}: {}", failure.cause());
    assert!(!failure.text.is_empty() && failure.fix().contains("larger buffers"), "{failure:?}");
    assert_eq!(buffers.into_slice().unwrap().len(), 100);
    // The sender learns of it if the provider reports it; its buffer comes back in any case.
    assert_eq!(pair.completion(A).into_buffers().len(), 1000);
}

pub(crate) fn many_messages_arrive_in_order(provider: &Provider) {
    const COUNT: usize = 500;
    const ROOM: usize = 64;
    let mut pair = Pair::open(provider);
    // Some are sent eagerly, some not.
    let len = |number: usize| 8 + number * 53;
    for _ in 0..ROOM {
        let slice = pair[B].domain.allocate(len(COUNT)).unwrap();
        pair.post_receive(B, slice);
    }
    let (mut sent, mut taken, mut received) = (0, 0, 0);
    while received < COUNT || taken < COUNT {
        if sent < COUNT && sent - received < ROOM {
            let slice = pair[A].slice(&pattern(sent as u64, len(sent)));
            let request = TransmitRequest::send(slice, &pair[A].peer()).tag(sent as u64);
            pair.post(A, request);
            sent += 1;
        }
        if received < sent {
            let (success, buffers) = pair.success(B);
            let slice = buffers.into_slice().unwrap();
            assert_eq!(success.len, len(received), "message {received}");
            assert_eq!(slice[..success.len], pattern(received as u64, len(received)), "message {received}");
            received += 1;
            pair.post_receive(B, slice);
        }
        if taken < sent {
            assert_eq!(pair.success(A).1.count(), 1);
            taken += 1;
        }
    }
    pair.assert_quiet();
}

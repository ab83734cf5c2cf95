//! Queues: full, waited on, refusing.

use std::thread;
use std::time::{Duration, Instant};

use farreach_fabric::{Driver, Event, ReceiveRequest, Refusal, TransmitRequest};
use farreach_memory::{Buffer, Buffers};

use super::pair::{A, B, Pair, Provider, Side, pattern, vouched};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub(crate) fn a_full_queue_hands_the_request_back(provider: &Provider) {
    let mut pair = Pair::of(Side::open_deep(provider, Some(4)), Side::open(provider));
    let peer = pair[A].peer();
    for tag in 0..4 {
        let slice = pair[A].domain.allocate(64).unwrap();
        pair[A].endpoint.post_receive(ReceiveRequest::new(slice).tag(tag)).unwrap();
    }
    let slice = pair[A].slice(&pattern(1, 64));
    let refused = pair[A].endpoint.post_receive(ReceiveRequest::new(slice).tag(7)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::QueueFull { in_flight: 4 }), "{refused}");
    assert_eq!(refused.request.into_buffers().into_slice().unwrap()[..], pattern(1, 64));

    // Completions are not taken, so the transmit queue fills up, too.
    let refused = (0..)
        .find_map(|tag| {
            let request = TransmitRequest::send(pair[A].slice(&pattern(tag, 64)), &peer).tag(tag);
            pair[A].endpoint.post(request).err()
        })
        .unwrap();
    assert!(matches!(refused.reason, Refusal::QueueFull { .. }), "{refused}");
    assert!(pair[A].endpoint.transmits_in_flight() <= 4);
    let slice = refused.request.into_buffers().into_slice().unwrap();

    // The peer makes room, and posting works again.
    for _ in 0..8 {
        let slice = pair[B].domain.allocate(64).unwrap();
        pair.post_receive(B, slice);
    }
    pair.post(A, TransmitRequest::send(slice, &peer));
    pair.success(A);
}

pub(crate) fn a_driver_waits_for_room(provider: &Provider) {
    const COUNT: u64 = 200;
    let mut pair = Pair::of(Side::open_deep(provider, Some(2)), Side::open(provider));
    let region = pair[B].expose(4096);
    let (peer, place) = (pair[A].peer(), vouched(region.remote()).get(0, 64).unwrap());
    let [source, target] = pair.sides();
    let mut driver = Driver::new(&source.cq);
    thread::scope(|scope| {
        // The target has its own thread, as in another process.
        let told = scope.spawn(move || {
            let mut driver = Driver::new(&target.cq);
            let mut immediates = Vec::new();
            while immediates.len() < COUNT as usize {
                match driver.next(soon()).unwrap() {
                    Some(Event::Written(written)) => immediates.push(written.immediate),
                    other => panic!("{other:?}"),
                }
            }
            immediates
        });
        let mut done = 0;
        for number in 0..COUNT {
            let slice = source.slice(&pattern(number, 64));
            let request = TransmitRequest::write(slice, &peer, place).immediate(number);
            driver.post(&source.endpoint, request, soon()).unwrap();
        }
        while done < COUNT {
            match driver.next(soon()).unwrap() {
                Some(Event::Completed(completion)) => {
                    completion.outcome().as_ref().map(|_| done += 1).unwrap()
                }
                other => panic!("{other:?}"),
            }
        }
        let mut told = told.join().unwrap();
        told.sort_unstable();
        assert_eq!(told, (0..COUNT).collect::<Vec<_>>(), "each exactly once");
    });
}

pub(crate) fn several_threads_post_to_one_endpoint(provider: &Provider) {
    const THREADS: u64 = 4;
    const EACH: u64 = 50;
    let mut pair = Pair::open(provider);
    let region = pair[B].expose(4096);
    let (peer, place) = (pair[A].peer(), vouched(region.remote()).get(0, 64).unwrap());
    let [source, target] = pair.sides();
    let source = &*source;
    let mut told = Vec::new();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let peer = &peer;
            scope.spawn(move || {
                // A driver of its own, because a poller also takes completions of other posters,
                // and drops them.
                let mut driver = Driver::new(&source.cq);
                for number in 0..EACH {
                    let slice = source.slice(&pattern(number, 64));
                    let request =
                        TransmitRequest::write(slice, peer, place).immediate(thread * EACH + number);
                    driver.post(&source.endpoint, request, soon()).unwrap();
                }
                while source.endpoint.transmits_in_flight() > 0 {
                    driver.progress().unwrap();
                }
            });
        }
        let mut driver = Driver::new(&target.cq);
        while told.len() < (THREADS * EACH) as usize {
            match driver.next(soon()).unwrap() {
                Some(Event::Written(written)) => told.push(written.immediate),
                other => panic!("{other:?}"),
            }
        }
        // Remaining operations of the initiator may need the target.
        while source.endpoint.transmits_in_flight() > 0 {
            driver.progress().unwrap();
        }
    });
    told.sort_unstable();
    assert_eq!(told, (0..THREADS * EACH).collect::<Vec<_>>(), "each exactly once");
}

pub(crate) fn a_wait_ends_at_its_deadline_or_with_an_event(provider: &Provider) {
    let mut pair = Pair::open(provider);
    assert_eq!(pair[B].cq.wait_fd().is_some(), provider.has_descriptor());
    let start = Instant::now();
    assert!(!pair[B].cq.poller().wait(start + Duration::from_millis(120)).unwrap());
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(120) && waited < Duration::from_secs(5), "{waited:?}");

    let room = pair[B].domain.allocate(64).unwrap();
    pair.post_receive(B, room);
    let [source, target] = pair.sides();
    let peer = source.peer();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let mut driver = Driver::new(&target.cq);
            driver.next(soon()).unwrap()
        });
        thread::sleep(Duration::from_millis(100));
        let mut driver = Driver::new(&source.cq);
        let request = TransmitRequest::send(source.slice(b"wake up"), &peer);
        driver.post(&source.endpoint, request, soon()).unwrap();
        let sent = driver.next(soon()).unwrap();
        assert!(matches!(sent, Some(Event::Completed(_))), "{sent:?}");
        let Some(Event::Completed(received)) = waiting.join().unwrap() else { panic!("no message") };
        let (success, buffers) = received.into_parts();
        assert_eq!(buffers.into_slice().unwrap()[..success.unwrap().len], *b"wake up");
    });
}

/// One layer keeps accessing the endpoint there, and crashes.
pub(crate) fn a_queue_whose_endpoint_is_closed_is_not_slept_on_in_vain(provider: &Provider) {
    let pair = Pair::open(provider);
    let [source, target] = pair.into_sides();
    let (cq, profile) = (target.cq.clone(), *target.domain.profile());
    let is_spoiled = profile.close_spoils_waits || profile.close_leaves_connections;
    super::lifetime::closed(target.endpoint.close());
    drop(source);
    assert_eq!(cq.wait_fd().is_some(), provider.has_descriptor() && !is_spoiled);
    if cq.domain().is_spent() {
        let start = Instant::now();
        assert!(cq.may_sleep().is_err() && cq.poller().wait(start + Duration::from_secs(60)).is_err());
        assert!(start.elapsed() < Duration::from_secs(5));
        return;
    }
    for _ in 0..100 {
        // Either answer is valid, but there must be one.
        let may_sleep = cq.may_sleep().unwrap();
        assert!(!may_sleep || cq.wait_fd().is_some(), "there is nothing to sleep on");
        assert_eq!(cq.poller().poll().unwrap().count(), 0);
    }
    let start = Instant::now();
    assert!(!cq.poller().wait(start + Duration::from_millis(50)).unwrap());
    assert!(start.elapsed() < Duration::from_secs(5));
}

pub(crate) fn what_cannot_be_posted_is_handed_back(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let peer = pair[A].peer();
    let max = pair[A].domain.info().transmit_buffers_max();
    let buffers: Vec<Buffer> = (0..=max).map(|_| pair[A].slice(&[1; 8]).into()).collect();
    let refused = pair[A].endpoint.post(TransmitRequest::send(buffers, &peer)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::TooManyBuffers { .. }), "{refused}");
    assert_eq!(refused.request.into_buffers().count(), max + 1);

    // A peer of the other side's address vector.
    let (other, slice) = (pair[B].peer(), pair[A].slice(&[1; 8]));
    let refused = pair[A].endpoint.post(TransmitRequest::send(slice, &other)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::OtherAddressVector), "{refused}");

    let size = pair[A].domain.info().inject_size();
    let refused = pair[A].endpoint.inject(&vec![0; size + 1], &peer, None).unwrap_err();
    assert!(matches!(refused, Refusal::TooLong { .. }), "{refused}");
    if pair[A].domain.info().immediate_size() < 8 {
        let request = TransmitRequest::send(Buffers::None, &peer).immediate(u64::MAX);
        let refused = pair[A].endpoint.post(request).unwrap_err();
        assert!(matches!(refused.reason, Refusal::ImmediateTooLarge { .. }), "{refused}");
    }
    pair.assert_quiet();
}

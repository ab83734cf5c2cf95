//! Tests of drops in every order and at any time: nothing blocks for ever, and nothing is used
//! after its end.

use std::any::Any;
use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::on_host_a;
use farreach_verbs::cm::{CmParameters, Error, EventChannel, EventKind, Membership, PortSpace};

use super::rig::{End, Watchdog, any_port, connect, deadline, expect, listener, pair, rc_queue_pair};

/// Returns every order of `count` objects.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(count - 1) {
        for place in 0..count {
            let mut order = shorter.clone();
            order.insert(place, count - 1);
            all.push(order);
        }
    }
    all
}

#[track_caller]
fn drop_in(order: &[usize], things: Vec<Box<dyn Any>>) {
    let mut things: Vec<_> = things.into_iter().map(Some).collect();
    order.iter().for_each(|place| drop(things[*place].take()));
    assert!(things.iter().all(Option::is_none));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn channel_id_and_event_end_in_every_order() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        for order in orders(3) {
            let channel = EventChannel::new().unwrap();
            let id = channel.create_id(PortSpace::Tcp).unwrap();
            id.resolve_addr(None, any_port(), deadline()).unwrap();
            let event = expect(&channel, EventKind::AddressResolved);
            drop_in(&order, vec![Box::new(channel), Box::new(id), Box::new(event)]);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn listener_request_and_queue_pair_end_in_every_order() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        for order in orders(3) {
            let (listener, address) = listener();
            let client = thread::spawn(move || connect(address, b"").map(drop));
            let request = listener.wait_request(deadline()).unwrap();
            let qp = rc_queue_pair(&request.context().unwrap());
            request.prepare(&qp).unwrap();
            drop_in(&order, vec![Box::new(listener), Box::new(request), Box::new(qp)]);
            assert!(matches!(client.join().unwrap(), Err(Error::Rejected { .. })));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn both_ends_and_their_queue_pairs_end_in_every_order() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        for order in orders(4) {
            let (active, passive) = pair();
            let End { qp: near, connection: active } = active;
            let End { qp: far, connection: passive } = passive;
            drop_in(&order, vec![Box::new(near), Box::new(far), Box::new(active), Box::new(passive)]);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_request_that_nobody_took_ends_with_its_listener() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let client = thread::spawn(move || connect(address, b"").map(drop));
        thread::sleep(Duration::from_millis(300));
        drop(listener);
        // Rejected by the end of the listener, or because nothing listens if it came late.
        assert!(matches!(client.join().unwrap(), Err(Error::Rejected { .. })));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_request_outlives_its_listener() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let client = thread::spawn(move || connect(address, b"").unwrap());
        let request = listener.wait_request(deadline()).unwrap();
        drop(listener);
        let qp = rc_queue_pair(&request.context().unwrap());
        let connection = request.accept(&qp, &CmParameters::new(), deadline()).unwrap();
        drop(client.join().unwrap());
        connection.wait_disconnected(deadline()).unwrap();
    });
}

/// In C, each of these calls waits for ever for the acknowledgement of the event.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_kept_event_holds_nothing_up() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let id = channel.create_id(PortSpace::Udp).unwrap();
        id.bind(any_port()).unwrap();
        let group = "239.1.2.4".parse().unwrap();
        id.join_multicast(group, Membership::Full).unwrap();
        let kept = expect(&channel, EventKind::MulticastJoin);
        id.leave_multicast(group).unwrap();
        let other = EventChannel::new().unwrap();
        id.migrate(&other).unwrap();
        drop((id, channel, other));
        assert_eq!(kept.id().port_space(), PortSpace::Udp, "the event keeps its id");
    });
}

/// An id ends while its event is pending, and while threads wait for it.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_event_of_an_id_that_is_gone_is_thrown_away() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let address = any_port();
        let end = Instant::now() + Duration::from_secs(5);
        thread::scope(|scope| {
            let watchers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut seen = 0;
                    while Instant::now() < end {
                        match channel.wait_event(end) {
                            Ok(event) => seen += usize::from(event.kind() == EventKind::AddressResolved),
                            Err(error) => assert!(matches!(error, Error::TimedOut { .. }), "{error}"),
                        }
                    }
                    seen
                })
            });
            let mut made = 0;
            for turn in 0.. {
                if Instant::now() >= end || turn == 500 {
                    break;
                }
                let id = channel.create_id(PortSpace::Tcp).unwrap();
                id.resolve_addr(None, address, deadline()).unwrap();
                if turn % 3 == 0 {
                    thread::yield_now();
                }
                drop(id);
                made += 1;
            }
            let seen: usize = watchers.map(|watcher| watcher.join().unwrap()).iter().sum();
            assert!(seen <= made, "{seen} events of {made} ids");
        });
        // The channel still works.
        let id = channel.create_id(PortSpace::Tcp).unwrap();
        id.resolve_addr(None, address, deadline()).unwrap();
        assert_eq!(expect(&channel, EventKind::AddressResolved).id(), &id);
    });
}

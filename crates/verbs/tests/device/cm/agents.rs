//! Tests of a listener with a thread for each request.

use std::sync::{Arc, Barrier};
use std::thread;

use farreach_testkit::on_host_a;
use farreach_verbs::cm::{CmParameters, Error, EventChannel, EventKind, PortSpace};

use super::rig::{End, Watchdog, any_port, connect, deadline, expect, listener, rc_queue_pair};

/// The number of clients that connect at once.
const CLIENTS: u8 = 32;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn many_requests_at_once_each_get_an_agent_with_a_channel_of_its_own() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let all_ready = Arc::new(Barrier::new(CLIENTS.into()));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let all_ready = Arc::clone(&all_ready);
                thread::spawn(move || {
                    all_ready.wait();
                    let end = connect(address, &[number]).unwrap();
                    assert_eq!(end.connection.private_data()[0], number, "the response is for this client");
                    end.connection.wait_disconnected(deadline()).unwrap();
                })
            })
            .collect();
        let agents: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let request = listener.wait_request(deadline()).unwrap();
                thread::spawn(move || {
                    let answer = CmParameters::new().with_private_data([request.private_data()[0]]);
                    let qp = rc_queue_pair(&request.context().unwrap());
                    let connection = request.accept(&qp, &answer, deadline()).unwrap();
                    connection.disconnect().unwrap();
                    connection.wait_disconnected(deadline()).unwrap();
                    drop(End { qp, connection });
                })
            })
            .collect();
        // The threads do not need the listener any more.
        drop(listener);
        clients.into_iter().chain(agents).for_each(|thread| thread.join().unwrap());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_requests_of_a_listener_share_the_open_device() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let clients = [(); 2].map(|()| thread::spawn(move || connect(address, b"").map(drop)));
        let requests = [(); 2].map(|()| listener.wait_request(deadline()).unwrap());
        let contexts = requests.each_ref().map(|request| request.context().unwrap());
        assert_eq!(contexts[0].as_raw(), contexts[1].as_raw());
        drop(requests);
        for client in clients {
            assert!(matches!(client.join().unwrap(), Err(Error::Rejected { .. })));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_migrated_ids_events_come_to_the_agents_channel() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let client = thread::spawn(move || connect(address, b"").unwrap());
        let request = listener.wait_request(deadline()).unwrap();
        let agent = EventChannel::new().unwrap();
        request.migrate(&agent).unwrap();
        let qp = rc_queue_pair(&request.context().unwrap());
        request.prepare(&qp).unwrap();
        let answer = CmParameters {
            qp_num: qp.qp_num(),
            responder_resources: 1,
            initiator_depth: 1,
            ..CmParameters::new()
        };
        request.id().ready_qp(&qp, &answer).unwrap();
        request.id().accept(&answer).unwrap();
        let established = expect(&agent, EventKind::Established);
        assert_eq!(established.id(), request.id());

        // Once more, with a pending event and one that is kept.
        drop(client.join().unwrap());
        let other = EventChannel::new().unwrap();
        request.id().migrate(&other).unwrap();
        request.id().migrate(&other).unwrap();
        drop(agent);
        assert_eq!(expect(&other, EventKind::Disconnected).id(), established.id());
        assert!(listener.get_request().unwrap().is_none(), "the listener got only requests");
    });
}

/// Two ids change places at the same moment, repeatedly.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn ids_that_cross_each_other_do_not_block() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channels = [(); 2].map(|()| EventChannel::new().unwrap());
        let ids = channels.each_ref().map(|channel| channel.create_id(PortSpace::Tcp).unwrap());
        let together = Barrier::new(2);
        thread::scope(|scope| {
            for (start, id) in ids.iter().enumerate() {
                let (channels, together) = (&channels, &together);
                scope.spawn(move || {
                    for turn in 1..=2000 {
                        together.wait();
                        id.migrate(&channels[(start + turn) % 2]).unwrap();
                    }
                });
            }
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_id_keeps_the_channel_that_it_was_migrated_to() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let first = EventChannel::new().unwrap();
        let id = first.create_id(PortSpace::Tcp).unwrap();
        let second = EventChannel::new().unwrap();
        id.migrate(&second).unwrap();
        drop((first, second));
        id.resolve_addr(None, any_port(), deadline()).unwrap();
        let third = EventChannel::new().unwrap();
        id.migrate(&third).unwrap();
        assert_eq!(expect(&third, EventKind::AddressResolved).id(), &id, "pending events move with the id");
    });
}

//! Tests of failed connections.

use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::on_host_a;
use farreach_verbs::cm::{CmParameters, Connector, Error, EventChannel, Listener, PortSpace, RejectReason};

use super::rig::{
    Watchdog, absent_host, any_port, connect, deadline, listener, rc_queue_pair, ud_queue_pair, unused_port,
};

/// Returns the reason and the private data of a rejection.
#[track_caller]
fn rejection(result: Result<impl Sized, Error>) -> (RejectReason, Vec<u8>) {
    match result.map(drop) {
        Err(Error::Rejected { reason, private_data, .. }) => (reason, private_data.into_vec()),
        other => panic!("not rejected: {other:?}"),
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_rejection_carries_the_listeners_word() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let max = PortSpace::Tcp.reject_data_max();
        let passive = thread::spawn(move || {
            let request = listener.wait_request(deadline()).unwrap();
            let error = request.id().reject(&vec![3; max + 1]).unwrap_err();
            assert!(matches!(error, Error::PrivateDataTooLong { max: 148, .. }), "{error}");
            request.reject(&vec![3; max]).unwrap();
        });
        assert_eq!(rejection(connect(address, b"")), (RejectReason::Consumer, vec![3; max]));
        passive.join().unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_dropped_request_is_a_rejected_one() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let passive = thread::spawn(move || drop(listener.wait_request(deadline()).unwrap()));
        assert_eq!(rejection(connect(address, b"")).0, RejectReason::Consumer);
        passive.join().unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn nobody_listening_is_said_in_words() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let address = unused_port();
        let error = connect(address, b"").map(drop).unwrap_err();
        assert_eq!(error.to_string(), format!("rejected: nothing listens on {address} (reason 8)"));
        assert!(error.fix().contains("start the listener"), "{}", error.fix());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn nobody_listening_for_datagrams_is_said_too() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let connector =
            Connector::resolve_with(PortSpace::Udp, unused_port(), deadline(), |_| Ok(())).unwrap();
        let qp = ud_queue_pair(&connector.context().unwrap());
        let result = connector.connect(&qp, &CmParameters::new(), deadline());
        assert_eq!(rejection(result).0, RejectReason::InvalidServiceId);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_absent_host_is_given_up_at_the_deadline() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let start = Instant::now();
        let error = Connector::resolve(absent_host(), start + Duration::from_secs(2)).map(drop).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}: {error}", start.elapsed());
        match &error {
            Error::AddressNotResolved { peer, .. } => assert_eq!(*peer, Some(absent_host())),
            Error::TimedOut { awaited, .. } => assert_eq!(*awaited, "resolved address"),
            _ => panic!("{error}"),
        }
        assert!(!error.cause().is_empty() && !error.fix().is_empty());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_network_without_a_route_is_named() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        // From the second documentation network, which no host of a guest has.
        let nowhere = "198.51.100.1:18520".parse().unwrap();
        let error = Connector::resolve(nowhere, deadline()).map(drop).unwrap_err();
        assert!(error.to_string().contains("198.51.100.1:18520"), "{error}");
        assert!(error.errno().is_some_and(|errno| errno.0 > 1), "{error}");

        let error = Listener::bind(nowhere).map(drop).unwrap_err();
        assert_eq!(error.errno().map(|errno| errno.0), Some(libc::EADDRNOTAVAIL), "{error}");
        assert!(error.cause().contains("no RDMA device of this host has the address"), "{}", error.cause());
    });
}

/// In C, each of these dereferences a null pointer.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn steps_out_of_order_are_errors() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let id = channel.create_id(PortSpace::Tcp).unwrap();
        let parameters = CmParameters::new();
        let no_device = |result: Result<(), Error>| matches!(result, Err(Error::NoDevice { .. }));
        assert!(no_device(id.resolve_route(deadline())));
        assert!(no_device(id.connect(&parameters)));
        assert!(no_device(id.accept(&parameters)));
        assert!(no_device(id.disconnect()));
        assert!(no_device(id.context().map(drop)));
        assert!(id.establish().is_err());
        assert!(id.reject(b"").is_err());
        assert_eq!((id.local_address(), id.peer_address(), id.port()), (None, None, None));
        assert!(id.route().paths.is_empty());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_request_that_was_withdrawn_is_not_accepted() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        // One datagram reports it, without retries. If a busy host loses it, the deadline ends the
        // wait.
        assert!((0..3).any(|_| is_told_that_it_was_withdrawn()), "every attempt timed out");
    });
}

fn is_told_that_it_was_withdrawn() -> bool {
    let (listener, address) = listener();
    let connector = Connector::resolve(address, deadline()).unwrap();
    let near = rc_queue_pair(&connector.context().unwrap());
    // Does not wait for a response, and withdraws the request.
    let soon = Instant::now() + Duration::from_millis(1);
    let error = connector.connect(&near, &CmParameters::new(), soon).map(drop).unwrap_err();
    assert!(matches!(error, Error::TimedOut { awaited: "connect response", .. }), "{error}");

    let request = listener.wait_request(deadline()).unwrap();
    let far = rc_queue_pair(&request.context().unwrap());
    let error = request.accept(&far, &CmParameters::new(), deadline()).map(drop).unwrap_err();
    !matches!(error, Error::TimedOut { .. })
}

/// The kernel does not reject a request that finds no room: the client's kernel repeats it every
/// four seconds.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_finds_a_full_backlog_asks_again() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let listener = Listener::bind_with(PortSpace::Tcp, any_port(), 1, |_| Ok(())).unwrap();
        let address = listener.local_address().unwrap();
        let clients = [(); 2].map(|()| thread::spawn(move || connect(address, b"")));
        // Time for both to send their requests.
        thread::sleep(Duration::from_secs(1));
        let first = listener.wait_request(deadline()).unwrap();
        assert!(listener.get_request().unwrap().is_none(), "there was room for one");
        let second = listener.wait_request(deadline()).unwrap();
        assert_ne!(first.peer_address(), second.peer_address());
        drop((first, second));
        for client in clients {
            assert_eq!(rejection(client.join().unwrap()).0, RejectReason::Consumer);
        }
    });
}

//! Tests of connecting, negotiating and disconnecting.

use std::thread;

use farreach_testkit::{Device, on_host_a};
use farreach_verbs::cm::{CmParameters, Connector, Error, EventChannel, EventKind, Listener, PortSpace};
use farreach_verbs::qp::{QueuePair, QueuePairState};

use super::rig::{Watchdog, any_port, connect, deadline, expect, listener, pair, rc_queue_pair};

#[track_caller]
fn assert_ready(qp: &QueuePair) {
    assert_eq!(qp.state(), Ok(QueuePairState::ReadyToSend));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn private_data_goes_both_ways_and_arrives_filled_up_with_zeroes() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (active, passive) = pair();
        let (heard, answered) = (passive.connection.private_data(), active.connection.private_data());
        assert_eq!((&heard[..5], &answered[..7]), (&b"hello"[..], &b"welcome"[..]));
        assert_eq!(heard.len(), PortSpace::Tcp.connect_data_max());
        assert_eq!(answered.len(), PortSpace::Tcp.accept_data_max());
        assert!(heard[5..].iter().chain(&answered[7..]).all(|byte| *byte == 0));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn both_queue_pairs_are_ready_and_both_ends_know_where_they_are() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (active, passive) = pair();
        assert_ready(&active.qp);
        assert_ready(&passive.qp);
        let (near, far) = (&active.connection, &passive.connection);
        assert_eq!(near.peer_address(), far.local_address());
        assert_eq!(far.peer_address(), near.local_address());
        let device = Device::find();
        for end in [near, far] {
            assert_eq!(end.id().device_name().as_deref(), Some(device.name.as_str()));
            assert_eq!(end.id().port(), Some(device.port));
        }
        let route = near.id().route();
        assert_eq!(route.source_gid, device.address.into());
        assert_eq!(route.destination_gid, device.address.into());
        assert!(!route.paths.is_empty() && route.paths[0].mtu.bytes().is_some(), "{route:?}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn as_much_private_data_fits_as_is_promised_and_no_more() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (listener, address) = listener();
        let too_long = |result: Result<_, Error>| match result {
            Err(Error::PrivateDataTooLong { max, .. }) => max,
            _ => panic!("the private data was sent"),
        };
        assert_eq!(too_long(connect(address, &[1; 57]).map(drop)), 56);
        let passive = thread::spawn(move || {
            let request = listener.wait_request(deadline()).unwrap();
            assert_eq!(request.private_data(), [1; 56]);
            let asked = request.parameters().expect("a connection has parameters");
            assert_ne!(asked.qp_num, 0);
            assert_eq!(asked.retry_count, 6);
            let qp = rc_queue_pair(&request.context().unwrap());
            let answer = CmParameters::new().with_private_data([2; 197]);
            assert!(matches!(request.id().accept(&answer), Err(Error::PrivateDataTooLong { max: 196, .. })));
            let answer = CmParameters::new().with_private_data([2; 196]);
            (request.accept(&qp, &answer, deadline()).unwrap(), qp)
        });
        let active = connect(address, &[1; 56]).unwrap();
        assert_eq!(active.connection.private_data(), [2; 196]);
        drop(passive.join().unwrap());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn who_is_left_is_told_and_later_that_all_packets_are_gone() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (active, passive) = pair();
        active.connection.disconnect().unwrap();
        passive.connection.wait_disconnected(deadline()).unwrap();
        active.connection.wait_disconnected(deadline()).unwrap();
        active.connection.wait_timewait_exit(deadline()).unwrap();
        passive.connection.wait_timewait_exit(deadline()).unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_end_that_is_dropped_disconnects() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (active, passive) = pair();
        drop(active.connection);
        passive.connection.wait_disconnected(deadline()).unwrap();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn options_are_taken_and_the_type_of_service_is_in_the_route() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (_listener, address) = listener();
        let connector = Connector::resolve_with(PortSpace::Tcp, address, deadline(), |id| {
            id.set_type_of_service(26 << 2)?;
            id.set_ack_timeout(17)?;
            id.set_reuse_address(true)
        })
        .unwrap();
        assert_eq!(connector.id().route().paths[0].traffic_class, 26 << 2);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_port_is_shared_only_by_who_agrees_to() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (_listener, address) = listener();
        let error = Listener::bind(address).map(drop).unwrap_err();
        assert_eq!(error.errno().map(|errno| errno.0), Some(libc::EADDRINUSE), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(error.fix().contains("set_reuse_address"), "{}", error.fix());

        let channel = EventChannel::new().unwrap();
        let ids = [(); 2].map(|()| channel.create_id(PortSpace::Tcp).unwrap());
        ids.iter().for_each(|id| id.set_reuse_address(true).unwrap());
        ids[0].bind(any_port()).unwrap();
        ids[1].bind(ids[0].local_address().unwrap()).unwrap();
        assert_eq!(ids[0].local_address(), ids[1].local_address());
    });
}

/// The same handshake without `Connector` and `Listener`: both sides on one channel, event by
/// event.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn one_channel_serves_both_ends_event_by_event() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        for port_space in [PortSpace::Tcp, PortSpace::Ib] {
            let channel = EventChannel::new().unwrap();
            let listener = channel.create_id(port_space).unwrap();
            listener.bind(any_port()).unwrap();
            listener.listen(1).unwrap();

            let active = channel.create_id(port_space).unwrap();
            active.resolve_addr(None, listener.local_address().unwrap(), deadline()).unwrap();
            assert_eq!(expect(&channel, EventKind::AddressResolved).id(), &active);
            active.resolve_route(deadline()).unwrap();
            expect(&channel, EventKind::RouteResolved);
            let near = rc_queue_pair(&active.context().unwrap());
            active.init_qp(&near).unwrap();
            let hello = CmParameters { qp_num: near.qp_num(), ..CmParameters::new() };
            active.connect(&hello).unwrap();

            let request = expect(&channel, EventKind::ConnectRequest);
            assert_eq!(request.listener(), Some(&listener));
            assert_eq!(request.parameters().unwrap().qp_num, near.qp_num());
            let passive = request.into_request().unwrap();
            let far = rc_queue_pair(&passive.context().unwrap());
            let answer = CmParameters {
                qp_num: far.qp_num(),
                responder_resources: 1,
                initiator_depth: 1,
                ..CmParameters::new()
            };
            passive.id().init_qp(&far).unwrap();
            passive.id().ready_qp(&far, &answer).unwrap();
            passive.id().accept(&answer).unwrap();

            let response = expect(&channel, EventKind::ConnectResponse);
            assert_eq!(response.id(), &active);
            assert_eq!(response.parameters().unwrap().qp_num, far.qp_num());
            active.ready_qp(&near, &CmParameters::new()).unwrap();
            active.establish().unwrap();
            assert_eq!(expect(&channel, EventKind::Established).id(), passive.id());
            assert_ready(&near);
            assert_ready(&far);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_program_writes_events_of_its_own_where_library_and_kernel_have_them() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let channel = EventChannel::new().unwrap();
        let id = channel.create_id(PortSpace::Tcp).unwrap();
        match id.write_event(0, 42) {
            Ok(()) => assert_eq!(expect(&channel, EventKind::User).argument(), Some(42)),
            // Debian 12's librdmacm lacks the function; an older kernel refuses the command.
            Err(Error::Verbs(farreach_verbs::Error::Symbol(missing))) => assert_eq!(missing.since, "60"),
            Err(error) => assert!(error.errno().is_some(), "{error}"),
        }
    });
}

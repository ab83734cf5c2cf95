//! Tests of datagrams: destinations and multicast groups.

use std::thread;

use farreach_testkit::on_host_a;
use farreach_verbs::cm::{
    CmId, CmParameters, Connector, Error, EventChannel, EventKind, Listener, Membership, PortSpace,
};
use farreach_verbs::qp::QueuePairState;

use super::rig::{Watchdog, any_port, deadline, expect, ud_queue_pair};

fn bound() -> (EventChannel, CmId) {
    let channel = EventChannel::new().unwrap();
    let id = channel.create_id(PortSpace::Udp).unwrap();
    id.bind(any_port()).unwrap();
    (channel, id)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_group_is_joined_and_left() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (channel, id) = bound();
        let qp = ud_queue_pair(&id.context().unwrap());
        id.init_qp(&qp).unwrap();
        assert_eq!(qp.state(), Ok(QueuePairState::ReadyToSend), "datagrams need no peer");
        let group = "239.1.2.3".parse().unwrap();
        id.join_multicast(group, Membership::Full).unwrap();
        let joined = expect(&channel, EventKind::MulticastJoin);
        let destination = joined.destination().unwrap();
        assert_eq!(destination.qp_num, 0xff_ffff, "the number of every member");
        assert_ne!(destination.qkey, 0);
        let (gid, lid) = (destination.address.gid.expect("RoCE goes by GID"), destination.address.lid);
        assert_eq!(gid.to_bytes()[12..], [239, 1, 2, 3]);
        qp.attach_mcast(gid, lid).unwrap();
        qp.detach_mcast(gid, lid).unwrap();
        assert!(joined.private_data().is_empty());
        id.leave_multicast(group).unwrap();
        let error = id.leave_multicast(group).unwrap_err();
        assert_eq!(error.errno().map(|errno| errno.0), Some(libc::EADDRNOTAVAIL), "{error}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn many_groups_are_joined_and_dropping_the_id_leaves_them() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        for _ in 0..3 {
            let (channel, id) = bound();
            for last in 1..=8 {
                id.join_multicast([239, 1, 3, last].into(), Membership::Full).unwrap();
            }
            for _ in 1..=4 {
                expect(&channel, EventKind::MulticastJoin);
            }
            // Half of the events are not taken.
            drop(id);
            assert!(channel.get_event().unwrap().is_none());
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_sends_only_joins_too_or_is_told_why_not() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (channel, id) = bound();
        match id.join_multicast("239.1.2.5".parse().unwrap(), Membership::SendOnly) {
            Ok(()) => drop(expect(&channel, EventKind::MulticastJoin)),
            Err(error) => assert_eq!(error.errno().map(|errno| errno.0), Some(libc::EOPNOTSUPP), "{error}"),
        }
        let unbound = channel.create_id(PortSpace::Udp).unwrap();
        let error = unbound.join_multicast("239.1.2.5".parse().unwrap(), Membership::Full).unwrap_err();
        assert!(matches!(error, Error::NoDevice { .. }), "{error}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_listener_for_datagrams_tells_where_to_send() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let listener = Listener::bind_with(PortSpace::Udp, any_port(), 8, |_| Ok(())).unwrap();
        let address = listener.local_address().unwrap();
        let passive = thread::spawn(move || {
            let request = listener.wait_request(deadline()).unwrap();
            assert_eq!(&request.private_data()[..5], b"hello");
            assert!(request.parameters().is_none(), "only connections have them");
            let qp = ud_queue_pair(&request.context().unwrap());
            let answer = CmParameters::new().with_private_data(*b"here");
            (request.accept(&qp, &answer, deadline()).unwrap(), qp)
        });
        let connector = Connector::resolve_with(PortSpace::Udp, address, deadline(), |_| Ok(())).unwrap();
        let (id, qp) = (connector.id().clone(), ud_queue_pair(&connector.context().unwrap()));
        id.init_qp(&qp).unwrap();
        let agent = EventChannel::new().unwrap();
        id.migrate(&agent).unwrap();
        let hello = CmParameters { qp_num: qp.qp_num(), ..CmParameters::new() };
        id.connect(&hello.with_private_data(*b"hello")).unwrap();
        let established = expect(&agent, EventKind::Established);
        let (_connection, far) = passive.join().unwrap();
        let destination = established.destination().unwrap();
        assert_eq!(destination.qp_num, far.qp_num());
        assert_ne!(destination.qkey, 0);
        assert_eq!(&established.private_data()[..4], b"here");
    });
}

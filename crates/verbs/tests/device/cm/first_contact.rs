//! Tests of the first contact with a host whose hardware address is unknown.

use std::process::Command;
use std::time::{Duration, Instant};

use farreach_testkit::{WAIT_MAX, on_host_a, wait_for};
use farreach_verbs::cm::{Connector, EventChannel, EventKind, PortSpace, get_devices};

use super::rig::{Watchdog, expect, run};

/// A device of the test, on a link to a network namespace, which answers as fast as possible.
struct Neighbour;

const ADDRESS: [u8; 4] = [203, 0, 113, 2];

/// Much less than the deadline, and much more than an answer takes.
const SOON: Duration = Duration::from_secs(8);

impl Neighbour {
    fn add() -> Self {
        run("ip netns add farnb");
        let made = Self;
        run("ip link add farnb0 type veth peer name farnb1 netns farnb");
        run("ip address add 203.0.113.1/24 dev farnb0 && ip link set farnb0 up");
        run("ip -n farnb address add 203.0.113.2/24 dev farnb1 && ip -n farnb link set farnb1 up");
        run("rdma link add farnb type rxe netdev farnb0");
        let channel = EventChannel::new().unwrap();
        wait_for("device with the new address", || {
            let id = channel.create_id(PortSpace::Tcp).unwrap();
            id.bind("203.0.113.1:0".parse().unwrap()).ok()
        });
        made
    }

    /// Makes this host forget the neighbour.
    fn forget(&self) {
        run("ip neighbour flush dev farnb0");
        let known = Command::new("ip").args(["neighbour", "show", "203.0.113.2", "dev", "farnb0"]).output();
        assert_eq!(String::from_utf8_lossy(&known.unwrap().stdout), "", "it is forgotten");
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // The device is removed with its net device, once no program has it open. librdmacm closes
        // it when the devices are listed.
        let removal = Command::new("ip").args(["link", "delete", "farnb0"]).spawn();
        let mut removal = removal.expect("ip, which every guest has");
        wait_for("end of the removal", || {
            get_devices().expect("librdmacm");
            removal.try_wait().expect("a child can be waited for")
        });
        let _ = Command::new("ip").args(["netns", "delete", "farnb"]).status();
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_unknown_neighbour_is_found_long_before_the_deadline() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let neighbour = Neighbour::add();
        // The answer may arrive before or after the kernel sleeps. Both cases must work.
        for _ in 0..5 {
            neighbour.forget();
            let start = Instant::now();
            let connector = Connector::resolve((ADDRESS, 18520).into(), start + WAIT_MAX).unwrap();
            assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
            assert_eq!(connector.id().device_name().as_deref(), Some("farnb"));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn who_takes_the_events_himself_is_told_of_the_answer_only() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let neighbour = Neighbour::add();
        let channel = EventChannel::new().unwrap();
        for _ in 0..5 {
            neighbour.forget();
            let id = channel.create_id(PortSpace::Tcp).unwrap();
            let start = Instant::now();
            id.resolve_addr(None, (ADDRESS, 18520).into(), start + WAIT_MAX).unwrap();
            expect(&channel, EventKind::AddressResolved);
            assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        }
    });
}

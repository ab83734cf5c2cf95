//! Real faults of peers and ports.

use std::process::{Command, ExitStatus};
use std::time::Instant;

use farreach::rails::verbs::{VerbsSettings, rails_named};
use farreach_rail::{Rail, Refusal};
use farreach_testkit::{Device, on_host_a, pattern, wait_for};

use crate::rails_verbs::pair::{Pair, Side, own_rail, tell, write};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_peer_that_is_gone_is_told_of_in_about_two_seconds_and_the_rest_is_counted() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let granted = pair.b.granted(0, 64);
        let target = granted.part(0, 64);
        // A new rail in its place does not know the link.
        pair.b = Side::open(&own_rail(), &VerbsSettings::default());
        let since = Instant::now();
        for tag in 0..5 {
            let slice = pair.a.filled(tag, 64);
            pair.a.post(tag.into(), write(slice, target));
        }
        let first = pair.done();
        let (took, reason) = (since.elapsed(), first.outcome.unwrap_err());
        assert_eq!(first.tag, 0);
        assert!(reason.cause.contains("no acknowledgement from the peer"), "{reason}");
        assert!(reason.fix.contains("check that the peer is alive"), "{reason}");
        assert!((1.0..4.0).contains(&took.as_secs_f64()), "{took:?}");
        for tag in 1..5 {
            let done = pair.done();
            assert_eq!(done.tag, tag);
            assert!(done.outcome.unwrap_err().cause.starts_with("flushed"));
            assert_eq!(*done.buffers.into_slice().unwrap(), *pattern(tag as u8, 64));
        }
        assert_eq!((pair.a.rail.given_up(), pair.a.rail.in_flight()), (4, 0));
        assert!(matches!(pair.a.refused(tell(1)).reason, Refusal::LinkDown(_)));
        pair.a.rail.close_link(pair.a.link);
        pair.finish();
    });
}

/// The network device of this host. Dropping it sets the link up again, and restores its address.
struct Link(Device);

impl Link {
    fn set(&self, state: &str) {
        run(Command::new("ip").args(["link", "set", &self.0.net_device, state]));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.set("up");
        // The IPv6 address was lost with the link. If it is still there, adding it fails, which
        // does not matter.
        let address = format!("2001:db8::{}/64", self.0.address.octets()[3]);
        let _ = Command::new("ip")
            .args(["address", "add", &address, "dev", &self.0.net_device, "nodad"])
            .output();
        wait_until_usable(&self.0);
    }
}

/// The kernel makes the device usable a moment after it, or its link, exists.
fn wait_until_usable(device: &Device) {
    wait_for("usable device", || {
        rails_named(&device.name, &VerbsSettings::default())
            .ok()
            .filter(|found| found[0].gid().contains("IPv4"))
    });
}

#[track_caller]
fn run(command: &mut Command) {
    let status = command.status();
    assert!(status.as_ref().is_ok_and(ExitStatus::success), "{command:?}: {status:?}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_port_that_goes_down_ends_every_link_over_it() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let other = pair.link();
        let link = Link(Device::find());
        link.set("down");
        let mut ended = Vec::new();
        for _ in 0..2 {
            let (link, reason) = pair.until("end of a link", |pair| pair.a.told.links_down.pop_front());
            assert!(reason.cause.contains("no longer active"), "{reason}");
            ended.push(link);
        }
        ended.sort_unstable();
        assert_eq!(ended, [pair.a.link, other.0]);
        let refused = pair.a.refused(tell(1));
        assert!(
            matches!(&refused.reason, Refusal::LinkDown(reason) if reason.cause.contains("no longer active"))
        );
        pair.until("end of both at b", |pair| (pair.b.told.links_down.len() == 2).then_some(()));
        drop(link);
        for (at_a, at_b) in [(pair.a.link, pair.b.link), other] {
            pair.a.rail.close_link(at_a);
            pair.b.rail.close_link(at_b);
        }
        pair.b.told.links_down.clear();
        // The port is up again, and links over it work.
        (pair.a.link, pair.b.link) = pair.link();
        pair.a.post(1, tell(5));
        assert_eq!(pair.immediate(), (pair.b.link, 5));
        pair.well_done();
        pair.finish();
    });
}

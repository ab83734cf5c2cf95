//! Tests of asynchronous events.

use std::process::Command;
use std::ptr::null_mut;

use farreach_testkit::{WAIT_MAX, on_host_a};
use farreach_verbs::event::{AsyncEvent, AsyncEvents, EventType};
use farreach_verbs::port::PortState;
use farreach_verbs::qp::{QueuePairBuilder, QueuePairType};
use farreach_verbs::sys;

use super::rig::*;

/// The link of a net device, which is set up on drop.
struct Link(String);

impl Link {
    #[track_caller]
    fn set(&self, state: &str) {
        let status = Command::new("ip").args(["link", "set", &self.0, state]).status().expect("ip runs");
        assert!(status.success(), "ip link set {} {state}: {status}", self.0);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.set("up");
    }
}

#[track_caller]
fn wait_for(events: &AsyncEvents, expected: AsyncEvent) {
    // Other events, such as GID changes, come in between.
    for _ in 0..100 {
        let event = events.wait(Some(WAIT_MAX)).unwrap();
        if event.unwrap_or_else(|| panic!("no {expected} within {WAIT_MAX:?}")) == expected {
            return;
        }
    }
    panic!("a hundred events, and no {expected}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_link_that_goes_down_and_up_is_told() {
    on_host_a(|| {
        let host = Host::open();
        let events = host.context.async_events().unwrap();
        assert_eq!(events.get(), Ok(None), "it does not block");
        let port = host.device.port;
        let link = Link(host.device.net_device.clone());
        link.set("down");
        wait_for(&events, AsyncEvent::Port { port, kind: EventType::PortError });
        link.set("up");
        wait_for(&events, AsyncEvent::Port { port, kind: EventType::PortActive });
        assert_eq!(host.context.query_port(port).unwrap().state, PortState::Active);
        // IPv6 addresses and their GIDs are removed with the link: restores the port.
        drop(link);
        restore_ipv6(&host);
    });
}

/// Restores the guest's fixed IPv6 address, which is not restored by itself.
fn restore_ipv6(host: &Host) {
    let net = &host.device.net_device;
    let last = host.device.address.octets()[3];
    // It fails if the address is still there, which is harmless.
    let _ = Command::new("ip")
        .args(["address", "add", &format!("2001:db8::{last}/64"), "dev", net, "nodad"])
        .output()
        .expect("ip runs");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_shared_receive_queue_tells_that_it_runs_low() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let events = host.context.async_events().unwrap();
        let srq = pd.create_srq(8, 1).unwrap();
        let a = End::new(&host, &pd, QueuePairType::Rc);
        let qp = QueuePairBuilder::new(QueuePairType::Rc, &a.cq, &a.cq)
            .max_send_wr(1)
            .srq(&srq)
            .build(&pd)
            .unwrap();
        let parameters = host.parameters();
        let own = qp.to_init(&parameters).unwrap();
        qp.connect(&parameters, &own, &a.own).unwrap();
        a.qp.connect(&parameters, &a.own, &own).unwrap();

        for id in 0..3 {
            let mut sge = a.region.sge(4096, 64);
            let mut wr =
                sys::ibv_recv_wr { wr_id: id, sg_list: &raw mut sge, num_sge: 1, ..Default::default() };
            // SAFETY: the list is valid during the call, and both queue pairs are destroyed before
            // the region.
            unsafe { srq.post_recv_raw(&raw mut wr, &mut null_mut()) }.unwrap();
        }
        srq.set_limit(3).unwrap();
        assert_eq!(srq.query().unwrap().limit, 3);
        a.post_send(9, a.region.sge(0, 64), |_| ());
        let expected =
            AsyncEvent::SharedReceiveQueue { handle: srq.handle(), kind: EventType::SrqLimitReached };
        wait_for(&events, expected);
        qp.destroy().unwrap();
    });
}

//! Tests of dropping in every order.

use std::any::Any;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use farreach_testkit::{does_long_tests, drop_in_orders, on_host_a, order};
use farreach_verbs::cq::CompletionQueueBuilder;
use farreach_verbs::leak::{Leaked, leaked};
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::mw::WindowType;
use farreach_verbs::qp::state::PeerAddress;
use farreach_verbs::qp::{QueuePairBuilder, QueuePairType};

use super::rig::*;

/// The handles that are dropped.
const HANDLES: usize = 7;
/// The factorial of `HANDLES`.
const ORDERS: usize = 5040;
/// The number of orders in a partial run: each takes more than ten milliseconds.
const SAMPLE: usize = 500;
/// Coprime to ORDERS: its multiples modulo ORDERS are all different, and spread evenly.
const STRIDE: usize = 3571;

/// Creates one of each object. Regions, windows and address handles depend on the protection domain
/// only, and not on each other: they are dropped together, at every position among the others.
fn everything(host: &Host) -> [Box<dyn Any + Send>; HANDLES] {
    let context = host.context.device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let cq = CompletionQueueBuilder::new(4).channel(&channel).build(&context).unwrap();
    let srq = pd.create_srq(4, 1).unwrap();
    let qp = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(1).srq(&srq).build(&pd).unwrap();
    let region = Region::new(&pd, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND);
    let window = pd.alloc_mw(WindowType::Two).unwrap();
    let parameters = host.parameters();
    let own = PeerAddress {
        qp_num: 1,
        psn: 0,
        gid: parameters.gid.entry.gid,
        lid: parameters.lid,
        mtu: parameters.mtu,
        rd_atomic: 1,
        qkey: 0,
    };
    let ah = pd.create_ah(&parameters.address_of(&own)).unwrap();
    [
        Box::new(context),
        Box::new(pd),
        Box::new(channel),
        Box::new(cq),
        Box::new(srq),
        Box::new(qp),
        Box::new((window, region, ah)),
    ]
}

/// Returns the kernel's counts: one line for each device, with its objects.
fn resources() -> String {
    let output = Command::new("rdma").args(["resource", "show"]).output().expect("rdma of iproute2");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the orders that this guest tries.
fn chosen() -> impl Iterator<Item = usize> {
    let count = if does_long_tests() { ORDERS } else { SAMPLE };
    (0..count).map(|turn| turn * STRIDE % ORDERS)
}

#[test]
fn orders_are_all_different() {
    let all: std::collections::BTreeSet<_> = (0..ORDERS).map(|number| order(HANDLES, number)).collect();
    assert_eq!(all.len(), ORDERS);
    assert_eq!(chosen().collect::<std::collections::BTreeSet<_>>().len(), chosen().count());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn in_every_order_nothing_hangs_and_nothing_stays() {
    on_host_a(|| {
        // Stays open until the end, because the kernel counts it too.
        let host = Arc::new(Host::open());
        let before = resources();
        let same_host = Arc::clone(&host);
        let count = drop_in_orders(chosen(), Duration::from_secs(30), move || everything(&same_host).into());
        assert_eq!(leaked(), Leaked::default());
        assert_eq!(resources(), before, "the kernel's counts are unchanged");
        // Not println, whose output is captured when tests pass.
        std::io::stderr().write_all(format!("{count} orders of {ORDERS}\n").as_bytes()).unwrap();
    });
}

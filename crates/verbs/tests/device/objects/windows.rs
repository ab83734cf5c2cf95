//! Tests of memory windows and multicast groups.

use farreach_testkit::{on_host_a, pattern};
use farreach_verbs::ah::Lid;
use farreach_verbs::leak::leaked;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::mw::WindowType;
use farreach_verbs::qp::QueuePairType;
use farreach_verbs::sys;

use super::rig::*;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_of_type_1_is_bound_by_a_call() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let mut parameters = host.parameters();
        parameters.access = AccessFlags::REMOTE_WRITE;
        let a = End::new(&host, &pd, QueuePairType::Rc);
        let cq = host.context.create_cq(16).unwrap();
        let b = End::on(&pd, QueuePairType::Rc, &cq, &parameters);
        a.qp.connect(&parameters, &a.own, &b.own).unwrap();
        b.qp.connect(&parameters, &b.own, &a.own).unwrap();

        let region = Region::new(&pd, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND);
        let window = pd.alloc_mw(WindowType::One).unwrap();
        let before = window.rkey();
        assert!(!window.as_raw().is_null());
        let mut bind = sys::ibv_mw_bind {
            wr_id: 5,
            send_flags: sys::IBV_SEND_SIGNALED,
            bind_info: sys::ibv_mw_bind_info {
                mr: region.mr.as_raw(),
                addr: region.buffer.address(1024),
                length: 1024,
                mw_access_flags: AccessFlags::REMOTE_WRITE.bits(),
            },
        };
        // SAFETY: the region lives until the window is deallocated below, and gives out no
        // reference.
        unsafe { window.bind_raw(&b.qp, &raw mut bind) }.unwrap();
        success(&b.cq, 5);
        assert_ne!(window.rkey(), before, "a new binding has a new key");

        let data = pattern(3, 1024);
        a.region.buffer.write(0, &data);
        a.post_send(1, a.region.sge(0, data.len()), |wr| {
            wr.opcode = sys::IBV_WR_RDMA_WRITE;
            wr.wr.rdma.remote_addr = region.buffer.address(1024);
            wr.wr.rdma.rkey = window.rkey().0;
        });
        success(&a.cq, 1);
        assert_eq!(region.buffer.read(1024, data.len()), data);
        let clone = window.clone();
        window.revoke().unwrap();
        assert!(clone.as_raw().is_null(), "it is revoked");
        region.mr.dereg().expect("no window is bound to it any more");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_member_of_a_group_leaves_when_it_goes() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let group = "::ffff:239.1.2.3".parse().unwrap();
        let before = leaked();
        let end = End::new(&host, &pd, QueuePairType::Ud);
        end.qp.attach_mcast(group, Lid(0)).unwrap();
        end.qp.detach_mcast(group, Lid(0)).unwrap();
        end.qp.attach_mcast(group, Lid(0)).unwrap();
        end.qp.destroy().expect("it has left the group");
        assert_eq!(leaked(), before);
    });
}

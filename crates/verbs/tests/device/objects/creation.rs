//! Tests of creation: sizes that the device accepts, and the errors for others.

use farreach_testkit::on_host_a;
use farreach_verbs::Error;
use farreach_verbs::attributes::DeviceCapabilities;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::{QueuePairBuilder, QueuePairType, SendOperations};

use super::rig::*;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_absurd_queue_pair_is_told_what_is_too_large() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let cq = host.context.create_cq(128).unwrap();
        let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
        let limits = host.context.query_device().unwrap();

        let error =
            builder.clone().max_send_wr(limits.max_qp_wr + 1).max_recv_sge(100_000).build(&pd).unwrap_err();
        assert!(error.to_string().contains(&format!("ibv_create_qp on {}: ", host.device.name)), "{error}");
        let cause = error.cause();
        let most = limits.max_qp_wr;
        let wr = format!("max_send_wr {} exceeds the device's limit of {most}", most + 1);
        assert!(cause.contains(&wr), "{cause}");
        assert!(
            cause.contains(&format!("max_recv_sge 100000 exceeds the device's limit of {}", limits.max_sge)),
            "{cause}"
        );
        assert!(!cause.contains("inline"), "{cause}");

        let error = builder.clone().max_inline_data(100_000).build(&pd).unwrap_err();
        let Error::Creation(refused) = &error else { panic!("{error:?}") };
        let (asked, works) = refused.inline.expect("the inline size is the cause");
        assert_eq!(asked, 100_000);
        assert!(
            error.cause().contains(&format!("max_inline_data 100000 is refused; {works} works")),
            "{error:?}"
        );
        builder.clone().max_inline_data(works).build(&pd).expect("the reported size works");
        builder.max_inline_data(works + 1).build(&pd).expect_err("and it is the largest");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn absurd_queues_are_told_what_is_too_large() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let limits = host.context.query_device().unwrap();
        let cq = host.context.create_cq(limits.max_cqe + 1).unwrap_err();
        assert!(cq.cause().contains("cqe "), "{}", cq.cause());
        let srq = pd.create_srq(limits.max_srq_wr + 1, 1).unwrap_err();
        assert!(srq.cause().contains("max_wr "), "{}", srq.cause());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn operations_are_there_or_refused() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let cq = host.context.create_cq(16).unwrap();
        let has = host.context.query_device().unwrap().capabilities;
        let with = |operations| {
            let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(2).max_recv_wr(2);
            builder.send_operations(operations).build(&pd)
        };
        let usual = SendOperations::RDMA_WRITE | SendOperations::SEND_WITH_IMM | SendOperations::BIND_MW;
        let qp = with(usual).unwrap();
        assert_eq!(qp.operations(), usual);
        assert!(qp.as_raw_ex().is_some());

        for (operation, capability) in [
            (SendOperations::ATOMIC_WRITE, DeviceCapabilities::ATOMIC_WRITE),
            (SendOperations::FLUSH, DeviceCapabilities::FLUSH_GLOBAL),
        ] {
            match with(operation) {
                Ok(_) => assert!(has.contains(capability), "{operation:?} without kernel support"),
                Err(Error::Unsupported { .. }) => assert!(!has.contains(capability), "{operation:?}"),
                Err(other) => panic!("{operation:?}: {other}"),
            }
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_a_device_lacks_is_a_typed_error() {
    on_host_a(|| {
        let host = Host::open();
        let limits = host.context.query_device().unwrap();
        if limits.max_dm_bytes == 0 {
            assert!(matches!(host.context.alloc_dm(64, 0), Err(Error::Unsupported { .. })));
        }
        if !limits.capabilities.contains(DeviceCapabilities::XRC) {
            let refused = host.context.open_xrcd(None).expect_err("the device has no XRC");
            assert_eq!(refused.operation(), Some("ibv_open_xrcd"));
        }
        let pd = host.context.alloc_pd().unwrap();
        let region = farreach_testkit::Buffer::new(REGION);
        // SAFETY: the buffer outlives the region, which is dropped at the end of the `match`, and
        // gives out no reference.
        let on_demand = unsafe { pd.reg_on_demand(region.as_ptr(), REGION, AccessFlags::LOCAL_WRITE) };
        match on_demand {
            Ok(mr) => assert!(limits.on_demand.supported && mr.len() == REGION),
            Err(Error::Unsupported { .. }) => assert!(!limits.on_demand.supported),
            Err(other) => panic!("{other}"),
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn objects_of_two_contexts_do_not_mix() {
    on_host_a(|| {
        let (one, other) = (Host::open(), Host::open());
        let pd = one.context.alloc_pd().unwrap();
        let (own, strange) = (one.context.create_cq(128).unwrap(), other.context.create_cq(128).unwrap());
        let error = QueuePairBuilder::new(QueuePairType::Rc, &own, &strange).build(&pd).unwrap_err();
        assert!(matches!(error, Error::OtherContext { object: "receive completion queue", .. }), "{error}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_queue_is_resized_and_keeps_its_completions() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let (a, b) = pair(&host, &pd, QueuePairType::Rc);
        b.post_recv(7, b.region.sge(0, 64));
        a.post_send(1, a.region.sge(0, 64), |_| ());
        success(&a.cq, 1);
        b.cq.resize(200).unwrap();
        assert!(b.cq.depth() >= 200);
        success(&b.cq, 7);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_first_partition_key_is_the_default_one() {
    on_host_a(|| {
        let host = Host::open();
        assert_eq!(host.context.query_pkey(host.device.port, 0), Ok(0xffff));
    });
}

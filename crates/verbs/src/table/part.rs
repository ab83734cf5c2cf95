//! Tests messages in regions: the region stays while the device may gather from it.

use std::sync::Arc;

use super::count;
use super::script::{
    Bench, LEN, complete, fail_post_in_doubt, held, last_element, refuse_post_after, watched,
};
use crate::cq::WorkKind;
use crate::mr::AccessFlags;
use crate::qp::QueuePair;
use crate::wr::{Refusal, RegionPart};

#[test]
fn a_message_on_the_chip_is_named_from_its_first_byte_and_keeps_its_region() {
    let bench = Bench::with_on_chip_memory(16);
    let qp = bench.queue_pair(4);
    let before = count("table_live");
    let dm = bench.context.alloc_dm(256, 6).unwrap();
    let region = Arc::new(bench.pd.expose_dm(&dm, 64, 128, AccessFlags::REMOTE_READ).unwrap());
    assert_eq!((region.remote().address(), region.remote().len()), (0, 128));
    assert_eq!(
        region.mr().access(),
        AccessFlags::REMOTE_READ | AccessFlags::LOCAL_WRITE | AccessFlags::ZERO_BASED
    );
    assert!(RegionPart::on_chip(&region, 100..129).is_none(), "inside the memory, outside of the region");

    qp.post_send_from(RegionPart::on_chip(&region, 16..48).unwrap(), 7).unwrap();
    // The library's key is the offset of the region.
    assert_eq!(last_element(), (16, 32, 64));
    drop((region, dm));
    assert_eq!(count("table_live"), before + 2, "memory and region: the device may still gather from them");

    complete(1);
    let mut poller = bench.cq.poller();
    let completion = poller.poll().unwrap().next().expect("it is done");
    assert_eq!((completion.tag(), completion.kind()), (7, WorkKind::Send));
    assert!(completion.into_buffers().is_empty());
    assert_eq!((count("table_live"), count("table_violations")), (before, 0));
}

#[test]
fn a_message_in_exposed_memory_keeps_it_mapped() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let (slice, watch) = watched();
    let region = Arc::new(bench.pd.expose(slice, AccessFlags::REMOTE_WRITE).unwrap());
    let start = region.remote().address();
    qp.post_send_from(RegionPart::exposed(&region, 8..LEN).unwrap(), 1).unwrap();
    assert_eq!((last_element().0, last_element().1), (start + 8, LEN as u64 - 8));
    drop(region);
    assert!(watch.is_kept(), "it is in flight");
    drop(qp);
    assert!(!watch.is_kept(), "the queue pair was destroyed");
}

#[test]
fn a_message_that_is_refused_is_handed_back_and_one_in_doubt_is_kept() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(1);
    let (slice, watch) = watched();
    let region = Arc::new(bench.pd.expose(slice, AccessFlags::empty()).unwrap());
    let part = RegionPart::exposed(&region, 0..64).unwrap();

    let refused = |qp: &QueuePair| qp.post_send_from(part.clone(), 0).unwrap_err().reason;

    let other_domain = bench.context.alloc_pd().unwrap();
    let elsewhere = bench.builder(1).build(&other_domain).unwrap();
    assert!(matches!(refused(&elsewhere), Refusal::OtherDomain));
    let too_early = bench.builder(1).build(&bench.pd).unwrap();
    assert!(matches!(refused(&too_early), Refusal::NotReady(_)));
    refuse_post_after(0);
    assert!(matches!(refused(&qp), Refusal::Engine(_)));
    assert_eq!((qp.in_flight(), held()), ((0, 0), 0));

    fail_post_in_doubt();
    assert!(matches!(refused(&qp), Refusal::InDoubt(_)));
    assert!(matches!(refused(&qp), Refusal::QueueFull { depth: 1 }));
    drop((part, region));
    assert!(watch.is_kept(), "the device may have the work request");
    drop(qp);
    assert!(!watch.is_kept());
}

//! Lifetimes: closing with operations in flight, and dropping in every order.

use std::any::Any;
use std::time::Duration;

use farreach_fabric::{
    EndpointBuilder, Error, Fabric, OperationKind, ReceiveRequest, RemoteAccess, Returned, TransmitRequest,
    leaked,
};
use farreach_memory::Slice;
use farreach_testkit::drop_in_orders;

use super::pair::{A, B, Pair, Provider, Side, pattern};

pub(crate) fn closing_gives_back_what_was_posted(provider: &Provider) {
    let before = leaked();
    let side = Side::open(provider);
    for tag in 0..3 {
        let slice = side.slice(&pattern(tag, 64));
        side.endpoint.post_receive(ReceiveRequest::new(slice).tag(tag)).unwrap();
    }
    let Some(mut returned) = closed(side.endpoint.close()) else {
        assert!(side.domain.profile().siblings_look_in);
        return;
    };
    returned.sort_by_key(|operation| operation.tag);
    assert_eq!(returned.len(), 3);
    for (tag, operation) in returned.into_iter().enumerate() {
        assert_eq!((operation.tag, operation.kind), (tag as u64, OperationKind::Receive));
        assert_eq!(operation.buffers.into_slice().unwrap()[..], pattern(tag as u64, 64));
    }
    assert_eq!(leaked().operations, before.operations, "nothing was kept");
    match side.domain.is_spent() {
        true => assert!(matches!(side.cq.poller().poll(), Err(Error::DomainSpent { .. }))),
        false => assert!(
            side.cq.poller().poll().unwrap().next().is_none(),
            "what is left in the queue is nobody's"
        ),
    }
}

pub(crate) fn late_completions_of_a_closed_endpoint_are_nobodys(provider: &Provider) {
    let mut pair = Pair::open(provider);
    for _ in 0..4 {
        let room = pair[B].domain.allocate(64).unwrap();
        pair.post_receive(B, room);
    }
    for number in 0..4 {
        let request = TransmitRequest::send(pair[A].slice(&pattern(number, 64)), &pair[A].peer());
        pair.post(A, request);
        assert_eq!(pair.success(A).1.len(), 64);
    }
    // B's queue may hold completions that were not taken when its endpoint is closed and replaced.
    let [_source, target] = pair.into_sides();
    let Side { endpoint, cq, av, domain, .. } = target;
    let Some(returned) = closed(endpoint.close()) else {
        assert!(domain.profile().siblings_look_in);
        return;
    };
    if domain.is_spent() {
        // The queue is not read any more, and no other endpoint can be opened.
        let refused = EndpointBuilder::new(&cq, &av).build(&domain).unwrap_err();
        assert!(matches!(refused, Error::DomainSpent { .. }), "{refused}");
        return;
    }
    let next = EndpointBuilder::new(&cq, &av).build(&domain).unwrap();
    for tag in 100..104 {
        next.post_receive(ReceiveRequest::new(domain.allocate(64).unwrap()).tag(tag)).unwrap();
    }
    for _ in 0..100 {
        let mut poller = cq.poller();
        let events: Vec<_> = poller.poll().unwrap().collect();
        assert!(events.is_empty(), "{events:?}, after {} came back", returned.len());
    }
    assert_eq!(closed(next.close()).expect("as before").len(), 4, "all that was posted is still there");
}

pub(crate) fn a_dropped_region_is_kept_while_a_write_may_be_under_way(provider: &Provider) {
    let side = Side::open(provider);
    let profile = *side.domain.profile();
    drop(side.expose(4096));
    let is_kept = profile.keys_enforced && !profile.revoke_stops_writes;
    assert_eq!(side.domain.kept_keys(), usize::from(is_kept));
    let (revoked, alive) = (side.expose(4096), side.expose(4096));
    let revoked = revoked.revoke().map_or_else(|(_, exposed)| exposed, Slice::expose);
    closed(side.endpoint.close());
    if !profile.siblings_look_in {
        assert_eq!(side.domain.kept_keys(), 0, "nobody can write any more");
    }
    // That is then the proof for a region that was revoked before, and for a live one, if keys are
    // enforced.
    assert_eq!(revoked.try_into_slice().is_ok(), profile.keys_enforced);
    assert_eq!(alive.revoke().is_ok(), profile.keys_enforced);
}

/// Returns the operations in flight. If endpoints of one process access each other, those of other
/// tests may be open, and nothing is returned.
pub(crate) fn closed(answer: Result<Vec<Returned>, Error>) -> Option<Vec<Returned>> {
    match answer {
        Ok(returned) => Some(returned),
        Err(Error::InUse { object: "endpoint", .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The number of handles that the user drops: every order of them is tried.
const HANDLES: usize = 6;
/// HANDLES!
const ORDERS: usize = 720;

fn everything(provider: &Provider) -> [Box<dyn Any + Send>; HANDLES] {
    let info = provider.offer();
    let fabric = Fabric::open(&info).unwrap();
    let domain = fabric.open_domain(&info).unwrap();
    let (cq, av) = (domain.open_cq_of(16).unwrap(), domain.open_av().unwrap());
    let endpoint = EndpointBuilder::new(&cq, &av).transmit_depth(2).receive_depth(2).build(&domain).unwrap();
    let peer = av.insert(endpoint.address()).unwrap();
    let slice = domain.allocate(4096).unwrap();
    endpoint.post_receive(ReceiveRequest::new(domain.allocate(64).unwrap())).unwrap();
    let exposed = domain.allocate(4096).unwrap();
    let region = domain.expose(exposed, RemoteAccess::WRITE).unwrap();
    [
        Box::new(fabric),
        Box::new(domain),
        Box::new(cq),
        Box::new(av),
        Box::new(endpoint),
        Box::new((peer, slice, region)),
    ]
}

pub(crate) fn objects_may_be_dropped_in_every_order(provider: &Provider) {
    let provider = *provider;
    let before = leaked();
    let numbers = (0..ORDERS).step_by(provider.drop_orders_step);
    drop_in_orders(numbers, Duration::from_secs(60), move || everything(&provider).into());
    let after = leaked();
    // Other tests of this program run at the same time, and leak exposed slices if keys are not
    // enforced.
    let objects = |it: farreach_fabric::Leaked| it.total() - it.exposed_slices - it.operations;
    assert_eq!(objects(after), objects(before), "{after:?}");
}

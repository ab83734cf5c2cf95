//! Peers: inserting, looking up, and many of them.

use farreach_fabric::{
    Address, AddressFormat, EndpointBuilder, Error, Event, Peer, ReceiveRequest, TransmitRequest,
};
use farreach_testkit::wait_for;

use super::pair::{A, B, Pair, Provider, Side};

/// As many as the issue of EFA's queue pairs asks for.
const PEERS: usize = 256;

pub(crate) fn addresses_are_inserted_looked_up_and_removed(provider: &Provider) {
    let pair = Pair::open(provider);
    let (a, b) = (&pair[A], &pair[B]);
    let format = a.domain.info().address_format();
    let hex = b.endpoint.address().to_hex();
    let address = Address::parse_hex(format, &hex).unwrap();
    assert_eq!(address, *b.endpoint.address());

    // A second insertion returns another handle on the same peer.
    let peer = a.av.insert(&address).unwrap();
    assert_eq!(a.av.len(), 1);
    // One provider omits the common prefix of its addresses.
    let own = peer.look_up().unwrap().to_string();
    assert!(!own.is_empty() && address.to_string().ends_with(&own), "{own} and {address}");
    let (error, peer) = a.av.remove(peer).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(peer);

    let own = a.av.insert(a.endpoint.address()).unwrap();
    assert_eq!(a.av.len(), 2);
    assert!(a.av.get(a.endpoint.address()).is_some());
    let (error, own) = b.av.remove(own).unwrap_err();
    assert!(matches!(error, Error::NotOfThis { .. }), "{error}");
    if !a.domain.profile().forgets_peers {
        drop(own);
        assert_eq!(a.av.len(), 2, "it stays until the vector goes");
        return;
    }
    a.av.remove(own).map_err(|(error, _)| error).unwrap();
    assert_eq!(a.av.len(), 1);
    assert!(a.av.get(a.endpoint.address()).is_none());
    // A removed address can be inserted again.
    a.av.insert(a.endpoint.address()).unwrap();
    assert_eq!(a.av.len(), 1, "and goes with its last handle");
}

pub(crate) fn an_address_of_another_kind_is_refused(provider: &Provider) {
    let side = Side::open(provider);
    let format = side.domain.info().address_format();
    let own = side.endpoint.address().bytes().to_vec();
    for wrong in [
        Address::new(format, own[..own.len() - 1].to_vec()),
        Address::new(format, Vec::new()),
        Address::new(format, vec![0]),
        Address::new(AddressFormat::Efa, vec![0; 32]),
    ] {
        let error = side.av.insert(&wrong).unwrap_err();
        assert!(matches!(error, Error::AddressRefused { .. }), "{wrong:?}: {error}");
        assert!(error.fix().contains("same provider"), "{}", error.fix());
    }
    assert!(side.av.is_empty());
}

pub(crate) fn many_peers_of_one_address_vector_are_reached(provider: &Provider) {
    let mut center = Side::open(provider);
    let count = PEERS.min(provider.endpoints_max);
    let others = provider.domain();
    let (cq, av) = (others.open_polled_cq_of(4 * count).unwrap(), others.open_av().unwrap());
    let endpoints: Vec<_> = (0..count)
        .map(|_| EndpointBuilder::new(&cq, &av).transmit_depth(2).receive_depth(2).build(&others).unwrap())
        .collect();
    let peers: Vec<_> =
        endpoints.iter().map(|endpoint| center.av.insert(endpoint.address()).unwrap()).collect();
    // If fewer endpoints can be open at once, unused addresses fill up the vector.
    let nobody: Vec<_> = (count..PEERS)
        .map(|number| center.av.insert(&address_of_nobody(endpoints[0].address(), number)).unwrap())
        .collect();
    assert_eq!(center.av.len(), PEERS);

    for (number, endpoint) in endpoints.iter().enumerate() {
        let room = others.allocate(16).unwrap();
        endpoint.post_receive(ReceiveRequest::new(room).tag(number as u64)).unwrap();
    }
    let mut arrived = vec![false; count];
    let mut poll_others = || {
        for event in cq.poller().poll().unwrap() {
            let Event::Completed(completion) = event else { panic!("{event:?}") };
            let tag = completion.tag();
            let slice = completion.into_buffers().into_slice().unwrap();
            assert_eq!(slice[..8], tag.to_ne_bytes(), "each gets its own");
            assert!(!std::mem::replace(&mut arrived[tag as usize], true), "and once");
        }
        arrived.iter().filter(|it| **it).count()
    };
    let request = |(number, peer): (usize, &Peer)| {
        let slice = center.slice(&(number as u64).to_ne_bytes());
        TransmitRequest::send(slice, peer).tag(number as u64)
    };
    let mut waiting: Vec<_> = peers.iter().enumerate().map(request).collect();
    wait_for("message at each peer", || {
        // All connect at the same time; refused requests wait for their connections.
        let post = |request| center.endpoint.post(request).err().map(|error| error.request);
        waiting = waiting.drain(..).filter_map(post).collect();
        center.poll();
        (poll_others() == count && waiting.is_empty()).then_some(())
    });
    let all = center.av.len();
    drop(nobody);
    let is_forgotten = center.domain.profile().forgets_peers;
    assert_eq!(center.av.len(), if is_forgotten { count } else { all });
}

/// Returns an address like this one, without an endpoint.
fn address_of_nobody(like: &Address, number: usize) -> Address {
    let mut bytes = like.bytes().to_vec();
    match like.socket_addr() {
        // Privileged ports, which the system never assigns by itself.
        Some(_) => bytes[2..4].copy_from_slice(&(number as u16 + 256).to_be_bytes()),
        None => bytes = format!("fi_shm://{}:{number}:0\0", u32::MAX).into_bytes(),
    }
    Address::new(like.format(), bytes)
}

//! A removed peer cannot be used.

use farreach_fabric::{AddressVector, Endpoint, Peer};

fn misuse(av: &AddressVector, endpoint: &Endpoint, peer: Peer) {
    av.remove(peer).unwrap();
    endpoint.inject(b"hello", &peer, None).unwrap();
}

fn main() {}

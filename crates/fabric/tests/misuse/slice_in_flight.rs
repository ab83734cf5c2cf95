//! A posted slice cannot be used before its completion.

use farreach_fabric::{Endpoint, Peer, TransmitRequest};
use farreach_memory::Slice;

fn misuse(endpoint: &Endpoint, peer: &Peer, mut slice: Slice) {
    endpoint.post(TransmitRequest::send(slice, peer)).unwrap();
    slice[0] = 1;
}

fn main() {}

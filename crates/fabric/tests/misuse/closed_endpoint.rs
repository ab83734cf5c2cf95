//! A closed endpoint accepts nothing.

use farreach_fabric::{Endpoint, ReceiveRequest};
use farreach_memory::Slice;

fn misuse(endpoint: Endpoint, slice: Slice) {
    endpoint.close().unwrap();
    endpoint.post_receive(ReceiveRequest::new(slice)).unwrap();
}

fn main() {}

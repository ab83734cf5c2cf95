//! A posted slice cannot be accessed before its completion.

use farreach_memory::Slice;
use farreach_verbs::qp::QueuePair;
use farreach_verbs::wr::SendRequest;

fn misuse(qp: &QueuePair, mut slice: Slice) {
    qp.post_send(SendRequest::send(slice)).unwrap();
    slice[0] = 1;
}

fn main() {}

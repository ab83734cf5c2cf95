//! A card writes only to what nobody reads.

use farreach_memory::Shared;
use farreach_verbs::wr::{RemoteRange, SendRequest};

fn misuse(shared: Shared, remote: RemoteRange) -> SendRequest {
    SendRequest::read(shared, remote)
}

fn main() {}

//! A device writes only to memory without readers.

use farreach_memory::Shared;
use farreach_verbs::wr::{RemoteRange, SendRequest};

fn misuse(shared: Shared, remote: RemoteRange) -> SendRequest {
    SendRequest::read(shared, remote)
}

fn main() {}

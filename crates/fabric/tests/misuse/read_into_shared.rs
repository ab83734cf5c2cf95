//! A provider writes only to buffers that are not shared.

use farreach_fabric::{Peer, RemoteRegion, TransmitRequest};
use farreach_memory::Shared;

fn misuse(shared: Shared, peer: &Peer, remote: RemoteRegion) -> TransmitRequest {
    TransmitRequest::read(shared, peer, remote)
}

fn main() {}

//! If keys are not enforced, the caller must vouch for the peer's memory.

use farreach_fabric::RemoteRegion;

fn misuse() -> RemoteRegion {
    RemoteRegion::new(0x7000_0000_0000, 4096, 1).vouched()
}

fn main() {}

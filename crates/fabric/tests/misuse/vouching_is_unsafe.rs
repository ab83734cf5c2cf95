//! Where keys are not enforced, whoever names a peer's memory vouches for it.

use farreach_fabric::RemoteRegion;

fn misuse() -> RemoteRegion {
    RemoteRegion::new(0x7000_0000_0000, 4096, 1).vouched()
}

fn main() {}

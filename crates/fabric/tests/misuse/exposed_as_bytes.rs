//! Memory that a peer may write to has no reference to its bytes.

use farreach_fabric::ExposedRegion;

fn misuse(region: &ExposedRegion) -> &[u8] {
    region.bytes()
}

fn main() {}

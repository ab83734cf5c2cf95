//! There is no reference to the bytes of memory that a peer may write to.

use farreach_fabric::ExposedRegion;

fn misuse(region: &ExposedRegion) -> &[u8] {
    region.bytes()
}

fn main() {}

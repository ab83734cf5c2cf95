//! No reference to memory that a peer may write to exists.

use farreach_verbs::region::ExposedRegion;

fn misuse(region: &ExposedRegion) -> &[u8] {
    region.bytes()
}

fn main() {}

//! What the tests of sizes share.

pub(crate) mod crowd;
pub(crate) mod idle;
pub(crate) mod peers;
pub(crate) mod sizes;
mod usage;

use std::io::Write;
use std::time::Duration;

/// Nothing here takes so long; what does has failed.
const SOON: Duration = Duration::from_secs(50);

/// Says a figure.
fn say(figure: &str) {
    // A macro for it would be caught by the harness, where nobody sees it.
    let _ = writeln!(std::io::stderr(), "   {figure}");
}

/// Bytes that differ with their place and with the seed.
fn fill(bytes: &mut [u8], seed: u64) {
    for (place, byte) in bytes.iter_mut().enumerate() {
        let mixed = (place as u64 ^ seed.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        *byte = (mixed >> 56) as u8;
    }
}

fn filled(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed);
    bytes
}

//! Shared parts of the tests of sizes.

pub(crate) mod crowd;
pub(crate) mod idle;
pub(crate) mod peers;
pub(crate) mod sizes;
mod usage;

use std::io::Write;
use std::time::Duration;

/// Time limit of each wait.
const SOON: Duration = Duration::from_secs(50);

/// Prints a figure.
fn say(figure: &str) {
    // The harness would capture the output of a macro.
    let _ = writeln!(std::io::stderr(), "   {figure}");
}

/// Fills with bytes that differ by place and seed.
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

//! The boot id of this host, and digests with it.

use std::fs;
use std::io;

use sha2::{Digest, Sha256};

use crate::error::Hex;
use crate::obstacle::Obstacle;

/// Returns the digest of a host.
pub(crate) fn host_digest(boot_id: &str) -> String {
    digest(&[b"host", boot_id.as_bytes()])
}

/// Reads the boot id of this host.
pub(crate) fn boot_id() -> Result<String, Obstacle> {
    const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
    let at = |error| Obstacle { call: BOOT_ID, error };
    let boot_id = fs::read_to_string(BOOT_ID).map_err(at)?.trim().to_owned();
    // Some sandboxes put an empty file there. All of them would be one host, and digests could be
    // guessed.
    match boot_id.bytes().filter(u8::is_ascii_hexdigit).count() {
        32 => Ok(boot_id),
        _ => Err(at(io::Error::new(io::ErrorKind::InvalidData, "it has no 32 digits"))),
    }
}

/// Returns the first 128 bits of a SHA-256 over these parts, in hexadecimal.
pub(crate) fn digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"farreach-shm place");
    for part in parts {
        // With the length, no two lists of parts have the same bytes.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Hex(&hash.finalize()[..16]).to_string()
}

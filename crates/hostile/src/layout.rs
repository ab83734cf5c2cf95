//! The layout of the memory that a victim grants to each peer.

/// The length of a page, and the pages of one write.
pub(crate) const PAGE: u64 = 4096;
pub(crate) const PAGES_PER_WRITE: u32 = 4;

/// The threads of a client. Each writes to pages of its own.
pub(crate) const THREADS: usize = 4;

/// The bytes that clients write to, and the eight bytes behind them that they add to.
pub(crate) const DATA_LEN: usize = THREADS * PAGES_PER_WRITE as usize * PAGE as usize;
pub(crate) const ATOMIC_AT: usize = DATA_LEN;
pub(crate) const GRANT_LEN: usize = DATA_LEN + PAGE as usize;

/// The first of the bytes by which clients are told apart.
const FIRST_TAG: u8 = 0x40;

/// Returns the byte that the client of this name writes: `honest-3` writes 0x43. Others write
/// nothing.
pub(crate) fn tag_of(name: &str) -> Option<u8> {
    let number: u8 = name.strip_prefix("honest-")?.parse().ok()?;
    FIRST_TAG.checked_add(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insider::ATTACK_BYTE;

    #[test]
    fn each_client_has_a_byte_of_its_own() {
        assert_eq!([tag_of("honest-0"), tag_of("honest-1")], [Some(0x40), Some(0x41)]);
        assert_eq!([tag_of("witness"), tag_of("honest-x"), tag_of("honest-255")], [None; 3]);
        assert!((0..100).all(|number| tag_of(&format!("honest-{number}")) != Some(ATTACK_BYTE)));
    }
}

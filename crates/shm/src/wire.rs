//! The packets of a link's socket: keys, which need descriptors, and their ends.

use crate::map::Access;
use crate::socket::PACKET;

/// A nonce by which one side proves that it is meant. Both sides get it over a channel that they
/// trust.
pub type Nonce = [u8; 32];

/// Packets of this form begin with it.
pub(crate) const MAGIC: &[u8; 8] = b"farshm02";

/// A packet between two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet {
    /// The first packet of the side that has connected, with the segment.
    Hello(Nonce),
    /// The answer.
    Welcome(Nonce),
    /// A new key, with the descriptor of the memory.
    Grant(Announced),
    /// The key must not be used any more.
    Revoke { key: u64 },
    /// The key is not used any more.
    Ended { key: u64 },
    /// Wakes a side that sleeps, and is not counted.
    Wake,
}

/// Memory that a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) key: u64,
    pub(crate) file_len: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) access: Access,
}

impl Packet {
    pub(crate) fn to_bytes(self) -> [u8; PACKET] {
        let mut bytes = [0; PACKET];
        bytes[..8].copy_from_slice(MAGIC);
        let mut words = |kind: u64, words: &[u64]| {
            for (index, word) in [kind].iter().chain(words).enumerate() {
                let at = 8 + index * 8;
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        };
        match self {
            Self::Hello(nonce) => {
                words(1, &[]);
                bytes[16..48].copy_from_slice(&nonce);
            }
            Self::Welcome(nonce) => {
                words(2, &[]);
                bytes[16..48].copy_from_slice(&nonce);
            }
            Self::Grant(Announced { key, file_len, offset, len, access }) => {
                words(3, &[key, file_len, offset, len, u64::from(access.permits_writes())]);
            }
            Self::Revoke { key } => words(4, &[key]),
            Self::Ended { key } => words(5, &[key]),
            Self::Wake => words(6, &[]),
        }
        bytes
    }

    /// Returns `None` for bytes that are no packet of this release.
    pub(crate) fn from_bytes(bytes: &[u8; PACKET]) -> Option<Self> {
        if &bytes[..8] != MAGIC {
            return None;
        }
        let word = |index: usize| {
            let at = 8 + index * 8;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        let nonce = || -> Nonce { bytes[16..48].try_into().expect("32 bytes") };
        Some(match word(0) {
            1 => Self::Hello(nonce()),
            2 => Self::Welcome(nonce()),
            3 => Self::Grant(Announced {
                key: word(1),
                file_len: word(2),
                offset: word(3),
                len: word(4),
                access: match word(5) {
                    0 => Access::ReadOnly,
                    1 => Access::ReadWrite,
                    _ => return None,
                },
            }),
            4 => Self::Revoke { key: word(1) },
            5 => Self::Ended { key: word(1) },
            6 => Self::Wake,
            _ => return None,
        })
    }
}

/// Compares two nonces in constant time.
pub(crate) fn is_same_nonce(one: &Nonce, other: &Nonce) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other));
    std::hint::black_box(difference) == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_and_others_do_not() {
        let grant = Announced { key: 1, file_len: 2, offset: 3, len: 4, access: Access::ReadOnly };
        let packets = [
            Packet::Hello([1; 32]),
            Packet::Welcome([2; 32]),
            Packet::Grant(grant),
            Packet::Grant(Announced { access: Access::ReadWrite, key: u64::MAX, ..grant }),
            Packet::Revoke { key: 7 },
            Packet::Ended { key: 8 },
            Packet::Wake,
        ];
        for packet in packets {
            assert_eq!(Packet::from_bytes(&packet.to_bytes()), Some(packet));
            let mut wrong = packet.to_bytes();
            wrong[0] ^= 1;
            assert_eq!(Packet::from_bytes(&wrong), None);
        }
        let mut wrong = Packet::Grant(grant).to_bytes();
        wrong[48] = 9;
        assert_eq!(Packet::from_bytes(&wrong), None);
        wrong[8] = 99;
        assert_eq!(Packet::from_bytes(&wrong), None);
        assert!(is_same_nonce(&[3; 32], &[3; 32]) && !is_same_nonce(&[3; 32], &[4; 32]));
    }
}

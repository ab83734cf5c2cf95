//! The end of a link, as it is sent to the peer.

use farreach_verbs::ah::{Gid, Lid};
use farreach_verbs::port::Mtu;
use farreach_verbs::qp::state::PeerAddress;
use serde::{Deserialize, Serialize};

/// An end of a link, as it is sent over the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    qp_num: u32,
    /// The first packet sequence number.
    psn: u32,
    gid: [u8; 16],
    lid: u16,
    /// The largest packets that the port accepts.
    mtu_bytes: u32,
    /// Reads and atomics that it serves at the same time.
    rd_atomic: u8,
    port: u8,
    /// The longest message that it accepts.
    pub(super) message_max: u32,
}

/// Queue pair numbers and packet sequence numbers have 24 bits.
const NUMBER_MAX: u32 = 0xff_ffff;

const MTUS: [Mtu; 5] = [Mtu::Bytes256, Mtu::Bytes512, Mtu::Bytes1024, Mtu::Bytes2048, Mtu::Bytes4096];

impl End {
    pub(super) fn new(address: &PeerAddress, port: u8, message_max: usize) -> Self {
        Self {
            qp_num: address.qp_num,
            psn: address.psn,
            gid: address.gid.to_bytes(),
            lid: address.lid.0,
            // Every card supports the smallest MTU, also one whose MTU this crate does not know.
            mtu_bytes: address.mtu.bytes().unwrap_or(256),
            rd_atomic: address.rd_atomic,
            port,
            // Messages of a card have 2³¹ bytes at most.
            message_max: u32::try_from(message_max).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        postcard::to_allocvec(&self).expect("serializing integers into a vector does not fail")
    }

    /// Decodes the result of [`to_bytes`](Self::to_bytes), or returns what is wrong with it.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        let Ok((end, rest)) = postcard::take_from_bytes::<Self>(bytes) else {
            return Err("it is too short, or has another version");
        };
        // A newer version may have more fields.
        if !rest.is_empty() {
            return Err("it is too long, or has another version");
        }
        if end.qp_num > NUMBER_MAX || end.psn > NUMBER_MAX {
            return Err("its queue pair number or packet sequence number exceeds 24 bits");
        }
        if end.mtu().is_none() {
            return Err("its MTU is not valid");
        }
        Ok(end)
    }

    /// Returns the address for the card; `None` if the MTU is invalid.
    pub(super) fn address(&self) -> Option<PeerAddress> {
        Some(PeerAddress {
            qp_num: self.qp_num,
            psn: self.psn,
            gid: Gid::from_bytes(self.gid),
            lid: Lid(self.lid),
            mtu: self.mtu()?,
            rd_atomic: self.rd_atomic,
            // Only datagrams use it.
            qkey: 0,
        })
    }

    fn mtu(&self) -> Option<Mtu> {
        // The peer may send any number, and a card has these five.
        MTUS.into_iter().find(|mtu| mtu.bytes() == Some(self.mtu_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> End {
        let address = PeerAddress {
            qp_num: 17,
            psn: NUMBER_MAX,
            gid: "::ffff:192.0.2.1".parse().unwrap(),
            lid: Lid(7),
            mtu: Mtu::Bytes4096,
            rd_atomic: 16,
            qkey: 0,
        };
        End::new(&address, 1, 4096)
    }

    #[test]
    fn an_end_arrives_as_it_was_told() {
        let arrived = End::from_bytes(&end().to_bytes()).unwrap();
        assert_eq!(arrived, end());
        let address = arrived.address().unwrap();
        assert_eq!((address.qp_num, address.psn, address.mtu), (17, NUMBER_MAX, Mtu::Bytes4096));
        assert_eq!(address.gid.to_string(), "::ffff:192.0.2.1");
    }

    #[test]
    fn what_is_no_end_is_refused() {
        let bytes = end().to_bytes();
        assert!(End::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        assert!(End::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        assert!(End::from_bytes(&[]).is_err());
        let wrong = [
            End { qp_num: NUMBER_MAX + 1, ..end() },
            End { psn: u32::MAX, ..end() },
            End { mtu_bytes: 1500, ..end() },
        ];
        for end in wrong {
            assert!(End::from_bytes(&end.to_bytes()).is_err(), "{end:?}");
        }
    }
}

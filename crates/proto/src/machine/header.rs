//! The header of a message that goes over a link.

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// The mark that the receiver expects on messages of this link.
    pub mark: u64,
    /// The number of the message.
    pub sequence: u64,
    /// The sender's engine holds all messages of the receiver before this number.
    pub held: u64,
}

impl MessageHeader {
    /// Its length in bytes.
    pub const LEN: usize = 24;

    /// Encodes it.
    #[inline]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let fields = [self.mark, self.sequence, self.held];
        for (to, field) in bytes.chunks_exact_mut(8).zip(fields) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Splits a message into its header and its content. Returns `None` if it is too short.
    #[inline]
    pub fn decode(message: &[u8]) -> Option<(Self, &[u8])> {
        let (mark, rest) = message.split_first_chunk()?;
        let (sequence, rest) = rest.split_first_chunk()?;
        let (held, bytes) = rest.split_first_chunk()?;
        let [mark, sequence, held] = [mark, sequence, held].map(|field| u64::from_le_bytes(*field));
        Some((Self { mark, sequence, held }, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_with_the_content() {
        let header = MessageHeader { mark: 1 << 63, sequence: 2, held: u64::MAX };
        let message = [&header.encode()[..], b"content"].concat();
        assert_eq!(MessageHeader::decode(&message), Some((header, &b"content"[..])));
        for len in 0..MessageHeader::LEN {
            assert_eq!(MessageHeader::decode(&message[..len]), None);
        }
    }
}

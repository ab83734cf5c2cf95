//! The end of a link, as it is sent to the peer.

use farreach_fabric::{Address, AddressFormat};
use farreach_rail::RailError;
use serde::{Deserialize, Serialize};

/// Identifies the format and its version. It comes first in an encoded end.
const MARK: u32 = 0xfa_b0_00_02;

/// One end of a link, as it is sent to the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    /// The address of the endpoint.
    pub(super) address: Address,
}

#[derive(Serialize, Deserialize)]
struct Encoded<'a> {
    mark: u32,
    format: &'a str,
    address: &'a [u8],
}

impl End {
    pub(super) fn encode(&self) -> Result<Vec<u8>, RailError> {
        let encoded =
            Encoded { mark: MARK, format: &self.address.format().to_string(), address: self.address.bytes() };
        postcard::to_allocvec(&encoded).map_err(|error| {
            RailError::new(
                "encode an end of a link",
                error.to_string(),
                "this is a bug in farreach: report it",
            )
        })
    }

    /// Decodes the peer's end. Its address must have this format.
    pub(super) fn decode(bytes: &[u8], format: AddressFormat) -> Result<Self, RailError> {
        let refused = |cause: String| {
            RailError::new(
                "connect a link",
                cause,
                "connect rails of the same kind, and run the same release on both sides",
            )
        };
        let (encoded, rest): (Encoded<'_>, _) = postcard::take_from_bytes(bytes)
            .map_err(|error| refused(format!("the peer's end cannot be decoded: {error}")))?;
        // Bytes that are left mean that the two sides have different formats.
        if encoded.mark != MARK || !rest.is_empty() {
            return Err(refused("the peer's end has another kind or version".to_owned()));
        }
        // The library would read the bytes as an address of its own format.
        if encoded.format != format.to_string() {
            // A peer may send a text of any length.
            let theirs: String = encoded.format.chars().take(40).collect();
            return Err(refused(format!(
                "the peer's address has the format {theirs}, this side has {format}"
            )));
        }
        if encoded.address.len() > Address::BYTES_MAX {
            return Err(refused(format!(
                "the peer's address of {} bytes exceeds the maximum of {} bytes",
                encoded.address.len(),
                Address::BYTES_MAX
            )));
        }
        Ok(Self { address: Address::new(format, encoded.address) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end() -> End {
        let address = Address::new(AddressFormat::Ipv4, (0..16).collect::<Vec<u8>>());
        End { address }
    }

    #[test]
    fn an_end_is_read_as_it_was_written() {
        let bytes = end().encode().unwrap();
        assert_eq!(End::decode(&bytes, AddressFormat::Ipv4).unwrap(), end());
    }

    #[test]
    fn what_is_not_an_end_of_this_kind_is_refused_with_a_reason() {
        let bytes = end().encode().unwrap();
        let cause = |bytes: &[u8], format| End::decode(bytes, format).unwrap_err().cause;
        for len in 0..bytes.len() {
            assert!(!cause(&bytes[..len], AddressFormat::Ipv4).is_empty(), "{len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(cause(&longer, AddressFormat::Ipv4).contains("kind or version"));
        let mut other = bytes.clone();
        other[0] ^= 1;
        assert!(cause(&other, AddressFormat::Ipv4).contains("kind or version"));
        assert!(cause(&bytes, AddressFormat::Text).contains("ipv4"));
        let long = End { address: Address::new(AddressFormat::Ipv4, vec![0; 513]) };
        assert!(cause(&long.encode().unwrap(), AddressFormat::Ipv4).contains("513 bytes"));
    }
}

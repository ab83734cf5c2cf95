//! Ends of links, as a peer sends them.
//!
//! The two files depend on nothing else of the engine, so they are compiled here once more.

#[path = "../../crates/engine/src/rails/fabric/end.rs"]
#[allow(dead_code, reason = "the engine uses all of it")]
mod fabric;
#[path = "../../crates/engine/src/rails/verbs/end.rs"]
#[allow(dead_code, reason = "the engine uses all of it")]
mod verbs;

use farreach_fabric::{Address, AddressFormat};

const FORMATS: [AddressFormat; 4] =
    [AddressFormat::Ipv4, AddressFormat::Ipv6, AddressFormat::Text, AddressFormat::Efa];

pub(crate) fn run(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let format = FORMATS[usize::from(*first) % FORMATS.len()];
    match fabric::End::decode(bytes, format) {
        Ok(end) => {
            assert_eq!(end.address.format(), format);
            assert!(end.address.bytes().len() <= Address::BYTES_MAX);
            // The rail shows it in errors.
            let _ = (end.address.to_string(), end.address.socket_addr());
            let encoded = end.encode().expect("an end can be encoded");
            assert_eq!(fabric::End::decode(&encoded, format).expect("an end"), end);
        }
        Err(error) => assert!(error.cause.len() < 400, "{error}"),
    }
    let Ok(end) = verbs::End::from_bytes(bytes) else { return };
    let address = end.address().expect("its MTU was checked");
    assert!(address.qp_num < 1 << 24 && address.psn < 1 << 24);
    assert!(address.mtu.bytes().is_some_and(|mtu| (256..=4096).contains(&mtu)));
    assert_eq!(verbs::End::from_bytes(&end.to_bytes()), Ok(end));
}

//! Frames: encoding round trips, and arbitrary bytes do no harm.

use farreach_proto::counter::{Counters, LinkId};
use farreach_proto::ids::{GrantId, PublicationId, SharedCounterId};
use farreach_proto::rail::Scope;
use farreach_proto::wire::{
    BoundKey, Decoder, FRAME_MAX, Frame, GrantOffer, Hello, KEYS_MAX, LinkOffer, PREAMBLE_LEN, VERSION,
    WireError, check_preamble, encode, preamble,
};
use proptest::prelude::*;

fn frames() -> Vec<Frame> {
    let counter = Counters::new().open().unwrap();
    let link = LinkId(u64::MAX);
    vec![
        Frame::Hello(Hello {
            incarnation: 1 << 63,
            name: "storage-7".into(),
            rails: vec!["verbs".into(); 16],
            messages: 64,
            grants: 1 << 20,
            counters: u32::MAX,
        }),
        Frame::Link(LinkOffer { link, from: 1, to: 15, address: vec![0; 40] }),
        Frame::LinkReady { link, mark: u64::MAX, needs_names: true, binds_keys: true },
        Frame::Keys {
            link,
            keys: vec![
                BoundKey { grant: GrantId::from_raw(u64::MAX), address: u64::MAX, key: u64::MAX };
                KEYS_MAX
            ],
        },
        Frame::Counter { counter, names: vec![(link, counter); 16] },
        Frame::CounterClosed { counter },
        Frame::Taken { count: 32 },
        Frame::Held { next: 1 << 40 },
        Frame::LinkLost { link, is_quiet: true, reason: "port down".into() },
        Frame::Grant(GrantOffer {
            grant: GrantId::from_raw(3),
            len: 1 << 36,
            rights: 7,
            scope: Scope::Network,
            keys: vec![Some((u64::MAX, 0x1234)); 16],
        }),
        Frame::Revoke { grant: GrantId::from_raw(3) },
        Frame::Revoked { grant: GrantId::from_raw(3) },
        Frame::Open { publication: PublicationId::from_raw(u64::MAX) },
        Frame::Opened { publication: PublicationId::from_raw(1), grant: GrantId::from_raw(3) },
        Frame::NotOpened { publication: PublicationId::from_raw(1), reason: "it was revoked".into() },
        Frame::OpenCounter { shared: SharedCounterId::from_raw(u64::MAX) },
        Frame::CounterOpened { shared: SharedCounterId::from_raw(1), counter },
        Frame::CounterNotOpened {
            shared: SharedCounterId::from_raw(1),
            reason: "there are too many counters".into(),
        },
        Frame::Settle { link, counter },
        Frame::Settled { link, counter, pages: 9 },
        Frame::Add { counter, pages: 1 },
        Frame::Abort { counter, reason: String::new() },
        Frame::Message { sequence: 1, bytes: vec![7; 60_000] },
        Frame::Ping { nonce: 5 },
        Frame::Pong { nonce: 5 },
        Frame::Refused { reason: "it has 4 peers".to_owned() },
        Frame::Look,
        Frame::Goodbye,
    ]
}

fn all_of(decoder: &mut Decoder) -> Vec<Frame> {
    std::iter::from_fn(|| decoder.next().unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut(cuts in proptest::collection::vec(1_usize..5000, 1..40)) {
        let mut bytes = Vec::new();
        for frame in frames() {
            encode(&frame, &mut bytes).unwrap();
        }
        let (mut decoder, mut decoded) = (Decoder::new(), Vec::new());
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            decoder.feed(piece);
            decoded.extend(all_of(&mut decoder));
            rest = left;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(decoded, frames());
    }

    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut decoder = Decoder::new();
        decoder.feed(&bytes);
        // The loop ends: each frame consumes bytes, and an error ends it at once.
        while let Ok(Some(_)) = decoder.next() {}
    }

    #[test]
    fn a_frame_that_is_bent_is_refused_or_another_frame(index in 0_usize..13, at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = Vec::new();
        encode(&frames()[index], &mut bytes).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let mut decoder = Decoder::new();
        decoder.feed(&bytes);
        let _ = decoder.next();
    }
}

#[test]
fn what_is_too_long_is_refused_on_both_sides() {
    let long = Frame::Message { sequence: 1, bytes: vec![0; FRAME_MAX + 1] };
    assert!(matches!(encode(&long, &mut Vec::new()), Err(WireError::TooLong { .. })));
    let mut decoder = Decoder::new();
    decoder.feed(&(FRAME_MAX as u32 + 1).to_be_bytes());
    assert_eq!(decoder.next(), Err(WireError::TooLong { len: FRAME_MAX + 1 }));
}

#[test]
fn bytes_behind_a_frames_content_make_it_meaningless() {
    let mut bytes = Vec::new();
    encode(&Frame::Goodbye, &mut bytes).unwrap();
    let len = bytes.len() as u32 - 4 + 1;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes.push(0);
    let mut decoder = Decoder::new();
    decoder.feed(&bytes);
    assert!(matches!(decoder.next(), Err(WireError::Meaningless { .. })));
}

#[test]
fn two_versions_say_which_side_to_upgrade() {
    let of = |version: u16| {
        let mut bytes: [u8; PREAMBLE_LEN] = preamble();
        bytes[PREAMBLE_LEN - 2..].copy_from_slice(&version.to_be_bytes());
        check_preamble(&bytes)
    };
    of(VERSION).unwrap();
    assert!(of(0).unwrap_err().to_string().ends_with("upgrade the peer"));
    assert!(of(300).unwrap_err().to_string().ends_with("upgrade this side"));
    assert_eq!(check_preamble(b"GET / HT"), Err(WireError::Stranger));
}

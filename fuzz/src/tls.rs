//! An attacker between two control connections: it sees, alters, drops, repeats and invents bytes.
//!
//! Over TLS, a side must deliver nothing but frames that the other side has sent, in their order.

use std::sync::OnceLock;

use arbitrary::{Arbitrary, Unstructured};
use farreach::fuzz::{Middle, Side};
use farreach::{Secret, Tls};
use farreach_proto::ids::GrantId;
use farreach_proto::rail::Scope;
use farreach_proto::wire::{Frame, GrantOffer, Hello};

#[derive(Debug, Arbitrary)]
struct Input {
    setting: Setting,
    acts: Vec<(bool, Act)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
enum Setting {
    SameSecret,
    OtherSecret,
    OnlyServer,
    OnlyClient,
    ClearText,
}

/// What is done with the bytes that a side has sent since the last act.
#[derive(Debug, Arbitrary)]
enum Act {
    /// The side sends a frame of this length.
    Send(u16),
    /// The side ends its session.
    Close,
    Pass,
    /// In chunks of this length.
    PassInChunks(u8),
    Drop,
    /// All but the first bytes are kept for the next act.
    PassSome(u16),
    Flip {
        at: u16,
        bit: u8,
    },
    /// The header of a record.
    SetHeader {
        at: u16,
        byte: u8,
    },
    Truncate(u16),
    Repeat,
    /// What this side sent goes back to it.
    Reflect,
    Insert {
        at: u16,
        bytes: Vec<u8>,
    },
    /// Bytes of the attacker alone.
    Invent(Vec<u8>),
    HangUp,
}

/// Acts beyond this number tell nothing new, and each costs a handshake's worth of time.
const ACTS_MAX: usize = 40;

/// A connection holds no more than two frames and their records.
const HELD_MAX: usize = 512 * 1024;

fn secrets() -> &'static [Tls; 2] {
    static SECRETS: OnceLock<[Tls; 2]> = OnceLock::new();
    SECRETS.get_or_init(|| {
        [
            "5f1d7a9c03e2b846d1f0a37c9be4582610cc47e39a5d8b71f2640e9d3ab8c75e",
            "90b3c7d25e8f1a64c0d97be3528f46a1d37e05bc9a6128f4e7c3501d8ba49f26",
        ]
        .map(|text| Tls::from_secret(text.parse::<Secret>().expect("a secret")))
    })
}

pub(crate) fn run(input: &[u8]) {
    // The certificates are made once, which is not to count as memory of an input.
    let [first, second] = secrets();
    let Ok(Input { setting, acts }) = Input::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let middle = match setting {
        Setting::SameSecret => Middle::new(Some(first), Some(first)),
        Setting::OtherSecret => Middle::new(Some(first), Some(second)),
        Setting::OnlyServer => Middle::new(None, Some(first)),
        Setting::OnlyClient => Middle::new(Some(first), None),
        Setting::ClearText => Middle::new(None, None),
    };
    let mut attack = Attack {
        middle,
        setting,
        pending: Default::default(),
        sent: Default::default(),
        delivered: Default::default(),
        is_altered: false,
    };
    for (is_server, act) in acts.into_iter().take(ACTS_MAX) {
        let side = if is_server { Side::Server } else { Side::Client };
        attack.act(side, act);
        attack.check();
    }
    // Whatever is left arrives.
    for _ in 0..4 {
        for side in [Side::Client, Side::Server] {
            attack.act(side, Act::Pass);
        }
    }
    attack.check();
    attack.check_end();
}

struct Attack {
    middle: Middle,
    setting: Setting,
    /// What each side has sent and the other has not received.
    pending: [Vec<u8>; 2],
    /// The frames that each side has sent, and those that were delivered to the other.
    sent: [Vec<Frame>; 2],
    delivered: [Vec<Frame>; 2],
    /// Whether the bytes were changed.
    is_altered: bool,
}

fn other(side: Side) -> Side {
    match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    }
}

impl Attack {
    fn act(&mut self, side: Side, act: Act) {
        let sent = self.middle.sent_by(side);
        let pending = &mut self.pending[side as usize];
        pending.extend(sent);
        let len = pending.len();
        let within = |at: u16| if len == 0 { 0 } else { usize::from(at) % len };
        let is_honest =
            matches!(act, Act::Send(_) | Act::Close | Act::Pass | Act::PassInChunks(_) | Act::PassSome(_));
        self.is_altered |= !is_honest && (len > 0 || !matches!(act, Act::Drop | Act::Repeat | Act::Reflect));
        match act {
            Act::Send(len) => return self.send(side, len),
            Act::Close => return self.middle.close(side),
            Act::Pass => self.pass(side, usize::MAX, usize::MAX),
            Act::PassInChunks(chunk) => self.pass(side, usize::MAX, usize::from(chunk) + 1),
            Act::PassSome(count) => self.pass(side, usize::from(count), usize::MAX),
            Act::Drop => pending.clear(),
            Act::Flip { at, bit } => {
                if let Some(byte) = pending.get_mut(within(at)) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Act::SetHeader { at, byte } => {
                if let Some(place) = pending.get_mut(usize::from(at % 5)) {
                    *place = byte;
                }
            }
            Act::Truncate(at) => pending.truncate(within(at)),
            Act::Repeat => {
                let bytes = pending.clone();
                pending.extend(bytes);
                pending.truncate(64 * 1024);
            }
            Act::Reflect => {
                let bytes = pending.clone();
                self.deliver(side, &bytes);
            }
            Act::Insert { at, bytes } => {
                let at = within(at);
                pending.splice(at..at, bytes);
            }
            Act::Invent(bytes) => self.deliver(other(side), &bytes),
            Act::HangUp => self.middle.hang_up(side),
        }
    }

    fn send(&mut self, side: Side, len: u16) {
        if self.middle.has_ended(side) {
            return;
        }
        let number = self.sent[side as usize].len() as u64;
        let frame = match len % 4 {
            0 => Frame::Ping { nonce: number },
            1 => Frame::Message { sequence: number, bytes: vec![len as u8; usize::from(len % 60_000)] },
            2 => Frame::Grant(GrantOffer {
                grant: GrantId::from_raw(number),
                len: 64,
                rights: 7,
                scope: Scope::Network,
                keys: vec![Some((number, 1))],
            }),
            _ => Frame::Hello(Hello { name: "x".repeat(usize::from(len / 256)), ..Hello::new(number) }),
        };
        self.middle.send(side, &frame);
        self.sent[side as usize].push(frame);
    }

    /// Passes up to `count` pending bytes of a side on.
    fn pass(&mut self, side: Side, count: usize, chunk: usize) {
        let pending = &mut self.pending[side as usize];
        let bytes: Vec<u8> = pending.drain(..pending.len().min(count)).collect();
        bytes.chunks(chunk.min(bytes.len()).max(1)).for_each(|chunk| self.deliver(other(side), chunk));
    }

    fn deliver(&mut self, to: Side, bytes: &[u8]) {
        let frames = self.middle.deliver(to, bytes);
        self.delivered[other(to) as usize].extend(frames);
    }

    fn check(&self) {
        for side in [Side::Client, Side::Server] {
            let (sent, delivered) = (&self.sent[side as usize], &self.delivered[side as usize]);
            let is_prefix = sent.starts_with(delivered);
            match self.setting {
                Setting::SameSecret => assert!(is_prefix, "{delivered:?} was delivered of {sent:?}"),
                // A side with TLS delivers nothing of one that has no TLS, or another secret.
                Setting::OtherSecret => assert!(delivered.is_empty(), "{delivered:?}"),
                Setting::OnlyServer => assert!(side == Side::Server || delivered.is_empty(), "{delivered:?}"),
                Setting::OnlyClient => assert!(side == Side::Client || delivered.is_empty(), "{delivered:?}"),
                Setting::ClearText => assert!(self.is_altered || is_prefix),
            }
            assert!(self.middle.memory(side) <= HELD_MAX, "{} bytes", self.middle.memory(side));
        }
    }

    /// Without an attack, everything arrives.
    fn check_end(&self) {
        if self.is_altered || !matches!(self.setting, Setting::SameSecret | Setting::ClearText) {
            return;
        }
        for side in [Side::Client, Side::Server] {
            if self.middle.has_ended(Side::Client) || self.middle.has_ended(Side::Server) {
                continue;
            }
            assert_eq!(self.sent[side as usize], self.delivered[side as usize]);
        }
    }
}

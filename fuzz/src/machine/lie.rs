//! Frames of peers that lie: well-formed, with numbers that were heard, and numbers at limits.

use arbitrary::Arbitrary;
use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::rail::Scope;
use farreach_proto::wire::{BoundKey, Frame, GrantOffer, Hello, LinkOffer};

/// A number of a frame.
#[derive(Debug, Clone, Arbitrary)]
pub(super) enum Number {
    Small(u8),
    /// One that the machine has sent to some peer.
    Heard(u8),
    Any(u64),
    FromTop(u8),
}

/// What peers have heard: the numbers of all of them, as if they had leaked.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) grants: Vec<u64>,
    pub(super) marks: Vec<u64>,
    pub(super) counters: Vec<u64>,
    pub(super) links: Vec<u64>,
    /// Publications and shared counters of the machine.
    pub(super) openable: Vec<u64>,
}

/// The numbers of each sort that are remembered.
const HEARD_MAX: usize = 32;

impl Heard {
    /// Hears a frame of the machine.
    pub(super) fn hear(&mut self, frame: &Frame) {
        match frame {
            Frame::Link(offer) => keep(&mut self.links, offer.link.0),
            Frame::LinkReady { mark, .. } => keep(&mut self.marks, *mark),
            Frame::Grant(offer) => keep(&mut self.grants, offer.grant),
            Frame::Counter { counter, names } => {
                keep(&mut self.counters, counter.to_raw().into());
                names.iter().for_each(|(_, name)| keep(&mut self.counters, name.to_raw().into()));
            }
            _ => {}
        }
    }
}

fn keep(numbers: &mut Vec<u64>, number: u64) {
    if numbers.len() < HEARD_MAX {
        numbers.push(number);
    }
}

impl Number {
    /// Returns the number, raised by `add`.
    pub(super) fn get(&self, heard: &[u64], add: u64) -> u64 {
        let number = match *self {
            Self::Small(number) => number.into(),
            // The same number again in a flood: a frame about something that exists.
            Self::Heard(index) => {
                return heard.get(usize::from(index) % heard.len().max(1)).copied().unwrap_or(add);
            }
            Self::Any(number) => number,
            Self::FromTop(number) => u64::MAX - u64::from(number),
        };
        number.wrapping_add(add)
    }
}

/// A frame, before its numbers are chosen.
#[derive(Debug, Arbitrary)]
pub(super) enum Lie {
    Hello { rails: u8, messages: u32, grants: u32, counters: u32, incarnation: u32, name: u16 },
    Link { link: Number, from: u8, to: u8, address: u8 },
    LinkReady { link: Number, mark: Number, needs_names: bool },
    LinkLost { link: Number, is_quiet: bool, reason: u16 },
    Grant { grant: Number, len: Number, rights: u8, keys: u8, address: Number },
    Revoke { grant: Number },
    Revoked { grant: Number },
    Settle { link: Number, counter: Number },
    Settled { link: Number, counter: Number, pages: Number },
    Counter { counter: Number, names: u8, link: Number },
    CounterClosed { counter: Number },
    Add { counter: Number, pages: Number },
    Abort { counter: Number },
    Message { sequence: Number, len: u16 },
    Taken { count: u32 },
    Held { next: Number },
    Ping,
    Look,
    Refused { reason: u16 },
    Goodbye,
    Keys { link: Number, grant: Number, address: Number, key: Number, count: u8 },
    Pong,
    Open { id: Number, is_counter: bool },
    Opened { id: u8, grant: Number },
    CounterOpened { id: u8, counter: Number },
    NotOpened { id: u8, is_counter: bool, reason: u16 },
}

impl Lie {
    /// Returns the frame. `add` is added to its numbers.
    pub(super) fn frame(&self, heard: &Heard, kinds: &[String], add: u64) -> Frame {
        let link = |number: &Number| LinkId(number.get(&heard.links, add));
        let counter = |number: &Number| CounterId::from_raw(number.get(&heard.counters, add) as u32);
        let grant = |number: &Number| number.get(&heard.grants, add);
        let count = |number: &Number| number.get(&[], add);
        match self {
            Self::Hello { rails, messages, grants, counters, incarnation, name } => Frame::Hello(Hello {
                name: "n".repeat(usize::from(*name % 300)),
                rails: kinds.iter().cycle().take(usize::from(rails % 8)).cloned().collect(),
                messages: *messages,
                grants: *grants,
                counters: *counters,
                ..Hello::new((*incarnation).into())
            }),
            Self::Link { link: id, from, to, address } => Frame::Link(LinkOffer {
                link: link(id),
                from: (*from % 4).into(),
                to: (*to % 4).into(),
                address: vec![7; usize::from(*address)],
            }),
            Self::LinkReady { link: id, mark, needs_names } => {
                let mark = mark.get(&heard.marks, add);
                Frame::LinkReady { link: link(id), mark, needs_names: *needs_names, binds_keys: *needs_names }
            }
            Self::LinkLost { link: id, is_quiet, reason } => {
                let reason = "r".repeat(usize::from(*reason % 1000));
                Frame::LinkLost { link: link(id), is_quiet: *is_quiet, reason }
            }
            Self::Grant { grant: id, len, rights, keys, address } => Frame::Grant(GrantOffer {
                grant: grant(id),
                len: count(len),
                rights: *rights,
                scope: if *rights > 127 { Scope::Host } else { Scope::Network },
                keys: (0..keys % 5).map(|key| (key != 1).then(|| (count(address), 9))).collect(),
            }),
            Self::Revoke { grant: id } => Frame::Revoke { grant: grant(id) },
            Self::Revoked { grant: id } => Frame::Revoked { grant: grant(id) },
            Self::Settle { link: id, counter: of } => Frame::Settle { link: link(id), counter: counter(of) },
            Self::Settled { link: id, counter: of, pages } => {
                Frame::Settled { link: link(id), counter: counter(of), pages: count(pages) }
            }
            Self::Counter { counter: id, names, link: on } => Frame::Counter {
                counter: counter(id),
                names: (0..names % 6).map(|name| (link(on), CounterId::from_raw(name.into()))).collect(),
            },
            Self::CounterClosed { counter: id } => Frame::CounterClosed { counter: counter(id) },
            Self::Add { counter: id, pages } => Frame::Add { counter: counter(id), pages: count(pages) },
            Self::Abort { counter: id } => Frame::Abort { counter: counter(id), reason: String::new() },
            Self::Message { sequence, len } => {
                Frame::Message { sequence: count(sequence), bytes: vec![1; usize::from(len % 10_000)] }
            }
            Self::Taken { count } => Frame::Taken { count: *count },
            Self::Held { next } => Frame::Held { next: count(next) },
            Self::Ping => Frame::Ping { nonce: add },
            Self::Look => Frame::Look,
            Self::Refused { reason } => Frame::Refused { reason: "r".repeat(usize::from(*reason)) },
            Self::Goodbye => Frame::Goodbye,
            Self::Keys { link: id, grant: of, address, key, count: keys } => {
                let bound = BoundKey { grant: grant(of), address: count(address), key: count(key) };
                Frame::Keys { link: link(id), keys: vec![bound; usize::from(*keys % 8)] }
            }
            Self::Pong => Frame::Pong { nonce: add },
            Self::Open { id, is_counter } => match (id.get(&heard.openable, add), *is_counter) {
                (publication, false) => Frame::Open { publication },
                (shared, true) => Frame::OpenCounter { shared },
            },
            Self::Opened { id, grant: of } => {
                Frame::Opened { publication: u64::from(*id % 4), grant: grant(of) }
            }
            Self::CounterOpened { id, counter: of } => {
                Frame::CounterOpened { shared: u64::from(*id % 4), counter: counter(of) }
            }
            Self::NotOpened { id, is_counter, reason } => {
                let (id, reason) = (u64::from(*id % 4), "r".repeat(usize::from(*reason % 1000)));
                match *is_counter {
                    false => Frame::NotOpened { publication: id, reason },
                    true => Frame::CounterNotOpened { shared: id, reason },
                }
            }
        }
    }
}

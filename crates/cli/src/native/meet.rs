//! Connects the queue pairs of both sides.

use anyhow::Result;
use farreach_verbs::mr::RemoteKey;
use farreach_verbs::qp::state::PeerAddress;
use farreach_verbs::wr::RemoteRange;
use serde::{Deserialize, Serialize};

use super::card::{Card, Cards, Proposal};
use super::link::{Link, LinkRules};
use super::memory::Memory;
use crate::exit::{Exit, Failure};
use crate::session::{Channel, TheirFailure, of_the_other_side};

/// The agent's answer: its queue pairs and memory.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    /// The agent's card.
    #[serde(deserialize_with = "farreach_text::line")]
    card: String,
    has_atomics: bool,
    ends: Vec<End>,
    memory: Place,
}

/// The client's queue pairs.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    ends: Vec<End>,
}

/// The agent's queue pairs are connected.
#[derive(Debug, Serialize, Deserialize)]
struct Ready;

/// A queue pair's address (number, first packet, GID and more) as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End(String);

impl End {
    pub(crate) fn of(address: &PeerAddress) -> Self {
        Self(address.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the address, or `None` if it is malformed.
    pub(crate) fn address(&self) -> Option<PeerAddress> {
        let digits = self.0.as_bytes();
        let mut bytes = [0; PeerAddress::BYTES];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
        }
        PeerAddress::from_bytes(bytes)
    }
}

/// Memory that the client may access.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Place {
    address: u64,
    bytes: u64,
    key: u32,
}

impl From<RemoteRange> for Place {
    fn from(range: RemoteRange) -> Self {
        Self { address: range.address(), bytes: range.len(), key: range.key().0 }
    }
}

impl From<Place> for RemoteRange {
    fn from(place: Place) -> Self {
        Self::new(place.address, place.bytes, RemoteKey(place.key))
    }
}

/// The client's result when both sides are connected.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) links: Vec<Link>,
    /// The agent's memory.
    pub(crate) memory: RemoteRange,
    pub(crate) card: Card,
    /// The name of the agent's card.
    pub(crate) other_card: String,
    /// Whether both cards have compare-and-swap.
    pub(crate) has_atomics: bool,
}

/// The agent's result.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) links: Vec<Link>,
    pub(crate) memory: Memory,
}

/// Connects the client's side. A failure on either side is reported to both, which can then
/// continue to use the channel.
pub(crate) fn call(
    cards: &Cards,
    channel: &Channel,
    rules: impl FnOnce(&Card) -> Result<LinkRules, Failure>,
) -> Result<Called> {
    let prepared = prepare_call(cards, channel, rules);
    channel.send(prepared.as_ref().map(|(proposal, ..)| proposal))?;
    let (_, card, mut links) = prepared?;
    let offer: Result<Offer, TheirFailure> = channel.recv()?;
    let offer = offer.map_err(of_the_other_side)?;
    connect(&card, &mut links, &offer.ends)?;
    channel.send(Answer { ends: ends(&links) })?;
    let Ready = channel.recv()?;
    let (memory, has_atomics) = (offer.memory.into(), offer.has_atomics && card.has_atomics());
    Ok(Called { links, memory, card, other_card: offer.card, has_atomics })
}

fn prepare_call(
    cards: &Cards,
    channel: &Channel,
    rules: impl FnOnce(&Card) -> Result<LinkRules, Failure>,
) -> Result<(Proposal, Card, Vec<Link>), Failure> {
    let proposal = cards.propose(&channel.peer)?;
    let card = cards.open_own(&proposal)?;
    let links = links(&card, &rules(&card)?, channel)?;
    Ok((proposal, card, links))
}

/// Connects the agent's side.
pub(crate) fn receive(
    cards: &Cards,
    channel: &Channel,
    rules: impl FnOnce(&Card) -> Result<LinkRules, Failure>,
    memory: impl FnOnce(&Card) -> Result<Memory, Failure>,
) -> Result<Received> {
    let proposal: Result<Proposal, TheirFailure> = channel.recv()?;
    let proposal = proposal.map_err(of_the_other_side)?;
    let prepared = prepare_offer(cards, channel, &proposal, rules, memory);
    channel.send(prepared.as_ref().map(|(card, memory, links)| Offer {
        card: card.name.clone(),
        has_atomics: card.has_atomics(),
        ends: ends(links),
        memory: memory.remote().into(),
    }))?;
    let (card, memory, mut links) = prepared?;
    let answer: Answer = channel.recv()?;
    connect(&card, &mut links, &answer.ends)?;
    channel.send(Ready)?;
    Ok(Received { links, memory })
}

fn prepare_offer(
    cards: &Cards,
    channel: &Channel,
    proposal: &Proposal,
    rules: impl FnOnce(&Card) -> Result<LinkRules, Failure>,
    memory: impl FnOnce(&Card) -> Result<Memory, Failure>,
) -> Result<(Card, Memory, Vec<Link>), Failure> {
    let card = cards.open_other(proposal)?;
    let (rules, memory) = (rules(&card)?, memory(&card)?);
    let links = links(&card, &rules, channel)?;
    Ok((card, memory, links))
}

fn links(card: &Card, rules: &LinkRules, channel: &Channel) -> Result<Vec<Link>, Failure> {
    (0..rules.count).map(|_| Link::open(card, rules, &channel.peer)).collect()
}

fn ends(links: &[Link]) -> Vec<End> {
    links.iter().map(|link| End::of(&link.address())).collect()
}

fn connect(card: &Card, links: &mut [Link], others: &[End]) -> Result<(), Failure> {
    let garbled = |cause: &str| {
        Failure::new(Exit::Failed, "the other side sent invalid queue pair addresses")
            .cause(cause)
            .fix("install the same version of farreach on both hosts")
    };
    if links.len() != others.len() {
        return Err(garbled(&format!("it has {} queue pairs, this side has {}", others.len(), links.len())));
    }
    for (link, other) in links.iter_mut().zip(others) {
        let other = other.address().ok_or_else(|| garbled("an address is malformed"))?;
        link.connect(card, &other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use farreach_verbs::ah::Lid;
    use farreach_verbs::port::Mtu;

    use super::*;

    #[test]
    fn an_address_survives_the_way_as_digits_and_nonsense_is_none() {
        let address = PeerAddress {
            qp_num: 17,
            psn: 0xab_cdef,
            gid: "::ffff:192.0.2.1".parse().expect("a GID"),
            lid: Lid(0),
            mtu: Mtu::Bytes1024,
            rd_atomic: 16,
            qkey: 7,
        };
        let end = End::of(&address);
        assert_eq!(end.address(), Some(address));
        let (short, strange) = (End(end.0[2..].to_owned()), End(end.0.replace('a', "ä")));
        assert!(short.address().is_none() && strange.address().is_none());
        assert!(End("zz".repeat(PeerAddress::BYTES)).address().is_none());
    }
}

//! Posts of the host that lies, past its machine: with keys, marks and immediates of others, over
//! its own links and over links that nobody has agreed on.

use farreach_memory::{Buffer, Buffers, Memory};
use farreach_proto::counter::Immediate;
use farreach_proto::machine::MessageHeader;
use farreach_rail::{LinkKey, PeerKey, Rail, RemoteSegment, WorkRequest};

use super::liar::{FORGED_LEN, Liar};
use super::world::{World, tell};

/// The tag of its posts, which its machine never uses.
const TAG: u64 = u64::MAX;

/// The maximum number of links that it opens by itself.
const EXTRA_ENDS_MAX: usize = 8;

impl World {
    /// Posts a few forged work requests to one card of the liar.
    pub(super) fn forge(&mut self) {
        let Some(liar) = &mut self.liar else { return };
        let host = liar.lying.host;
        let there = &mut self.hosts[host];
        let card = liar.chance.index(there.cards.len());
        let kind = &self.scenario.hosts[host][card];
        // Where a rail does not separate peers, a key, mark or counter of another peer is as good
        // as one's own: the liar can only guess.
        let may_steal = kind.separates_peers && kind.properties.immediates_name_link;
        let has_atomics = kind.properties.has_atomics;
        let links = self.network.links_of(there.cards[card]);
        let Some(carrier) = &mut there.carrier else { return };
        let Some(rail) = carrier.rails_mut().nth(card) else { return };
        if liar.extra_ends.len() < EXTRA_ENDS_MAX && liar.chance.once_in(12) {
            liar.open_extra_end(rail, card);
        }
        let extra_ends = liar.extra_ends.iter().filter(|(of, _)| *of == card).map(|(_, link)| *link);
        let links: Vec<LinkKey> = links.into_iter().chain(extra_ends).collect();
        let mut posted = 0;
        for _ in 0..=liar.chance.below(4) {
            let Some(link) = liar.chance.one_of(&links) else { break };
            posted += u64::from(liar.post(rail, link, may_steal, has_atomics));
        }
        tell!(self, "forge: card, posts", card, posted);
        if posted > 0 {
            self.count("posts forged", posted);
            self.step_by(host, self.now + 1);
        }
    }
}

impl Liar {
    /// Opens a link by itself, to some address.
    fn open_extra_end(&mut self, rail: &mut dyn Rail, card: usize) {
        let known = self.own.addresses.get(self.chance.index(self.own.addresses.len().max(1))).cloned();
        let Some(known) = known else { return };
        let address = self.address(known);
        let Ok((link, _)) = rail.open_link(PeerKey(u32::MAX)) else { return };
        match rail.connect(link, &address) {
            Ok(()) => self.extra_ends.push((card, link)),
            Err(_) => rail.close_link(link),
        }
    }

    /// Posts one work request. Returns `true` if the card has taken it.
    fn post(&mut self, rail: &mut dyn Rail, link: LinkKey, may_steal: bool, has_atomics: bool) -> bool {
        let (address, key, granted) = self.key(may_steal);
        let len = [0, 8, 16, 64][self.chance.index(4)];
        let offset = match self.chance.below(4) {
            0 => 0,
            1 => granted.saturating_sub(len),
            _ => 8 * self.chance.below(granted / 8 + 1),
        };
        let address = address.wrapping_add(offset);
        let target = RemoteSegment { address, key, len };
        let word = RemoteSegment { address: address & !7, len: 8, ..target };
        let choice = self.chance.below(if has_atomics { 10 } else { 8 });
        let posted = match choice {
            0..4 => {
                let immediate = self.immediate(may_steal);
                rail.post(link, TAG, WorkRequest::Write { target, immediate }, self.outgoing(len as usize))
            }
            4 => rail.post(link, TAG, WorkRequest::Read { target }, self.incoming(len as usize)),
            5..8 => {
                let Some(message) = self.message(rail, may_steal) else { return false };
                rail.post(link, TAG, WorkRequest::Send, message)
            }
            8 => rail.post(link, TAG, WorkRequest::FetchAdd { target: word, add: 1 }, self.incoming(8)),
            _ => {
                let request = WorkRequest::CompareSwap { target: word, expected: 0, desired: u64::MAX };
                rail.post(link, TAG, request, self.incoming(8))
            }
        };
        posted.is_ok()
    }

    fn immediate(&mut self, may_steal: bool) -> Option<u32> {
        // Names of counters are small numbers, and easily guessed.
        if !may_steal || self.chance.once_in(3) {
            return None;
        }
        let stolen = self.chance.one_of(&self.others.counters).filter(|_| self.chance.once_in(2));
        let counter = stolen.or_else(|| self.chance.one_of(&self.own.counters))?;
        match self.chance.once_in(8) {
            true => Some(self.chance.next() as u32),
            false => Immediate::new(counter, 1 + self.chance.below(1024) as u32).map(Immediate::to_bits),
        }
    }

    /// Returns bytes to write.
    fn outgoing(&self, len: usize) -> Buffers {
        let part = self.source.as_ref().and_then(|source| source.get(..len));
        part.filter(|_| len > 0).map_or(Buffers::None, |part| Buffers::One(Buffer::Shared(part)))
    }

    /// Returns room for bytes that are read.
    fn incoming(&self, len: usize) -> Buffers {
        let part = self.sink.as_ref().and_then(|sink| sink.get(..len));
        part.filter(|_| len > 0).map_or(Buffers::None, |part| Buffers::One(Buffer::Lent(part)))
    }

    /// Builds a message with some mark and number, in memory of its own.
    fn message(&mut self, rail: &mut dyn Rail, may_steal: bool) -> Option<Buffers> {
        let own = self.chance.one_of(&self.own.marks).unwrap_or(1);
        let mark = if may_steal { self.mark(own) } else { own.wrapping_add(self.chance.below(3)) };
        let number = [0, 1, self.chance.below(8), u64::MAX][self.chance.index(4)];
        let held = [0, 1, self.chance.below(8), u64::MAX][self.chance.index(4)];
        let header = MessageHeader { mark, sequence: number, held };
        const HEADER: usize = MessageHeader::LEN;
        let len = [0, HEADER - 1, HEADER, HEADER + 8, HEADER + 48, HEADER + 49][self.chance.index(6)];
        let mut slice = Memory::allocate(FORGED_LEN).ok()?;
        rail.register(slice.memory()).ok()?;
        slice.fill(0xF0);
        slice[..HEADER].copy_from_slice(&header.encode());
        drop(slice.split_off(len));
        Some(Buffers::One(Buffer::Lent(slice.lend().get(..)?)))
    }
}

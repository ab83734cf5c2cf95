//! A host that lies.
//!
//! Its machine and its cards are real, so it has real links, grants and transfers. Between its
//! machine and the control connections, frames are dropped, repeated, delayed, altered and
//! invented. It also [posts](super::forged) to its cards, past its machine.
//!
//! It hears every frame of every connection, as on a network without TLS. Only what nothing can
//! defend is withheld from it: the key or the mark of another peer, together with a path to the end
//! that accepts it.

use farreach_memory::{Lent, Memory, Shared};
use farreach_proto::counter::{CounterId, LinkId};
use farreach_proto::ids::{GrantId, PublicationId, SharedCounterId};
use farreach_proto::wire::fields::{Field, Kind};
use farreach_proto::wire::{BoundKey, Frame, GrantOffer};
use farreach_rail::{LinkKey, Scope};

use super::chance::Chance;
use super::party::Packet;
use super::scenario::Lying;
use super::world::{What, World, tell};

/// The number of values of each sort that it remembers.
const REMEMBERED: usize = 24;

/// The number of frames of one kind in a flood: more than any budget of a lying history.
const FLOOD: u64 = 100;

/// Frames that end the connection, unless this side has asked for them.
const ENDING: [Kind; 4] = [Kind::Hello, Kind::Refused, Kind::Goodbye, Kind::Pong];

/// The bytes of the memory that it posts from.
pub(super) const FORGED_LEN: usize = 256;

/// The state of the host that lies.
pub(super) struct Liar {
    pub(super) lying: Lying,
    pub(super) chance: Chance,
    /// What was said to it or by it, and what was said between others.
    pub(super) own: Heard,
    pub(super) others: Heard,
    /// Frames that it sends later: the connection, its end, and the frame.
    delayed: Vec<Option<(usize, usize, Frame)>>,
    /// Memory for its posts, and links of its own; of its current life.
    pub(super) source: Option<Shared>,
    pub(super) sink: Option<Lent>,
    pub(super) extra_ends: Vec<(usize, LinkKey)>,
    pub(super) is_silenced: bool,
}

/// Values of frames.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) grants: Vec<u64>,
    /// Publications, and shared counters.
    tokens: Vec<u64>,
    pub(super) marks: Vec<u64>,
    pub(super) counters: Vec<CounterId>,
    pub(super) links: Vec<LinkId>,
    pub(super) addresses: Vec<Vec<u8>>,
    /// Addresses and keys of memory, with its length.
    pub(super) keys: Vec<(u64, u64, u64)>,
    /// The scope of the last grant.
    scope: Option<Scope>,
    frames: Vec<Frame>,
}

impl Heard {
    fn hear(&mut self, chance: &mut Chance, frame: &Frame) {
        // The length of what a key of the frame leads to, if it says so before.
        let mut len = 64;
        frame.clone().fields(&mut |field| match field {
            Field::Link(link) => keep(&mut self.links, chance, *link),
            Field::Counter(counter) => keep(&mut self.counters, chance, *counter),
            Field::Grant(grant) => keep(&mut self.grants, chance, grant.to_raw()),
            Field::Publication(id) => keep(&mut self.tokens, chance, id.to_raw()),
            Field::Shared(id) => keep(&mut self.tokens, chance, id.to_raw()),
            Field::Mark(mark) => keep(&mut self.marks, chance, *mark),
            Field::Number(number) => len = *number,
            Field::Scope(scope) => self.scope = Some(*scope),
            Field::Address(address) => keep(&mut self.addresses, chance, address.clone()),
            Field::Keys(keys) => {
                keys.iter().flatten().for_each(|key| keep(&mut self.keys, chance, (key.0, key.1, len)));
            }
            Field::BoundKeys(keys) => {
                keys.iter().for_each(|it| keep(&mut self.keys, chance, (it.address, it.key, len)));
            }
            Field::Names(names) => {
                names.iter().for_each(|(_, name)| keep(&mut self.counters, chance, *name));
            }
            Field::Flag(_)
            | Field::Short(_)
            | Field::Rail(_)
            | Field::Rights(_)
            | Field::Bytes(_)
            | Field::Text(_)
            | Field::Rails(_) => {}
        });
        if !matches!(frame, Frame::Ping { .. } | Frame::Pong { .. }) {
            keep(&mut self.frames, chance, frame.clone());
        }
    }
}

/// Adds a value, in place of another one if there are too many.
fn keep<T>(values: &mut Vec<T>, chance: &mut Chance, value: T) {
    match values.len() < REMEMBERED {
        true => values.push(value),
        false => values[chance.index(REMEMBERED)] = value,
    }
}

impl Liar {
    pub(super) fn new(lying: Lying, chance: Chance) -> Self {
        Self {
            lying,
            chance,
            own: Heard::default(),
            others: Heard::default(),
            delayed: Vec::new(),
            source: None,
            sink: None,
            extra_ends: Vec::new(),
            is_silenced: false,
        }
    }

    /// Hears a frame of any connection.
    pub(super) fn hear(&mut self, frame: &Frame, is_own: bool) {
        let heard = if is_own { &mut self.own } else { &mut self.others };
        heard.hear(&mut self.chance, frame);
    }

    /// Begins another life, with memory for posts.
    pub(super) fn start(&mut self, carrier: &mut farreach_rail::Carrier) {
        self.extra_ends.clear();
        let mut memory = || {
            let mut slice = Memory::allocate(FORGED_LEN).ok()?;
            drop(slice.split_off(FORGED_LEN));
            carrier.register(slice.memory()).ok()?;
            slice.fill(0xF0);
            Some(slice)
        };
        self.source = memory().map(|slice| slice.share());
        self.sink = memory().map(|slice| slice.lend());
    }

    /// Returns `true` once in so many times; 0 is never.
    pub(super) fn once(&mut self, times: u64) -> bool {
        times > 0 && self.chance.once_in(times)
    }

    /// Returns another number: a limit, a neighbour, or one that it has heard.
    fn number(&mut self, true_one: u64, heard: fn(&Heard) -> &Vec<u64>) -> u64 {
        match self.chance.below(8) {
            0 => 0,
            1 => 1,
            2 => true_one.wrapping_sub(1),
            3 => true_one.wrapping_add(1),
            4 => [u64::MAX, u64::MAX - 1, 1 << 32, u64::MAX / 2 + 1][self.chance.index(4)],
            5 => self.chance.one_of(heard(&self.own)).unwrap_or(true_one),
            _ => self.chance.one_of(heard(&self.others)).unwrap_or(true_one),
        }
    }

    /// Returns another number where none was heard.
    fn count(&mut self, true_one: u64) -> u64 {
        self.number(true_one, |heard| &heard.grants)
    }

    fn link(&mut self, true_one: LinkId) -> LinkId {
        match self.chance.below(6) {
            0 => LinkId(self.count(true_one.0)),
            1 => LinkId(true_one.0.wrapping_add(1)),
            2 => LinkId(true_one.0.wrapping_sub(1)),
            3 => self.chance.one_of(&self.others.links).unwrap_or(true_one),
            _ => self.chance.one_of(&self.own.links).unwrap_or(true_one),
        }
    }

    fn counter(&mut self, true_one: CounterId) -> CounterId {
        match self.chance.below(6) {
            0 => CounterId::from_raw(self.count(true_one.to_raw().into()) as u32),
            1 => CounterId::from_raw(true_one.to_raw().wrapping_add(1 << 8)),
            2 => CounterId::from_raw(true_one.to_raw().wrapping_sub(1 << 8)),
            3 => self.chance.one_of(&self.own.counters).unwrap_or(true_one),
            _ => self.chance.one_of(&self.others.counters).unwrap_or(true_one),
        }
    }

    fn grant(&mut self, true_one: GrantId) -> GrantId {
        GrantId::from_raw(self.number(true_one.to_raw(), |heard| &heard.grants))
    }

    fn token(&mut self, true_one: u64) -> u64 {
        self.number(true_one, |heard| &heard.tokens)
    }

    /// Returns a mark that it may know.
    pub(super) fn mark(&mut self, true_one: u64) -> u64 {
        match self.lying.steals_addresses {
            false => self.number(true_one, |heard| &heard.marks),
            true => {
                self.chance.one_of(&self.own.marks).unwrap_or(true_one).wrapping_add(self.chance.below(2))
            }
        }
    }

    /// Returns an address and a key that it may know, and the length of their memory.
    pub(super) fn key(&mut self, may_steal: bool) -> (u64, u64, u64) {
        let own = self.chance.one_of(&self.own.keys).unwrap_or((0, 1, 64));
        let (address, key, len) = match may_steal && !self.lying.steals_addresses {
            true => self.chance.one_of(&self.others.keys).filter(|_| self.chance.once_in(2)).unwrap_or(own),
            false => own,
        };
        match self.chance.below(10) {
            0 => (address, key.wrapping_add(1), len),
            1 => (address, key.wrapping_sub(1), len),
            2 => (address, self.count(key), len),
            3 => (self.count(address), key, len),
            4 => (address.wrapping_add(len), key, len),
            _ => (address, key, len),
        }
    }

    pub(super) fn address(&mut self, true_one: Vec<u8>) -> Vec<u8> {
        let stolen = match self.lying.steals_addresses {
            true => self.others.addresses.get(self.chance.index(self.others.addresses.len().max(1))),
            false => None,
        };
        match (self.chance.below(4), stolen) {
            (0, _) => true_one[..self.chance.index(true_one.len().max(1))].to_vec(),
            (1, _) if self.lying.steals_addresses => {
                let mut address = true_one;
                let place = self.chance.index(address.len().max(1));
                if let Some(byte) = address.get_mut(place) {
                    *byte ^= 1 << self.chance.below(8);
                }
                address
            }
            (_, Some(stolen)) => stolen.clone(),
            (_, None) => true_one,
        }
    }

    /// Alters a frame, in one field.
    fn alter(&mut self, mut frame: Frame) -> Frame {
        let (mut fields, mut place) = (0, 0);
        frame.fields(&mut |_| fields += 1);
        let altered = self.chance.index(fields);
        frame.fields(&mut |field| {
            if place == altered {
                self.change(field);
            }
            place += 1;
        });
        frame
    }

    fn change(&mut self, field: Field<'_>) {
        match field {
            Field::Flag(flag) => *flag = !*flag,
            Field::Link(link) => *link = self.link(*link),
            Field::Counter(counter) => *counter = self.counter(*counter),
            Field::Grant(grant) => *grant = self.grant(*grant),
            Field::Publication(id) => *id = PublicationId::from_raw(self.token(id.to_raw())),
            Field::Shared(id) => *id = SharedCounterId::from_raw(self.token(id.to_raw())),
            Field::Mark(mark) => *mark = self.mark(*mark),
            Field::Number(number) => *number = self.count(*number),
            Field::Short(number) => *number = self.count(u64::from(*number)) as u32,
            Field::Rail(rail) => *rail = self.count(u64::from(*rail)) as u16,
            Field::Rights(rights) => *rights = self.chance.below(256) as u8,
            Field::Scope(scope) => *scope = self.scope(),
            Field::Address(address) => *address = self.address(std::mem::take(address)),
            Field::Bytes(bytes) => bytes.resize([0, 8, 48, 49, 5000][self.chance.index(5)], 0xF0),
            Field::Text(text) => *text = "r".repeat(self.chance.index(1000)),
            Field::Rails(rails) if self.chance.once_in(2) => rails.reverse(),
            Field::Rails(rails) => {
                *rails = rails.iter().cycle().take(self.chance.index(24)).cloned().collect();
            }
            Field::Keys(keys) => match (self.chance.once_in(2), keys.first_mut()) {
                (true, Some(first)) => *first = Some(self.address_and_key()),
                _ => keys.push(None),
            },
            Field::BoundKeys(keys) => {
                let Some(first) = keys.first_mut() else { return };
                match self.chance.below(3) {
                    0 => first.grant = self.grant(first.grant),
                    1 => first.address = self.count(first.address),
                    _ => (first.address, first.key) = self.address_and_key(),
                }
            }
            Field::Names(names) => {
                let Some((link, name)) = names.first().copied() else { return };
                names.push((self.link(link), self.counter(name)));
                names[0].1 = self.counter(name);
            }
        }
    }

    fn address_and_key(&mut self) -> (u64, u64) {
        let (address, key, _) = self.key(true);
        (address, key)
    }

    /// Returns a scope, seldom one over which the peer is not connected: that ends the connection.
    fn scope(&mut self) -> Scope {
        match self.own.scope.or(self.others.scope) {
            Some(scope) if !self.chance.once_in(64) => scope,
            _ if self.chance.once_in(2) => Scope::Host,
            _ => Scope::Network,
        }
    }

    /// Invents a frame of some kind, with numbers that it has heard.
    fn invent(&mut self) -> Frame {
        let kind = match self.lying.topic {
            Some(topic) => topic,
            None => loop {
                let kind = Kind::ALL[self.chance.index(Kind::ALL.len())];
                // A frame that ends the connection hides what others would do.
                if !ENDING.contains(&kind) || self.chance.once_in(24) {
                    break kind;
                }
            },
        };
        let mut frame = Frame::blank(kind);
        frame.fields(&mut |field| self.choose(field));
        if let Frame::Grant(offer) = &mut frame
            && let Some((.., len)) = self.chance.one_of(&self.own.keys)
        {
            offer.len = len;
        }
        frame
    }

    /// Chooses a value that was not there before.
    fn choose(&mut self, field: Field<'_>) {
        match field {
            Field::Rail(rail) => *rail = self.chance.below(3) as u16,
            Field::Rights(rights) => *rights = 7,
            Field::Number(number) if self.chance.once_in(3) => *number = self.chance.below(6),
            Field::Text(text) => text.push_str("I say so"),
            Field::Rails(rails) => rails.push("sim/rc".to_owned()),
            Field::Keys(keys) => *keys = vec![Some(self.address_and_key()); 1 + self.chance.index(2)],
            Field::BoundKeys(keys) => {
                let (grant, (address, key)) = (self.grant(GrantId::from_raw(1)), self.address_and_key());
                *keys = vec![BoundKey { grant, address, key }; 1 + self.chance.index(2)];
            }
            Field::Names(names) => names.push((self.link(LinkId(0)), self.counter(CounterId::NONE))),
            other => self.change(other),
        }
    }

    /// Returns frames to send without a reason: an invented one, one that others have sent, or many
    /// of one kind.
    fn babble(&mut self) -> Vec<Frame> {
        match self.chance.below(24) {
            0..4 => self.replay().into_iter().collect(),
            4 => (0..FLOOD).map(|_| self.flood()).collect(),
            _ => vec![self.invent()],
        }
    }

    fn replay(&mut self) -> Option<Frame> {
        let heard = if self.chance.once_in(2) { &self.own } else { &self.others };
        let frame = heard.frames.get(self.chance.index(heard.frames.len().max(1)))?.clone();
        let is_secret = match frame {
            Frame::Link(_) => !self.lying.steals_addresses,
            Frame::Grant(_) | Frame::Keys { .. } | Frame::LinkReady { .. } => self.lying.steals_addresses,
            _ => false,
        };
        (!is_secret).then_some(frame)
    }

    fn flood(&mut self) -> Frame {
        let number = self.chance.next();
        match self.lying.flood {
            0 => {
                let (scope, keys) = (self.scope(), vec![None]);
                Frame::Grant(GrantOffer { grant: GrantId::from_raw(number), len: 8, rights: 2, scope, keys })
            }
            1 => Frame::Counter { counter: CounterId::from_raw(number as u32), names: Vec::new() },
            2 => Frame::Settle { link: self.link(LinkId(0)), counter: CounterId::NONE },
            3 => Frame::Message { sequence: number % 16, bytes: vec![0xF0; 48] },
            4 => Frame::Open { publication: PublicationId::from_raw(self.token(number)) },
            5 => Frame::OpenCounter { shared: SharedCounterId::from_raw(self.token(number)) },
            _ => Frame::Taken { count: 1 },
        }
    }
}

impl World {
    /// Returns `true` if this host lies.
    pub(super) fn is_liar(&self, host: usize) -> bool {
        self.scenario.lying.as_ref().is_some_and(|lying| lying.host == host)
    }

    /// Returns `true` if this host has lied, and is gone for good.
    pub(super) fn is_retired(&self, host: usize) -> bool {
        self.is_liar(host) && self.liar.as_ref().is_some_and(|liar| liar.is_silenced)
    }

    /// Ends the liar for good.
    pub(super) fn retire_liar(&mut self) {
        let Some(liar) = self.liar.as_mut().filter(|liar| !liar.is_silenced) else { return };
        liar.is_silenced = true;
        let host = liar.lying.host;
        if self.hosts[host].is_alive() {
            let is_told = self.chance.once_in(2);
            self.kill_for_good(host, is_told);
        }
    }

    /// Sends a frame of the liar's machine, or what it makes of it.
    pub(super) fn speak(&mut self, connection: usize, end: usize, frame: Frame) {
        let (now, silence) = (self.now, self.scenario.tuning.silence);
        if let Some(liar) = &mut self.liar {
            liar.hear(&frame, true);
        }
        let Some(liar) = self.liar.as_mut().filter(|liar| !liar.is_silenced && now >= liar.lying.begins_ns)
        else {
            return self.put(connection, 1 - end, Packet::Frame(frame));
        };
        let is_topic = match liar.lying.topic {
            Some(topic) => topic == frame.kind(),
            // With a false hello, most connections end at once.
            None => frame.kind() != Kind::Hello || liar.chance.once_in(10),
        };
        let lying = liar.lying.clone();
        if !is_topic {
            return self.put(connection, 1 - end, Packet::Frame(frame));
        }
        let [is_dropped, is_altered, is_repeated, is_delayed, is_followed] =
            [lying.drops, lying.alters, lying.repeats, lying.delays, lying.invents]
                .map(|times| liar.once(times));
        let mut frames = Vec::new();
        if !is_dropped {
            frames.push(if is_altered { liar.alter(frame.clone()) } else { frame.clone() });
        }
        if is_repeated {
            frames.push(if liar.chance.once_in(2) { liar.alter(frame) } else { frame });
        }
        if is_followed {
            frames.extend(liar.babble());
        }
        let later = now + liar.chance.below(2 * silence);
        let lies = u64::from(is_dropped || is_altered || is_repeated || is_delayed) + u64::from(is_followed);
        for frame in frames {
            match is_delayed {
                true => self.delay(connection, end, frame, later),
                false => self.put(connection, 1 - end, Packet::Frame(frame)),
            }
        }
        if lies > 0 {
            self.count("lies", lies);
        }
    }

    fn delay(&mut self, connection: usize, end: usize, frame: Frame, at: u64) {
        let Some(liar) = &mut self.liar else { return };
        let place = liar.delayed.len();
        liar.delayed.push(Some((connection, end, frame)));
        self.schedule(at, What::SayLate { place });
    }

    /// Sends a frame that the liar has held back.
    pub(super) fn say_late(&mut self, place: usize) {
        let Some(liar) = &mut self.liar else { return };
        let there = &self.hosts[liar.lying.host];
        if there.is_stopped(self.now) {
            let at = there.stopped_until + 1;
            return self.schedule(at, What::SayLate { place });
        }
        let Some(said) = liar.delayed[place].take() else { return };
        let (connection, end, frame) = said;
        if self.connections[connection].ends[end].is_open {
            self.put(connection, 1 - end, Packet::Frame(frame));
        }
    }

    /// Lets the liar send and post what nobody expects. Schedules the next time.
    pub(super) fn lie(&mut self) {
        let now = self.now;
        let Some(liar) = self.liar.as_mut().filter(|liar| !liar.is_silenced) else { return };
        let (host, gap) = (liar.lying.host, liar.lying.gap_ns);
        let next = now + 1 + liar.chance.below(2 * gap);
        self.schedule(next, What::Lie);
        if !self.hosts[host].is_alive() || self.hosts[host].is_stopped(now) {
            return;
        }
        let Some(liar) = &mut self.liar else { return };
        let (is_inventing, is_forging) = (liar.once(liar.lying.invents), liar.once(liar.lying.forges));
        if is_inventing {
            let frames = liar.babble();
            let open = |(connection, end): &(usize, usize)| self.connections[*connection].ends[*end].is_open;
            let open: Vec<_> = self.hosts[host].peers.iter().copied().filter(open).collect();
            let chosen = self.liar.as_mut().and_then(|liar| liar.chance.one_of(&open));
            if let Some((connection, end)) = chosen {
                tell!(self, "lie: connection, frames", connection, frames.len());
                self.count("frames invented", frames.len() as u64);
                for frame in frames {
                    self.put(connection, 1 - end, Packet::Frame(frame));
                }
            }
        }
        if is_forging {
            self.forge();
        }
    }
}

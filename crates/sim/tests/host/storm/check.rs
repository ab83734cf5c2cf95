//! Checks of reported events.

use farreach_memory::Buffers;
use farreach_rail::{LinkKey, Proof, Rail};

use super::host::PLACE_LEN;
use super::{Asked, Place, State, Storm, What, byte_of};

impl Storm {
    pub(super) fn check_completed(&mut self, place: Place, tag: u64, buffers: &Buffers, is_ok: bool) {
        let asked = &mut self.asked[tag as usize];
        let (what, grant, at, is_stale) = (asked.what, asked.grant, asked.place, asked.is_stale);
        let ends = self.links[asked.link].ends;
        let (to, _) = ends[1 - asked.side];
        assert_eq!(ends[asked.side].0, place, "seed {}: request {tag}", self.seed);
        assert_eq!(asked.state, State::InFlight, "seed {}: request {tag} completes twice", self.seed);
        asked.state = if is_ok { State::Done } else { State::Failed };

        let properties = &self.kinds[place.rail].properties;
        let bytes = buffers.as_slice()[0].bytes().expect("the buffer is a slice");
        assert_eq!(bytes.len(), if what == What::Add { 8 } else { PLACE_LEN });
        if !is_ok {
            return;
        }
        let landed = self.read_place(to, grant, at);
        match what {
            What::Write { .. } if properties.writes_prove == Proof::Delivered => {
                assert!(
                    !is_stale || landed.is_none(),
                    "seed {}: request {tag} went by a dead key",
                    self.seed
                );
                if let Some(landed) = landed {
                    assert_eq!(landed, [byte_of(tag as u32); PLACE_LEN], "seed {}: {tag}", self.seed);
                }
            }
            What::Write { .. } | What::Send => {}
            What::Read { expected } if !is_stale => {
                assert_eq!(bytes, [expected; PLACE_LEN], "seed {}: request {tag} read", self.seed);
            }
            What::Read { .. } => {}
            What::Add => {
                assert!(is_stale || bytes == [0; 8], "seed {}: request {tag} found {bytes:?}", self.seed);
                if let Some(landed) = landed.filter(|_| !is_stale) {
                    assert_eq!(landed[..8], (tag + 1).to_ne_bytes(), "seed {}: {tag}", self.seed);
                }
            }
        }
    }

    pub(super) fn check_immediate(&mut self, place: Place, link: Option<LinkKey>, tag: u32) {
        let asked = &self.asked[tag as usize];
        assert!(!asked.is_told, "seed {}: request {tag} is told twice", self.seed);
        assert_eq!(asked.what, What::Write { has_immediate: true }, "seed {}: {tag}", self.seed);
        self.check_end(place, link, tag);
        // On an ordered link, all earlier ones have arrived as well.
        let is_ordered = self.kinds[place.rail].properties.limits.is_ordered;
        for (other, before) in self.asked[..=tag as usize].iter().enumerate().rev() {
            let is_same_way = (before.link, before.side) == (asked.link, asked.side);
            let is_write = matches!(before.what, What::Write { .. }) && !before.is_stale;
            if other != tag as usize && !(is_ordered && is_same_way && is_write) {
                continue;
            }
            if let Some(landed) = self.read_place(place, before.grant, before.place).filter(|_| is_write) {
                assert_eq!(landed, [byte_of(other as u32); PLACE_LEN], "seed {}: {other}", self.seed);
            }
        }
        self.asked[tag as usize].is_told = true;
    }

    pub(super) fn check_message(&mut self, place: Place, link: Option<LinkKey>, bytes: &[u8]) {
        let tag = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        let asked = &self.asked[tag as usize];
        assert!(!asked.is_told, "seed {}: message {tag} comes twice", self.seed);
        assert_eq!(asked.what, What::Send, "seed {}: {tag}", self.seed);
        assert!(bytes[4..] == [byte_of(tag); PLACE_LEN - 4], "seed {}: {tag}", self.seed);
        self.check_end(place, link, tag);
        self.asked[tag as usize].is_told = true;
    }

    /// Checks that an event reached its receiver over the link that it names.
    fn check_end(&self, place: Place, link: Option<LinkKey>, tag: u32) {
        let asked = &self.asked[tag as usize];
        let (to, key) = self.links[asked.link].ends[1 - asked.side];
        assert_eq!(to, place, "seed {}: {tag}", self.seed);
        let is_named = self.kinds[place.rail].properties.immediates_name_link;
        assert_eq!(link, is_named.then_some(key), "seed {}: {tag}", self.seed);
    }

    /// Checks the end of a storm: nothing is in flight, every link can be made again, and there
    /// were no violations.
    pub(super) fn end(&mut self) {
        self.network.calm();
        for _ in 0..2_000 {
            self.step(false);
        }
        for host in 0..self.hosts.len() {
            for rail in 0..self.kinds.len() {
                self.reset(host, rail);
            }
        }
        for _ in 0..50 {
            self.step(false);
        }
        self.try_every_link();
        let in_flight = self.asked.iter().filter(|asked| asked.state == State::InFlight).count();
        assert_eq!(in_flight, 0, "seed {}\n{}", self.seed, self.network.notes().join("\n"));
        let left: usize =
            self.hosts.iter().flat_map(|host| &host.rails).map(|rail| rail.rail.in_flight()).sum();
        assert_eq!(left, 0, "seed {}", self.seed);
        for slice in &self.given_back {
            assert!(slice.iter().all(|byte| *byte == 0x55), "seed {}: written to when given back", self.seed);
        }
        let violations = self.network.violations();
        assert_eq!(violations, [], "{}", self.network.notes().join("\n"));
    }

    fn try_every_link(&mut self) {
        for rail in 0..self.kinds.len() {
            for host in 1..self.hosts.len() {
                // This may end links, so it comes first.
                self.renew_grant(host, rail);
                self.link(0, host, rail);
                let tag = self.write_immediate(self.links.len() - 1);
                let is_over = |asked: &Asked| asked.state != State::InFlight && asked.is_told;
                for _ in 0..2_000 {
                    if !is_over(&self.asked[tag]) {
                        self.step(false);
                    }
                }
                let (state, is_told) = (self.asked[tag].state, self.asked[tag].is_told);
                assert_eq!((state, is_told), (State::Done, true), "seed {}: {tag}", self.seed);
            }
        }
    }
}

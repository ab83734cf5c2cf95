//! The links to one peer: one for each pair of rails, and those that others have followed.

use std::ops::{Index, IndexMut};

use super::link::{Link, NO_LINK};
use crate::counter::LinkId;

/// See the [module](self). A link's index among them stays.
#[derive(Debug, Default)]
pub(crate) struct Links {
    present: Vec<Link>,
    /// Links that others have followed here while the peer's end may still have something in flight: it says so when it is lost.
    past: Vec<PastLink>,
    next_id: u64,
}

/// A link that there is no more on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PastLink {
    id: LinkId,
    rail: usize,
    /// That of its rail, when it was opened.
    generation: u64,
    /// Whether the peer has said that what it had in flight may land yet.
    may_land_late: bool,
}

impl Links {
    /// Between these rails: first ours, then the peer's.
    pub(crate) fn new(pairs: impl IntoIterator<Item = (usize, usize)>, now: u64) -> Self {
        let present = pairs.into_iter().map(|pair| Link::new(pair, now)).collect();
        Self { present, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.present.len()
    }

    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Link> {
        self.present.iter()
    }

    /// A name that no link of the peer's had before.
    pub(crate) fn next_id(&mut self) -> LinkId {
        let id = LinkId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Requests of ours that are with cards, on all links.
    pub(crate) fn in_flight(&self) -> u32 {
        self.present.iter().map(Link::in_flight).sum()
    }

    /// The link of this name.
    pub(crate) fn position(&self, id: LinkId) -> Option<usize> {
        self.present.iter().position(|link| link.id() == id)
    }

    /// The link of this name, unless it is down.
    pub(crate) fn named(&self, id: LinkId) -> Option<usize> {
        self.position(id).filter(|index| !self.present[*index].is_down())
    }

    /// The link between these rails.
    pub(crate) fn between(&self, pair: (usize, usize)) -> Option<usize> {
        self.present.iter().position(|link| link.is_between(pair))
    }

    /// The rail of a link, also of one that others have followed, and the rail's generation when it was opened.
    pub(crate) fn rail_of(&self, id: LinkId) -> Option<(usize, u64)> {
        let present = self.position(id).map(|index| &self.present[index]);
        let past = || self.past.iter().find(|link| link.id == id).map(|link| (link.rail, link.generation));
        present.map(|link| (link.rail(), link.generation())).or_else(past)
    }

    /// The peer has said that what it had in flight on a link may land yet.
    pub(crate) fn expect_late(&mut self, id: LinkId) {
        self.present.iter_mut().filter(|link| link.id() == id).for_each(Link::expect_late);
        self.past.iter_mut().filter(|link| link.id == id).for_each(|link| link.may_land_late = true);
    }

    /// Whether something of the peer's may land over a rail that was not begun anew since.
    pub(crate) fn may_land_over(&self, rail: usize, generation: u64) -> bool {
        let is_it =
            |past: &PastLink| past.may_land_late && (past.rail, past.generation) == (rail, generation);
        self.present.iter().any(|link| link.may_land_over(rail, generation)) || self.past.iter().any(is_it)
    }

    /// Whether the peer was never told an end of ours: it can have posted nothing.
    pub(crate) fn were_never_offered(&self) -> bool {
        self.past.is_empty() && self.present.iter().all(|link| link.id() == NO_LINK)
    }

    /// Another link is about to follow one: what the peer has in flight on that may land yet, unless it has said that its end is lost.
    pub(crate) fn remember(&mut self, index: usize) {
        let link = &self.present[index];
        if link.is_known_there() {
            let (id, rail, generation) = (link.id(), link.rail(), link.generation());
            self.past.push(PastLink { id, rail, generation, may_land_late: false });
        }
    }

    /// Nothing of this link lands any more.
    pub(crate) fn forget_past(&mut self, id: LinkId) {
        self.past.retain(|past| past.id != id);
    }

    /// Forgets past links of rails that were begun anew since: nothing of them lands any more.
    pub(crate) fn forget_ended(&mut self, generation_of: impl Fn(usize) -> u64) {
        self.past.retain(|past| generation_of(past.rail) == past.generation);
    }

    /// How many past links the peer has not told the end of.
    pub(crate) fn past(&self) -> usize {
        self.past.len()
    }

    /// Bytes that are held here.
    pub(crate) fn memory(&self) -> usize {
        self.present.capacity() * size_of::<Link>() + self.past.capacity() * size_of::<PastLink>()
    }
}

impl Index<usize> for Links {
    type Output = Link;

    #[inline]
    fn index(&self, index: usize) -> &Link {
        &self.present[index]
    }
}

impl IndexMut<usize> for Links {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Link {
        &mut self.present[index]
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::MadeEnd;
    use super::*;
    use crate::rail::LinkKey;

    /// One link over rail 0, which was opened when that was reset twice.
    fn opened(id: u64) -> Links {
        let mut links = Links::new([(0, 0), (1, 0)], 0);
        links[0].open(LinkId(id));
        links[0].opened(MadeEnd { key: LinkKey(1), generation: 2, own_mark: 0 }, 0);
        links
    }

    #[test]
    fn a_link_that_was_followed_is_known_until_the_peer_tells_its_end() {
        let mut links = opened(5);
        assert!(!links.were_never_offered() && Links::new([(0, 0)], 0).were_never_offered());
        links.remember(0);
        links[0].open(LinkId(6));
        assert_eq!((links.rail_of(LinkId(5)), links.position(LinkId(5))), (Some((0, 2)), None));
        assert!(!links.may_land_over(0, 2));
        links.expect_late(LinkId(5));
        assert!(links.may_land_over(0, 2) && !links.may_land_over(0, 3) && !links.may_land_over(1, 2));
        links.forget_past(LinkId(5));
        assert_eq!((links.rail_of(LinkId(5)), links.past()), (None, 0));
    }

    #[test]
    fn a_link_whose_end_is_known_is_not_remembered() {
        let mut links = opened(5);
        links[0].lost_there();
        links.remember(0);
        links.remember(1);
        assert_eq!(links.past(), 0);
    }

    #[test]
    fn a_rail_that_was_begun_anew_ends_what_was_under_way_over_it() {
        let mut links = opened(5);
        links.remember(0);
        links.forget_ended(|_| 2);
        assert_eq!(links.past(), 1);
        links.forget_ended(|rail| if rail == 0 { 3 } else { 2 });
        assert_eq!(links.past(), 0);
    }

    #[test]
    fn names_are_never_used_again() {
        let mut links = Links::default();
        assert_eq!([links.next_id(), links.next_id()], [LinkId(0), LinkId(1)]);
    }
}

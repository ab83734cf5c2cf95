//! The links to one peer: one for each pair of rails, and replaced links whose bytes may still
//! land.

use std::ops::{Index, IndexMut};

use super::link::{Link, NO_LINK};
use crate::counter::LinkId;
use crate::time::Time;

/// See the [module](self). The index of a link never changes.
#[derive(Debug, Default)]
pub(crate) struct Links {
    present: Vec<Link>,
    /// Replaced links on which the peer may still have operations in flight. The peer reports the
    /// loss of each.
    past: Vec<PastLink>,
    /// Links that are not connected before they are needed.
    held_back: Vec<usize>,
    next_id: u64,
    /// The number of links that were opened.
    opened: u64,
    /// The id that follows the last one that the peer has chosen.
    next_id_there: u64,
}

/// A link that was replaced on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PastLink {
    id: LinkId,
    rail: usize,
    /// The generation of its rail when it was opened.
    generation: u64,
    /// Whether the peer reported that its operations in flight may still land.
    may_land_late: bool,
}

impl Links {
    /// Creates links between these rails: first the local one, then the peer's.
    pub(crate) fn new(pairs: impl IntoIterator<Item = (usize, usize)>, now: Time) -> Self {
        let present = pairs.into_iter().map(|pair| Link::new(pair, now)).collect();
        Self { present, ..Self::default() }
    }

    /// Lets links wait until they are [needed](Self::need_all).
    pub(crate) fn hold_back(&mut self, indices: impl IntoIterator<Item = usize>) {
        self.held_back = indices.into_iter().collect();
        // The initiator alone offers links, so the other side need not know.
        self.held_back.iter().for_each(|index| self.present[*index].wait());
    }

    /// Lets links that were held back be connected. Returns `false` if there are none.
    pub(crate) fn need_all(&mut self, now: Time) -> bool {
        let held_back = std::mem::take(&mut self.held_back);
        held_back.iter().for_each(|index| self.present[*index].end_wait(now));
        !held_back.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.present.len()
    }

    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Link> {
        self.present.iter()
    }

    /// Returns an id that no link of the peer had before.
    pub(crate) fn next_id(&mut self) -> LinkId {
        let id = LinkId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Notes an id that the peer has chosen for a link. Returns `false` if it is not larger than all
    /// before, or is [`NO_LINK`].
    pub(crate) fn is_new_id(&mut self, id: LinkId) -> bool {
        // Ascending ids need one number instead of a set that grows with each link.
        // `NO_LINK` means that there is no link, and one more than it would overflow.
        let is_new = id.0 >= self.next_id_there && id != NO_LINK;
        if is_new {
            self.next_id_there = id.0 + 1;
        }
        is_new
    }

    /// Begins the creation of this side's end of a link, with this id.
    pub(crate) fn open(&mut self, index: usize, id: LinkId) {
        self.opened += 1;
        self.present[index].open(id);
    }

    /// Returns the number of links that were opened and are lost.
    pub(crate) fn lost(&self) -> u64 {
        // Counted as the difference, because a link may be lost in several ways.
        let in_use = self.present.iter().filter(|link| !link.is_failing()).count();
        self.opened - in_use as u64
    }

    /// Returns the number of work requests in flight, on all links.
    pub(crate) fn in_flight(&self) -> u32 {
        self.present.iter().map(Link::in_flight).sum()
    }

    /// Returns the index of the link with this id.
    pub(crate) fn position(&self, id: LinkId) -> Option<usize> {
        // A link that was never opened has this one, and a peer may say that it is lost.
        self.present.iter().position(|link| link.id() == id && id != NO_LINK)
    }

    /// Returns the index of the link with this id, unless it is down.
    pub(crate) fn named(&self, id: LinkId) -> Option<usize> {
        self.position(id).filter(|index| !self.present[*index].is_down())
    }

    /// Returns the index of the link between these rails.
    pub(crate) fn between(&self, pair: (usize, usize)) -> Option<usize> {
        self.present.iter().position(|link| link.is_between(pair))
    }

    /// Returns the rail of a link, current or replaced, and the rail's generation when the link was
    /// opened.
    pub(crate) fn rail_of(&self, id: LinkId) -> Option<(usize, u64)> {
        let present = self.position(id).map(|index| &self.present[index]);
        let past = || self.past.iter().find(|link| link.id == id).map(|link| (link.rail, link.generation));
        // A link that ends alone is not remembered: nothing of it lands any more.
        present.map(|link| (link.rail(), link.generation())).or_else(past)
    }

    /// Notes that operations of the peer on a link may still land.
    pub(crate) fn expect_late(&mut self, id: LinkId) {
        self.present.iter_mut().filter(|link| link.id() == id).for_each(Link::expect_late);
        self.past.iter_mut().filter(|link| link.id == id).for_each(|link| link.may_land_late = true);
    }

    /// Returns `true` if operations of the peer may still land over this generation of a rail.
    pub(crate) fn may_land_over(&self, rail: usize, generation: u64) -> bool {
        let is_it =
            |past: &PastLink| past.may_land_late && (past.rail, past.generation) == (rail, generation);
        self.present.iter().any(|link| link.may_land_over(rail, generation)) || self.past.iter().any(is_it)
    }

    /// Returns `true` if the peer never got an end of this side: it cannot have posted anything.
    pub(crate) fn were_never_offered(&self) -> bool {
        self.past.is_empty() && self.present.iter().all(|link| link.id() == NO_LINK)
    }

    /// Remembers a link that is about to be replaced: operations of the peer on it may still land,
    /// unless the peer has reported the loss of its end.
    pub(crate) fn remember(&mut self, index: usize) {
        let link = &self.present[index];
        // Otherwise the peer never knew the link, or has reported its loss already.
        if link.is_known_there() {
            let (id, rail, generation) = (link.id(), link.rail(), link.generation());
            // The peer says with the report whether its operations may still land.
            self.past.push(PastLink { id, rail, generation, may_land_late: false });
        }
    }

    /// Forgets a replaced link: nothing of it lands any more.
    pub(crate) fn forget_past(&mut self, id: LinkId) {
        self.past.retain(|past| past.id != id);
    }

    /// Forgets replaced links of rails that were reset since: nothing of them lands any more.
    pub(crate) fn forget_ended(&mut self, generation_of: impl Fn(usize) -> u64) {
        // A reset closes the endpoint, and with it everything that the peer had in flight.
        self.past.retain(|past| generation_of(past.rail) == past.generation);
    }

    /// Returns the number of replaced links whose loss the peer has not reported.
    pub(crate) fn past(&self) -> usize {
        self.past.len()
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        self.present.capacity() * size_of::<Link>()
            + self.past.capacity() * size_of::<PastLink>()
            + self.held_back.capacity() * size_of::<usize>()
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

    /// Returns links of which one was opened over rail 0 after two resets.
    fn opened(id: u64) -> Links {
        let mut links = Links::new([(0, 0), (1, 0)], Time::ZERO);
        links[0].open(LinkId(id));
        links[0].opened(MadeEnd { key: LinkKey(1), generation: 2, own_mark: 0 }, Time::ZERO);
        links
    }

    #[test]
    fn a_link_that_was_followed_is_known_until_the_peer_tells_its_end() {
        let mut links = opened(5);
        assert!(!links.were_never_offered() && Links::new([(0, 0)], Time::ZERO).were_never_offered());
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

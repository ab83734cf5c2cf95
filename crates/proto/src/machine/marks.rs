//! Marks of messages: random numbers that identify the link of a message where a rail does not report
//! it.

use super::id_map::IdMap;
use super::names::Names;
use super::work::LinkEnd;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Marks {
    links: IdMap<u64, LinkEnd>,
}

impl Marks {
    /// Assigns a mark to an end of a link.
    pub(super) fn give(&mut self, end: LinkEnd, names: &mut Names) -> u64 {
        let mark = names.draw(|mark| !self.links.contains_key(&mark));
        self.links.insert(mark, end);
        mark
    }

    /// Returns the link whose messages carry this mark.
    #[inline]
    pub(super) fn link(&self, mark: u64) -> Option<LinkEnd> {
        self.links.get(&mark).copied()
    }

    /// Removes the mark of a link that can no longer be used.
    pub(super) fn end(&mut self, mark: u64) {
        self.links.remove(&mark);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, LinkEnd)> {
        self.links.iter().map(|(mark, end)| (*mark, *end))
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::PeerKey;
    use crate::rail::LinkKey;

    #[test]
    fn a_mark_is_of_one_link_until_it_ends() {
        let (mut marks, mut names) = (Marks::default(), Names::new([7; 32]));
        let end = |peer| LinkEnd { rail: 0, link: LinkKey(1), peer: PeerKey(peer), index: 0 };
        let [first, second] = [3, 4].map(|peer| marks.give(end(peer), &mut names));
        let peer_of = |marks: &Marks, mark| marks.link(mark).map(|end| end.peer);
        assert_eq!([first, second].map(|mark| peer_of(&marks, mark)), [Some(PeerKey(3)), Some(PeerKey(4))]);
        assert_eq!(peer_of(&marks, first + 1), None, "a neighbour of a mark is no mark");
        marks.end(first);
        assert_eq!((peer_of(&marks, first), marks.len()), (None, 1));
    }
}

//! The counters of a peer, and their names on links.
//!
//! On rails whose immediates do not identify their link, a counter has a name on each link. The
//! receiver would ignore an immediate without such a name.

use crate::counter::{CounterId, Immediate, LinkId};
use crate::machine::peer_map::{HashKeys, PeerMap};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct RemoteCounters {
    /// For each counter, its names by link.
    names: PeerMap<CounterId, Vec<(LinkId, CounterId)>>,
}

impl RemoteCounters {
    /// Creates an empty table whose hashes have these keys.
    pub(crate) fn new(keys: HashKeys) -> Self {
        Self { names: PeerMap::with_hasher(keys) }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Adds a counter of the peer, or further names of one. Drops names on links that are not
    /// present: their ids never recur. A counter has one name on each link, the last one.
    pub(crate) fn learn(
        &mut self,
        counter: CounterId,
        names: Vec<(LinkId, CounterId)>,
        is_present: impl Fn(LinkId) -> bool,
    ) {
        let known = self.names.entry(counter).or_default();
        // A peer could make the list grow with names on links that never were.
        known.retain(|(link, _)| is_present(*link));
        for (link, name) in names.into_iter().filter(|(link, _)| is_present(*link)) {
            // A link has one name of a counter. The last one is valid.
            known.retain(|(other, _)| *other != link);
            known.push((link, name));
        }
    }

    /// Removes a counter that the peer has closed.
    pub(crate) fn forget(&mut self, counter: CounterId) {
        self.names.remove(&counter);
    }

    pub(crate) fn knows(&self, counter: CounterId) -> bool {
        self.names.contains_key(&counter)
    }

    /// Returns `true` if a counter has a name on a link, or is closed.
    #[inline]
    pub(crate) fn is_named_on(&self, link: LinkId, counter: CounterId) -> bool {
        // Of a closed counter no name is awaited: `immediate_on` finds that it is gone.
        self.names.get(&counter).is_none_or(|names| names.iter().any(|(id, _)| *id == link))
    }

    /// Returns the immediate with the counter's name on a link, if counters have such names.
    #[inline]
    pub(crate) fn immediate_on(
        &self,
        link: LinkId,
        immediate: Immediate,
        has_names: bool,
    ) -> Option<Immediate> {
        let names = self.names.get(&immediate.counter)?;
        if !has_names {
            return Some(immediate);
        }
        let (_, name) = names.iter().find(|(id, _)| *id == link)?;
        Immediate::new(*name, immediate.pages())
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        let names = self.names.values().map(|names| names.capacity() * size_of::<(LinkId, CounterId)>());
        self.names.capacity() * (size_of::<(CounterId, Vec<()>)>() + size_of::<u64>()) + names.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(number: u32) -> CounterId {
        CounterId::from_raw(number)
    }

    #[test]
    fn an_immediate_goes_by_the_name_on_its_link() {
        let mut counters = RemoteCounters::new(HashKeys::new(3, 5));
        let [it, on_first, on_second] = [1, 2, 3].map(counter);
        counters.learn(it, vec![(LinkId(1), on_first)], |_| true);
        let immediate = Immediate::new(it, 5).unwrap();
        assert_eq!(counters.immediate_on(LinkId(1), immediate, true), Immediate::new(on_first, 5));
        assert_eq!(counters.immediate_on(LinkId(2), immediate, true), None);
        assert_eq!(counters.immediate_on(LinkId(2), immediate, false), Some(immediate));
        assert!(counters.is_named_on(LinkId(1), it) && !counters.is_named_on(LinkId(2), it));
        counters.learn(it, vec![(LinkId(2), on_second)], |link| link != LinkId(1));
        assert_eq!(counters.immediate_on(LinkId(1), immediate, true), None, "that link never comes again");
        assert_eq!(counters.immediate_on(LinkId(2), immediate, true), Immediate::new(on_second, 5));
    }

    #[test]
    fn one_that_is_closed_takes_no_immediate() {
        let mut counters = RemoteCounters::new(HashKeys::new(3, 5));
        let it = counter(1);
        counters.learn(it, Vec::new(), |_| true);
        assert!(counters.knows(it) && !counters.is_named_on(LinkId(1), it));
        counters.forget(it);
        assert!(!counters.knows(it) && counters.is_named_on(LinkId(1), it), "nobody waits for a name of it");
        assert_eq!(counters.immediate_on(LinkId(1), Immediate::new(it, 1).unwrap(), false), None);
    }
}

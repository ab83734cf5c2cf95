//! The links of a rail. All use the same endpoint; a link is a peer in its address vector.

use farreach_fabric::Peer;
use farreach_rail::{LinkKey, RailError};

/// Links by their keys. A place is used again, but a key never: it includes how often its place was
/// used.
#[derive(Debug, Default)]
pub(super) struct Links {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    uses: u32,
    link: Option<Link>,
}

/// The state of a link.
#[derive(Debug)]
pub(super) enum Link {
    /// Only the local end exists.
    Open,
    /// Both ends are known.
    Connected(Connected),
    /// Posts are refused with this error.
    Failed(RailError),
}

#[derive(Debug)]
pub(super) struct Connected {
    pub(super) peer: Peer,
    pub(super) doubt: Doubt,
}

/// Decides whether "queue full" may be believed. One library was seen to return it for requests
/// that it never accepts, each time with an unattributed error.
#[derive(Debug)]
pub(super) struct Doubt {
    /// The number of unattributed errors at the last refusal.
    unattributed: u64,
    /// How many refusals came with new unattributed errors since a post succeeded.
    count: u32,
}

impl Doubt {
    /// The limit. An unattributed error may coincide with a refusal for another reason, but not
    /// this often.
    const MAX: u32 = 2;

    pub(super) fn new(unattributed: u64) -> Self {
        Self { unattributed, count: 0 }
    }

    /// Returns whether "queue full" is to be believed, given the number of unattributed errors so
    /// far.
    pub(super) fn is_credible(&mut self, unattributed: u64) -> bool {
        // An error from before the last refusal says nothing about this one.
        if unattributed > std::mem::replace(&mut self.unattributed, unattributed) {
            self.count += 1;
        }
        self.count <= Self::MAX
    }

    /// Notes that a post succeeded.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}

impl Links {
    pub(super) fn open(&mut self) -> LinkKey {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { uses: 0, link: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[number as usize];
        place.uses += 1;
        place.link = Some(Link::Open);
        LinkKey(u64::from(place.uses) << 32 | u64::from(number))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: LinkKey) -> Option<&mut Link> {
        // The lower half of a key is its place.
        let place = self.places.get_mut(key.0 as u32 as usize)?;
        if u64::from(place.uses) != key.0 >> 32 {
            return None;
        }
        place.link.as_mut()
    }

    /// Removes a link. Does nothing if it does not exist.
    pub(super) fn close(&mut self, key: LinkKey) {
        if self.get_mut(key).is_none() {
            return;
        }
        let number = key.0 as u32;
        let place = &mut self.places[number as usize];
        place.link = None;
        // A place whose counter cannot grow is not used again.
        if place.uses < u32::MAX {
            self.free.push(number);
        }
    }

    pub(super) fn close_all(&mut self) {
        for number in 0..self.places.len() {
            let uses = self.places[number].uses;
            self.close(LinkKey(u64::from(uses) << 32 | number as u64));
        }
    }

    /// Notes that a post to a link succeeded.
    #[inline]
    pub(super) fn clear_doubt(&mut self, key: LinkKey) {
        if let Some(Link::Connected(connected)) = self.get_mut(key) {
            connected.doubt.clear();
        }
    }

    /// Marks a link as failed: further posts are refused. The first reason is kept.
    pub(super) fn fail(&mut self, key: LinkKey, reason: &RailError) {
        if let Some(link @ (Link::Open | Link::Connected(_))) = self.get_mut(key) {
            *link = Link::Failed(reason.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_link_and_no_later_one() {
        let mut links = Links::default();
        let keys = [links.open(), links.open()];
        assert_ne!(keys[0], keys[1]);
        links.close(keys[0]);
        links.close(keys[0]);
        assert!(links.get_mut(keys[0]).is_none());
        let next = links.open();
        assert!(!keys.contains(&next));
        assert!(links.get_mut(keys[0]).is_none() && links.get_mut(next).is_some());
        assert!(links.get_mut(LinkKey(u64::MAX)).is_none());

        links.close_all();
        assert!([keys[1], next].iter().all(|key| links.get_mut(*key).is_none()));
        let [first, second] = [links.open(), links.open()];
        assert!(![keys[0], keys[1], next].contains(&first) && first != second);
        assert_eq!(links.places.len(), 2, "places are used again");
    }

    #[test]
    fn no_room_is_believed_unless_each_time_an_error_comes_along() {
        let mut doubt = Doubt::new(5);
        assert!((0..1000).all(|_| doubt.is_credible(5)), "a queue may be full for long");
        assert!(doubt.is_credible(6) && doubt.is_credible(7));
        doubt.clear();
        assert!(doubt.is_credible(8) && doubt.is_credible(9) && doubt.is_credible(9));
        assert!(!doubt.is_credible(10));
    }

    #[test]
    fn the_first_failure_is_kept() {
        let mut links = Links::default();
        let key = links.open();
        let error = |cause: &str| RailError::new("write", cause, "");
        links.fail(key, &error("first"));
        links.fail(key, &error("second"));
        let Some(Link::Failed(reason)) = links.get_mut(key) else { panic!("it has failed") };
        assert_eq!(reason.cause, "first");
    }
}

//! The links of a rail. All use the same endpoint; a link is a peer of it.

use farreach_fabric::Peer;
use farreach_rail::{LinkKey, RailError};

/// Links by their keys. A place is used again, a key never: it has the number of times that its place was used, too.
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

/// One link.
#[derive(Debug)]
pub(super) enum Link {
    /// Its own end is made.
    Open,
    /// Both are.
    Connected(Connected),
    /// The library refuses whatever is posted to it, with this.
    Failed(RailError),
}

#[derive(Debug)]
pub(super) struct Connected {
    pub(super) peer: Peer,
    pub(super) doubt: Doubt,
}

/// Whether "no room" may be believed. One library was seen to answer so to what it will never do, each time with an error that is nobody's.
#[derive(Debug)]
pub(super) struct Doubt {
    /// How many errors there were that are nobody's, when it was last refused.
    unattributed: u64,
    /// How often in a row there were more than before.
    count: u32,
}

impl Doubt {
    /// Such an error may come at the same time for another reason, but not so often.
    const MAX: u32 = 2;

    pub(super) fn new(unattributed: u64) -> Self {
        Self { unattributed, count: 0 }
    }

    /// It was refused for want of room, and there were so many errors by now; whether that is to be believed.
    pub(super) fn is_credible(&mut self, unattributed: u64) -> bool {
        if unattributed > std::mem::replace(&mut self.unattributed, unattributed) {
            self.count += 1;
        }
        self.count <= Self::MAX
    }

    /// Something was taken.
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
        let place = self.places.get_mut(key.0 as u32 as usize)?;
        if u64::from(place.uses) != key.0 >> 32 {
            return None;
        }
        place.link.as_mut()
    }

    /// Takes a link away. One that is not there, or not any more, is no matter.
    pub(super) fn close(&mut self, key: LinkKey) {
        if self.get_mut(key).is_none() {
            return;
        }
        let number = key.0 as u32;
        let place = &mut self.places[number as usize];
        place.link = None;
        // One that cannot be counted further is not used again.
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

    /// Nothing more can be posted to it.
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

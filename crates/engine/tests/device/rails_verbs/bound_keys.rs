//! Keys that are bound to links by memory windows: no other link can use them.

use farreach::Rights;
use farreach::rails::verbs::VerbsSettings;
use farreach_rail::{LinkKey, PeerKey, Rail, RemoteSegment};
use farreach_testkit::{does_long_tests, on_host_a, pattern};

use super::pair::{Pair, write};

fn bound() -> VerbsSettings {
    VerbsSettings { bind_keys: true, ..VerbsSettings::default() }
}

const LEN: usize = 4096;

impl Pair {
    /// Binds a key of b to a link of b. Returns the segment for a.
    #[track_caller]
    fn bind(&mut self, link: LinkKey, granted: &super::pair::Granted, tag: u64) -> RemoteSegment {
        self.b.rail.bind_key(link, granted.id, tag).expect("it is being bound");
        let (at, of, bound) = self.until("key", |pair| pair.b.told.bound.pop_front());
        assert_eq!((at, of), (link, tag));
        let (address, key) = bound.expect("it is bound");
        RemoteSegment { address, key, len: LEN as u64 }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_bound_key_is_good_over_its_link_only() {
    on_host_a(|| {
        let mut pair = Pair::with(&bound());
        assert!(pair.b.rail.properties().keys_are_bound, "Soft-RoCE has windows of type 2");
        let granted = pair.b.granted(1, LEN);
        let target = pair.bind(pair.b.link, &granted, 7);
        let page = pair.a.filled(2, LEN);
        pair.a.post(1, write(page, target));
        pair.well_done();
        assert_eq!(granted.bytes(), pattern(2, LEN));

        // The key of the region itself gives no access, and the bound key none over another link.
        let unbound = granted.part(0, LEN as u64);
        for target in [unbound, target] {
            let (at_a, at_b) = pair.link();
            let (first, page) = (std::mem::replace(&mut pair.a.link, at_a), pair.a.filled(3, LEN));
            pair.a.post(2, write(page, target));
            pair.done().outcome.unwrap_err();
            assert_eq!(granted.bytes(), pattern(2, LEN), "nothing was written");
            pair.a.rail.close_link(at_a);
            pair.b.rail.close_link(at_b);
            pair.a.link = first;
        }
        // The link that it is bound to goes on.
        let page = pair.a.filled(4, LEN);
        pair.a.post(3, write(page, target));
        pair.well_done();
        assert_eq!(granted.bytes(), pattern(4, LEN));
        // Another window for another link.
        let (at_a, at_b) = pair.link();
        let second = pair.bind(at_b, &granted, 8);
        assert_ne!(second.key, target.key);
        pair.a.link = at_a;
        let page = pair.a.filled(5, LEN);
        pair.a.post(4, write(page, second));
        pair.well_done();
        pair.b.rail.end_key(granted.id).expect("windows and region are ended");
        assert_eq!(granted.memory.keys(), 0, "which is the proof");
        let page = pair.a.filled(6, LEN);
        pair.a.post(5, write(page, second));
        pair.done().outcome.unwrap_err();
        assert_eq!(granted.bytes(), pattern(5, LEN));
        let told = &mut pair.b.told;
        (told.links_down, told.done) = Default::default();
        pair.a.told.links_down.clear();
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn many_keys_are_bound_and_each_is_answered() {
    on_host_a(|| {
        let mut pair = Pair::with(&bound());
        let grants: Vec<_> = (0..100).map(|seed| pair.b.granted(seed, LEN)).collect();
        for (tag, granted) in grants.iter().enumerate() {
            pair.b.rail.bind_key(pair.b.link, granted.id, tag as u64).expect("it is being bound");
        }
        let mut keys = Vec::new();
        while keys.len() < grants.len() {
            let (_, tag, bound) = pair.until("key", |pair| pair.b.told.bound.pop_front());
            assert_eq!(tag, keys.len() as u64, "in order");
            keys.push(bound.expect("it is bound"));
        }
        for (granted, (address, key)) in grants.iter().zip(keys) {
            let page = pair.a.filled(200, LEN);
            pair.a.post(1, write(page, RemoteSegment { address, key, len: LEN as u64 }));
            pair.well_done();
            assert_eq!(granted.bytes(), pattern(200, LEN));
            pair.b.rail.end_key(granted.id).expect("it is ended");
        }
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_binding_is_answered_if_its_link_or_its_key_ends() {
    on_host_a(|| {
        // More than a link has in flight at once.
        let count = 40;
        for ends_link in [true, false] {
            let mut pair = Pair::with(&bound());
            let grants: Vec<_> = (0..count).map(|seed| pair.b.granted(seed, LEN)).collect();
            for (tag, granted) in grants.iter().enumerate() {
                pair.b.rail.bind_key(pair.b.link, granted.id, tag as u64).expect("it is being bound");
            }
            if ends_link {
                pair.b.rail.close_link(pair.b.link);
            }
            for granted in &grants {
                pair.b.rail.end_key(granted.id).expect("it is ended");
                assert_eq!(granted.memory.keys(), 0);
            }
            let mut tags = Vec::new();
            while tags.len() < usize::from(count) {
                tags.push(pair.until("answer", |pair| pair.b.told.bound.pop_front()).1);
            }
            tags.sort_unstable();
            assert_eq!(tags, (0..u64::from(count)).collect::<Vec<_>>());
            // Ending a key under its binding may fail the link, and nothing else.
            pair.b.told.links_down.clear();
            pair.finish();
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn rights_of_a_bound_key_are_those_of_the_grant() {
    on_host_a(|| {
        let mut pair = Pair::with(&bound());
        let slice = pair.b.filled(1, LEN);
        let granted = pair.b.grant(slice, Rights::READ);
        let target = pair.bind(pair.b.link, &granted, 1);
        let page = pair.a.filled(2, LEN);
        pair.a.post(1, write(page, target));
        pair.done().outcome.unwrap_err();
        assert_eq!(granted.bytes(), pattern(1, LEN));
    });
}

/// A peer that has a link and a key of its own tries keys that may be those of another peer.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn forged_keys_reach_nothing() {
    on_host_a(|| {
        let mut pair = Pair::with(&bound());
        let others: Vec<_> = (0..8).map(|seed| pair.b.granted(seed, LEN)).collect();
        let (_, victim) = pair.link();
        let stolen: Vec<_> =
            others.iter().zip(1..).map(|(granted, tag)| pair.bind(victim, granted, tag)).collect();
        let (mut tried, count) = (0, if does_long_tests() { 10_000 } else { 300 });
        while tried < count {
            let (at_a, at_b) = {
                let (at_a, end_a) = pair.a.rail.open_link(PeerKey(9)).expect("a link");
                let (at_b, end_b) = pair.b.rail.open_link(PeerKey(9)).expect("a link");
                pair.a.rail.connect(at_a, &end_b).expect("it is connected");
                pair.b.rail.connect(at_b, &end_a).expect("it is connected");
                (at_a, at_b)
            };
            pair.a.link = at_a;
            // A refusal ends the link, so each link is good for one attempt.
            let target = stolen[tried % stolen.len()];
            let key = match tried % 3 {
                0 => target.key,
                1 => target.key.wrapping_add(tried as u64 % 256) & 0xffff_ffff,
                _ => target.key ^ (1 << (tried % 32)),
            };
            let page = pair.a.filled(0xEE, 64);
            pair.a.post(1, write(page, RemoteSegment { key, len: 64, ..target }));
            pair.done().outcome.unwrap_err();
            pair.a.rail.close_link(at_a);
            pair.b.rail.close_link(at_b);
            tried += 1;
        }
        for (granted, seed) in others.iter().zip(0..) {
            assert_eq!(granted.bytes(), pattern(seed, LEN));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn memory_of_many_keys_is_registered_once() {
    on_host_a(|| {
        let mut pair = Pair::with(&bound());
        let granted = pair.b.granted(1, LEN);
        let before = pair.b.rail.regions_made();
        let keys: Vec<_> = (0..8)
            .map(|_| pair.b.rail.make_key(PeerKey(0), &granted.memory, Rights::READ).unwrap().id)
            .collect();
        assert_eq!((pair.b.rail.regions_made() - before, granted.memory.keys()), (0, 1));
        for key in keys.into_iter().chain([granted.id]) {
            assert_eq!(granted.memory.keys(), 1);
            pair.b.rail.end_key(key).unwrap();
        }
        assert_eq!(granted.memory.keys(), 0, "the last one has ended the region");
        let again = pair.b.rail.make_key(PeerKey(0), &granted.memory, Rights::READ).unwrap();
        assert_eq!(pair.b.rail.regions_made() - before, 1);
        pair.b.rail.end_key(again.id).unwrap();
        // Shared memory can be read, and a window that writes to it is refused.
        let shared = std::sync::Arc::new(farreach_memory::Exposed::from(
            farreach_memory::Memory::allocate(LEN).unwrap().share(),
        ));
        let key = pair.b.rail.make_key(PeerKey(0), &shared, Rights::READ).unwrap();
        pair.b.rail.bind_key(pair.b.link, key.id, 9).unwrap();
        let (_, _, bound) = pair.until("key", |pair| pair.b.told.bound.pop_front());
        bound.expect("a window for reading is bound");
        pair.b.rail.end_key(key.id).unwrap();
        pair.finish();
    });
}

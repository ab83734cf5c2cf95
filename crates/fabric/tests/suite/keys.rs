//! Keys: wrong, ended, and with too large a range.

use std::time::{Duration, Instant};

use farreach_fabric::{Error, Event, Refusal, RemoteAccess, RemoteRegion, TransmitRequest};
use farreach_memory::{Exposed, Memory, Slice};
use farreach_testkit::wait_for;

use super::pair::{A, B, Pair, Provider, copy, pattern, vouched};

/// Writes a pattern and waits for its result at the sender.
fn write(pair: &mut Pair, remote: RemoteRegion, len: usize) -> Result<(), String> {
    let peer = pair[A].peer();
    let request = TransmitRequest::write(pair[A].slice(&pattern(7, len)), &peer, remote);
    // If keys are not enforced, delivery uses another protocol, in which a wrong key is never
    // answered.
    let asks_for_delivery = pair[A].domain.delivers() && pair[A].domain.profile().keys_enforced;
    let request = if asks_for_delivery { request.delivered() } else { request };
    // One provider answers "full" to a request that it refuses, and reports that by an unattributed
    // error.
    let mut waiting = Some(request);
    let refused = wait_for("fate of the write", || {
        if let Some(request) = waiting.take() {
            match pair[A].endpoint.post(request) {
                Ok(()) => return Some(None),
                Err(error) => {
                    assert!(matches!(error.reason, Refusal::QueueFull { .. }), "{error}");
                    waiting = Some(error.request);
                }
            }
        }
        pair[B].poll();
        let mut poller = pair[A].cq.poller();
        let told = poller.poll().unwrap().next();
        match told {
            Some(Event::Unattributed(failure)) => Some(Some(failure.to_string())),
            None => None,
            Some(other) => panic!("{other:?}"),
        }
    });
    if let Some(refused) = refused {
        return Err(refused);
    }
    let (outcome, buffers) = pair.completion(A).into_parts();
    assert_eq!(buffers.len(), len, "the buffer comes back in any case");
    outcome.map(drop).map_err(|failure| format!("{failure}; {}", failure.cause()))
}

pub(crate) fn a_wrong_key_is_refused_where_keys_are_enforced(provider: &Provider) {
    const LEN: usize = 32_768;
    let mut pair = Pair::open(provider);
    let region = pair[B].expose(LEN);
    let right = region.remote();
    write(&mut pair, vouched(right), LEN).expect("the right key works");
    region.bytes().write_at(0, &[0; LEN]);

    let wrong = vouched(RemoteRegion::new(right.address(), right.len(), right.key() ^ 0x55));
    if pair[A].domain.profile().keys_enforced {
        let outcome = write(&mut pair, wrong, LEN);
        assert!(outcome.is_err() || !pair[A].domain.delivers(), "a wrong key was taken");
        assert_eq!(copy(&region, 0, LEN), [0; LEN], "nothing has landed");
        return;
    }
    // As the profile states, the key cannot be relied on. Whether it prevents access differs.
    let request = TransmitRequest::write(pair[A].slice(&pattern(7, LEN)), &pair[A].peer(), wrong);
    pair.post(A, request);
    let end = Instant::now() + Duration::from_secs(2);
    let mut has_landed = false;
    while !has_landed && Instant::now() < end {
        pair.progress();
        has_landed = copy(&region, 0, LEN) == pattern(7, LEN);
    }
    assert_eq!(has_landed, provider.wrong_key_lands());
}

pub(crate) fn a_region_that_promises_too_much_is_refused_by_its_target(provider: &Provider) {
    let mut pair = Pair::open(provider);
    // The memory behind the region belongs to the same allocation, and is not a target.
    let mut slice = pair[B].domain.allocate(16_384).unwrap();
    let behind = slice.split_off(4096);
    let region = pair[B].domain.expose(slice, RemoteAccess::all()).unwrap();
    let right = region.remote();
    write(&mut pair, vouched(right), 64).expect("a write within the region works");
    let long = vouched(RemoteRegion::new(right.address(), 16_384, right.key()));
    if !pair[A].domain.profile().keys_enforced {
        // The bounds are not checked either, and a write there would hit memory of this process.
        return;
    }
    let outcome = write(&mut pair, long.get(4090, 100).unwrap(), 100);
    assert!(outcome.is_err() || !pair[A].domain.delivers(), "it reaches beyond the end");
    assert!(behind.iter().all(|byte| *byte == 0), "nothing has landed behind the region");
}

pub(crate) fn a_revoked_region_takes_no_late_write(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let region = pair[B].expose(4096);
    let remote = vouched(region.remote());
    write(&mut pair, remote, 64).expect("the key works");
    let profile = *pair[A].domain.profile();
    let exposed = match region.revoke() {
        Ok(slice) => {
            assert!(profile.keys_enforced && profile.revoke_stops_writes, "an endpoint is open");
            slice.expose()
        }
        Err((error, exposed)) => {
            assert!(matches!(error, Error::NotRevocable { .. }) && !profile.revoke_stops_writes, "{error}");
            assert!(error.fix().contains("close the endpoints"), "{}", error.fix());
            exposed.try_into_slice().expect_err("a write may be under way")
        }
    };
    assert_eq!(exposed.len(), 4096);
    if !profile.keys_enforced {
        return;
    }
    exposed.write_at(0, &[0; 4096]);
    let outcome = write(&mut pair, remote, 64);
    assert!(outcome.is_err() || !pair[A].domain.delivers(), "a dead key was taken");
    assert_eq!(bytes(&exposed), [0; 4096], "a late write has landed");
    drop(pair);
    let slice = exposed.try_into_slice().expect("the last endpoint of its domain is closed");
    assert_eq!(*slice, [0; 4096]);
}

fn bytes(exposed: &Exposed) -> Vec<u8> {
    let mut copy = vec![0; exposed.len()];
    exposed.read_at(0, &mut copy);
    copy
}

pub(crate) fn what_reaches_beyond_a_region_is_not_posted(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let region = pair[B].expose(4096);
    let remote = vouched(region.remote());
    assert_eq!(remote.get(4000, 97), None);
    let (peer, slice) = (pair[A].peer(), pair[A].slice(&pattern(1, 97)));
    let request = TransmitRequest::write(slice, &peer, remote.get(4000, 96).unwrap());
    let refused = pair[A].endpoint.post(request).unwrap_err();
    assert!(matches!(refused.reason, Refusal::OutOfBounds { len: 97, remote_len: 96 }), "{}", refused.reason);
    assert_eq!(refused.request.into_buffers().len(), 97);
    let slice = pair[A].slice(&[0; 5000]);
    let refused = pair[A].endpoint.post(TransmitRequest::read(slice, &peer, remote)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::OutOfBounds { .. }), "{}", refused.reason);
    pair.assert_quiet();
}

/// A peer may claim what it likes: a key covers its bytes, and not the rest of their pages.
pub(crate) fn a_key_leads_to_nothing_beside_its_bytes(provider: &Provider) {
    const LEN: usize = 1000;
    for (before_it, len) in [(0, LEN + 1), (0, LEN + 500), (1, LEN), (500, 500)] {
        let mut pair = Pair::open(provider);
        let mut before = Memory::from_vec(vec![1; 3 * LEN]);
        let mut middle = before.split_off(LEN);
        let after = middle.split_off(LEN);
        let region = pair[B].domain.expose(middle, RemoteAccess::all()).unwrap();
        let right = region.remote();
        write(&mut pair, vouched(right), LEN).expect("all of its bytes");
        // Where keys are not enforced, an initiator vouches for the range.
        let address = right.address().checked_sub(before_it);
        let Some(address) = address.filter(|_| pair[A].domain.profile().keys_enforced) else { continue };
        let claimed = vouched(RemoteRegion::new(address, len as u64, right.key()));
        let outcome = write(&mut pair, claimed, len);
        assert!(outcome.is_err() || !pair[A].domain.delivers(), "{len} bytes from {before_it} before it");
        drop(pair);
        let is_as_before = |part: &Slice| part.iter().all(|byte| *byte == 1);
        assert!(is_as_before(&before) && is_as_before(&after), "bytes beside the region were written");
    }
}

pub(crate) fn a_region_of_an_unenforced_key_needs_somebody_to_vouch_for_it(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let region = pair[B].expose(4096);
    let request = |pair: &Pair| {
        TransmitRequest::write(pair[A].slice(&pattern(1, 64)), &pair[A].peer(), region.remote())
    };
    if pair[B].domain.profile().keys_enforced {
        let request = request(&pair);
        pair.post(A, request);
        pair.success(A);
    } else {
        let refused = pair[A].endpoint.post(request(&pair)).unwrap_err();
        assert!(matches!(refused.reason, Refusal::NotVouched), "{refused}");
        assert!(refused.reason.fix().contains("vouch"), "{}", refused.reason.fix());
        let refused =
            pair[A].endpoint.inject_write(&[1; 8], &pair[A].peer(), region.remote(), None).unwrap_err();
        assert!(matches!(refused, Refusal::NotVouched), "{refused}");
    }
}

pub(crate) fn a_write_under_way_ends_with_its_region_where_the_profile_says_so(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let stops = pair[B].domain.profile().revoke_stops_writes;
    // More than sockets take at once; a card may be done before the check, and under emulation this
    // side is slow.
    let len: usize = if stops { 4 << 20 } else { 32 << 20 };
    let region = pair[B].expose(len);
    let remote = vouched(region.remote());
    write(&mut pair, remote, 64).expect("the key works");
    let slice = pair[A].slice(&pattern(9, len));
    let last = [slice[len - 1]];
    let request = TransmitRequest::write(slice, &pair[A].peer(), remote);
    pair.post(A, request);
    let is_under_way = wait_for("beginning of the write", || {
        pair.progress();
        (copy(&region, 1 << 16, 8) != [0; 8]).then(|| copy(&region, len - 1, 1) == [0])
    });
    let exposed = region.revoke().map_or_else(|(_, exposed)| exposed, Slice::expose);
    let byte = |offset: usize| {
        let mut byte = [0];
        exposed.read_at(offset, &mut byte);
        byte
    };
    let before: Vec<_> = (0..len).step_by(4096).map(byte).collect();
    let end = Instant::now() + Duration::from_secs(if stops { 1 } else { 10 });
    while byte(len - 1) != last && Instant::now() < end {
        pair.progress();
    }
    if stops {
        let after: Vec<_> = (0..len).step_by(4096).map(byte).collect();
        assert!(before == after, "something has landed after the region was closed");
    } else {
        assert!(!is_under_way || byte(len - 1) == last, "the write stopped: say so in the profile");
    }
}

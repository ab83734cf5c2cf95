//! Several parts of a region in one operation, and several keys of the same memory.

use farreach_fabric::{
    Domain, ExposedKey, PostError, Refusal, RemoteAccess, RemoteParts, RemoteRegion, TransmitRequest, leaked,
};
use farreach_memory::{Buffer, Buffers, Exposed, Lent};

use super::lifetime::closed;
use super::pair::{A, B, Pair, Provider, copy, pattern, vouched};

const IMMEDIATE: u64 = 0xfa77_eac4;

/// Neither in order nor adjacent, with sizes on both sides of the eager limit of providers.
fn parts_of(region: RemoteRegion) -> (RemoteParts, [(usize, usize); 4]) {
    let ranges = [(70_000, 30_000), (0, 7), (50_000, 4096), (1000, 20_000)];
    let mut parts = RemoteParts::new(region);
    for (offset, len) in ranges {
        assert!(parts.push(offset as u64, len as u64));
    }
    (parts, ranges)
}

pub(crate) fn parts_of_a_region_are_written_and_read_by_one_operation(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let region = pair[B].expose(100_000);
    let (parts, ranges) = parts_of(vouched(region.remote()));
    let (peer, len) = (pair[A].peer(), parts.len() as usize);
    let data = pattern(9, len);
    // The boundaries here differ from those at the target.
    let buffers: Vec<Buffer> =
        vec![pair[A].slice(&data[..40_000]).into(), pair[A].slice(&data[40_000..]).into()];
    let request = TransmitRequest::write_scattered(buffers, &peer, parts).immediate(IMMEDIATE).tag(5);
    if pair[A].domain.info().remote_ranges_max() < ranges.len() {
        let Err(PostError { reason, request }) = pair[A].endpoint.post(request) else {
            panic!("the provider does not support it")
        };
        assert!(matches!(reason, Refusal::TooManyParts { count: 4, .. }), "{reason}");
        assert_eq!(request.into_buffers().len(), len, "it is handed back");
        return;
    }
    pair.post(A, request);
    assert_eq!(pair.written(B).immediate, IMMEDIATE);
    let mut from = 0;
    for (offset, len) in ranges {
        assert_eq!(copy(&region, offset, len), data[from..from + len], "{len} bytes at {offset}");
        from += len;
    }
    assert_eq!(copy(&region, 7, 993), [0; 993], "nothing between them");
    assert_eq!(copy(&region, 21_000, 29_000), [0; 29_000], "nothing between them");
    assert_eq!(pair.success(A).1.count(), 2);

    let lent = pair[A].domain.allocate(len).unwrap().lend();
    let into = Buffers::of_lent(vec![lent.get(..50_000).unwrap(), lent.get(50_000..).unwrap()]);
    pair.post(A, TransmitRequest::read_gathered(into, &peer, parts));
    drop(pair.success(A));
    assert_eq!(*lent.try_reclaim().unwrap(), data);

    // No operation ends beyond the parts, however long the region is.
    let request = TransmitRequest::write_scattered(pair[A].slice(&vec![1; len + 1]), &peer, parts);
    let refused = pair[A].endpoint.post(request).unwrap_err();
    assert!(matches!(refused.reason, Refusal::OutOfBounds { .. }), "{refused}");
    pair.assert_quiet();
}

pub(crate) fn a_read_goes_into_lent_parts_and_not_into_what_others_read(provider: &Provider) {
    let mut pair = Pair::open(provider);
    let data = pattern(5, 40_000);
    let region = pair[B].expose(data.len());
    region.bytes().write_at(0, &data);
    let (peer, place) = (pair[A].peer(), vouched(region.remote()));
    let lent = pair[A].domain.allocate(data.len()).unwrap().lend();
    // Each half is read by an operation of its own, both in flight at once.
    let halves = [(0, 20_000), (20_000, 40_000)];
    let part = |start: usize, end: usize| -> Lent { lent.get(start..end).unwrap() };
    for (start, end) in halves {
        let remote = place.get(start as u64, (end - start) as u64).unwrap();
        let into = Buffers::of_lent(vec![part(start, start + 5), part(start + 5, end)]);
        pair.post(A, TransmitRequest::read_into(into, &peer, remote));
    }
    for _ in halves {
        assert_eq!(pair.success(A).1.len(), 20_000);
    }
    assert_eq!(*lent.try_reclaim().expect("both parts are back"), data);

    let shared = pair[A].domain.allocate(64).unwrap().share();
    let into: Vec<Buffer> = vec![pair[A].slice(&[0; 8]).into(), shared.clone().into()];
    let refused = pair[A].endpoint.post(TransmitRequest::read_into(into, &peer, place)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::NotWritable), "{refused}");
    assert!(refused.to_string().contains("shared"), "{refused}");
    assert_eq!(refused.request.into_buffers().count(), 2);
    assert_eq!(*shared, [0; 64]);
    pair.assert_quiet();
}

fn write(pair: &mut Pair, remote: RemoteRegion, bytes: &[u8]) -> bool {
    let request = TransmitRequest::write(pair[A].slice(bytes), &pair[A].peer(), remote).immediate(IMMEDIATE);
    let delivers = pair[A].domain.delivers();
    pair.post(A, if delivers { request.delivered() } else { request });
    let completion = pair.completion(A);
    completion.outcome().is_ok()
}

fn key_of(domain: &Domain, exposed: &Exposed) -> ExposedKey {
    domain.expose_also(exposed, RemoteAccess::all()).unwrap()
}

pub(crate) fn memory_has_a_key_for_each_domain_and_each_ends_by_itself(provider: &Provider) {
    const LEN: usize = 8192;
    let mut rails = [Pair::open(provider), Pair::open(provider)];
    let exposed = farreach_memory::Memory::allocate(LEN).unwrap().expose();
    let keys = [0, 1].map(|rail| key_of(&rails[rail][B].domain, &exposed));
    assert!(exposed.keys() == 2 && keys[1].domain() == &rails[1][B].domain);
    let remotes = [0, 1].map(|rail: usize| vouched(keys[rail].remote()));
    assert!(remotes.iter().all(|remote| remote.len() == LEN as u64));
    let halves = [0, 1].map(|rail: usize| remotes[rail].get(4096 * rail as u64, 4096).unwrap());
    for rail in [0, 1] {
        assert!(write(&mut rails[rail], halves[rail], &pattern(rail as u64, 4096)));
        assert_eq!(rails[rail].written(B).immediate, IMMEDIATE);
    }
    let mut copied = vec![0; LEN];
    exposed.read_at(0, &mut copied);
    assert_eq!(copied, [pattern(0, 4096), pattern(1, 4096)].concat(), "one memory, by two keys");

    let [first, second] = keys;
    let profile = *rails[0][A].domain.profile();
    let is_proven = first.end().unwrap();
    assert_eq!(is_proven, profile.keys_enforced && profile.revoke_stops_writes);
    assert_eq!(exposed.keys(), if is_proven { 1 } else { 2 }, "the other one, and what proves nothing");
    if profile.keys_enforced {
        exposed.write_at(0, &[0; LEN]);
        let is_taken = write(&mut rails[0], halves[0], &pattern(3, 4096));
        assert!(!is_taken || !rails[0][A].domain.delivers(), "a dead key was taken");
        exposed.read_at(0, &mut copied);
        assert_eq!(copied, [0; LEN], "nothing has landed");
    }
    assert!(write(&mut rails[1], halves[1], &pattern(4, 4096)), "the other key serves");
    assert_eq!(rails[1].written(B).immediate, IMMEDIATE);
    exposed.read_at(4096, &mut copied[..4096]);
    assert_eq!(copied[..4096], pattern(4, 4096));
    drop(second);
}

pub(crate) fn memory_of_an_ended_key_is_kept_while_a_write_may_be_under_way(provider: &Provider) {
    let side = Pair::open(provider).into_sides().into_iter().next().unwrap();
    let profile = *side.domain.profile();
    let exposed = side.domain.allocate(4096).unwrap().expose();
    let before = leaked();
    let proves = profile.keys_enforced && profile.revoke_stops_writes;
    let ends: [&dyn Fn(ExposedKey); 2] = [&drop, &|key| assert_eq!(key.end().unwrap(), proves)];
    let is_kept = profile.keys_enforced && !profile.revoke_stops_writes;
    for (count, end) in ends.into_iter().enumerate() {
        end(key_of(&side.domain, &exposed));
        assert_eq!(side.domain.kept_keys(), if is_kept { count + 1 } else { 0 });
        assert_eq!(side.domain.kept_bytes(), 0, "somebody has the memory in his hand");
    }
    if is_kept {
        drop(key_of(&side.domain, &side.domain.allocate(4096).unwrap().expose()));
        assert_eq!(side.domain.kept_bytes(), 4096, "nobody has");
    }
    closed(side.endpoint.close());
    assert_eq!(side.domain.kept_keys(), 0, "nobody can write any more");
    let leaked_now = leaked().exposed_slices - before.exposed_slices;
    if profile.keys_enforced {
        exposed.try_into_slice().expect("all keys have ended");
    } else {
        // Other tests of this program run at the same time, and leak some, too.
        assert!(leaked_now >= 2 && exposed.keys() == 2, "a peer may write by a dead key");
    }
}

//! Engines that name no rails, on one host: they are connected over shm, and over tcp if they need it.

use farreach::{Engine, PageMap, Rights, Settings};

use crate::suite::{Pair, RailUnderTest, SOON, fill, settings, suite};

const DEFAULT: RailUnderTest =
    RailUnderTest { open: |settings| Engine::with(settings).unwrap(), has_atomics: Some(true), rails: 1 };

suite! {
    crate::over_libfabric::here, "needs libfabric: cargo xtask test runs it";
    default = crate::within_host::DEFAULT;
}

fn rails(pair: &Pair) -> [Vec<String>; 2] {
    [&pair.a_to_b, &pair.b_to_a].map(|peer| peer.rails())
}

fn shm() -> [Vec<String>; 2] {
    [(); 2].map(|()| vec!["shm".to_owned()])
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn engines_of_one_host_use_shm_alone() {
    let pair = Pair::new(&DEFAULT);
    let properties = pair.a.rail_properties();
    assert!(properties.iter().any(|rail| rail.name != "shm"), "{:?}", pair.a.rails());
    assert!(pair.a.warnings().is_empty(), "{:?}", pair.a.warnings());
    assert_eq!(rails(&pair), shm());
    let (grant, remote) = pair.granted(4096, Rights::WRITE);
    let map = PageMap::of(4096).first(1);
    pair.a_to_b.write_pages(pair.source(4096, 7), &map, &remote, None).wait(SOON).unwrap();
    assert_eq!(rails(&pair), shm(), "tcp was not needed");
    let slice = grant.revoke(SOON).unwrap().try_into_slice().unwrap();
    let mut expected = vec![0; 4096];
    fill(&mut expected, 7);
    assert_eq!(slice[..], expected[..]);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn memory_that_shm_cannot_grant_is_granted_over_tcp() {
    let pair = Pair::new(&DEFAULT);
    for owner_has_connected in [false, true] {
        let (owner, to_user, to_owner, user) = match owner_has_connected {
            false => (&pair.b, &pair.b_to_a, &pair.a_to_b, &pair.a),
            true => (&pair.a, &pair.a_to_b, &pair.b_to_a, &pair.b),
        };
        // A part of a page would let the peer map the rest of it.
        let mut whole = owner.allocate(8192).wait(SOON).unwrap();
        let part = whole.split_to(100);
        let grant = to_user.grant(part, Rights::WRITE).wait(SOON).unwrap();
        let remote = to_owner.remote(grant.token()).wait(SOON).unwrap();
        let mut source = user.allocate(100).wait(SOON).unwrap();
        fill(&mut source, 9);
        to_owner.write_pages(source, &PageMap::of(100).first(1), &remote, None).wait(SOON).unwrap();
        let mut expected = vec![0; 100];
        fill(&mut expected, 9);
        assert_eq!(grant.revoke(SOON).unwrap().to_vec(), expected);
        assert!(to_owner.rails().len() == 2, "{:?}", to_owner.rails());
        let notes = to_user.link_errors();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].to_string().contains("page"), "{notes:?}");
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn engines_that_name_tcp_or_require_rdma_do_not_use_shm() {
    let named = |name| Engine::with(settings(name).rails(["tcp"])).unwrap();
    for b in [named("b"), (DEFAULT.open)(settings("b"))] {
        let pair = Pair::of(named("a"), b);
        assert!(rails(&pair).iter().all(|rails| rails.len() == 1 && rails[0] != "shm"), "{:?}", rails(&pair));
    }
    let error = Engine::with(Settings::new().require_rdma()).unwrap_err();
    assert!(!error.to_string().contains("shm"), "{error}");
}

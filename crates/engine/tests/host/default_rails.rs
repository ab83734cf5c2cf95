//! Engines that name no rails, on a host with or without libraries of rails.

use farreach::{Engine, PageMap, Rights, WarningKind};

use crate::suite::{Pair, RailUnderTest, SOON};

const DEFAULT: RailUnderTest =
    RailUnderTest { open: |settings| Engine::with(settings).unwrap(), has_atomics: Some(true), rails: 1 };

#[test]
fn no_library_is_needed_within_a_host() {
    let pair = Pair::new(&DEFAULT);
    assert_eq!([&pair.a_to_b, &pair.b_to_a].map(|peer| peer.rails()), [["shm"], ["shm"]]);
    let (_grant, remote) = pair.granted(8192, Rights::READ | Rights::WRITE);
    let map = PageMap::of(4096).first(2);
    pair.a_to_b.write_pages(pair.source(8192, 3), &map, &remote, None).wait(SOON).unwrap();
    // That other hosts cannot be reached is told.
    let is_alone = pair.a.rails() == ["shm"];
    let warnings = pair.a.warnings();
    let of_rails = warnings.iter().filter(|warning| warning.kind() == WarningKind::Rail);
    assert_eq!(of_rails.count(), usize::from(is_alone), "{warnings:?}");
}

//! Large numbers of one thing.

use std::time::Instant;

use farreach::{Engine, PageMap, Peer, Rights};

use super::crowd::{Crowd, SMALL_PAGE, places, settings, told_by};
use super::{SOON, fill, say};

const PAGES: u32 = 100_000;
const GRANTS: usize = 100_000;

fn pair(rail: &str) -> (Engine, Engine, Peer, Peer) {
    let (a, b) = (Engine::with(settings(rail)).unwrap(), Engine::with(settings(rail)).unwrap());
    let address = b.listen("127.0.0.1:0").unwrap();
    let a_to_b = a.connect(address).unwrap().wait(SOON).unwrap();
    let b_to_a = b.accept().wait(SOON).unwrap();
    (a, b, a_to_b, b_to_a)
}

pub(crate) fn a_million_pages_go_in_one_transfer(rail: &'static str) {
    let engine = Engine::with(settings(rail)).unwrap();
    let address = engine.listen("127.0.0.1:0").unwrap();
    let len = PAGES as usize * SMALL_PAGE;
    let crowd = Crowd::start(address, rail, (0, 1), len);
    let peer = engine.accept().wait(SOON).unwrap();
    let (_, to, raises) = told_by(&peer);
    let mut source = engine.allocate(len).unwrap();
    fill(&mut source, 1);
    let map = PageMap::scattered(SMALL_PAGE as u64, (0..PAGES).collect(), places(PAGES));
    let begun = Instant::now();
    let done = peer.write_pages(source, &map, &to, Some(&raises)).wait(SOON).unwrap();
    say(&format!("{PAGES} pages of {SMALL_PAGE} bytes took {:.1?}: {}", begun.elapsed(), done.explanation));
    peer.send("scattered pages").wait(SOON).unwrap();
    crowd.leave();
}

pub(crate) fn a_hundred_thousand_grants_are_made_and_revoked() {
    let (_a, b, a_to_b, b_to_a) = pair("tcp");
    let mut rest = b.allocate(GRANTS * SMALL_PAGE).unwrap();
    let begun = Instant::now();
    let mut grants = Vec::with_capacity(GRANTS);
    for _ in 1..GRANTS {
        grants.push(b_to_a.grant(rest.split_to(SMALL_PAGE), Rights::WRITE).unwrap());
    }
    grants.push(b_to_a.grant(rest, Rights::WRITE).unwrap());
    let last = grants.last().unwrap().token();
    a_to_b.remote(last).wait(SOON).unwrap();
    say(&format!("{GRANTS} grants were made, and known to the peer, in {:.1?}", begun.elapsed()));
    let begun = Instant::now();
    let mut ending: Vec<_> = grants.into_iter().map(|grant| grant.begin_revoke(SOON)).collect();
    let mut whole = ending[0].wait(SOON).unwrap();
    for revoked in &mut ending[1..] {
        let slice = revoked.wait(SOON).unwrap();
        whole.unsplit(slice).expect("they were one, and are again");
    }
    assert_eq!(whole.len(), GRANTS * SMALL_PAGE);
    say(&format!("{GRANTS} grants were revoked in {:.1?}", begun.elapsed()));
}

pub(crate) fn a_peer_that_is_used_to_its_bounds_takes_no_more_memory_than_they_say() {
    todo!()
}

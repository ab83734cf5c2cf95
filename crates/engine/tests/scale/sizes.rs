//! Large numbers of pages, grants and messages.

use std::time::{Duration, Instant};

use farreach::{Engine, Exposed, PageMap, Peer, Rights};

use super::crowd::{Crowd, SMALL_PAGE, places, settings, told_by};
use super::{SOON, fill, say};

const PAGES: u32 = 1_000_000;
const GRANTS: usize = 100_000;

/// The defaults of the settings.
const MESSAGES: usize = 64;
const MESSAGE_MAX: usize = 4096;

/// Limits of an idle peer's memory, and of the memory for operations, which are never more than the
/// window has places.
const IDLE_MAX: usize = 8 << 10;
const WINDOW_MAX: usize = 256 << 10;

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
    let mut source = engine.allocate(len).wait(SOON).unwrap();
    fill(&mut source, 1);
    let map = PageMap::of(SMALL_PAGE as u64).from(0..PAGES).to(places(PAGES));
    let begun = Instant::now();
    let done = peer.write_pages(source, &map, &to, Some(&raises)).wait(SOON).unwrap();
    say(&format!("{PAGES} pages of {SMALL_PAGE} bytes took {:.1?}: {}", begun.elapsed(), done.stats));
    peer.send("scattered pages").wait(SOON).unwrap();
    crowd.leave();
}

pub(crate) fn a_hundred_thousand_grants_are_made_and_revoked() {
    let (_a, b, a_to_b, b_to_a) = pair("tcp");
    let mut rest = b.allocate(GRANTS * SMALL_PAGE).wait(SOON).unwrap();
    let begun = Instant::now();
    let mut grants = Vec::with_capacity(GRANTS);
    for _ in 1..GRANTS {
        grants.push(b_to_a.grant(rest.split_to(SMALL_PAGE), Rights::WRITE).wait(SOON).unwrap());
    }
    grants.push(b_to_a.grant(rest, Rights::WRITE).wait(SOON).unwrap());
    let last = grants.last().unwrap().token();
    a_to_b.remote(last).wait(SOON).unwrap();
    say(&format!("{GRANTS} grants were made, and known to the peer, in {:.1?}", begun.elapsed()));
    let held = [b_to_a.memory().unwrap(), a_to_b.memory().unwrap()].map(|bytes| bytes / 1024);
    say(&format!("for them this side holds {} KiB beside the keys, and the other {} KiB", held[0], held[1]));
    let begun = Instant::now();
    let mut ending: Vec<_> = grants.into_iter().map(|grant| grant.begin_revoke(SOON)).collect();
    let back: Vec<_> = ending.iter_mut().map(|revoked| revoked.wait(SOON).unwrap()).collect();
    assert_eq!(back.iter().map(Exposed::len).sum::<usize>(), GRANTS * SMALL_PAGE);
    say(&format!("{GRANTS} grants were revoked in {:.1?}", begun.elapsed()));
}

pub(crate) fn a_peer_that_is_used_to_its_bounds_takes_no_more_memory_than_they_say() {
    let (a, b, a_to_b, b_to_a) = pair("tcp");
    let idle = a_to_b.memory().unwrap().max(b_to_a.memory().unwrap());
    say(&format!("an idle peer takes {idle} bytes of the engine's"));
    assert!(idle > 0 && idle <= IDLE_MAX, "{idle}");
    // As many messages of the largest size as there is room for, and more that wait.
    let mut sent: Vec<_> = (0..2 * MESSAGES).map(|_| a_to_b.send(vec![7; MESSAGE_MAX])).collect();
    for message in &mut sent[..MESSAGES] {
        message.wait(SOON).unwrap();
    }
    // Every place of the window, and lists of pages.
    let grant = b_to_a.grant(b.allocate(1 << 20).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
    let to = a_to_b.remote(grant.token()).wait(SOON).unwrap();
    let source = a.allocate(1 << 20).wait(SOON).unwrap().share();
    let map = PageMap::of(SMALL_PAGE as u64).first(1 << 14);
    let mut transfers: Vec<_> = (0..8).map(|_| a_to_b.write_pages(source.clone(), &map, &to, None)).collect();
    let busy = a_to_b.memory().unwrap();
    for transfer in &mut transfers {
        transfer.wait(SOON).unwrap();
    }
    let (sender, receiver) = (a_to_b.memory().unwrap(), b_to_a.memory().unwrap());
    say(&format!(
        "used to its bounds, {busy} bytes; then {sender}, and at the receiver of messages {receiver}"
    ));
    let lists = 8 * map.source.indices.len() * 2 * size_of::<u32>();
    let messages = MESSAGES * (MESSAGE_MAX + 64);
    assert!(busy <= IDLE_MAX + WINDOW_MAX + lists + messages, "{busy}");
    assert!(receiver > MESSAGES * MESSAGE_MAX && receiver <= IDLE_MAX + messages, "{receiver}");
    for _ in 0..2 * MESSAGES {
        b_to_a.recv().wait(SOON).unwrap();
    }
    // The sender keeps each message until the peer's engine has confirmed it.
    for message in &mut sent[MESSAGES..] {
        message.wait(SOON).unwrap();
    }
    let (sender, receiver) = (a_to_b.memory().unwrap(), b_to_a.memory().unwrap());
    say(&format!("when all is taken, {sender} and {receiver}"));
    assert!(sender <= IDLE_MAX + WINDOW_MAX && receiver <= IDLE_MAX, "{sender}, {receiver}");
    drop((grant, a_to_b));
    let begun = Instant::now();
    while a.peer_count().unwrap() > 0 || b.peer_count().unwrap() > 0 {
        assert!(begun.elapsed() < SOON, "a peer that has left is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(b_to_a.memory().unwrap(), 0);
}

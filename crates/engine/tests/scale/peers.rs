//! Many peers.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use farreach::{Engine, PageMap, Peer};

use super::crowd::{Crowd, PAGE, settings, told_by};
use super::usage::{descriptors, resident};
use super::{SOON, fill, say};

const PEERS: usize = 1000;
const MORE: usize = 200;
const PROCESSES: usize = 4;

/// Bytes that the engine may hold for a peer that receives a page now and then, and bytes that a
/// peer may leave behind elsewhere.
const HELD_MAX: usize = 16 << 10;
const LEFT_MAX: u64 = 4 << 10;

/// Time until everything of the peers that have left must be gone.
const LEFT_BY: Duration = Duration::from_secs(10);

pub(crate) fn a_thousand_come_get_a_page_and_leave_nothing(rail: &'static str) {
    let engine = Engine::with(settings(rail)).unwrap();
    let address = engine.listen("127.0.0.1:0").unwrap();
    wave(&engine, address, rail, PEERS);
    // These use what the first ones have left in the pools of the library and in the allocator.
    let resident_before = resident();
    wave(&engine, address, rail, MORE);
    let grown = resident().saturating_sub(resident_before);
    say(&format!("another {} came and left, for {} KiB more", MORE, grown / 1024));
    assert!(grown < LEFT_MAX * MORE as u64, "{grown} bytes are left of {}", MORE);
}

/// Lets this many peers connect, receive a page each, and leave.
fn wave(engine: &Engine, address: SocketAddr, rail: &str, peers: usize) {
    let (resident_before, descriptors_before) = (resident(), descriptors());
    let usage = |when| say_usage(when, peers, resident_before, descriptors_before);
    let (begun, count) = (Instant::now(), peers / PROCESSES);
    let mut crowds: Vec<Crowd> =
        (0..PROCESSES).map(|number| Crowd::start(address, rail, (number * count, count), PAGE)).collect();
    let peers: Vec<Peer> = (0..peers).map(|_| engine.accept().wait(SOON).unwrap()).collect();
    let ready: Vec<String> = crowds.iter_mut().map(Crowd::wait_until_ready).collect();
    say(&format!("{} peers were connected over {rail} after {:.1?}", peers.len(), begun.elapsed()));
    ready.iter().for_each(|ready| say(ready));
    usage("connected");
    send_a_page_to_each(engine, &peers);
    usage("with a page each");
    let held = peers.iter().map(|peer| peer.memory().unwrap()).max().unwrap();
    say(&format!("the engine holds at most {held} bytes for each"));
    assert!(held > 0 && held <= HELD_MAX, "{held}");
    crowds.into_iter().for_each(Crowd::leave);
    drop(peers);
    let begun = Instant::now();
    while (descriptors() > descriptors_before || engine.peer_count().unwrap() > 0)
        && begun.elapsed() < LEFT_BY
    {
        thread::sleep(Duration::from_millis(50));
    }
    usage("all left");
    assert_eq!(engine.peer_count().unwrap(), 0, "peers that have left are still known");
    assert!(
        descriptors() <= descriptors_before,
        "{} descriptors, {descriptors_before} before",
        descriptors()
    );
}

fn send_a_page_to_each(engine: &Engine, peers: &[Peer]) {
    let begun = Instant::now();
    let map = PageMap::of(PAGE as u64).first(1);
    let mut transfers: Vec<_> = peers
        .iter()
        .map(|peer| {
            let (number, to, raises) = told_by(peer);
            let mut page = engine.allocate(PAGE).wait(SOON).unwrap();
            fill(&mut page, number);
            peer.write_pages(page, &map, &to, Some(&raises))
        })
        .collect();
    for (transfer, peer) in transfers.iter_mut().zip(peers) {
        transfer.wait(SOON).unwrap();
        peer.send("a page").wait(SOON).unwrap();
    }
    say(&format!("a page to each of {} peers took {:.1?}", peers.len(), begun.elapsed()));
}

fn say_usage(when: &str, peers: usize, resident_before: u64, descriptors_before: usize) {
    let (now, open) = (resident(), descriptors());
    let each = now.saturating_sub(resident_before) / peers as u64;
    say(&format!(
        "{when}: {} KiB resident, {} before, {} KiB for each peer; {open} descriptors, {descriptors_before} before",
        now / 1024,
        resident_before / 1024,
        each / 1024,
    ));
}

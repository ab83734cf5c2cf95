//! Many peers.

use std::thread;
use std::time::{Duration, Instant};

use farreach::{Engine, PageMap, Peer};

use super::crowd::{Crowd, PAGE, settings, told_by};
use super::usage::{descriptors, resident};
use super::{SOON, fill, say};

const PEERS: usize = 1000;
const PROCESSES: usize = 4;

pub(crate) fn a_thousand_come_get_a_page_and_leave_nothing(rail: &'static str) {
    let engine = Engine::with(settings(rail)).unwrap();
    let address = engine.listen("127.0.0.1:0").unwrap();
    let (resident_before, descriptors_before) = (resident(), descriptors());
    let begun = Instant::now();
    let count = PEERS / PROCESSES;
    let mut crowds: Vec<Crowd> =
        (0..PROCESSES).map(|number| Crowd::start(address, rail, (number * count, count), PAGE)).collect();
    let peers: Vec<Peer> = (0..PEERS).map(|_| engine.accept().wait(SOON).unwrap()).collect();
    let ready: Vec<String> = crowds.iter_mut().map(Crowd::wait_until_ready).collect();
    say(&format!("{PEERS} peers were connected over {rail} after {:.1?}", begun.elapsed()));
    ready.iter().for_each(|ready| say(ready));
    say_usage("connected", resident_before, descriptors_before);
    send_a_page_to_each(&engine, &peers);
    say_usage("with a page each", resident_before, descriptors_before);
    crowds.into_iter().for_each(Crowd::leave);
    drop(peers);
    let begun = Instant::now();
    while descriptors() > descriptors_before && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(50));
    }
    say_usage("all left", resident_before, descriptors_before);
    assert!(
        descriptors() <= descriptors_before,
        "{} descriptors are left",
        descriptors() - descriptors_before
    );
}

fn send_a_page_to_each(engine: &Engine, peers: &[Peer]) {
    let begun = Instant::now();
    let map = PageMap::contiguous(PAGE as u64, 1);
    let mut transfers: Vec<_> = peers
        .iter()
        .map(|peer| {
            let (number, to, raises) = told_by(peer);
            let mut page = engine.allocate(PAGE).unwrap();
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

fn say_usage(when: &str, resident_before: u64, descriptors_before: usize) {
    let (now, open) = (resident(), descriptors());
    let each = now.saturating_sub(resident_before) / PEERS as u64;
    say(&format!(
        "{when}: {} KiB resident, {} before, {} KiB for each peer; {open} descriptors, {descriptors_before} before",
        now / 1024,
        resident_before / 1024,
        each / 1024,
    ));
}

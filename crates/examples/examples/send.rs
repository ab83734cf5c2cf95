//! The first program, the side that sends: writes 64 pages into the memory of `receive`, in no order.
#![allow(clippy::print_stdout, reason = "a program that talks to its user")]

use std::time::Duration;

use farreach::{Engine, PageMap, Transferred};

const PAGE: usize = 4096;
const PAGES: u32 = 64;
const SOON: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?;
    let peer = engine.connect("127.0.0.1:18521")?.wait(SOON)?;

    // The receiver names its memory and its counter in a message.
    let message = String::from_utf8(peer.recv().wait(SOON)?)?;
    let (grant, counter) = message.split_once(' ').ok_or("two names are expected")?;
    let destination = peer.remote(grant.parse()?).wait(SOON)?;
    let counter = peer.remote_counter(counter.parse()?).wait(SOON)?;

    // Each byte of a page is the number of the place that the page goes to.
    let places: Vec<u32> = (0..PAGES).map(|number| number * 29 % PAGES).collect();
    let mut source = engine.allocate(PAGES as usize * PAGE).wait(SOON)?;
    for (page, place) in source.chunks_mut(PAGE).zip(&places) {
        page.fill(*place as u8);
    }
    let map = PageMap::of(PAGE as u64).from(0..PAGES).to(places);
    let Transferred { stats, .. } =
        peer.write_pages(source, &map, &destination, Some(&counter)).wait(SOON)?;
    println!("{stats}");
    Ok(())
}

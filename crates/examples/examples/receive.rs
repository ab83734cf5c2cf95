//! The first program, receiver: lets a peer write 64 pages, and checks them. Start it before `send`.
#![allow(clippy::print_stdout, reason = "a program that talks to its user")]

use std::time::Duration;

use farreach::{Engine, Rights};

const PAGE: usize = 4096;
const PAGES: u64 = 64;
const SOON: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?;
    println!("listening at {}", engine.listen("127.0.0.1:18521")?);
    let peer = engine.accept().wait(SOON)?;

    // Memory that the peer may write to, and a counter of the pages that have arrived.
    let memory = engine.allocate(PAGES as usize * PAGE).wait(SOON)?;
    let grant = peer.grant(memory, Rights::WRITE).wait(SOON)?;
    let counter = peer.open_counter().wait(SOON)?;
    peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON)?;

    counter.reach(PAGES).wait(SOON)?;
    println!("{PAGES} pages from {}, over {:?}", peer.name(), peer.rails());
    // A card proves that the peer cannot access the memory any more, and it becomes a slice again.
    // Over tcp nothing proves it, and the bytes are copied out.
    let memory = match grant.revoke(SOON)?.try_into_slice() {
        Ok(slice) => slice.to_vec(),
        Err(exposed) => exposed.to_vec(),
    };
    for (number, page) in memory.chunks(PAGE).enumerate() {
        assert!(page.iter().all(|byte| usize::from(*byte) == number), "page {number} is wrong");
    }
    println!("every byte is right");
    Ok(())
}

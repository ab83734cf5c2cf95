//! The first program, the side that receives: lets a peer write 64 pages, and verifies them. Start it before `send`.
#![allow(clippy::print_stdout)] // a program that talks to its user

use std::time::Duration;

use farreach::{Engine, Outcome, Rights};

const PAGE: usize = 4096;
const PAGES: u64 = 64;
const SOON: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::new()?;
    println!("listening at {}", engine.listen("127.0.0.1:18521")?);
    let peer = engine.accept().wait(SOON)?;

    // Memory that the peer may write to, and a counter that tells how many of its pages are there.
    let grant = peer.grant(engine.allocate(PAGES as usize * PAGE)?, Rights::WRITE)?;
    let counter = peer.counter()?;
    peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON)?;

    match counter.wait(PAGES, SOON) {
        Outcome::Reached => println!("{PAGES} pages from {}, over {:?}", peer.name(), peer.rails()),
        other => return Err(format!("{other:?} after {} pages", counter.reached()).into()),
    }
    // The peer was told to stop. A card proves that it has: the memory is ours alone again. Over tcp nothing proves it, and the bytes are copied out.
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

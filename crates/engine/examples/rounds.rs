//! The rounds of the block store without digests, for `cargo xtask bench stores`: `rounds serve ADDRESS`
//! and `rounds work ADDRESS`, with the options and the lines of `block_store` of `crates/examples`.
//!
//! Each round reads a block and writes another. Nothing is verified, so a rate is that of the transfers.
#![allow(clippy::print_stdout, reason = "a program that talks to its user")]

use std::{env, error::Error, time::Duration};

use farreach::{Access, Engine, Rights, Settings};

const SOON: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name, default| value(name).map_or(Ok(default), str::parse::<u64>);
    let engine = Engine::with(value("rail").map_or(Settings::new(), |rail| Settings::new().rails([rail])))?;
    match words[0].as_str() {
        "serve" => serve(
            &engine,
            &words[1],
            [number("workers", 8)?, number("blocks", 10_000)?, number("len", 65_536)?],
        )?,
        _ => work(&engine, &words[1], number("rounds", 10_000)?)?,
    }
    Ok(engine.close(SOON)?)
}

fn serve(engine: &Engine, address: &str, [workers, blocks, len]: [u64; 3]) -> Result<(), Box<dyn Error>> {
    let memory = engine.allocate((blocks * len) as usize).wait(SOON)?;
    let memory = engine.publish_exposed(memory, Rights::READ | Rights::WRITE, Access::Anyone).wait(SOON)?;
    let written = engine.open_counter(Access::Anyone).wait(SOON)?;
    println!("listening at {}", engine.listen(address)?);
    let mut peers = Vec::new();
    for share in 0..workers {
        let peer = engine.accept().wait(SOON)?;
        drop(peer.send(format!("{share} {workers} {len} {} {}", memory.token(), written.token())));
        peers.push(peer);
    }
    for _ in 0..workers {
        engine.recv_any().wait(10 * SOON)?;
    }
    println!("{} writes", written.reached());
    Ok(())
}

fn work(engine: &Engine, address: &str, rounds: u64) -> Result<(), Box<dyn Error>> {
    let store = engine.connect(address)?.wait(SOON)?;
    let welcome = String::from_utf8(store.recv().wait(SOON)?)?;
    let words: Vec<&str> = welcome.split(' ').collect();
    let [share, shares, len] = [0, 1, 2].map(|place: usize| words[place].parse::<u64>());
    let (share, shares, len) = (share?, shares?, len?);
    let memory = store.open(words[3].parse()?).wait(SOON)?;
    let written = store.open_shared_counter(words[4].parse()?).wait(SOON)?;
    let blocks = memory.len() / len;
    let place = |block: u64| memory.at(block * len).range(..len);
    let mut own = engine.allocate(2 * len as usize).wait(SOON)?;
    let mut other = own.split_off(len as usize);
    let mut drawn = share;
    for round in 0..rounds {
        let mine = round % (blocks / shares) * shares + share;
        let mut write = store.write_and_count(own, &place(mine), &written);
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let any = (drawn >> 33) % blocks;
        other = store.read(&place(any), other).wait(SOON).map_err(|failed| failed.error)?.buffer;
        own = write.wait(SOON).map_err(|failed| failed.error)?.buffer;
        if (round + 1) % 100 == 0 {
            println!("worker {share}: {} rounds, 0 torn", round + 1);
        }
    }
    store.send(format!("worker {share} is done")).wait(SOON)?;
    Ok(())
}

//! A store of blocks in the memory of one process, which workers read and write without its help:
//! `block_store serve 127.0.0.1:18522 workers=8 blocks=10000 len=65536`, and eight times
//! `block_store work 127.0.0.1:18522 rounds=10000`. Both take `rail=tcp`. Between hosts, add a secret.
//!
//! Each worker gets a share of the blocks, which it alone writes, and reads all. A block begins with its
//! version and a digest. A read is not atomic: a block that does not match its digest is read again, at
//! most 100 times, and then counts as torn. Torn blocks are not used.
//!
//! - **A worker is killed**, or stopped for 14 s. The store and the other workers continue. A block that it was
//!   writing stays torn until the next worker gets its share. Versions begin with the worker's number, and rise.
//! - **The store is killed**, or is silent for 3 s. Each worker ends with exit code 4.
//! - **Exit codes.** 0: done. 4: no store. 101, a panic: a block that matches its digest is wrong. 1: others.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to its user")]

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::{env, error::Error, process::ExitCode, time::Duration};

use farreach::{Access, Engine, ErrorKind, PeerEvent, Rights, Settings};

const SOON: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ended = match &arguments[..] {
        [role, address, options @ ..] if role == "serve" => serve(address, options),
        [role, address, options @ ..] if role == "work" => work(address, options),
        _ => Err("use: block_store serve|work ADDRESS [NAME=VALUE…]".into()),
    };
    let Err(error) = ended else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    let kind = error.downcast_ref().map(farreach::Error::kind);
    ExitCode::from(if matches!(kind, Some(ErrorKind::PeerLost | ErrorKind::Connect)) { 4 } else { 1 })
}

fn option<'a>(options: &'a [String], name: &str) -> Option<&'a str> {
    options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
}

fn engine(options: &[String]) -> Result<Engine, farreach::Error> {
    Engine::with(option(options, "rail").map_or(Settings::new(), |rail| Settings::new().rails([rail])))
}

/// Returns a digest of the bytes of a block. Store and workers must be of one build.
fn digest(number: u64, version: u64, bytes: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((number, version, bytes))
}

/// Makes a version of a block. Its bytes follow from number and version, so that a reader can check them.
fn seal(number: u64, version: u64, block: &mut [u8]) {
    block[16..].fill(digest(number, version, b"byte") as u8);
    let digest = digest(number, version, &block[16..]);
    block[..8].copy_from_slice(&version.to_ne_bytes());
    block[8..16].copy_from_slice(&digest.to_ne_bytes());
}

/// Returns the version of a block, which is `least` or a later one; `None` if the block is torn.
fn version(number: u64, block: &[u8], least: u64) -> Option<u64> {
    let word = |at: usize| u64::from_ne_bytes(block[at..at + 8].try_into().expect("eight bytes"));
    let (version, mut expected) = (word(0), vec![0; block.len()]);
    (word(8) == digest(number, version, &block[16..])).then(|| {
        seal(number, version, &mut expected);
        assert!(block == expected && version >= least, "block {number} matches its digest and is wrong");
        version
    })
}

fn serve(address: &str, options: &[String]) -> Result<(), Box<dyn Error>> {
    let number = |name, default| option(options, name).map_or(Ok(default), str::parse);
    let (workers, blocks, len) = (number("workers", 8)?, number("blocks", 10_000)?, number("len", 65_536)?);
    assert!(workers <= blocks && len > 16, "each worker needs a block, and a block 17 bytes");
    let engine = engine(options)?;
    let mut memory = engine.allocate(blocks * len).wait(SOON)?;
    memory.chunks_mut(len).zip(0..).for_each(|(block, number)| seal(number, 0, block));
    let memory = engine.publish_exposed(memory, Rights::READ | Rights::WRITE, Access::Anyone).wait(SOON)?;
    let written = engine.open_counter(Access::Anyone).wait(SOON)?;
    let (mut newcomers, mut reports, mut events) = (engine.accept(), engine.recv_any(), engine.next_event());
    println!("listening at {}", engine.listen(address)?);
    let (mut free, mut busy, mut joined) = (Vec::from_iter((0..workers).rev()), Vec::new(), 0);
    while !free.is_empty() || !busy.is_empty() {
        match engine.wait_any(&mut [&mut newcomers, &mut reports, &mut events], Duration::MAX)? {
            0 => {
                let peer = newcomers.wait(SOON)?;
                // If no share is free, the peer is dropped, and its worker ends.
                let Some(share) = free.pop() else { continue };
                joined += 1;
                let tokens = format!("{} {}", memory.token(), written.token());
                // It is not waited for: if the worker is lost meanwhile, an event follows.
                drop(peer.send(format!("{joined} {share} {workers} {len} {tokens}")));
                busy.push((peer, share));
            }
            1 => {
                let (peer, report) = reports.wait(SOON)?;
                println!("{}", String::from_utf8_lossy(&report));
                busy.retain(|(worker, _)| worker.id() != peer.id());
            }
            _ => {
                let PeerEvent::Lost { peer: id, reason } = events.wait(SOON)? else { continue };
                for (peer, share) in busy.extract_if(.., |(peer, _)| peer.id() == id) {
                    // After this, no late write of the lost worker lands among those of the next one.
                    memory.revoke_peer(&peer, SOON).wait(2 * SOON)?;
                    println!("share {share} is free: {reason}");
                    free.push(share);
                }
            }
        }
    }
    let (mut good, mut block) = (0, vec![0; len]);
    for number in 0..blocks {
        memory.read_at(number * len, &mut block);
        good += usize::from(version(number as u64, &block, 0).is_some());
    }
    println!("{good} blocks are good, {} torn; {} writes", blocks - good, written.reached());
    Ok(engine.close(SOON)?)
}

fn work(address: &str, options: &[String]) -> Result<(), Box<dyn Error>> {
    let rounds = option(options, "rounds").map_or(Ok(10_000), str::parse)?;
    let engine = engine(options)?;
    let store = engine.connect(address)?.wait(SOON)?;
    let welcome = String::from_utf8(store.recv().wait(SOON)?)?;
    let words: Vec<&str> = welcome.split(' ').collect();
    let number = |place: usize| words[place].parse::<u64>();
    let (worker, share, shares, len) = (number(0)?, number(1)?, number(2)?, number(3)?);
    let memory = store.open(words[4].parse()?).wait(SOON)?;
    let written = store.open_shared_counter(words[5].parse()?).wait(SOON)?;
    let blocks = memory.len() / len;
    let place = |block: u64| memory.at(block * len).range(..len);
    let mut own = engine.allocate(2 * len as usize).wait(SOON)?;
    let mut other = own.split_off(len as usize);
    let (mut versions, mut torn) = (vec![0; blocks as usize], 0);
    for round in 0..rounds {
        let mine = round % (blocks / shares) * shares + share;
        seal(mine, worker << 32 | round, &mut own);
        let mut write = store.write_and_count(own, &place(mine), &written);
        // A writer that lives is done before 100 reads.
        let (any, mut found, mut reads) = (digest(worker, round, b"any") % blocks, None, 0..100);
        while found.is_none() && reads.next().is_some() {
            other = store.read(&place(any), other).wait(SOON).map_err(|failed| failed.error)?.buffer;
            found = version(any, &other, versions[any as usize]);
        }
        versions[any as usize] = found.unwrap_or(versions[any as usize]);
        torn += u64::from(found.is_none());
        own = write.wait(SOON).map_err(|failed| failed.error)?.buffer;
        if (round + 1) % 100 == 0 {
            println!("worker {worker}: {} rounds, {torn} torn", round + 1);
        }
    }
    store.send(format!("worker {worker} is done: {rounds} writes, {torn} torn")).wait(SOON)?;
    Ok(engine.close(SOON)?)
}

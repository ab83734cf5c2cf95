//! One side of a pair, in a separate process that can be killed, stopped or cut off: the tests of
//! real faults use it.
//!
//! ```console
//! $ node receive rails=tcp                     # listens, grants, counts, verifies its memory
//! $ node send peer=127.0.0.1:40123 rails=tcp   # connects, writes to granted memory in rounds
//! $ node echo peer=127.0.0.1:40123 rails=tcp   # connects, writes back what was written to it
//! $ node hold peer=127.0.0.1:40123 rails=tcp   # connects, grants, looks for unexpected bytes
//! $ node add peer=127.0.0.1:40123 rails=shm    # connects, adds to two words of granted memory
//! $ node open peer=127.0.0.1:40123 rails=shm   # connects, writes to published memory
//! $ node read peer=127.0.0.1:40123 rails=shm   # connects, reads granted memory, looks for unexpected bytes
//! $ node open-read peer=127.0.0.1:40123 …      # the same with published memory
//! ```
//!
//! Further options are `listen=ADDRESS`, `heartbeat=MS`, `silence=MS` and `stall=MS`. It prints
//! what happens in lines on stdout, the last of which begins with `ended`. A lost peer is no
//! failure here.

#![allow(clippy::print_stdout, reason = "a program that talks to whoever started it")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farreach::{
    CompareSwap, Counter, Engine, Error, ErrorKind, Grant, PageMap, Peer, RemoteCounter, RemoteSlice, Rights,
    Settings, Slice, Transferred,
};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The length of the memory that is written to, and of its pages.
const LEN: usize = 4 << 20;
const PAGE: usize = 64 << 10;
/// `echo` uses less memory, so that a round is short.
const ECHO_LEN: usize = 256 << 10;
const ECHO_PAGE: usize = 4 << 10;

/// The length of the memory that `hold` grants with all rights.
const HOLD_LEN: usize = 1 << 20;
/// How often `add` adds to each word.
const ADDS: u32 = 2000;
/// The byte that is never sent.
const POISON: u8 = 0xEE;

/// Time limit of operations that succeed.
const SOON: Duration = Duration::from_secs(30);
/// Time limit of waits that only the peer's end ends.
const LONG: Duration = Duration::from_secs(600);
/// How long returned memory is watched for late writes.
const WATCHED: Duration = Duration::from_millis(200);

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let role =
        words.next().ok_or("a role is missing: send, receive, echo, hold, add, open, read or open-read")?;
    let options: HashMap<String, String> = words
        .map(|word| match word.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(format!("`{word}` is no NAME=VALUE")),
        })
        .collect::<Result<_, _>>()?;
    let engine = Engine::with(settings(&role, &options)?)?;
    match role.as_str() {
        "send" => send(&engine, &connect(&engine, &options)?),
        "receive" => receive(&engine, &accept(&engine, &options)?),
        "echo" => echo(&engine, &connect(&engine, &options)?),
        "hold" => hold(&engine, &connect(&engine, &options)?),
        "add" => add(&connect(&engine, &options)?),
        "open" => open(&connect(&engine, &options)?),
        "read" | "open-read" => read(&connect(&engine, &options)?, role == "open-read"),
        other => {
            Err(format!("`{other}` is no role: send, receive, echo, hold, add, open, read or open-read")
                .into())
        }
    }
}

fn settings(role: &str, options: &HashMap<String, String>) -> Result<Settings> {
    let ms = |name: &str, otherwise: u64| -> Result<Duration> {
        let ms = options.get(name).map_or(Ok(otherwise), |value| value.parse())?;
        Ok(Duration::from_millis(ms))
    };
    let rails = options.get("rails").ok_or("rails=NAME,NAME is missing")?;
    let settings = Settings::new()
        // Its peer may be on another host of the same test.
        .insecure()
        .name(role)
        .rails(rails.split(','))
        .heartbeat(ms("heartbeat", 500)?)
        .peer_timeout(ms("silence", 3000)?);
    Ok(match options.contains_key("stall") {
        true => settings.link_timeout(ms("stall", 0)?),
        false => settings,
    })
}

fn connect(engine: &Engine, options: &HashMap<String, String>) -> Result<Peer> {
    let address = options.get("peer").ok_or("peer=ADDRESS is missing")?;
    let peer = engine.connect(address.as_str())?.wait(SOON)?;
    println!("connected to {}", peer.name());
    Ok(peer)
}

fn accept(engine: &Engine, options: &HashMap<String, String>) -> Result<Peer> {
    let address = options.get("listen").map_or("127.0.0.1:0", String::as_str);
    println!("listening at {}", engine.listen(address)?);
    let peer = engine.accept().wait(SOON)?;
    println!("accepted {}", peer.name());
    Ok(peer)
}

/// Writes round after round, without a pause, until the peer is lost or revokes its grant.
fn send(engine: &Engine, peer: &Peer) -> Result<()> {
    let (destination, counter) = granted(peer)?;
    let mut source = engine.allocate(LEN).wait(SOON)?;
    let pages = (LEN / PAGE) as u32;
    for round in 1_u64.. {
        source.fill(round as u8);
        let order = (0..pages).map(|page| page * 29 % pages);
        let map = PageMap::of(PAGE as u64).from(0..pages).to(order);
        match peer.write_pages(source, &map, &destination, Some(&counter)).wait(LONG) {
            Ok(Transferred { buffer, .. }) => {
                source = buffer.into_slice().map_err(|_| "a slice was given")?
            }
            Err(error) if is_end(&error.error) => {
                println!("ended in round {round}: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes to published memory, without a pause, until the peer is lost or revokes it.
fn open(peer: &Peer) -> Result<()> {
    let token = String::from_utf8(peer.recv().wait(SOON)?)?;
    let destination = peer.open(token.parse()?).wait(SOON)?;
    let mut source = vec![9; LEN];
    println!("works");
    loop {
        match peer.write(source, &destination).wait(LONG) {
            Ok(written) => source = written.buffer,
            Err(error) if is_end(&error.error) => {
                println!("ended: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads memory, without a pause, until the peer is lost or revokes it. Tells how many bytes of the last copy are
/// those that the owner writes when it has its slice.
fn read(peer: &Peer, is_published: bool) -> Result<()> {
    let token = String::from_utf8(peer.recv().wait(SOON)?)?;
    let source = match is_published {
        true => peer.open(token.parse()?).wait(SOON)?,
        false => peer.remote(token.parse()?).wait(SOON)?,
    };
    let mut into = vec![0; source.len() as usize];
    println!("works");
    loop {
        match peer.read(&source, into).wait(LONG) {
            Ok(read) => into = read.buffer,
            Err(error) if is_end(&error.error) => {
                let bytes = error.buffer.ok_or("the buffer did not come back")?;
                let late = bytes.iter().filter(|byte| **byte == POISON).count();
                println!("ended {late} bytes: {}", error.error);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_end(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::PeerLost | ErrorKind::Revoked | ErrorKind::NotGranted)
}

/// Lets the peer write until it is lost. Then revokes the grant, and checks that nothing lands in
/// the memory any more.
fn receive(engine: &Engine, peer: &Peer) -> Result<()> {
    let (grant, counter) = grant(engine, peer, LEN)?;
    let outcome = counter.reach(u64::MAX).wait(LONG).err().map(|error| error.kind());
    let lost_at = Instant::now();
    let memory = grant.revoke(SOON)?;
    let back_after = lost_at.elapsed();
    println!("holds {:016x}", sum(&memory.to_vec()));
    memory.write_at(0, &vec![0xEE; memory.len()]);
    std::thread::sleep(WATCHED);
    if memory.to_vec().iter().any(|byte| *byte != 0xEE) {
        return Err("a late write has landed".into());
    }
    let (why, pages) = (outcome.ok_or("no peer writes as many pages")?, counter.reached());
    println!("ended {why:?} after {pages} pages; the memory was back after {back_after:?}");
    Ok(())
}

/// A checksum of the memory: FNV-1a, of words.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Writes back what was written, each round when all of its pages have arrived.
fn echo(engine: &Engine, peer: &Peer) -> Result<()> {
    let (grant, arrived) = grant(engine, peer, ECHO_LEN)?;
    let (destination, counter) = granted(peer)?;
    let mut source = engine.allocate(ECHO_LEN).wait(SOON)?;
    let pages = (ECHO_LEN / ECHO_PAGE) as u64;
    for round in 1_u64.. {
        if let Err(error) = arrived.reach(round * pages).wait(LONG) {
            println!("ended {:?} in round {round}", error.kind());
            return Ok(());
        }
        grant.read_at(0, &mut source);
        source = match write_all(peer, source, &destination, &counter) {
            Ok(source) => source,
            // The peer has what it waited for, and may leave before it confirms.
            Err(_) if peer.lost().is_some() => {
                println!("ended PeerLost in round {round}");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
    }
    Ok(())
}

/// Grants memory with all rights, writes to grants of the peer on request, and looks for bytes that
/// the peer never sends, until the peer is lost or says that it is done.
fn hold(engine: &Engine, peer: &Peer) -> Result<()> {
    let mut memory = engine.allocate(HOLD_LEN).wait(SOON)?;
    memory.fill(0x33);
    let grant = peer.grant(memory, Rights::all()).wait(SOON)?;
    peer.send(grant.token().to_string()).wait(SOON)?;
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        look_for_poison(&grant)?;
        match peer.recv().wait(Duration::from_millis(5)) {
            Ok(message) if message == b"done" => break,
            Ok(message) => {
                if let Some(token) = message.strip_prefix(b"write ") {
                    let token = std::str::from_utf8(token)?.parse()?;
                    let Ok(destination) = peer.remote(token).wait(SOON) else { break };
                    if write_until_the_end(engine, peer, &destination)? {
                        break;
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(_) => break,
        }
    }
    std::thread::sleep(WATCHED);
    look_for_poison(&grant)?;
    println!("ended clean");
    Ok(())
}

/// Adds to a word, and increments another one by compare-and-swap, both `ADDS` times.
fn add(peer: &Peer) -> Result<()> {
    let token = String::from_utf8(peer.recv().wait(SOON)?)?;
    let memory = peer.remote(token.parse()?).wait(SOON)?;
    let word = |at| memory.get(at..at + 8).ok_or("the memory is too short");
    let (added, swapped) = (word(0)?, word(8)?);
    let (mut last, mut expected) = (None, 0);
    for _ in 0..ADDS {
        let before = peer.fetch_add(&added, 1).wait(SOON)?;
        if last.is_some_and(|last| before <= last) {
            return Err(format!("{before} came after {last:?}").into());
        }
        last = Some(before);
        loop {
            let swap = CompareSwap { expected, desired: expected + 1 };
            let before = peer.compare_and_swap(&swapped, swap).wait(SOON)?;
            let is_swapped = before == expected;
            expected = if is_swapped { before + 1 } else { before };
            if is_swapped {
                break;
            }
        }
    }
    peer.send("added").wait(SOON)?;
    // The peer reads its words, and leaves.
    let _ = peer.recv().wait(LONG);
    println!("ended with all sums");
    Ok(())
}

fn look_for_poison(grant: &Grant) -> Result<()> {
    let mut bytes = vec![0; grant.len()];
    grant.read_at(0, &mut bytes);
    match bytes.iter().filter(|byte| **byte == POISON).count() {
        0 => Ok(()),
        count => Err(format!("{count} bytes came that nobody has sent").into()),
    }
}

/// Writes until the peer revokes its grant, is lost, or says that it is done. Returns whether it
/// has said so.
fn write_until_the_end(engine: &Engine, peer: &Peer, destination: &RemoteSlice) -> Result<bool> {
    let source = engine.allocate(HOLD_LEN).wait(SOON)?.share();
    let map = PageMap::of(PAGE as u64).first((HOLD_LEN / PAGE) as u32);
    loop {
        match peer.write_pages(source.clone(), &map, destination, None).wait(LONG) {
            Ok(_) if peer.recv().wait(Duration::ZERO).is_ok_and(|message| message == b"done") => {
                return Ok(true);
            }
            Ok(_) => {}
            Err(error) if is_end(&error.error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

fn write_all(peer: &Peer, source: Slice, to: &RemoteSlice, counter: &RemoteCounter) -> Result<Slice> {
    let map = PageMap::of(ECHO_PAGE as u64).first((ECHO_LEN / ECHO_PAGE) as u32);
    let done = peer.write_pages(source, &map, to, Some(counter)).wait(SOON)?;
    Ok(done.buffer.into_slice().map_err(|_| "a slice was given")?)
}

/// Grants the peer memory and a counter, and sends it both tokens.
fn grant(engine: &Engine, peer: &Peer, len: usize) -> Result<(Grant, Counter)> {
    let grant = peer.grant(engine.allocate(len).wait(SOON)?, Rights::WRITE).wait(SOON)?;
    let counter = peer.open_counter().wait(SOON)?;
    peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON)?;
    Ok((grant, counter))
}

/// Receives the tokens of the peer's memory and counter.
fn granted(peer: &Peer) -> Result<(RemoteSlice, RemoteCounter), Box<dyn std::error::Error>> {
    let message = peer.recv().wait(SOON).map_err(|error: Error| error.cause().to_owned())?;
    let message = String::from_utf8(message)?;
    let (grant, counter) = message.split_once(' ').ok_or("two names are expected")?;
    let memory = peer.remote(grant.parse()?).wait(SOON)?;
    let counter = peer.remote_counter(counter.parse()?).wait(SOON)?;
    println!("granted {} bytes", memory.len());
    Ok((memory, counter))
}

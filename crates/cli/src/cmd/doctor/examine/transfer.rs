//! Makes a transfer from this host to itself, with two engines: messages there and back, then pages
//! that are written and compared.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use farreach::{Engine, PageMap, Peer, Rights, Settings};
use farreach_doctor::probes::Trial;

use crate::exit::{Exit, Failure, is_timeout};
use crate::measure;
use crate::registered;

/// The number of messages before and during the measurement; fewer if they take long.
const WARM_UP: usize = 20;
const MESSAGES: usize = 200;
const MESSAGES_TIME: Duration = Duration::from_secs(1);

/// The message that ends the exchange.
const ENOUGH: &[u8] = b"enough";

const PAGE: usize = 4096;
const PAGES: u32 = 1024;
const BYTES: usize = PAGE * PAGES as usize;

/// How long one message, or all pages, may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Tries a transfer over a rail.
pub(super) fn attempt(rail: &str, shm_dir: Option<&Path>) -> Trial {
    measure::sleep_exactly();
    run(rail, shm_dir).unwrap_or_else(|error| {
        let Failure { error, cause, fix, .. } = Failure::of(&error);
        Trial::Failed { error, cause, fix }
    })
}

fn run(rail: &str, shm_dir: Option<&Path>) -> Result<Trial> {
    // The tcp rail uses the address of the connection, here the loopback.
    let rail = if rail == "tcp" { format!("tcp@{}", Ipv4Addr::LOCALHOST) } else { rail.to_owned() };
    // Both sides are in this process. A long timeout, because a silent side may only be waiting for
    // a core.
    let settings = Settings::new().heartbeat(PATIENCE / 10).peer_timeout(PATIENCE).rails([&rail]);
    let settings = shm_dir.into_iter().fold(settings, |settings, path| settings.shm_dir(path));
    let engine = |name: &str| Engine::with(settings.clone().name(name));
    let (here, there) = (engine("sender")?, engine("receiver")?);
    let (client, server) = connection().context("cannot connect to this host itself")?;
    let pages = pattern();
    let expected = pages.clone();
    let connecting = there.accept_over(server)?;
    let answering = thread::spawn(move || {
        let mut connecting = connecting;
        let peer = connecting.wait(PATIENCE)?;
        let landed = receive(&there, &peer, &expected)?;
        anyhow::Ok((landed, peer, there))
    });
    let sent = here.connect_over(client)?.wait(PATIENCE).map_err(anyhow::Error::from).and_then(|peer| {
        let sent = send(&here, &peer, &pages)?;
        Ok((sent, peer))
    });
    let received = answering.join().map_err(|_| anyhow!("the receiving side panicked"))?;
    // Both engines stay until both sides are done: one that closes first could lose data that it
    // has sent.
    let ((sent, _peer), (landed, _other, _there)) = both(sent, received)?;
    let took = landed.saturating_duration_since(sent.began).max(Duration::from_nanos(1));
    let rate = BYTES as f64 * 8.0 / took.as_secs_f64();
    Ok(Trial::Worked {
        latency_ns: sent.latency.as_nanos() as u64,
        rate_bits_per_second: rate as u64,
        bytes: BYTES as u64,
    })
}

/// Returns both results. If both sides failed and the first has only lost the second, returns the
/// error of the second, which is the cause.
fn both<A, B>(one: Result<A>, other: Result<B>) -> Result<(A, B)> {
    let is_lost = |error: &anyhow::Error| Failure::of(error).exit == Exit::PeerLost && !is_timeout(error);
    match (one, other) {
        (Err(lost), Err(cause)) if is_lost(&lost) => Err(cause),
        (one, other) => Ok((one?, other?)),
    }
}

fn connection() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    Ok((client, server))
}

/// The measurements of the writing side.
struct Sent {
    latency: Duration,
    began: Instant,
}

fn send(engine: &Engine, peer: &Peer, expected: &[u8]) -> Result<Sent> {
    let mut times = Vec::with_capacity(MESSAGES);
    let deadline = Instant::now() + MESSAGES_TIME;
    for number in 0..WARM_UP + MESSAGES {
        let began = Instant::now();
        let message = number.to_ne_bytes().to_vec();
        peer.send(message.clone()).wait(PATIENCE)?;
        if peer.recv().wait(PATIENCE)? != message {
            return Err(mismatch("an answer differs from the message").into());
        }
        let is_late = Instant::now() > deadline;
        if number >= WARM_UP || is_late {
            times.push(began.elapsed());
        }
        if is_late {
            break;
        }
    }
    peer.send(ENOUGH.to_vec()).wait(PATIENCE)?;
    times.sort_unstable();
    let names = String::from_utf8(peer.recv().wait(PATIENCE)?)?;
    let (grant, counter) = names.split_once(' ').context("the receiver granted no memory")?;
    let memory = peer.remote(grant.parse()?).wait(PATIENCE)?;
    let counter = peer.remote_counter(counter.parse()?).wait(PATIENCE)?;
    let mut source = registered::allocate(engine, BYTES)?;
    source.copy_from_slice(expected);
    let began = Instant::now();
    peer.write_pages(source, &PageMap::of(PAGE as u64).first(PAGES), &memory, Some(&counter))
        .wait(PATIENCE)?;
    // Stays connected until the other side has checked the pages.
    peer.recv().wait(PATIENCE)?;
    Ok(Sent { latency: times[times.len() / 2] / 2, began })
}

/// Receives and checks the pages. Returns the time when all had arrived.
fn receive(engine: &Engine, peer: &Peer, expected: &[u8]) -> Result<Instant> {
    loop {
        let message = peer.recv().wait(PATIENCE)?;
        if message == ENOUGH {
            break;
        }
        peer.send(message).wait(PATIENCE)?;
    }
    let grant = registered::grant(peer, registered::allocate(engine, BYTES)?, Rights::WRITE)?;
    let counter = registered::open_counter(peer)?;
    peer.send(format!("{} {}", grant.token(), counter.token())).wait(PATIENCE)?;
    let arrival = counter.reach(PAGES.into()).wait(PATIENCE);
    let landed = Instant::now();
    if let Err(error) = arrival {
        bail!("{} of {PAGES} pages arrived: {error}", counter.reached());
    }
    let memory = grant.revoke(PATIENCE)?.to_vec();
    // Compares everything at once first, which is fast.
    if memory[..] != *expected
        && let Some(place) = memory.iter().zip(expected).position(|(found, expected)| found != expected)
    {
        return Err(mismatch(&format!("the first wrong byte is at offset {place} of {BYTES}")).into());
    }
    peer.send(b"all is right".to_vec()).wait(PATIENCE)?;
    Ok(landed)
}

fn mismatch(cause: &str) -> Failure {
    Failure::new(Exit::Mismatch, "received bytes differ from those sent").cause(cause).fix(
        "do not use this rail, because it corrupts data; check its firmware, its driver and the host's memory",
    )
}

/// Returns bytes of which no two pages are equal.
fn pattern() -> Vec<u8> {
    (0..BYTES as u64 / 8)
        .flat_map(|place| (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes())
        .collect()
}

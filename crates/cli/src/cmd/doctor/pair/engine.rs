//! Tries a rail without a card by engines, like every other test.

use std::time::Instant;

use anyhow::Result;
use farreach::{CounterToken, Engine, GrantToken, PageMap, Rights};
use farreach_doctor::pair::readings::Cell;
use serde::{Deserialize, Serialize};

use super::words;
use crate::args::ClientArgs;
use crate::bounds;
use crate::measure::{self, Pattern, compare};
use crate::rails;
use crate::registered;
use crate::session::{self, Channel, EngineRules, Named, Order, host_name, patience};

/// The number of answered messages: enough for a median.
const ROUND_TRIPS: u64 = 200;

const MESSAGE_BYTES: usize = 256;

/// The pages for the rate.
const PAGES: u32 = 64;
const PAGE_BYTES: usize = 64 * 1024;

/// Both sides generate the same bytes from it.
const SEED: u32 = 4791;

/// The configuration of both engines.
const RULES: EngineRules = EngineRules {
    wait: session::Wait::Adaptive,
    depth: 128,
    messages: bounds::MESSAGES.max() as u32,
    message_bytes_max: 4096,
};

/// The memory and counter that the agent grants to the client.
#[derive(Debug, Serialize, Deserialize)]
struct Ends {
    memory: GrantToken,
    counter: CounterToken,
}

/// All pages have arrived.
#[derive(Debug, Serialize, Deserialize)]
struct Landed;

/// The pages match what was sent.
#[derive(Debug, Serialize, Deserialize)]
struct Verified;

/// Returns the order for an agent.
pub(super) fn order(rails: rails::Wish, task: words::Task) -> Order<Named<words::Task>> {
    Order {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host_name(),
        rails,
        engine: RULES,
        test: measure::any_number(),
        connections: 1,
        time_ms: 0,
        task: session::named("Doctor", task),
    }
}

/// Runs the client's side over the only rail that `args` names.
pub(super) fn attempt(args: &ClientArgs, mut cell: Cell) -> Result<Cell> {
    let (welcome, here) = session::look(args)?;
    let choice = rails::choose(&args.rails, &welcome.offers, here)?;
    let mut settings = RULES.settings().rails(choice.names.clone()).name(host_name());
    if let Some(path) = &args.rails.shm_dir {
        settings = settings.shm_dir(path);
    }
    let engine = Engine::with(settings)?;
    let placed = session::place(args, &order(choice.wish, words::Task::Engine))?;
    let peer = session::meet(&engine, placed)?;
    let channel = Channel::of_client(peer);
    let measured = measure(&engine, &channel);
    let (round_trip_ns, rate) = measured.map_err(|error| match channel.ended_by(&error) {
        Some(failure) => failure.into(),
        None => channel.explained(error),
    })?;
    cell.round_trip_ns = Some(round_trip_ns);
    cell.rate_bits_per_second = Some(rate);
    Ok(cell)
}

fn measure(engine: &Engine, channel: &Channel) -> Result<(u64, u64)> {
    let round_trip_ns = round_trip(channel)?;
    let ends: Ends = channel.recv()?;
    let target = channel.peer.remote(ends.memory).wait(patience(0))?;
    let counter = channel.peer.remote_counter(ends.counter).wait(patience(0))?;
    let mut source = registered::allocate(engine, PAGES as usize * PAGE_BYTES)?;
    source.copy_from_slice(Pattern::new(SEED, PAGES as usize * PAGE_BYTES).stamped(0));
    let bits = 8 * source.len() as u64;
    let map = PageMap::of(PAGE_BYTES as u64).first(PAGES);
    let began = Instant::now();
    channel.peer.write_pages(source, &map, &target, Some(&counter)).wait(patience(bits))?;
    let Landed = channel.recv()?;
    let seconds = began.elapsed().as_secs_f64();
    let Verified = channel.recv()?;
    Ok((round_trip_ns, (bits as f64 / seconds) as u64))
}

/// Returns the median time from a message to its answer.
fn round_trip(channel: &Channel) -> Result<u64> {
    let mut pattern = Pattern::new(SEED, MESSAGE_BYTES);
    let mut times = Vec::new();
    for number in 0..ROUND_TRIPS {
        let message = pattern.stamped(number).to_vec();
        let began = Instant::now();
        channel.peer.send(message).wait(pattern.patience())?;
        let answer = channel.recv_bytes(pattern.patience())?;
        times.push(began.elapsed().as_nanos() as u64);
        pattern.check(number, &answer)?;
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Runs the agent's side.
pub(crate) fn serve(engine: &Engine, channel: &Channel) -> Result<()> {
    let mut pattern = Pattern::new(SEED, MESSAGE_BYTES);
    for number in 0..ROUND_TRIPS {
        let bytes = channel.recv_bytes(pattern.patience())?;
        channel.peer.send(pattern.stamped(number).to_vec()).wait(pattern.patience())?;
        pattern.check(number, &bytes)?;
    }
    let len = PAGES as usize * PAGE_BYTES;
    let memory = registered::grant(&channel.peer, registered::allocate(engine, len)?, Rights::WRITE)?;
    let counter = registered::open_counter(&channel.peer)?;
    channel.send(Ends { memory: memory.token(), counter: counter.token() })?;
    match counter.reach(PAGES.into()).wait(patience(len as u64)) {
        Ok(()) => channel.send(Landed)?,
        Err(error) => return Err(channel.why_not(&error, "the last page").into()),
    }
    let mut found = vec![0; len];
    memory.read_at(0, &mut found);
    compare(Pattern::new(SEED, len).stamped(0), &found, || "pages differ from what was sent".to_owned())?;
    channel.send(Verified)
}

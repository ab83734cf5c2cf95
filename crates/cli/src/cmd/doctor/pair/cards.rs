//! The client's side of the trials between two cards.

use std::time::{Duration, Instant};

use anyhow::Result;
use farreach::Slice;
use farreach_verbs::cq::Wait;
use farreach_verbs::port::Mtu;
use farreach_verbs::qp::state::PeerAddress;
use farreach_verbs::wr::{RemoteRange, SendRequest};

use super::probe::{DATAGRAMS, DEPTH, LONG_BYTES, MTUS, Probe, SHORT_BYTES, Wire};
use super::trouble::trouble;
use super::words::{CardTold, ConnectTold, DatagramsTold, Step};
use crate::exit::{Exit, Failure};
use crate::measure::{Pattern, any_seed};
use crate::native::End;
use crate::session::{Line, TheirFailure, of_the_server};
use farreach_doctor::pair::readings::{Arrived, CardsTried, Cell, Obstacle, Tried, Trouble};

/// The number of timed round trips: enough for a median.
const ROUND_TRIPS: usize = 200;

/// How long each figure may take, because emulated cards are slow.
const FIGURE_TIME: Duration = Duration::from_secs(1);

/// The bytes for the rate, unless they take too long.
const RATE_BYTES: u64 = 16 << 20;

/// Tries two cards, on a connection whose agent has the task.
pub(super) fn attempt(line: &mut Line, mut cell: Cell, gid_index: Option<u32>) -> Result<Cell> {
    let probe = Probe::open(&cell.local, gid_index)?;
    let told: Result<CardTold, TheirFailure> = line.recv()?;
    let told = told.map_err(of_the_server)?;
    let local = probe.reading()?;
    let mut tried = CardsTried::new(local, told.card, DATAGRAMS);
    if let Some(there) = told.datagrams.and_then(|end| end.address()) {
        datagrams(line, &probe, &there, &mut tried)?;
    }
    // Without a route, the kernel would only repeat its lookup of several seconds.
    let troubles = [&tried.there.trouble, &tried.back.trouble];
    if !troubles.into_iter().flatten().any(|trouble| trouble.obstacle.is_of_the_way()) {
        reliable(line, &probe, &mut tried, &mut cell)?;
    }
    line.send(&Step::Enough)?;
    cell.cards = Some(tried);
    Ok(cell)
}

fn datagrams(line: &mut Line, probe: &Probe, there: &PeerAddress, tried: &mut CardsTried) -> Result<()> {
    let Some(own) = probe.datagram_address() else { return Ok(()) };
    let sent = probe.send_datagrams(there);
    if let Err(trouble) = &sent
        && trouble.obstacle.is_of_the_way()
    {
        tried.there.trouble = Some(trouble.clone());
        return Ok(());
    }
    line.send(&Step::Datagrams { to: End::of(&own) })?;
    let told: DatagramsTold = line.recv()?;
    tried.there = match sent {
        Ok(()) => Arrived::counted(told.arrived),
        Err(trouble) => Arrived::unsent(trouble),
    };
    tried.back = match told.trouble {
        None => Arrived::counted(probe.count_datagrams()),
        Some(trouble) => Arrived::unsent(trouble),
    };
    Ok(())
}

/// Tries a reliable connection: one packet, then full packets, then figures.
fn reliable(line: &mut Line, probe: &Probe, tried: &mut CardsTried, cell: &mut Cell) -> Result<()> {
    let Some(mut route) = connect(line, probe, tried.path_mtu_bytes, tried)? else { return Ok(()) };
    tried.short = Tried::from(&route.write_short());
    if tried.short != Tried::Worked {
        return Ok(());
    }
    let round_trip = route.round_trip();
    cell.round_trip_ns = round_trip.ok();
    tried.long_there = Tried::from(&route.write_long());
    // A queue pair cannot be used after a failure, so the way back needs a new one.
    if tried.long_there != Tried::Worked {
        let Some(again) = connect(line, probe, tried.path_mtu_bytes, &mut tried.clone())? else {
            return Ok(());
        };
        route = again;
    }
    tried.long_back = Tried::from(&route.read_long(tried.long_there == Tried::Worked));
    if tried.long_there == Tried::Worked && tried.long_back == Tried::Worked {
        cell.rate_bits_per_second = route.rate().ok();
        return Ok(());
    }
    tried.mtu_that_works_bytes = largest_that_works(line, probe, tried)?;
    Ok(())
}

/// Returns the largest packet size that works both ways.
fn largest_that_works(line: &mut Line, probe: &Probe, tried: &CardsTried) -> Result<Option<u32>> {
    let smaller = MTUS.into_iter().filter_map(Mtu::bytes);
    for bytes in smaller.filter(|bytes| *bytes < tried.path_mtu_bytes) {
        let Some(mut route) = connect(line, probe, bytes, &mut tried.clone())? else { return Ok(None) };
        if route.write_long().is_ok() && route.read_long(true).is_ok() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Connects both ends with this packet size. Returns `None` if one side fails, and records the
/// failure.
fn connect(line: &mut Line, probe: &Probe, mtu_bytes: u32, tried: &mut CardsTried) -> Result<Option<Route>> {
    let wire = match probe.wire(mtu_bytes) {
        Ok(wire) => wire,
        Err(trouble) => {
            tried.connected_here = Tried::Failed(trouble);
            return Ok(None);
        }
    };
    line.send(&Step::Connect { end: End::of(&wire.address()), mtu_bytes })?;
    let told: ConnectTold = line.recv()?;
    tried.connected_there = told.tried;
    let Some((end, place)) = told.end else { return Ok(None) };
    let connected = end.address().ok_or_else(|| {
        let failure = Failure::new(Exit::Failed, "the peer's queue pair is not valid");
        trouble(Obstacle::Other, failure.fix("install the same version of farreach on both hosts"))
    });
    let connected = connected.and_then(|other| probe.connect(&wire, &other));
    tried.connected_here = Tried::from(&connected);
    if connected.is_err() || tried.connected_there != Tried::Worked {
        return Ok(None);
    }
    let slices = (0..DEPTH).map(|_| probe.allocate(LONG_BYTES)).collect::<Result<Vec<_>, _>>();
    let short = probe.allocate(SHORT_BYTES);
    let (slices, short) = slices.and_then(|slices| Ok((slices, short?))).map_err(|trouble| Failure {
        cause: trouble.cause,
        fix: trouble.fix,
        ..Failure::new(Exit::Failed, trouble.error)
    })?;
    let pattern = Pattern::new(any_seed(), LONG_BYTES);
    Ok(Some(Route { wire, target: place.into(), short: Some(short), slices, pattern }))
}

/// A connected pair, with the peer's memory.
struct Route {
    wire: Wire,
    target: RemoteRange,
    short: Option<Slice>,
    /// For long messages.
    slices: Vec<Slice>,
    pattern: Pattern,
}

impl Route {
    fn part(&self, bytes: usize) -> Result<RemoteRange, Trouble> {
        self.target.get(0, bytes as u64).ok_or_else(|| wanting("the peer granted less memory than requested"))
    }

    fn write_short(&mut self) -> Result<(), Trouble> {
        let (target, slice) = (self.part(SHORT_BYTES)?, self.short.take().ok_or_else(no_memory)?);
        self.short = self.wire.run(SendRequest::write(slice, target))?.into_slice().ok();
        Ok(())
    }

    /// Returns the median time from a short write to its acknowledgement.
    fn round_trip(&mut self) -> Result<u64, Trouble> {
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.len() < ROUND_TRIPS && (began.elapsed() < FIGURE_TIME || times.is_empty()) {
            let posted = Instant::now();
            let (target, slice) = (self.part(SHORT_BYTES)?, self.short.take().ok_or_else(no_memory)?);
            self.wire.post(SendRequest::write(slice, target))?;
            self.short = self.wire.complete(Wait::Busy)?.into_slice().ok();
            times.push(posted.elapsed().as_nanos() as u64);
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Writes a pattern in full packets.
    fn write_long(&mut self) -> Result<(), Trouble> {
        let (target, mut slice) = (self.part(LONG_BYTES)?, self.slices.pop().ok_or_else(no_memory)?);
        slice.copy_from_slice(self.pattern.stamped(1));
        let back = self.wire.run(SendRequest::write(slice, target))?.into_slice();
        self.slices.extend(back);
        Ok(())
    }

    /// Reads the memory in full packets, and checks the pattern if it was written.
    fn read_long(&mut self, is_written: bool) -> Result<(), Trouble> {
        let (target, mut slice) = (self.part(LONG_BYTES)?, self.slices.pop().ok_or_else(no_memory)?);
        slice.fill(0);
        let back = self.wire.run(SendRequest::read(slice, target))?.into_slice().map_err(|_| no_memory())?;
        let checked = if is_written { self.pattern.check(1, &back) } else { Ok(()) };
        self.slices.push(back);
        checked.map_err(|failure| trouble(Obstacle::Mismatch, failure))
    }

    /// Returns the rate of long writes, with several in flight.
    fn rate(&mut self) -> Result<u64, Trouble> {
        let (target, began) = (self.part(LONG_BYTES)?, Instant::now());
        let (mut posted, mut done) = (0, 0);
        loop {
            let wants_more = posted < RATE_BYTES && began.elapsed() < FIGURE_TIME;
            match self.slices.pop() {
                Some(slice) if wants_more => {
                    self.wire.post(SendRequest::write(slice, target))?;
                    posted += LONG_BYTES as u64;
                    continue;
                }
                slice => self.slices.extend(slice),
            }
            if done == posted {
                break;
            }
            self.slices.extend(self.wire.complete(Wait::default())?.into_slice());
            done += LONG_BYTES as u64;
        }
        let seconds = began.elapsed().as_secs_f64();
        Ok((done as f64 * 8.0 / seconds) as u64)
    }
}

fn no_memory() -> Trouble {
    wanting("a work request did not return its buffer")
}

fn wanting(what: &str) -> Trouble {
    trouble(Obstacle::Other, Failure::new(Exit::Failed, what).fix("report this as a defect of farreach"))
}

//! The client's side of a fill: it grants its memory to the server, waits, and compares.

use std::time::{Duration, Instant};

use anyhow::Result;
use farreach::{Counter, ErrorKind, Grant, Rights};

use super::pages::Region;
use super::report::FillReport;
use super::{Ends, FillArgs, Go, Ready, Summary, Task};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::measure::Stopwatch;
use crate::registered;
use crate::report::{Head, Processors};
use crate::session::{Channel, Rules, Session, patience};
use crate::show::progress::FillProgress;
use crate::units;

pub(super) fn run(args: &FillArgs, task: &Task) -> Result<FillReport> {
    let rules = Rules { tuning: args.tuning, ..Rules::default() };
    let session = Session::open(&args.client, rules, "Fill", task)?;
    fill(args, task, &session).map_err(|error| session.explained(error))
}

fn fill(args: &FillArgs, task: &Task, session: &Session) -> Result<FillReport> {
    let channel = session.channel();
    let regions: Vec<Region> = (0..task.regions).map(|number| Region::new(task, number)).collect();
    let grants = regions.iter().map(|region| grant(session, region)).collect::<Result<Vec<_>>>()?;
    let counter = registered::open_counter(&channel.peer)?;
    let tokens = grants.iter().map(Grant::token).collect();
    channel.send(Ends { regions: tokens, counter: counter.token() })?;
    let Ready = channel.recv_or_interrupted(task.making_patience())?;

    let mut report = FillReport::new(Head::new("fill", session, args.client.wait), task);
    let stopwatch = Stopwatch::start();
    channel.send(Go)?;
    report.pages_arrived = arrive(args, task, channel, &counter)?;
    report.elapsed_ns = stopwatch.elapsed().as_nanos() as u64;
    report.sum_up();
    let client = stopwatch.usage();
    if report.pages_arrived < task.pages_total() {
        report.head.is_interrupted = true;
        return Ok(report);
    }
    let Summary { rails, usage: server } = channel.recv()?;
    report.server_rails = rails;
    report.processors = Some(Processors { client, server });
    for (number, (region, grant)) in regions.iter().zip(grants).enumerate() {
        let memory = grant.revoke(patience(0))?;
        report.verified_bytes += memory.len() as u64;
        // Over tcp nothing proves that the server has stopped writing, so a copy is checked.
        match memory.try_into_slice() {
            Ok(slice) => region.check(number as u32, &slice)?,
            Err(exposed) => region.check(number as u32, &exposed.to_vec())?,
        }
    }
    Ok(report)
}

fn grant(session: &Session, region: &Region) -> Result<Grant> {
    let mut slice = registered::allocate(&session.engine, region.len()).map_err(|error| {
        let what = format!("cannot allocate {} for a region", units::amount(region.len() as u64));
        Failure::new(Exit::Failed, what)
            .cause(error.cause())
            .fix("use fewer or smaller pages; to see the free memory:\nfree -h")
    })?;
    region.clear(&mut slice);
    Ok(registered::grant(&session.channel().peer, slice, Rights::WRITE)?)
}

/// Waits for the pages. Returns how many have arrived, when all have or on an interrupt.
fn arrive(args: &FillArgs, task: &Task, channel: &Channel, counter: &Counter) -> Result<u64> {
    let mut progress = FillProgress::new(task.bytes(), args.client.json);
    let (total, mut reached, mut moved_at) = (task.pages_total(), 0, Instant::now());
    while !interrupt::is_asked() {
        match counter.reach(total).wait(Duration::from_millis(50)) {
            Ok(()) => return Ok(total),
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(channel.why_not(&error, "the pages").into()),
        }
        let now = counter.reached();
        if now != reached {
            (reached, moved_at) = (now, Instant::now());
        } else if moved_at.elapsed() > patience(task.batch_bytes()) {
            return Err(channel.not_in_time("the next page").into());
        }
        progress.tick(reached * task.page_bytes);
    }
    Ok(reached)
}

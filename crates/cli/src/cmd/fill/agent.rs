//! The agent's side of a fill: it generates the pages and writes them.

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use farreach::{Engine, PageMap, RemoteSlice, Shared, Transfer};

use super::pages::Region;
use super::{BATCHES, Ends, Go, Ready, Share, Summary, Task};
use crate::measure::Stopwatch;
use crate::registered;
use crate::session::{Channel, patience};

/// Writes all pages.
pub(crate) fn serve(engine: &Engine, channel: &Channel, task: &Task) -> Result<()> {
    let ends: Ends = channel.recv_within(task.making_patience())?;
    ensure!(
        ends.regions.len() == task.regions as usize,
        "the client granted {} regions instead of {}",
        ends.regions.len(),
        task.regions
    );
    let mut batches = VecDeque::new();
    for (number, token) in ends.regions.iter().enumerate() {
        let region = Region::new(task, number as u32);
        let memory = channel.peer.remote(*token).wait(patience(0))?;
        let is_spoilt = task.alter_byte && number == 0;
        batches.extend(make(engine, channel, task, &region, is_spoilt, &memory)?);
    }
    let counter = channel.peer.remote_counter(ends.counter).wait(patience(0))?;
    channel.send(Ready)?;
    let Go = channel.recv()?;
    let stopwatch = Stopwatch::start();
    let (mut under_way, mut shares) = (VecDeque::new(), Vec::new());
    while let Some(batch) = batches.pop_front() {
        channel.check_end()?;
        if under_way.len() == BATCHES {
            finish(task, &mut under_way, &mut shares)?;
        }
        under_way.push_back(channel.peer.write_pages(
            batch.source,
            &batch.map,
            &batch.memory,
            Some(&counter),
        ));
    }
    while !under_way.is_empty() {
        finish(task, &mut under_way, &mut shares)?;
    }
    channel.send(Summary { rails: shares, usage: stopwatch.usage() })
}

/// Pages that one transfer writes.
struct Batch {
    source: Shared,
    map: PageMap,
    memory: RemoteSlice,
}

/// Generates the pages of one region.
fn make(
    engine: &Engine,
    channel: &Channel,
    task: &Task,
    region: &Region,
    is_spoilt: bool,
    memory: &RemoteSlice,
) -> Result<Vec<Batch>> {
    let page_len = task.page_bytes as usize;
    let mut source = registered::allocate(engine, page_len * task.pages as usize)?;
    for (number, page) in source.chunks_mut(page_len).enumerate() {
        channel.check_end()?;
        region.make(number, page);
    }
    if is_spoilt {
        source[page_len / 2] ^= 1;
    }
    let source = source.share();
    let per_batch = task.batch_pages() as usize;
    let indices: Vec<u32> = (0..task.pages).collect();
    let batches = indices.chunks(per_batch).zip(region.places.chunks(per_batch));
    let batch = |(pages, places): (&[u32], &[u32])| Batch {
        source: source.clone(),
        map: PageMap::of(task.page_bytes).from(pages.to_vec()).to(places.to_vec()),
        memory: memory.clone(),
    };
    Ok(batches.map(batch).collect())
}

/// Waits for the oldest transfer.
fn finish(task: &Task, under_way: &mut VecDeque<Transfer>, shares: &mut Vec<Share>) -> Result<()> {
    let Some(mut transfer) = under_way.pop_front() else { return Ok(()) };
    let done = transfer.wait(patience(task.batch_bytes()))?;
    for rail in &done.stats.links {
        let place = shares.iter().position(|share| share.rail == *rail.rail).unwrap_or_else(|| {
            shares.push(Share { rail: rail.rail.to_string(), ..Share::default() });
            shares.len() - 1
        });
        let share = &mut shares[place];
        share.operations += rail.operations;
        share.bytes += rail.bytes;
        share.immediates += rail.immediates;
    }
    Ok(())
}

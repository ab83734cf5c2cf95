//! 10,000 tasks on one engine.

use std::sync::Arc;

use farreach::{Rights, Settings};
use farreach_sim::SimCard;
use rand_mt::Mt;

use super::runtime::Runtime;
use super::{granted, on_each_executor, pair, pair_of};
use crate::over_simulation;
use crate::suite::Pair;

on_each_executor! {
    ten_thousand_tasks_end_and_every_byte_is_right;
    ten_thousand_tasks_of_which_half_are_cancelled;
    ten_thousand_tasks_over_cards;
}

const TASKS: usize = 10_000;
/// The bytes that each task writes.
const LEN: usize = 64;
/// Every such task also sends a message.
const SENDER: usize = 10;

fn bytes_of(task: usize) -> Vec<u8> {
    (0..LEN).map(|place| (task * 31 + place * 7) as u8 | 1).collect()
}

async fn ten_thousand_tasks_end_and_every_byte_is_right(runtime: Runtime) {
    crowd(&runtime, pair().await, false).await;
}

async fn ten_thousand_tasks_of_which_half_are_cancelled(runtime: Runtime) {
    crowd(&runtime, pair().await, true).await;
}

/// Operations over cards are in flight while their tasks wait. Half of them are cancelled.
async fn ten_thousand_tasks_over_cards(runtime: Runtime) {
    let card = || over_simulation::over(vec![SimCard::rc()], Settings::new());
    let (a, b) = (card(), card());
    crowd(&runtime, pair_of(a, b).await, true).await;
}

async fn crowd(runtime: &Runtime, pair: Pair, are_cancelled: bool) {
    let (grant, remote) = granted(&pair, TASKS * LEN, Rights::WRITE).await;
    let pair = Arc::new(pair);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (pair, remote) = (Arc::clone(&pair), remote.at((task * LEN) as u64));
            runtime.spawn(async move {
                let done = pair.a_to_b.write(bytes_of(task), &remote).await.unwrap();
                assert_eq!(done.buffer, bytes_of(task));
                if task % SENDER == 0 {
                    pair.a_to_b.send((task as u32).to_le_bytes()).await.unwrap();
                }
            })
        })
        .collect();
    let receiver = {
        let pair = Arc::clone(&pair);
        runtime.spawn(async move {
            let mut received = Vec::new();
            loop {
                let message = pair.b_to_a.recv().await.unwrap();
                if message == b"the last one" {
                    return received;
                }
                received.push(u32::from_le_bytes(message.try_into().unwrap()) as usize);
            }
        })
    };
    let (mut random, mut cancelled) = (Mt::new(7), 0);
    for task in tasks.iter().filter(|_| are_cancelled) {
        if random.next_u32() % 2 == 0 {
            task.cancel();
            cancelled += 1;
        }
        if cancelled % 100 == 0 {
            runtime.yields().await;
        }
    }
    let mut ended = Vec::new();
    for (task, running) in tasks.into_iter().enumerate() {
        ended.extend(running.await.map(|()| task));
    }
    assert!(ended.len() >= TASKS - cancelled, "{} of {TASKS}", ended.len());
    // Operations of cancelled tasks continue, and have ended after this.
    pair.a_to_b.write(bytes_of(0), &remote).await.unwrap();
    pair.a_to_b.send("the last one").await.unwrap();
    let mut received = receiver.await.expect("it was not cancelled");
    received.sort_unstable();
    let count = received.len();
    received.dedup();
    assert_eq!(received.len(), count, "each message once");
    let is_sent = |task: &&usize| task.is_multiple_of(SENDER);
    let missing = ended.iter().filter(is_sent).find(|task| received.binary_search(task).is_err());
    assert_eq!(missing, None, "a message that was sent");

    let (mut all, mut whole) = (vec![0; TASKS * LEN], vec![false; TASKS]);
    grant.begin_revoke(crate::suite::SOON).await.unwrap().read_at(0, &mut all);
    for (task, bytes) in all.chunks(LEN).enumerate() {
        whole[task] = bytes == bytes_of(task);
        assert!(whole[task] || bytes.iter().all(|byte| *byte == 0), "task {task}: {bytes:?}");
    }
    assert!(ended.iter().all(|task| whole[*task]), "every byte that was written");
    for peer in [&pair.a_to_b, &pair.b_to_a] {
        let memory = peer.memory().unwrap();
        assert!(memory <= 264 << 10, "{memory} bytes are held for nothing");
    }
}

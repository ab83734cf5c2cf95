//! `farreach doctor PEER`: tries each rail of this host with each rail of the peer. The crate
//! `farreach-doctor` interprets the results.
//!
//! Each trial has a connection with an agent of its own, so a library that hangs costs one trial
//! only. Two RDMA cards are tried by verbs directly, step by step, so that the step that fails
//! shows what is wrong: datagrams (each way separately), a reliable queue pair, one small packet,
//! full packets, smaller ones.

mod agent;
mod cards;
mod client;
mod engine;
mod probe;
mod trouble;
mod words;

pub(crate) use agent::answer;
pub(super) use client::look;
pub(crate) use engine::serve;
pub(crate) use words::Task;

/// Reads a step of a trial as an agent does.
#[cfg(fuzzing)]
pub(crate) fn fuzz_step(bytes: &[u8]) {
    let end = match serde_json::from_slice(bytes) {
        Ok(words::Step::Datagrams { to }) => to,
        Ok(words::Step::Connect { end, .. }) => end,
        _ => return,
    };
    if let Some(address) = end.address() {
        assert!(address.qp_num < 1 << 24 && address.psn < 1 << 24, "{address:?}");
    }
}

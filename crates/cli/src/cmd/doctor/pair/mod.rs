//! `farreach doctor PEER`: what works between two hosts, how well, and why the rest does not.
//!
//! ```text
//! client::look ──▶ both Packs, PairReadings ──▶ diagnose ──▶ PairReport ──▶ text, JSON
//! ```
//!
//! Each rail of this host is tried with each one of the peer's, on a connection with an agent of its own: a library that hangs costs one of the tries. Two
//! RDMA cards are tried by verbs itself, one step after the other, so that the step that fails tells what is wrong: datagrams (each way apart), a
//! reliable queue pair, one small packet, full packets, smaller ones.

mod agent;
mod cards;
mod cause;
mod client;
mod diagnose;
mod engine;
mod readings;
mod report;
mod station;
mod suspects;
mod text;
mod words;

use anyhow::Result;

use super::pack::Pack;
use crate::args::ClientArgs;

pub(crate) use agent::answer;
pub(crate) use engine::serve;
pub(crate) use report::PairReport;
pub(super) use text::pair_text;
pub(crate) use words::Task;

/// Why hosts are looked at without transfers of their own.
const NO_TRANSFERS: &str = "left out: transfers between the two hosts were tried instead";

/// This host, the peer, and what is between them.
pub(super) fn look(args: &ClientArgs) -> Result<(Pack, Pack, PairReport)> {
    let looked = client::look(args)?;
    let report = diagnose::diagnose(looked.readings, &looked.here, &looked.peer);
    Ok((looked.here, looked.peer, report))
}

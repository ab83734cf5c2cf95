//! `farreach doctor PEER`: what works between two hosts, how well, and why the rest does not.
//!
//! ```text
//! client::look ──▶ PairPack ──▶ diagnose ──▶ PairReport ──▶ text, JSON
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
mod probe;
mod readings;
mod report;
mod silence;
mod suspects;
mod text;
mod words;

use serde::{Deserialize, Serialize};

use self::readings::PairReadings;
use super::pack::Pack;

pub(crate) use agent::answer;
pub(super) use client::look;
pub(crate) use engine::serve;
pub(crate) use report::PairReport;
pub(super) use text::pair_text;
pub(crate) use words::Task;

/// Why hosts are looked at without transfers of their own.
const NO_TRANSFERS: &str = "left out: transfers between the two hosts were tried instead";

/// What was read of two hosts and tried between them: all that the report on them is made of. The schema is docs/schema/doctor-pair-pack.json.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "DoctorPairPack"))]
pub(crate) struct PairPack {
    /// The host that asked.
    pub(crate) here: Pack,
    pub(crate) peer: Pack,
    pub(crate) readings: PairReadings,
}

impl PairPack {
    /// What it means.
    pub(super) fn report(&self) -> PairReport {
        diagnose::diagnose(self.readings.clone(), &self.here, &self.peer)
    }
}

//! Diagnoses a pair of hosts: what works between them, how well, and why the rest does not.
//!
//! ```text
//! trials of the command ─▶ PairReadings ─┐
//! collect, on both hosts ──▶ Pack ───────┴▶ PairPack ──▶ diagnose ──▶ PairReport
//! ```
//!
//! [`readings`] holds the results of the trials: each rail of this host with each rail of the peer.
//! Two RDMA cards are tried step by step, so that the step that fails shows what is wrong:
//! datagrams (each way separately), a reliable queue pair, one small packet, full packets, smaller
//! ones. The trials need a connection to the peer; the command runs them.

mod cause;
mod diagnose;
mod gids;
mod judged;
mod names;
mod pack;
pub mod readings;
mod report;
mod silence;
mod suspects;

pub use diagnose::diagnose;
pub use pack::PairPack;
pub use report::{PairReport, Row, State};

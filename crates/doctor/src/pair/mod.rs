//! What works between two hosts, how well, and why the rest does not.
//!
//! ```text
//! whoever tries ──▶ PairReadings ──┐
//! collect, on both hosts ──▶ Pack ─┴▶ PairPack ──▶ diagnose ──▶ PairReport
//! ```
//!
//! [`readings`] has the shape of what was tried: each rail of this host with each one of the peer's. Two RDMA cards are tried one step after the other, so that
//! the step that fails tells what is wrong: datagrams (each way apart), a reliable queue pair, one small packet, full packets, smaller ones. The tries
//! themselves need a connection to the peer and are the command's.

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

//! Tests of engines over simulated cards, which need no RDMA library or device.
#![allow(clippy::print_stderr, reason = "what is skipped is told with its reason")]

#[cfg(feature = "tls")]
#[path = "../secure/mod.rs"]
mod secure;
#[path = "../suite/mod.rs"]
mod suite;

mod budgets;
mod clear_text;
mod hung_call;
mod over_simulation;
mod silence;
#[cfg(feature = "tls")]
mod tls;

//! Tests of engines over simulated cards, which need no RDMA library or device.

#[cfg(feature = "tls")]
#[path = "../secure/mod.rs"]
mod secure;
#[path = "../suite/mod.rs"]
mod suite;

mod budgets;
mod over_simulation;
#[cfg(feature = "tls")]
mod tls;

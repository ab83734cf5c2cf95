//! Engines over simulated cards, where no RDMA library or device is needed.

#[cfg(feature = "tls")]
#[path = "../secure/mod.rs"]
mod secure;
#[path = "../suite/mod.rs"]
mod suite;

mod over_simulation;
#[cfg(feature = "tls")]
mod tls;

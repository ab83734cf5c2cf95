//! Engines over simulated cards, where no RDMA library or device is needed.

#[path = "../request/mod.rs"]
mod request;
#[cfg(feature = "tls")]
#[path = "../secure/mod.rs"]
mod secure;
#[path = "../suite/mod.rs"]
mod suite;

mod over_simulation;
mod rails_sim;
#[cfg(feature = "tls")]
mod tls;

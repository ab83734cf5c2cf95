//! Tests of engines over simulated cards and over shared memory, which need no RDMA library or device.
#![allow(clippy::print_stderr, reason = "what is skipped is told with its reason")]

#[path = "../../../rail/tests/contract/mod.rs"]
mod contract;
#[allow(dead_code, reason = "rails of cards have more of them")]
#[path = "../faults/mod.rs"]
mod faults;
#[cfg(feature = "tls")]
#[path = "../secure/mod.rs"]
mod secure;
#[path = "../suite/mod.rs"]
mod suite;

mod asynchronous;
mod budgets;
mod clear_text;
mod default_rails;
mod exchanged;
mod hung_call;
mod over_shm;
mod over_simulation;
mod rail_shm;
mod shm_dir;
mod silence;
#[cfg(feature = "tls")]
mod tls;
mod unmapped;

//! Tests of engines and their verbs rails over a real RDMA device, in a guest.
#![allow(clippy::print_stderr, reason = "measurements are printed")]
#![allow(clippy::result_large_err, reason = "a transfer's error hands its memory back")]
#![allow(clippy::collapsible_match, reason = "a look at the clock is no part of a pattern")]

#[path = "../../../rail/tests/contract/mod.rs"]
mod contract;
#[path = "../faults/mod.rs"]
mod faults;
#[path = "../suite/mod.rs"]
mod suite;

mod over_soft_roce;
mod rails_verbs;
mod real_faults;

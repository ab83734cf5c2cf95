//! Tests of engines over libfabric's tcp, with the generation of the library that the dynamic
//! linker finds.
#![allow(clippy::print_stderr, reason = "measurements are printed")]
#![allow(clippy::result_large_err, reason = "a transfer's error hands its memory back")]
#![allow(clippy::collapsible_match, reason = "a look at the clock is no part of a pattern")]

#[path = "../../../rail/tests/contract/mod.rs"]
mod contract;
#[path = "../fabric/mod.rs"]
mod fabric;
#[path = "../faults/mod.rs"]
mod faults;
#[cfg(feature = "tls")]
#[path = "../secure/mod.rs"]
mod secure;
#[path = "../suite/mod.rs"]
mod suite;

mod attacks;
mod isolated;
mod over_libfabric;
mod rails_fabric;
mod real_faults;
mod within_host;

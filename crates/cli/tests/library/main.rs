//! The command over libfabric's providers, with whichever generation of the library the dynamic linker finds.
#![allow(clippy::print_stderr, reason = "measurements are printed")]

#[path = "../support"]
#[allow(dead_code, reason = "each tier of tests uses its part")]
mod support {
    pub(crate) mod bash;
    pub(crate) mod chip;
    pub(crate) mod client;
    pub(crate) mod crowd;
    pub(crate) mod host;
    pub(crate) mod mask;
    pub(crate) mod offers;
    pub(crate) mod raw;
    pub(crate) mod run;
    pub(crate) mod schema;
    pub(crate) mod server;
    pub(crate) mod trials;
}

mod bench;
mod budgets;
mod chip;
mod commands;
mod completions;
mod crowd;
mod devices;
mod doctor;
mod doctor_pair;
mod failures;
mod serve;
mod tls;

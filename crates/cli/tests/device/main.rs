//! The command over a real RDMA device, in the guest.
#![allow(clippy::print_stderr, reason = "measurements are printed")]

#[path = "../support"]
#[allow(dead_code, reason = "each tier of tests uses its part")]
mod support {
    pub(crate) mod agreement;
    pub(crate) mod chip;
    pub(crate) mod client;
    pub(crate) mod crowd;
    pub(crate) mod devinfo;
    pub(crate) mod doctor;
    pub(crate) mod faults;
    pub(crate) mod host;
    pub(crate) mod kernel;
    pub(crate) mod mask;
    pub(crate) mod network;
    pub(crate) mod offers;
    pub(crate) mod pair;
    pub(crate) mod run;
    pub(crate) mod schema;
    pub(crate) mod server;
    pub(crate) mod trials;
}

mod bench;
mod chip;
mod commands;
mod crowd;
mod devices;
mod doctor;
mod doctor_pair;
mod doctor_reads;
mod doctor_way;
mod failures;
mod faults;

//! What the tests of several crates share. Not published.
//!
//! - [`Device`]: the RDMA device that a test may use here, and [`on_host_a`], which brings a test to where it has one;
//!   [`in_own_network`], where it can cut links and nobody else notices;
//!   [`in_own_process`], with an environment of its own.
//! - [`does_long_tests`]: whether this guest is the one that does.
//! - [`try_combinations`]: tables that take longer than one run.
//! - [`wait_for`]: a wait that ends, because a test that hangs tells nothing.
//! - [`Buffer`]: memory that a device writes; [`pattern`]: bytes to move.
//! - [`example`]: a program to be run as a user runs it; [`listen`]: what it says.
//! - [`drop_in_orders`]: handles that may be dropped in any order; [`allocations`]: what allocates nothing.
//! - [`for_each_seed`]: one test with many histories, each of which its seed replays.
//! - [`shared_object`]: a library of a test's own making; [`rdma_core_release`]: which release an installed one is.
//! - `Authority`: certificates for both sides of a connection, good and bad (feature `certificates`).
//! - [`machine_code`]: whether a function compiles to what it should; [`cost`]: what a program does, counted.
//!
//! Everything panics with a sentence instead of returning an error: the caller is a test, and a test that does not find
//! what it needs has failed.
//!
//! What it does not do: call an engine. It names no C symbol, so that the sys crates' tests can use it too.

mod allocations;
mod buffer;
#[cfg(feature = "certificates")]
mod certificates;
pub mod cost;
mod device;
mod guest;
mod host;
mod library;
pub mod machine_code;
mod orders;
mod program;
mod seeds;
mod table;
mod wait;

pub use allocations::{CountingAllocator, allocations};
pub use buffer::{Buffer, pattern};
#[cfg(feature = "certificates")]
pub use certificates::{Authority, Certificate};
pub use device::Device;
pub use guest::does_long_tests;
pub use host::{in_own_network, in_own_process, on_host_a};
pub use library::{rdma_core_release, shared_object};
pub use orders::{drop_in_orders, order};
pub use program::{example, listen};
pub use seeds::for_each_seed;
pub use table::try_combinations;
pub use wait::{WAIT_MAX, wait_for};

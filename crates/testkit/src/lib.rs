//! Helpers shared by the tests of several crates. Not published.
//!
//! - [`Device`]: the RDMA device that a test may use, and [`on_host_a`], which runs a test where it
//!   has one; [`in_own_network`], where it can cut links without side effects; [`in_own_process`],
//!   with an environment of its own.
//! - [`does_long_tests`]: whether this guest runs long tests.
//! - [`try_combinations`]: tables that take longer than one run.
//! - [`wait_for`]: a wait with a limit, because a test that hangs reports nothing.
//! - [`Buffer`]: memory that a device writes; [`pattern`]: bytes to move.
//! - [`example`]: a program to run as a user runs it; [`listen`]: its output.
//! - [`drop_in_orders`]: handles that may be dropped in any order; [`allocations`]: the number of
//!   allocations of a thread; [`allocations_of_all`]: that of all threads.
//! - [`shared_object`]: a library built for a test; [`rdma_core_release`]: the release of an
//!   installed one.
//! - `Authority`: certificates for both sides of a connection, good and bad (feature
//!   `certificates`).
//! - [`machine_code`]: checks of a function's machine code; [`cost`]: counts of a program's work.
//!
//! All functions panic with a message instead of returning an error: the caller is a test, and a
//! test that does not find what it needs has failed.
//!
//! It calls no engine and names no C symbol, so that tests of the sys crates can use it, too.

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
mod table;
mod wait;

pub use allocations::{CountingAllocator, allocations, allocations_of_all};
pub use buffer::{Buffer, pattern};
#[cfg(feature = "certificates")]
pub use certificates::{Authority, Certificate};
pub use device::Device;
pub use guest::does_long_tests;
pub use host::{in_own_network, in_own_process, on_host_a};
pub use library::{rdma_core_release, shared_object};
pub use orders::{drop_in_orders, order};
pub use program::{example, listen};
pub use table::try_combinations;
pub use wait::{WAIT_MAX, wait_for};

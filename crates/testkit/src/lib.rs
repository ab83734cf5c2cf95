//! What the tests of several crates share. Not published.
//!
//! - [`Device`]: the RDMA device that a test may use here, and [`on_host_a`], which brings a test to where it has one.
//! - [`does_long_tests`]: whether this guest is the one that does.
//! - [`wait_for`]: a wait that ends, because a test that hangs tells nothing.
//! - [`Buffer`]: memory that a device writes; [`pattern`]: bytes to move.
//! - [`shared_object`]: a library of a test's own making; [`rdma_core_release`]: which release an installed one is.
//! - [`machine_code`]: whether a function compiles to what it should.
//!
//! Everything panics with a sentence instead of returning an error: the caller is a test, and a test that does not find
//! what it needs has failed.
//!
//! What it does not do: call an engine. It names no C symbol, so that the sys crates' tests can use it too.

mod buffer;
mod device;
mod guest;
mod host;
mod library;
pub mod machine_code;
mod wait;

pub use buffer::{Buffer, pattern};
pub use device::Device;
pub use guest::does_long_tests;
pub use host::on_host_a;
pub use library::{rdma_core_release, shared_object};
pub use wait::{WAIT_MAX, wait_for};

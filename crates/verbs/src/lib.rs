//! libibverbs, safe.
//!
//! A verbs programmer finds the objects by their names: a module is called by the abbreviation, a type by the full words, a
//! method by the C verb without its prefix. Searching this documentation for a C name finds the one safe door to it.
//!
//! ```
//! use farreach_verbs::device::DeviceList;
//! use farreach_verbs::system;
//!
//! match DeviceList::get() {
//!     Ok(devices) if !devices.is_empty() => {
//!         for device in &devices {
//!             println!("{} on {}", device.name(), device.uverbs_node().display());
//!         }
//!     }
//!     // No library, no kernel support, no device: the system says which, and what to do.
//!     _ => {
//!         for obstacle in system::survey().obstacles() {
//!             println!("{obstacle}: {}", obstacle.fix());
//!         }
//!     }
//! }
//! ```
//!
//! # What it does
//!
//! - [`device`]: the devices of this host, before and without opening them.
//! - [`context`]: an open device, and what it answers about itself ([`attributes`]), its ports ([`port`]) and their GIDs.
//! - [`ah`]: addresses, [`Gid`](ah::Gid) and [`Lid`](ah::Lid).
//! - [`system`]: what stands between this program and a device.
//! - [`error`]: one error type that says what happened, what it means and what to do.
//!
//! Children hold their parents: a [`Context`](context::Context) keeps its device, a device its list. They may be dropped in any
//! order and sent to any thread.
//!
//! # What it does not do
//!
//! It links to nothing: libibverbs is opened at first use, and a program runs without it until then. It prints nothing and
//! starts no thread. Memory, queues and connections are not here yet.

#[macro_use]
mod c_enum;

pub mod ah;
pub mod attributes;
pub mod context;
pub mod device;
pub mod error;
pub mod port;
mod sysfs;
pub mod system;

pub use error::Error;

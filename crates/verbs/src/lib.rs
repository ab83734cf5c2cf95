//! A safe API for libibverbs and librdmacm.
//!
//! Names follow the C API: a module has the C abbreviation, a type the full words, a method the C
//! verb without its prefix. Searching this documentation for a C name finds the one safe function
//! for it.
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
//! // No library, no kernel support or no device: `survey` finds out which, and how to fix it.
//!     _ => {
//!         for obstacle in system::survey().obstacles() {
//!             println!("{obstacle}: {}", obstacle.fix());
//!         }
//!     }
//! }
//! ```
//!
//! # Modules
//!
//! - [`device`]: lists the devices of this host, without opening them.
//! - [`context`]: an open device, its attributes ([`attributes`]), ports ([`port`]) and their GIDs.
//! - [`pd`], [`mr`], [`mw`], [`dm`]: memory that the device may access, and the keys that name it.
//! - [`region`]: memory of [`farreach_memory`] that work requests may name, and that peers may
//!   access.
//! - [`wr`]: work requests, with the buffers that they hold.
//! - [`cq`], [`srq`], [`qp`]: the queues, and the state changes of a queue pair [from RESET to
//!   RTS](qp::state) without the connection manager.
//! - [`ah`]: addresses, [`Gid`](ah::Gid) and [`Lid`](ah::Lid), and address handles; [`gid`]:
//!   selects a GID and explains the selection.
//! - [`xrc`]: extended reliable connections.
//! - [`cm`]: the connection manager, which connects two queue pairs by IP address and port.
//! - [`event`]: asynchronous events of a device; [`wakeup`]: one descriptor to sleep on for events
//!   and completions.
//! - [`system`]: finds out why no device can be used.
//! - [`error`]: one error type with the failure, its cause and its fix; [`limits`]: creations that
//!   exceed a limit of the device.
//! - [`leak`]: counts objects that could not be released.
//!
//! # Lifetimes of objects
//!
//! Children hold their parents. Drop them in any order, on any thread: each is released when its
//! last holder is gone, a queue pair before its queues, a region before its protection domain.
//!
//! ```text
//! DeviceList ◄─ Device ◄─ Context ◄─┬─ ProtectionDomain ◄─┬─ MemoryRegion ──► what was registered
//!                                   │                     ├─ MemoryWindow
//!                                   │                     ├─ AddressHandle
//!                                   │                     ├─ SharedReceiveQueue ◄─┐
//!                                   │                     └─ QueuePair ───────────┤
//!                                   ├─ CompletionChannel ◄─ CompletionQueue ◄─────┘
//!                                   ├─ DeviceMemory ◄─ its MemoryRegions
//!                                   ├─ XrcDomain ◄─ its SharedReceiveQueues and QueuePairs
//!                                   └─ AsyncEvents
//! ```
//!
//! An object that the kernel refuses to release stays until the process ends, with all its parents,
//! and is [counted](leak::leaked): the device may still be using it.
//!
//! # Ownership of buffers
//!
//! A slice is in exactly one place: in your code, in flight, or exposed to peers. A post takes it,
//! and its completion returns it, whether the operation succeeded or failed. The slice of a work
//! request without a completion of its own returns with the next completion. A refused post returns
//! it at once, and destroying a queue pair returns all that are left.
//!
//! ```text
//!               SendRequest::write(slice, …)            qp.post_send(request)
//!  your code ─────────────────────────────► request ─────────────────────────► in flight
//!      ▲                                       │ refused: PostError.request        │
//!      │◄──────────────────────────────────────┘                                   │
//!      │                                         cq.poller(): completion.into_buffers()
//!      │◄──────────────────────────────────────────────────────────────────────────┤
//!      │                                                            qp.destroy()   │
//!      └◄──────────────────────────────────────────────────────────────────────────┘
//!
//!  your code ── pd.expose(slice, rights) ──► ExposedRegion: peers read and write, no reference
//!      ▲                                       │
//!      └◄───────── region.revoke() ────────────┘ the key is invalid; a late write is refused
//! ```
//!
//! [`post_send_list`](qp::QueuePair::post_send_list) posts lists.
//! [`Poller::wait`](cq::Poller::wait) busy-polls, sleeps, or busy-polls first and then sleeps. A
//! queue pair is created only if its completion queue has room for all completions that can be
//! outstanding.
//!
//! # The raw API
//!
//! Methods that end in `_raw` are `unsafe` and take the structures of [`sys`]. They are for callers
//! that track the buffers in flight themselves. `as_raw` returns the C object of any object.
//!
//! # Limits
//!
//! The crate links to no library: libibverbs is opened on first use, and a program runs without it
//! until then. It prints nothing, and starts no thread except the one that
//! [`cm::EventChannel::spawn`] requests.

#[macro_use]
mod c_enum;

mod address;
pub mod ah;
pub mod attributes;
pub mod cm;
pub mod context;
pub mod cq;
pub mod device;
pub mod dm;
pub mod error;
pub mod event;
mod fd;
pub mod gid;
mod handle;
pub mod imm;
pub mod leak;
pub mod limits;
pub mod locked_memory;
pub mod mr;
pub mod mw;
mod os;
pub mod pd;
pub mod port;
pub mod qp;
pub mod region;
pub mod srq;
mod sysfs;
pub mod system;
#[cfg(test)]
mod table;
pub mod wakeup;
mod weak_set;
pub mod wr;
pub mod xrc;

pub use error::Error;
pub use farreach_verbs_sys as sys;

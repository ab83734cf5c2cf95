//! libibverbs, safe.
//!
//! A verbs programmer finds the objects by their names: a module is called by the abbreviation, a type by the full words, a
//! method by the C verb without its prefix. Searching this documentation for a C name finds the one safe function for it.
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
//! - [`pd`], [`mr`], [`mw`], [`dm`]: which memory the device may reach, and the keys that name it.
//! - [`region`]: memory of [`farreach_memory`] that requests may name, and what a peer may touch.
//! - [`wr`]: requests, with the buffers that they take along.
//! - [`cq`], [`srq`], [`qp`]: the queues, and how a queue pair gets [from RESET to RTS](qp::state) by hand.
//! - [`ah`]: addresses, [`Gid`](ah::Gid) and [`Lid`](ah::Lid), and address handles; [`gid`]: which GID to use, and why.
//! - [`xrc`]: extended reliable connections.
//! - [`cm`]: the connection manager, which brings two queue pairs together by IP address and port.
//! - [`event`]: what a device tells without being asked; [`wakeup`]: one descriptor to sleep on for that and for completions.
//! - [`system`]: what stands between this program and a device.
//! - [`error`]: one error type that says what happened, what it means and what to do; [`limits`]: what is too large.
//! - [`leak`]: what could not be released.
//!
//! # Who holds whom
//!
//! Children hold their parents. Drop them in any order, on any thread: each is released when its last holder is gone, a
//! queue pair before its queues, a region before its protection domain.
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
//! What the kernel refuses to release stays until the process ends, with all that it stands on, and is [counted](leak::leaked): the
//! device may still be using it.
//!
//! # Whose the bytes are
//!
//! A slice is in exactly one place: in your hand, in flight, or exposed to peers. A post takes it, and its completion brings it back, whether it
//! went well or not; what has no completion of its own comes back with the next one that has. A refused post hands it back at
//! once, and the end of a queue pair gives back what is left.
//!
//! ```text
//!               SendRequest::write(slice, …)            qp.post_send(request)
//!  your hand ─────────────────────────────► request ─────────────────────────► in flight
//!      ▲                                       │ refused: PostError.request        │
//!      │◄──────────────────────────────────────┘                                   │
//!      │                                         cq.poller(): completion.into_buffers()
//!      │◄──────────────────────────────────────────────────────────────────────────┤
//!      │                                                            qp.destroy()   │
//!      └◄──────────────────────────────────────────────────────────────────────────┘
//!
//!  your hand ── pd.expose(slice, rights) ──► ExposedRegion: peers read and write, nobody has a reference
//!      ▲                                       │
//!      └◄───────── region.revoke() ────────────┘ the key is dead; a late write bounces
//! ```
//!
//! Lists go out by [`post_send_list`](qp::QueuePair::post_send_list); [`Poller::wait`](cq::Poller::wait) waits busily, asleep, or first the one and then
//! the other. A queue pair is made only if its completion queue has room for all that can be in flight.
//!
//! # The raw API
//!
//! Methods that end in `_raw` are `unsafe` and take the structures of [`sys`]: they are for those who keep the account of buffers in flight
//! themselves. Every object gives its C object by `as_raw`.
//!
//! # What it does not do
//!
//! It links to nothing: libibverbs is opened at first use, and a program runs without it until then. It prints nothing and
//! starts no thread but the one that [`cm::EventChannel::spawn`] is asked for.

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

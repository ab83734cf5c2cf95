//! Memory that RDMA devices may access.
//!
//! A device reads and writes memory by itself, long after the call that posted the work request has
//! returned. One rule keeps a Rust program sound: **a range of bytes is in exactly one place.**
//!
//! ```text
//!                 Memory::allocate
//!                        │
//!                        ▼              post                 completion
//!   in your code      Slice  ─────────────────▶  in flight ─────────────▶  Slice
//!   &[u8], &mut [u8]  │  ▲ │
//!                     │  │ │ share                       (Shared is posted and returned likewise)
//!                     │  │ └──────▶ Shared   &[u8], clonable
//!              expose │  │ no key is left
//!                     ▼  │
//!   granted           Exposed        copies and atomics, no reference
//! ```
//!
//! - [`Slice`] is the exclusive right to a range. It derefs to `[u8]`, splits and joins. It moves
//!   into a work request, which makes its bytes inaccessible, and returns with the completion.
//! - [`Shared`] is the right to read a range. It can be cloned and be in many work requests at
//!   once.
//! - [`Lent`] is a slice in flight in parts, each in a work request of its own.
//! - [`Exposed`] is memory that peers may read and write at any time. No reference to its bytes
//!   exists; bytes are copied in and out. It counts the keys by which peers reach it
//!   ([`KeyGuard`]), and becomes a slice again when none is left. Work requests of this side take
//!   parts of it, too ([`ExposedPart`]).
//!
//! The pages stay mapped until the last of these is gone. [`Memory`] is a handle on the pages
//! without a right to the bytes. A library registers it with a device once, for all slices.
//!
//! # Memory from elsewhere
//!
//! A vector becomes a slice, and a slice a vector, without a copy ([`Memory::from_vec`],
//! [`Slice::into_vec`]). Other memory comes by [`Memory::from_raw`], which is unsafe. A file is read
//! into a slice ([`Slice::read_from`]).
//!
//! # Another process
//!
//! Allocated pages belong to a sealed file without a name (`memfd`), so that another process can map
//! them ([`KeyGuard::backing`]). Where there can be no such file, the pages are anonymous, and
//! [`Memory::notes`] has the reason. A forked child inherits no pages of this crate
//! (`MADV_DONTFORK`): an access there raises SIGSEGV.
//!
//! # Limits
//!
//! This crate knows no device and no library; libraries attach their [`Registration`] to the pages.
//! It is not an allocator: the bytes of a dropped slice are not handed out again before the whole
//! allocation is freed.
//!
//! ```
//! use farreach_memory::Memory;
//!
//! let mut head = Memory::allocate(1 << 20)?;
//! head[..5].copy_from_slice(b"hello");
//! let tail = head.split_off(4096);
//! assert_eq!((head.len(), tail.len()), (4096, (1 << 20) - 4096));
//!
//! let page = head.share();
//! let copies = vec![page.clone(); 3];
//! assert!(copies.iter().all(|copy| copy.starts_with(b"hello")));
//! # Ok::<(), farreach_memory::AllocateError>(())
//! ```

mod allocation;
mod backing;
mod bounds;
mod buffer;
mod buffers;
mod epoch;
mod exchange;
mod exposed;
mod exposed_part;
mod extents;
mod from_vec;
mod key_guard;
mod lent;
mod mem_file;
mod memory;
mod options;
mod range;
mod registration;
mod shared;
mod slice;

pub use allocation::{AllocateError, AllocateReason, HugePages};
pub use backing::{Backing, BackingError};
pub use buffer::Buffer;
pub use buffers::Buffers;
pub use epoch::process_epoch;
pub use exchange::{EXCHANGE_STEP, Exchange, ExchangeError};
pub use exposed::{Exposed, KeyAccess, KeyError, ReadOnlyError};
pub use exposed_part::ExposedPart;
pub use key_guard::{ExchangingError, KeyGuard};
pub use lent::Lent;
pub use mem_file::FileAccess;
pub use memory::{Memory, leaked_bytes};
pub use options::MemoryOptions;
pub use registration::{AttachError, DomainId, Registration, Release};
pub use shared::Shared;
pub use slice::Slice;

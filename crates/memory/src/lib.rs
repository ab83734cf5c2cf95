//! Memory that a card may work on.
//!
//! A card reads and writes memory on its own, long after the call that told it to has returned. What keeps a Rust program sound
//! beside it is one rule: **a range of bytes is in exactly one place.**
//!
//! ```text
//!                 Memory::allocate
//!                        │
//!                        ▼              post                 completion
//!   in your hand      Slice  ─────────────────▶  in flight ─────────────▶  Slice
//!   &[u8], &mut [u8]  │  ▲ │
//!                     │  │ │ share                       (Shared goes in and comes back likewise)
//!                     │  │ └──────▶ Shared   &[u8], clonable
//!              expose │  │ no key is left
//!                     ▼  │
//!   granted           Exposed        copies and atomics, no reference
//! ```
//!
//! - [`Slice`] is the exclusive right to a range. It derefs to `[u8]`, splits and joins, and moves: into a request, where nobody can
//!   name its bytes, and back with the completion.
//! - [`Shared`] is the right to read a range, in many hands and many requests at once.
//! - [`Lent`] is a slice in flight in parts, each in a request of its own.
//! - [`Exposed`] is memory that a peer may touch at any time. No reference to its bytes exists; it is copied in and out. It counts the
//!   keys by which peers reach it ([`KeyGuard`]), and becomes a slice again when there is none.
//!
//! The pages behind them live until the last of these is gone. [`Memory`] is a handle on the pages without any right to the bytes: it
//! is what a library registers with a card, once, for all slices.
//!
//! # What it does not do
//!
//! It knows no card and no library; those attach their [`Registration`] to the pages. It is no allocator: a slice that is
//! dropped is not handed out again before its whole allocation is freed.
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
mod buffer;
mod buffers;
mod exposed;
mod key_guard;
mod lent;
mod memory;
mod options;
mod range;
mod registration;
mod shared;
mod slice;

pub use buffer::Buffer;
pub use buffers::Buffers;
pub use exposed::Exposed;
pub use key_guard::KeyGuard;
pub use lent::Lent;
pub use memory::{Memory, leaked_bytes};
pub use options::{AllocateError, AllocateReason, HugePages, MemoryOptions};
pub use registration::{AttachError, AttachReason, DomainId, Registration, Release};
pub use shared::Shared;
pub use slice::Slice;

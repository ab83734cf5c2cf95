//! Memory that two processes of one host map.
//!
//! A [`Link`] connects two processes of one user. Each grants memory to the other, and accesses
//! memory of the other by copies and atomics of its own. The target's processor takes no part.
//! Immediates and messages go through two rings in shared memory; a packet wakes a side that
//! sleeps.
//!
//! ```text
//!   process A                                             process B
//!   Link ── post: copy ──▶ mapped memory of B             Exposed memory, granted by B
//!    │                                                      │
//!    ├── ring: immediates, messages ──────────────────────▶ Link::poll
//!    └── socket: descriptors of granted memory, revocations ◀──┘
//! ```
//!
//! # Meeting
//!
//! One side is a [`Listener`], the other a [`Connecting`]. The name of the listener and a nonce for
//! each side go over a channel that the caller trusts. The name is that of an abstract socket, which
//! processes of one network namespace see, or of a socket in a [`Directory`], for processes of
//! different network namespaces that share one. Both sides check that the other process
//! belongs to the same user, and watch its end by a pidfd ([`Process`]).
//!
//! # Grants and their end
//!
//! [`Link::grant`] passes the descriptor of the memory to the peer. The memory counts the key
//! ([`farreach_memory::Exposed::keys`]) until one of three proofs that the peer has stopped:
//!
//! 1. its process has ended;
//! 2. its library has said that it does not use the key any more ([`Link::revoke`]);
//! 3. the pages were exchanged for others ([`Exchange`]), so that a peer that is stopped in the
//!    middle of a copy continues it in pages that are no longer part of the memory.
//!
//! Each grant has a generation in memory that both sides see. It is raised by a revocation, before
//! an exchange. An initiator looks at it after each part of a copy and before it counts, so a late
//! copy ends as revoked, and not as complete.
//!
//! # What it does not do
//!
//! It protects against peers that end, stop, or are late, and no value that a peer writes or sends
//! lets this process crash or access memory that it must not access, or wait for the peer. It does not
//! protect the contents of granted memory, and of other memory of the same allocation, from a hostile peer.
//! Where processes of one user may debug each other, the kernel does not protect them either. Where they may
//! not (Yama, processes that cannot be dumped, containers), grant such a peer memory of an allocation of its own.
//!
//! A hole that a peer punches into its memory reads as zeroes. Memory with huge pages of the
//! kernel's pool is not granted and not mapped, because a hole there could raise SIGBUS.
//!
//! In a forked child, the methods of a link return [`LinkError::Forked`]: the child inherits no
//! mappings.

mod accepts;
mod closer;
mod copy;
mod directory;
mod error;
mod event;
mod grants;
mod host;
mod link;
mod map;
mod meet;
#[cfg(all(loom, test))]
mod model;
mod obstacle;
mod operation;
mod place;
mod process;
mod remote;
mod ring;
mod segment;
mod sleep;
mod socket;
mod survey;
mod user;
mod wire;
mod words;

pub use directory::{Directory, DirectoryError};
pub use error::{GrantError, LinkError, OperationError, PostError};
pub use event::Event;
pub use farreach_memory::ExchangeError;
pub use grants::{Exchange, RevokedGrant};
pub use link::Link;
pub use map::{Access, DescriptorError};
pub use meet::{Connecting, Expected, Listener, MeetError, Met};
pub use obstacle::Obstacle;
pub use operation::{Request, Target};
pub use place::{Apart, Place, PlaceDigests};
pub use process::{Process, ProcessError};
pub use ring::Nonsense;
pub use segment::{GENERATIONS as GRANTS_MAX, MESSAGE_MAX};
pub use survey::Survey;
pub use wire::Nonce;

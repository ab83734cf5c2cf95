//! One process reads and writes the memory of another, over RDMA cards or tcp.
//!
//! An [`Engine`] opens rails: RDMA cards, or libfabric's tcp if there is none. It connects to other
//! engines, its [`Peer`]s. A program grants a peer access to memory ([`Peer::grant`]). The peer
//! writes a range of it ([`Peer::write`]) or scattered pages ([`Peer::write_pages`]), and a [`Counter`]
//! reports how many have arrived.
//!
//! ```no_run
//! use std::time::Duration;
//! use farreach::{Engine, Rights};
//!
//! const SOON: Duration = Duration::from_secs(30);
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new()?;
//! println!("listening at {}", engine.listen("127.0.0.1:18520")?);
//! let peer = engine.accept().wait(SOON)?;
//!
//! let memory = engine.allocate(64 * 4096).wait(SOON)?;
//! let grant = peer.grant(memory, Rights::WRITE).wait(SOON)?;
//! let counter = peer.open_counter().wait(SOON)?;
//! peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON)?;
//!
//! counter.reach(64).wait(SOON)?;
//! match grant.revoke(SOON)?.try_into_slice() {
//!     Ok(slice) => println!("64 pages, and no one else can access them: {:?}…", &slice[..16]),
//!     // Over tcp nothing proves that the peer has stopped: the bytes are copied out.
//!     Err(exposed) => println!("64 pages: {:?}…", &exposed.to_vec()[..16]),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The [`cookbook`] has a section with an example for each task: write, read, count, revoke, TLS, async,
//! many peers, errors and others.
//!
//! # Guarantees
//!
//! - **Arrival is counted, order is not promised.** Pages arrive in any order, over any rail. When
//!   a counter has reached N, the bytes of N pages are there, and visible to the thread that has
//!   seen the N. If a link is lost, its pages are sent again over another one. No page is lost, and
//!   none is counted twice.
//! - **A slice is in exactly one place.** A transfer takes its memory, and returns it when no card
//!   has a part of it any more, whatever was dropped or timed out. Granted memory becomes a slice
//!   again when it is proven that the peer cannot access it ([`Grant::revoke`]). The confirmation
//!   of a peer is no proof.
//! - **Every wait ends**: with a result, a lost peer, a timeout, or an abort. A peer that is silent
//!   for too long is lost, and every wait for it ends. The one exception is a thread that is itself
//!   in a call into a library that does not return ([`Pending::wait`]).
//! - **Waiting threads drive the engine.** [`Pending::wait`] polls the cards itself. A future is
//!   driven by the engine's worker thread, which sleeps when there is nothing to do.
//! - **Accesses are checked before a card sees them**, against the bounds and rights of what the
//!   peer has granted.
//!
//! # Memory
//!
//! Memory of [`Engine::allocate`] is registered with every rail, once, and is mapped by peers of the same
//! host. A `Vec<u8>` can be written and read into as well ([`Peer::write`], [`Peer::read`]), and comes
//! back as the same vector; each transfer registers it with the cards that need that. As a slice
//! ([`Memory::from_vec`]), it is registered once. A file is read into a slice ([`Slice::read_from`]).
//!
//! # Limits
//!
//! The engine does not discover peers: the program gives their addresses. It does not encrypt data:
//! pages and messages go over the rails as they are, and anyone on their path can read and change
//! them. The control connection, which carries the keys of granted memory, uses TLS, by a shared
//! secret ([`Settings::secret`]) or by certificates ([`Settings::tls`]). Without either, an engine
//! listens on and connects to loopback addresses only, unless [`Settings::insecure`] allows more. A
//! peer is trusted to name its own memory and counters.
//!
//! # Features
//!
//! `tls`, on by default: TLS on the control connection. It needs a C compiler, for ring.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "tls"),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "`Settings::secret` and `Settings::tls` need the feature; with it, every link is checked"
    )
)]

mod address;
mod background;
mod budgets;
mod contiguous;
mod control;
pub mod cookbook;
mod counter;
mod delivery;
mod driver;
mod engine;
mod error;
mod events;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod grant;
mod hung_call;
mod inboxes;
mod list;
mod many;
mod news;
mod origin;
mod pages;
mod peer;
mod pending;
mod prepared;
mod progress;
mod publication;
#[doc(hidden)]
pub mod rails;
mod roster;
mod running;
mod settings;
mod shared_cell;
mod shared_counter;
mod source;
mod start_pool;
mod starts;
mod terms;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod transfer;
mod waits;
mod warning;
mod watch;
mod with_terms;

pub use budgets::Budgets;
pub use control::ControlStream;
pub use counter::{Counter, CounterToken};
pub use engine::Engine;
pub use error::{Error, ErrorKind, GrantError, TransferError};
pub use events::{PeerEvent, PeerId};
pub use farreach_memory::{Buffer, Exposed, HugePages, Memory, MemoryOptions, Shared, Slice, leaked_bytes};
pub use farreach_proto::Untrusted;
pub use farreach_proto::access::Access;
pub use farreach_proto::lost::LostReason;
pub use farreach_proto::priority::Priority;
pub use farreach_proto::rights::Rights;
pub use farreach_proto::stats::{LinkShares, LinkStats, TransferStats};
pub use farreach_rail::RailError;
pub use grant::{Grant, GrantToken, RemoteSlice, RevokeError};
pub use list::TransferList;
#[doc(hidden)]
pub use origin::Origin;
pub use pages::{Indices, PageMap, Pages};
pub use peer::{CompareSwap, Peer, RemoteCounter};
pub use pending::Pending;
pub use prepared::{Preparable, Prepared, Subset};
pub use progress::Progress;
pub use publication::{Publication, PublicationToken, Published};
#[cfg(feature = "tls")]
pub use rustls;
pub use settings::Settings;
pub use shared_counter::{SharedCounter, SharedCounterToken};
pub use source::{Destination, Source};
#[cfg(feature = "tls")]
#[doc(hidden)]
pub use tls::Received;
#[cfg(feature = "tls")]
pub use tls::{Secret, Tls, TlsParts, TlsSession};
pub use token::ParseTokenError;
pub use transfer::{Transfer, Transferred};
pub use waits::Waitable;
pub use warning::{Warning, WarningKind};

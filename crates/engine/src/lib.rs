//! One machine reads and writes another machine's memory: the model a user programs in, over verbs and libfabric alike.
//!
//! An [`Engine`] has rails: RDMA cards, or libfabric's tcp where there is none. It connects to other engines, its
//! [`Peer`]s. A peer is granted memory ([`Peer::grant`]), and writes pages into it ([`Peer::write_pages`]); a [`Counter`] tells how many have
//! arrived.
//!
//! ```no_run
//! use std::time::Duration;
//! use farreach::{Engine, Outcome, Rights};
//!
//! const SOON: Duration = Duration::from_secs(30);
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new()?;
//! println!("listening at {}", engine.listen("0.0.0.0:18520")?);
//! let peer = engine.accept().wait(SOON)?;
//!
//! let grant = peer.grant(engine.allocate(64 * 4096)?, Rights::WRITE)?;
//! let counter = peer.counter()?;
//! peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON)?;
//!
//! assert_eq!(counter.wait(64, SOON), Outcome::Reached);
//! match grant.revoke(SOON)?.try_into_slice() {
//!     Ok(slice) => println!("64 pages are here, and ours alone: {:?}…", &slice[..16]),
//!     // Over tcp nothing proves that the peer has stopped: the bytes are copied out.
//!     Err(exposed) => println!("64 pages are here: {:?}…", &exposed.to_vec()[..16]),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! - **No order, arrival counted.** Pages land in any order, over any rail. When a counter has reached N, the bytes of N pages are there, and visible to
//!   whoever has seen it. A rail that is lost in the middle costs no page, and none is counted twice.
//! - **A slice is in exactly one place.** A transfer takes its memory along and gives it back when no card has a part of it any more, whatever was
//!   dropped or timed out. Granted memory is a slice again when the peer provably reaches it no more ([`Grant::revoke`]); no peer's word counts for that.
//! - **Every wait ends**: done, peer lost, timed out, or given up. A peer that is silent for too long is lost, and with it every wait on it.
//! - **Whoever waits drives.** [`Pending::wait`] polls the cards itself; what is awaited as a future is driven by the engine's worker, which sleeps when
//!   there is nothing to do.
//! - **What is refused is refused before a card hears of it**: every access is checked against what the peer has granted.
//!
//! # What it does not
//!
//! It finds no peers: an address is given. It encrypts no data: pages and messages go over the rails as they are, and anyone on their way can read and
//! change them. What the engines tell each other beside the data, keys of granted memory among it, goes over TLS where that is asked for
//! (`Settings::tls`, with the feature `tls`), so that only whom a certificate vouches for is let in. A peer is trusted to speak for its own memory and counters.
#![forbid(unsafe_code)]

mod address;
mod control;
mod counter;
mod delivery;
mod driver;
mod engine;
mod error;
mod grant;
mod pages;
mod peer;
mod pending;
mod progress;
pub mod rail;
pub mod rails;
mod running;
mod settings;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod transfer;
mod watch;

pub use control::ControlStream;
pub use counter::{Arrival, Counter, CounterToken};
pub use engine::{Accepting, Connecting, Engine};
pub use error::{Error, TransferError, TransferReason};
pub use farreach_memory::{Buffer, Buffers, Exposed, Memory, MemoryOptions, Shared, Slice};
pub use farreach_proto::counter::Outcome;
pub use farreach_proto::error::{AtomicError, SendError};
pub use farreach_proto::explain::{Explanation, RailShare};
pub use farreach_proto::lost::LostReason;
pub use farreach_proto::rights::Rights;
pub use grant::{Grant, GrantToken, RemoteSlice, RevokeError, Revoked};
pub use pages::{PageMap, Pages};
pub use peer::{Fetched, GrantError, Offer, Peer, Received, RemoteCounter, Sent};
pub use pending::{Answer, Pending};
pub use progress::Progress;
#[cfg(feature = "tls")]
pub use rustls;
pub use settings::Settings;
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use token::ParseTokenError;
pub use transfer::{Done, PagesMoved, Transfer};

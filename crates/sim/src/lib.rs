//! A simulated network: cards, links and hosts in one process, in virtual time, driven by a seed.
//!
//! Simulated cards implement the same interface as real ones, and move real bytes of real memory.
//! They move them as badly as a real card may: late, in parts, out of order where the card
//! guarantees none, and not at all where a link, a card or a host fails. They do nothing that a
//! real card would not do: no byte lands twice, and no operation completes that was not done. The
//! same seed gives the same history, so a failure is replayed by its seed.
//!
//! | card | like | ordered | closing one link stops it | an ended key stops | operations to a dead peer |
//! |---|---|---|---|---|---|
//! | [`SimCard::rc`] | a queue pair for each link | yes | yes | all operations | fail after a while |
//! | [`SimCard::windows`] | the same, with keys that are bound to queue pairs | yes | yes | all operations | fail after a while |
//! | [`SimCard::tcp`] | libfabric over tcp | yes | no | new operations | never complete |
//! | [`SimCard::efa`] | EFA | no | no | all operations | fail after a while |
//! | [`SimCard::isolated`] | libfabric over tcp, an endpoint for each link | yes | yes | new operations | never complete |
//! | [`SimCard::shared`] | memory that two processes map | no | its posts, and not the bytes in flight | new operations, and all when that is reported | fail after a while |
//!
//! A card also checks its user. A misuse that no card would tolerate is a [`Violation`]: freeing
//! memory that can still be written, more work requests than a window has room for, a work request
//! over a link that leads nowhere. A test ends by asserting that [`SimNetwork::violations`] is
//! empty.
//!
//! # Time
//!
//! The time of a [`SimNetwork::new`] stands still until [`SimNetwork::advance_to`]. The driver
//! polls every rail until none reports anything, and then advances to
//! [`SimNetwork::next_event_at`], or to an earlier deadline of its own. A [`SimNetwork::real_time`]
//! reads the clock on each call, for tests with threads.
//!
//! ```
//! use farreach_sim::{SimCard, SimNetwork, SimRail, SimSettings};
//! use farreach_rail::{Event, Rail, WorkRequest};
//! use farreach_memory::{Buffers, Memory};
//! use farreach_proto::rights::Rights;
//! use std::sync::Arc;
//!
//! let network = SimNetwork::new(SimSettings::new(7));
//! let mut here = SimRail::new(&network, 0, SimCard::rc());
//! let mut there = SimRail::new(&network, 1, SimCard::rc());
//! let (link, end_here) = here.open_link(farreach_rail::PeerKey(0))?;
//! let (link_there, end_there) = there.open_link(farreach_rail::PeerKey(0))?;
//! here.connect(link, &end_there)?;
//! there.connect(link_there, &end_here)?;
//!
//! let granted = Arc::new(Memory::allocate(4096)?.expose());
//! let key = there.make_key(farreach_rail::PeerKey(0), &granted, Rights::WRITE)?;
//! let mut page = Memory::allocate(5)?;
//! page.copy_from_slice(b"hello");
//! here.register(page.memory())?;
//! let target = farreach_rail::RemoteSegment { address: key.address, key: key.key, len: 5 };
//! let write = WorkRequest::Write { target, immediate: Some(1) };
//! here.post(link, 99, write, page.into()).map_err(|(reason, _)| format!("{reason:?}"))?;
//!
//! let mut is_told = false;
//! while let Some(at_ns) = network.next_event_at() {
//!     network.advance_to(at_ns);
//!     there.poll(&mut |event| is_told |= matches!(event, Event::Immediate { bits: 1, .. }))?;
//! }
//! assert!(is_told);
//! let mut bytes = [0; 5];
//! granted.read_at(0, &mut bytes);
//! assert_eq!(&bytes, b"hello");
//! assert!(network.violations().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod action;
#[cfg(any(test, feature = "histories"))]
mod answers;
mod card;
mod chance;
#[cfg(test)]
mod choose;
mod end;
mod ending;
mod exchange;
#[cfg(test)]
mod explore;
mod expose;
mod fault;
#[cfg(any(test, feature = "histories"))]
#[expect(clippy::unnecessary_to_owned, reason = "the iterator of an input owns its bytes")]
#[allow(rustdoc::private_intra_doc_links, reason = "who reads about histories has the sources")]
pub mod histories;
mod journey;
mod key;
mod memory;
mod network;
mod operation;
mod perform;
mod poll;
mod post;
mod prove;
mod rail;
mod record;
pub mod request;
mod settings;
#[cfg(test)]
mod tests;
mod world;

pub use card::{CardId, SimCard};
pub use network::SimNetwork;
pub use rail::SimRail;
pub use record::{Rule, Violation};
pub use settings::{Odds, SimSettings};

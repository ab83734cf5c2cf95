//! A network that does not exist: cards, links and hosts in one process, in virtual time, driven by a seed.
//!
//! What the engine asks of a card is asked of these, too, and they move real bytes of real memory. But they move them as badly as any card may:
//! late, in parts, in another order where the card promises none, and not at all where a link, a card or a host dies. They do
//! nothing that no real engine would: no byte lands twice, and nothing completes that was not done. The same seed gives the same history, so
//! that a failure is replayed by its seed.
//!
//! | card | like | in order | closing one link ends it | a dead key stops | of a dead peer |
//! |---|---|---|---|---|---|
//! | [`SimCard::rc`] | a queue pair for each link | yes | yes | all | tells after a while |
//! | [`SimCard::tcp`] | libfabric over tcp | yes | no | what is new | says nothing |
//! | [`SimCard::efa`] | EFA | no | no | all | tells after a while |
//!
//! A card also watches whoever uses it. What no card would forgive is a [`Violation`]: memory given up while it can still be
//! written, more requests than a window has room for, a request over a link that leads nowhere. A test ends by asserting that
//! [`SimNetwork::violations`] is empty.
//!
//! # Time
//!
//! A network of [`SimNetwork::new`] stands still until [`SimNetwork::advance_to`]. Whoever drives it polls every provider until nothing is
//! told any more, and goes on to [`SimNetwork::next_event_at`], or to a deadline of his own if that is earlier. One of
//! [`SimNetwork::real_time`] reads the clock whenever it is asked for something, for tests with threads.
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
//! let (link, end_here) = here.open_link()?;
//! let (link_there, end_there) = there.open_link()?;
//! here.connect(link, &end_there)?;
//! there.connect(link_there, &end_here)?;
//!
//! let granted = Arc::new(Memory::allocate(4096)?.expose());
//! let key = there.make_key(&granted, Rights::WRITE)?;
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

#[cfg(test)]
mod answers;
mod card;
mod chance;
mod end;
mod ending;
mod fault;
#[cfg(test)]
mod histories;
mod journey;
mod key;
mod memory;
mod network;
mod operation;
mod poll;
mod post;
mod rail;
mod record;
pub mod request;
mod settings;
#[cfg(test)]
mod tests;
mod world;

pub use card::SimCard;
pub use network::{CardId, SimNetwork};
pub use rail::SimRail;
pub use record::{Rule, Violation};
pub use settings::{Odds, SimSettings};

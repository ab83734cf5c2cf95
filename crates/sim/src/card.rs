//! Kinds of simulated cards, and their names.

use std::fmt;

use farreach_proto::counter::IMMEDIATE_PAGES_MAX;
use farreach_proto::plan::Limits;
use farreach_rail::{EndedKeys, Proof, Properties, Scope};

/// Names a card of a network. A card of a host that was killed and restarted has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardId(pub u32);

impl CardId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The guarantees of a simulated card, and its behaviour where it gives none.
///
/// The kinds correspond to real ones. A test changes the fields that it needs otherwise:
///
/// ```
/// use farreach_rail::Proof;
/// use farreach_sim::SimCard;
///
/// let mut card = SimCard::tcp();
/// card.properties.window = 4;
/// card.properties.writes_prove = Proof::Delivered;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimCard {
    /// The properties reported to the engine.
    pub properties: Properties,
    /// Whether each link has a queue pair. It accepts only the end that it is connected to, its
    /// failure stops both directions, and it does not check the key of a write without bytes. An
    /// endpoint of a library accepts whoever knows its address, and stops when it is closed.
    pub has_queue_pairs: bool,
    /// Whether a key is good only over links to the peer that it was made for.
    pub separates_peers: bool,
    /// Whether it works without being polled: hardware does, a library does not.
    pub serves_unpolled: bool,
    /// Whether work requests to a dead peer fail by themselves after a while. Otherwise they stay
    /// in flight until a reset.
    pub tells_of_dead_peers: bool,
    /// Whether bytes in flight still land after their sender has reset its card, or the link has
    /// failed.
    pub lands_late: bool,
    /// Whether the addresses of exposed memory begin at 0.
    pub addresses_from_zero: bool,
    /// The number of immediates and messages that it keeps until they are polled. Further ones wait
    /// at the sender.
    pub receives: usize,
    /// The number of work requests that it may have in flight, on all links.
    pub queue_len: usize,
    /// Whether it refuses work requests that its queue has no room for, as a rail must. Otherwise
    /// it accepts everything, and its links fail when the completions overrun.
    pub refuses_overrun: bool,
}

impl SimCard {
    /// A card with one queue pair for each link, like InfiniBand and RoCE, and with a protection
    /// domain for each peer.
    pub fn rc() -> Self {
        Self {
            has_queue_pairs: true,
            separates_peers: true,
            ..Self::plain(Properties {
                is_rdma: true,
                limits: limits(16, true),
                has_atomics: true,
                writes_prove: Proof::Delivered,
                immediates_name_link: true,
                links_end_alone: true,
                ended_keys: EndedKeys::StopAll,
                rate_bps: 100_000_000_000,
                ..properties("rc")
            })
        }
    }

    /// As [`rc`](Self::rc), with one protection domain, and with memory windows: keys are bound to
    /// queue pairs.
    pub fn windows() -> Self {
        let card = Self::rc();
        let properties = Properties {
            keys_are_bound: true,
            native: "windows".to_owned(),
            name: "sim-windows".to_owned(),
            kind: "sim/windows".to_owned(),
            ..card.properties
        };
        Self { properties, ..card }
    }

    /// A card like libfabric over tcp: one endpoint for all links, and no service without polls.
    pub fn tcp() -> Self {
        Self {
            serves_unpolled: false,
            tells_of_dead_peers: false,
            lands_late: true,
            addresses_from_zero: true,
            ..Self::plain(Properties {
                limits: limits(4, true),
                has_atomics: true,
                ended_keys: EndedKeys::StopNew,
                ..properties("tcp")
            })
        }
    }

    /// A card like libfabric over tcp with peers isolated: an endpoint and a domain for each link.
    pub fn isolated() -> Self {
        let card = Self::tcp();
        let properties = Properties {
            immediates_name_link: true,
            links_end_alone: true,
            native: "isolated".to_owned(),
            name: "sim-isolated".to_owned(),
            kind: "sim/isolated".to_owned(),
            ..card.properties
        };
        Self { separates_peers: true, properties, ..card }
    }

    /// A card like EFA: one endpoint for all links, and no order at all.
    pub fn efa() -> Self {
        Self {
            lands_late: true,
            ..Self::plain(Properties {
                is_rdma: true,
                writes_prove: Proof::Delivered,
                ended_keys: EndedKeys::StopAll,
                rate_bps: 100_000_000_000,
                ..properties("efa")
            })
        }
    }

    /// A card like memory that two processes map: the side that posts does all the work, and memory
    /// stays within its reach until it confirms that a key has ended, or until the pages are
    /// exchanged.
    pub fn shared() -> Self {
        Self {
            separates_peers: true,
            addresses_from_zero: true,
            ..Self::plain(Properties {
                scope: Scope::Host,
                limits: limits(16, false),
                performs_max: 256,
                has_atomics: true,
                immediates_name_link: true,
                links_end_alone: true,
                ended_keys: EndedKeys::Reported,
                keys_are_bound: true,
                rate_bps: 100_000_000_000,
                ..properties("shared")
            })
        }
    }

    /// Returns whether a key that has ended is proven to be out of use, now or soon, without the end of a link.
    #[cfg(test)]
    pub(crate) fn proves_ended_keys(&self) -> bool {
        self.properties.ended_keys != EndedKeys::StopNew
    }

    /// Returns all kinds with keys that need not be bound.
    pub fn kinds() -> [Self; 4] {
        [Self::rc(), Self::tcp(), Self::efa(), Self::isolated()]
    }

    fn plain(properties: Properties) -> Self {
        Self {
            properties,
            has_queue_pairs: false,
            separates_peers: false,
            serves_unpolled: true,
            tells_of_dead_peers: true,
            lands_late: false,
            addresses_from_zero: false,
            receives: 64,
            queue_len: 512,
            refuses_overrun: true,
        }
    }
}

/// Returns the properties that most kinds have in common.
fn properties(name: &str) -> Properties {
    Properties {
        native: name.to_owned(),
        name: format!("sim-{name}"),
        kind: format!("sim/{name}"),
        scope: Scope::Network,
        is_rdma: false,
        limits: limits(1, false),
        window: 64,
        message_max: 8192,
        performs_max: 0,
        has_atomics: false,
        writes_prove: Proof::Delivered,
        immediates_name_link: false,
        links_end_alone: false,
        ended_keys: EndedKeys::StopNew,
        keys_are_bound: false,
        rate_bps: 1_000_000_000,
    }
}

fn limits(pieces: usize, is_ordered: bool) -> Limits {
    Limits { bytes: 1 << 30, pieces, targets: 1, pages: IMMEDIATE_PAGES_MAX, is_ordered }
}

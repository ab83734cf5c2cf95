//! What kinds of cards there are.

use farreach_proto::counter::IMMEDIATE_PAGES_MAX;
use farreach_proto::plan::Limits;
use farreach_rail::{EndedKeys, Proof, Properties};

/// What a simulated card promises, and how it behaves where it promises nothing.
///
/// The three kinds stand for the real ones. What a test needs otherwise it changes:
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
    /// What it tells the engine.
    pub properties: Properties,
    /// Whether it works while nobody polls it: hardware does, a library does not.
    pub serves_unpolled: bool,
    /// Whether requests to a peer that is gone fail by themselves, after a while. Otherwise they hang until a reset.
    pub tells_of_dead_peers: bool,
    /// Whether bytes that are on their way still land after their sender has reset, or its link has died.
    pub lands_late: bool,
    /// Whether the addresses of exposed memory begin at 0.
    pub addresses_from_zero: bool,
    /// How many immediates and messages it keeps until they are polled for. Whoever sends more waits.
    pub receives: usize,
    /// How many requests it may have in flight, on all links.
    pub queue_len: usize,
    /// Whether it refuses what its queue has no room for, as a provider must. Otherwise it takes everything, and its links die when the
    /// completions overrun.
    pub refuses_overrun: bool,
}

impl SimCard {
    /// One queue pair for each link, as InfiniBand and RoCE have them.
    pub fn rc() -> Self {
        Self::plain(Properties {
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

    /// libfabric over tcp: one endpoint for all links, and whoever does not poll does not serve.
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

    /// EFA: one endpoint for all links, and no order at all.
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

    /// All three kinds.
    pub fn kinds() -> [Self; 3] {
        [Self::rc(), Self::tcp(), Self::efa()]
    }

    fn plain(properties: Properties) -> Self {
        Self {
            properties,
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

/// What most of them have in common.
fn properties(name: &str) -> Properties {
    Properties {
        native: name.to_owned(),
        name: format!("sim-{name}"),
        kind: format!("sim/{name}"),
        is_rdma: false,
        limits: limits(1, false),
        window: 64,
        message_max: 8192,
        has_atomics: false,
        writes_prove: Proof::Delivered,
        immediates_name_link: false,
        links_end_alone: false,
        ended_keys: EndedKeys::StopNew,
        rate_bps: 1_000_000_000,
    }
}

fn limits(pieces: usize, is_ordered: bool) -> Limits {
    Limits { bytes: 1 << 30, pieces, targets: 1, pages: IMMEDIATE_PAGES_MAX, is_ordered }
}

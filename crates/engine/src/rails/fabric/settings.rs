//! Settings of a rail over libfabric.

use std::net::IpAddr;

use farreach_fabric::TrafficClass;

/// The provider that implements datagrams over tcp by itself in libfabric 1.x; 2.x calls it `tcp`.
pub(super) const OWN_DATAGRAMS: &str = "net";

/// Settings of a rail over libfabric, and of the search for rails.
///
/// ```
/// use farreach::rails::fabric::FabricSettings;
///
/// let settings = FabricSettings { transmit_depth: 64, ..FabricSettings::default() };
/// assert_eq!(settings.receive_count, 64);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricSettings {
    /// Work requests in flight, on all links together; limited by the offer.
    pub transmit_depth: usize,
    /// Work requests in flight on one link; limited by `transmit_depth`.
    pub link_depth: usize,
    /// Messages that may arrive between two polls, from all peers together; limited by the offer.
    pub receive_count: usize,
    /// The longest message in bytes.
    pub message_max: usize,
    /// Whether a write completes when its bytes are in the peer's memory, and not when they were
    /// sent, if the provider supports it. Without it, a write costs one message less, and a write
    /// that the peer refuses is not reported.
    pub asks_for_delivery: bool,
    /// The traffic class, if the provider supports it.
    pub traffic_class: Option<TrafficClass>,
    /// The providers to look for. `tcp` stands for the best provider over tcp; a full name such as
    /// `tcp;ofi_rxm` stands for that provider only.
    pub providers: Vec<String>,
    /// The local address to use, if the provider has IP addresses.
    pub bind: Option<IpAddr>,
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            // Enough to keep any local provider busy; tcp of 2.x has no more.
            transmit_depth: 256,
            link_depth: 256,
            receive_count: 64,
            // A layer over tcp sends longer messages in another way, with twice the latency.
            message_max: 16 << 10,
            asks_for_delivery: true,
            traffic_class: None,
            providers: ["efa", "verbs;ofi_rxm", "tcp"].map(str::to_owned).into(),
            bind: None,
        }
    }
}

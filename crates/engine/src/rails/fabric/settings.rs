//! What a rail over libfabric is opened with.

use std::net::IpAddr;

use farreach_fabric::TrafficClass;

/// What a rail over libfabric is opened with, and which ones are looked for.
///
/// ```
/// use farreach::rails::fabric::FabricSettings;
///
/// let settings = FabricSettings { transmit_depth: 64, ..FabricSettings::default() };
/// assert_eq!(settings.receive_count, 64);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricSettings {
    /// Requests in flight, on all links together; at most what the offer says.
    pub transmit_depth: usize,
    /// Messages that may come before somebody polls, from all peers together; at most what the offer says.
    pub receive_count: usize,
    /// The longest message.
    pub message_max: usize,
    /// Whether a write completes when its bytes are at the peer, and not when they have left; where the provider has it. Without, it costs
    /// a message less, and a write that the peer refuses is not told of.
    pub asks_for_delivery: bool,
    /// How the network is to treat the traffic, where the provider knows such classes.
    pub traffic_class: Option<TrafficClass>,
    /// The providers to look for: `tcp` is what speaks it best, `tcp;ofi_rxm` that one.
    pub providers: Vec<String>,
    /// The local address to be at, where the provider has such addresses.
    pub bind: Option<IpAddr>,
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            // Enough to keep any of the local ones busy; tcp of 2.x has no more.
            transmit_depth: 256,
            receive_count: 64,
            // Longer messages take another way in a layer over tcp, with twice the latency.
            message_max: 16 << 10,
            asks_for_delivery: true,
            traffic_class: None,
            providers: ["efa", "verbs;ofi_rxm", "tcp"].map(str::to_owned).into(),
            bind: None,
        }
    }
}

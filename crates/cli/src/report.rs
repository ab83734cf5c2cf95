//! What the reports of all measuring commands have in common. Sizes are bytes, times ns, rates bits a second.
//!
//! A field is only ever added; one that changes its meaning or goes away raises the version of its report's shape.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What ran on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Versions {
    /// This command.
    pub(crate) farreach: String,
    /// The peer's.
    pub(crate) peer_farreach: String,
    /// The file of libibverbs here; null where it was not used.
    pub(crate) libibverbs: Option<String>,
    /// The version of libfabric here; null where it was not used.
    pub(crate) libfabric: Option<String>,
}

/// Who the other side was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PeerReport {
    /// As it was typed.
    pub(crate) name: String,
    /// The address of its control connection.
    pub(crate) address: String,
}

/// One way that data took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RailReport {
    /// `rxe0`, `tcp;ofi_rxm`
    pub(crate) name: String,
    /// `verbs` or `libfabric`
    pub(crate) library: String,
    /// Whether a card moves the data, and not the kernel or the processor.
    pub(crate) is_rdma: bool,
    /// What the link can do, where the device tells.
    pub(crate) rate_bits_per_second: Option<u64>,
}

/// What a latency is the time of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum LatencyOf {
    /// From the order to its completion.
    Completion,
    /// There and back.
    RoundTrip,
    /// Half of there and back.
    HalfRoundTrip,
}

impl LatencyOf {
    /// As a heading says it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Completion => "order to completion",
            Self::RoundTrip => "RTT",
            Self::HalfRoundTrip => "½ RTT",
        }
    }
}

/// The percentiles of what was timed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Latency {
    /// What is timed.
    pub(crate) of: LatencyOf,
    /// How many were timed.
    pub(crate) samples: u64,
    pub(crate) min_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
}

impl Latency {
    /// Of latencies in ns; none where there are none.
    pub(crate) fn new(of: LatencyOf, histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile);
        (!histogram.is_empty()).then(|| Self {
            of,
            samples: histogram.len(),
            min_ns: histogram.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: histogram.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn percentiles_are_those_of_the_histogram() {
        let mut histogram = Histogram::new(3).unwrap();
        assert_eq!(Latency::new(LatencyOf::RoundTrip, &histogram), None);
        (1..=1000).for_each(|ns| histogram.record(ns).unwrap());
        let latency = Latency::new(LatencyOf::HalfRoundTrip, &histogram);
        let expected = json!({
            "of": "half_round_trip", "samples": 1000, "min_ns": 1, "p50_ns": 500, "p90_ns": 900, "p99_ns": 990,
            "p99_9_ns": 999, "max_ns": 1000,
        });
        assert_eq!(serde_json::to_value(latency).unwrap(), expected);
    }
}

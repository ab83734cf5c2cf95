//! The head of every report, and the parts that several reports share.
//!
//! The head states over what was measured, so that it is clear whether RDMA was used. Sizes are in
//! bytes, times in ns, rates in bits per second.
//!
//! Compatibility: fields may be added. Changing the meaning of a field, or removing it, raises
//! [`SCHEMA_VERSION`]. The schemas are in docs/schema.

use std::time::{SystemTime, UNIX_EPOCH};

use farreach_fabric::Library;
use farreach_rail::Properties;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::measure::Usage;
use crate::rails;
use crate::session::{Session, Wait};

/// The schema version of all reports.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The head of every report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Head {
    pub(crate) schema_version: u32,
    /// The command: `ping`, `bench`.
    pub(crate) command: String,
    /// The start time, in seconds since 1970.
    pub(crate) started_unix_seconds: u64,
    /// Whether the user interrupted the test. The figures cover the time until then.
    pub(crate) is_interrupted: bool,
    pub(crate) versions: Versions,
    pub(crate) peer: PeerReport,
    /// The rails that were ready when the test began.
    pub(crate) rails: Vec<RailReport>,
    /// Why these rails were chosen.
    pub(crate) rails_why: String,
    /// How both sides wait for completions.
    pub(crate) wait: Wait,
    /// The traffic class of all packets (`--tclass`); null if it was not set.
    #[serde(default)]
    pub(crate) traffic_class: Option<u8>,
    /// The service level of all packets (`--sl`); null if it was not set.
    #[serde(default)]
    pub(crate) service_level: Option<u8>,
}

/// The versions on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Versions {
    /// The version of this command.
    pub(crate) farreach: String,
    /// The version of the peer's command.
    pub(crate) peer_farreach: String,
    /// The version of libfabric on this side; null if it is not installed.
    pub(crate) libfabric: Option<String>,
}

/// The peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PeerReport {
    /// The address as typed, with the port.
    pub(crate) address: String,
    /// The host name that the peer announced.
    pub(crate) host: String,
}

/// A rail that carried the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RailReport {
    /// The name: `rxe0`, `tcp 10.0.0.7`.
    pub(crate) name: String,
    /// The library: `verbs`, `libfabric`, or `farreach-shm`, which is part of the command.
    pub(crate) library: String,
    /// Whether an RDMA card moves the data.
    pub(crate) is_rdma: bool,
    /// The address, in the format of the rail.
    pub(crate) native_address: String,
    /// The link rate, if the device reports it.
    pub(crate) rate_bits_per_second: Option<u64>,
}

impl RailReport {
    fn of(rail: &Properties) -> Self {
        let provider = rail.name.split(' ').next().unwrap_or(&rail.name);
        let library = rails::library(provider);
        Self {
            name: rail.name.clone(),
            library: library.to_owned(),
            is_rdma: rail.is_rdma,
            native_address: rail.native.clone(),
            // For a rail without a card, the rate is only an estimate for the distribution of work
            // over rails.
            rate_bits_per_second: (rail.is_rdma && rail.rate_bps > 0).then_some(rail.rate_bps),
        }
    }
}

impl Head {
    pub(crate) fn new(command: &str, session: &Session, wait: Wait) -> Self {
        let ready = session.rails();
        let rails = session.engine.rail_properties().iter().filter(|rail| ready.contains(&rail.name));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            schema_version: SCHEMA_VERSION,
            command: command.to_owned(),
            started_unix_seconds: now.as_secs(),
            is_interrupted: false,
            versions: Versions {
                farreach: env!("CARGO_PKG_VERSION").to_owned(),
                peer_farreach: session.welcome.version.clone(),
                libfabric: Library::open().ok().map(|library| library.version().to_string()),
            },
            peer: PeerReport { address: session.address.clone(), host: session.welcome.host.clone() },
            rails: rails.map(RailReport::of).collect(),
            rails_why: session.choice.why.clone(),
            wait,
            traffic_class: session.choice.wish.tuning.tclass,
            service_level: session.choice.wish.tuning.sl,
        }
    }

    /// Describes the path of the test: `storage-7:18520 over rxe0 (RDMA)`.
    pub(crate) fn over(&self) -> String {
        let rails: Vec<String> = self.rails.iter().map(|rail| self.rail_words(&rail.name)).collect();
        format!("{} over {}{}", self.peer.address, rails.join(", "), self.tuning_words())
    }

    /// Describes the requested tuning: `, traffic class 106, service level 3`.
    pub(crate) fn tuning_words(&self) -> String {
        let class = self.traffic_class.map(|class| format!(", traffic class {class}"));
        let level = self.service_level.map(|level| format!(", service level {level}"));
        class.unwrap_or_default() + &level.unwrap_or_default()
    }

    /// Describes a rail: `rxe0 (RDMA)`.
    pub(crate) fn rail_words(&self, name: &str) -> String {
        let is_rdma = self.rails.iter().any(|rail| rail.name == name && rail.is_rdma);
        format!("{name} ({})", if is_rdma { "RDMA" } else { "no RDMA" })
    }
}

/// CPU usage of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Processors {
    pub(crate) client: Usage,
    pub(crate) server: Usage,
}

impl Processors {
    pub(crate) fn words(&self) -> String {
        let percent = |usage: &Usage| format!("{:.0} %", usage.share() * 100.0);
        format!("client {}, server {} of one core", percent(&self.client), percent(&self.server))
    }
}

/// What a latency measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum LatencyOf {
    /// From post to completion.
    Completion,
    /// A round trip.
    RoundTrip,
    /// Half of a round trip.
    HalfRoundTrip,
    /// From the first attempt to the acquisition of a lock.
    Acquisition,
}

impl LatencyOf {
    /// Returns the text for a heading.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Completion => "post to completion",
            Self::RoundTrip => "RTT",
            Self::HalfRoundTrip => "½ RTT",
            Self::Acquisition => "wait for the lock",
        }
    }
}

/// Percentiles of latencies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Latency {
    /// What the latencies measure.
    pub(crate) of: LatencyOf,
    /// The number of latencies.
    pub(crate) samples: u64,
    pub(crate) min_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
}

impl Latency {
    /// Summarises latencies in ns; returns `None` if there are none.
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
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the head of a report over tcp.
    pub(crate) fn head(command: &str) -> Head {
        let rail = RailReport {
            name: "tcp 192.0.2.1".to_owned(),
            library: "libfabric".to_owned(),
            is_rdma: false,
            native_address: "192.0.2.1:7".to_owned(),
            rate_bits_per_second: None,
        };
        Head {
            schema_version: SCHEMA_VERSION,
            command: command.to_owned(),
            started_unix_seconds: 1_750_000_000,
            is_interrupted: false,
            versions: Versions {
                farreach: "0.1.0".to_owned(),
                peer_farreach: "0.1.0".to_owned(),
                libfabric: Some("2.1".to_owned()),
            },
            peer: PeerReport { address: "storage-7:18520".to_owned(), host: "storage-7".to_owned() },
            rails: vec![rail],
            rails_why: "named by -d".to_owned(),
            wait: Wait::Adaptive,
            traffic_class: None,
            service_level: None,
        }
    }

    #[test]
    fn the_first_line_tells_of_marks_that_were_asked_for() {
        let mut head = head("ping");
        (head.traffic_class, head.service_level) = (Some(106), Some(3));
        let told = "storage-7:18520 over tcp 192.0.2.1 (no RDMA), traffic class 106, service level 3";
        assert_eq!(head.over(), told);
    }

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

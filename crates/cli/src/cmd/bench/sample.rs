//! A constructed run, for tests.

use std::time::Duration;

use super::figures::{Figures, Repetition};
use super::report::{BenchReport, COMMAND, Parameters};
use super::row::{Key, Row};
use crate::report::{Head, LatencyOf, PeerReport, RailReport, SCHEMA_VERSION, Versions};
use crate::session::Wait;

const SIZES: [u64; 5] = [8, 512, 4096, 65536, 1 << 20];
const DEPTHS: [u32; 3] = [1, 16, 64];

/// Returns the key of a row over the first rail.
pub(crate) fn key(operation: &str, size_bytes: u64, depth: u32) -> Key {
    Key { operation: operation.to_owned(), size_bytes, depth, queues: 1, rails: vec!["mlx5_0".to_owned()] }
}

/// Returns a row with these rates. The latency follows from rate and depth.
pub(crate) fn row(operation: &str, size_bytes: u64, depth: u32, rates: &[f64]) -> Row {
    let repetitions = rates.iter().map(|rate| repetition(*rate, size_bytes, depth)).collect();
    Row::new(key(operation, size_bytes, depth), LatencyOf::Completion, repetitions).expect("repetitions")
}

fn repetition(operations_per_second: f64, size_bytes: u64, depth: u32) -> Repetition {
    let latency_ns = f64::from(depth) * 1e9 / operations_per_second;
    let latency = |times: f64| Some((latency_ns * times).round() as u64);
    Repetition {
        operations: operations_per_second as u64,
        elapsed_ns: 1_000_000_000,
        figures: Figures {
            operations_per_second,
            bits_per_second: operations_per_second * size_bytes as f64 * 8.0,
            latency_p50_ns: latency(1.0),
            latency_p99_ns: latency(1.4),
            latency_max_ns: latency(10.0),
            cpu_here_ns_per_operation: Some(180.0 + size_bytes as f64 / 1000.0),
            cpu_peer_ns_per_operation: Some(0.25),
        },
    }
}

/// Returns a whole run over a card of 100 Gb/s.
pub(crate) fn report() -> BenchReport {
    let mut rows = Vec::new();
    for (operation, delay_ns) in [("write", 1900.0), ("read", 2600.0), ("send", 2100.0)] {
        for depth in DEPTHS {
            for size in SIZES {
                // The limits: operations in flight, the card's message rate, and the link.
                let in_flight = f64::from(depth) * 1e9 / (delay_ns + size as f64 / 11.8);
                let rate = in_flight.min(18e6).min(97.4e9 / 8.0 / size as f64);
                rows.push(row(operation, size, depth, &[rate, rate * 0.975, rate * 1.01]));
            }
        }
    }
    BenchReport {
        head: head(),
        parameters: Parameters {
            operations: ["write", "read", "send"].map(str::to_owned).to_vec(),
            sizes_bytes: SIZES.to_vec(),
            depths: DEPTHS.to_vec(),
            queues: vec![1],
            repetitions: 3,
            duration_ns: Duration::from_secs(1).as_nanos() as u64,
            warm_up_ns: Duration::from_millis(200).as_nanos() as u64,
            queue_pair: None,
        },
        rows,
        comparisons: None,
        verdicts: Vec::new(),
        not_measured: Vec::new(),
        error: None,
    }
}

fn head() -> Head {
    Head {
        schema_version: SCHEMA_VERSION,
        command: COMMAND.to_owned(),
        started_unix_seconds: 1_750_000_000,
        is_interrupted: false,
        versions: Versions {
            farreach: "0.1.0".to_owned(),
            peer_farreach: "0.1.0".to_owned(),
            libfabric: None,
        },
        peer: PeerReport { address: "storage-7:18520".to_owned(), host: "storage-7".to_owned() },
        rails: vec![RailReport {
            name: "mlx5_0".to_owned(),
            library: "verbs".to_owned(),
            is_rdma: true,
            native_address: "GID 3 ::ffff:10.0.0.7: RoCE v2, IPv4, on eth0".to_owned(),
            rate_bits_per_second: Some(100_000_000_000),
        }],
        rails_why: "both sides have active RDMA cards".to_owned(),
        wait: Wait::Adaptive,
        traffic_class: None,
        service_level: None,
    }
}

//! The figures of one measurement, and the statistics of several.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::units;

/// The figures of one measurement, or the medians of several.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Figures {
    pub(crate) operations_per_second: f64,
    /// The rate of the payload, without headers.
    pub(crate) bits_per_second: f64,
    /// Null if single operations were not timed.
    pub(crate) latency_p50_ns: Option<u64>,
    pub(crate) latency_p99_ns: Option<u64>,
    pub(crate) latency_max_ns: Option<u64>,
    /// The CPU time of this process; null if it is unknown.
    pub(crate) cpu_here_ns_per_operation: Option<f64>,
    /// The CPU time of the peer's process; null if it is unknown.
    pub(crate) cpu_peer_ns_per_operation: Option<f64>,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Repetition {
    /// The number of completed operations.
    pub(crate) operations: u64,
    /// The duration.
    pub(crate) elapsed_ns: u64,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// The raw values of one measurement, for [`Repetition::new`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured<'a> {
    pub(crate) operations: u64,
    pub(crate) size_bytes: u64,
    pub(crate) elapsed: Duration,
    /// In ns; `None` if single operations were not timed.
    pub(crate) latencies: Option<&'a Histogram<u64>>,
    pub(crate) cpu_here: Option<Duration>,
    pub(crate) cpu_peer: Option<Duration>,
}

impl Repetition {
    /// Computes the figures. Returns `None` if no operation was done, which has no rate.
    pub(crate) fn new(measured: Measured<'_>) -> Option<Self> {
        let Measured { operations, size_bytes, elapsed, .. } = measured;
        if operations == 0 || elapsed.is_zero() {
            return None;
        }
        let operations_per_second = operations as f64 / elapsed.as_secs_f64();
        let latencies = measured.latencies.filter(|latencies| !latencies.is_empty());
        let quantile = |quantile| latencies.map(|latencies| latencies.value_at_quantile(quantile));
        let each = |cpu: Option<Duration>| cpu.map(|cpu| cpu.as_nanos() as f64 / operations as f64);
        Some(Self {
            operations,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            figures: Figures {
                operations_per_second,
                bits_per_second: operations_per_second * size_bytes as f64 * 8.0,
                latency_p50_ns: quantile(0.5),
                latency_p99_ns: quantile(0.99),
                latency_max_ns: latencies.map(Histogram::max),
                cpu_here_ns_per_operation: each(measured.cpu_here),
                cpu_peer_ns_per_operation: each(measured.cpu_peer),
            },
        })
    }
}

/// The minimum and the maximum of each figure over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Spread {
    pub(crate) min: Figures,
    pub(crate) max: Figures,
}

impl Figures {
    /// Returns the median of each figure.
    pub(crate) fn median(all: &[Repetition]) -> Option<Self> {
        Self::each(all, |sorted| {
            let middle = sorted.len() / 2;
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
        })
    }

    /// Combines each figure of all repetitions that have it. `one_of` gets the values sorted.
    fn each(all: &[Repetition], one_of: impl Fn(&[f64]) -> f64) -> Option<Self> {
        let of = |figure: &dyn Fn(&Self) -> Option<f64>| {
            let mut values: Vec<f64> = all.iter().filter_map(|it| figure(&it.figures)).collect();
            values.sort_by(f64::total_cmp);
            (!values.is_empty()).then(|| one_of(&values))
        };
        let latency = |figure: &dyn Fn(&Self) -> Option<u64>| {
            of(&|it| figure(it).map(|ns| ns as f64)).map(|ns| ns.round() as u64)
        };
        Some(Self {
            operations_per_second: of(&|it| Some(it.operations_per_second))?,
            bits_per_second: of(&|it| Some(it.bits_per_second))?,
            latency_p50_ns: latency(&|it| it.latency_p50_ns),
            latency_p99_ns: latency(&|it| it.latency_p99_ns),
            latency_max_ns: latency(&|it| it.latency_max_ns),
            cpu_here_ns_per_operation: of(&|it| it.cpu_here_ns_per_operation),
            cpu_peer_ns_per_operation: of(&|it| it.cpu_peer_ns_per_operation),
        })
    }
}

impl Spread {
    /// Returns the spread, or `None` without a repetition.
    pub(crate) fn of(all: &[Repetition]) -> Option<Self> {
        let min = Figures::each(all, |sorted| sorted[0])?;
        let max = Figures::each(all, |sorted| sorted[sorted.len() - 1])?;
        Some(Self { min, max })
    }
}

/// Which figure is held against a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    OperationsPerSecond,
    BitsPerSecond,
    LatencyP50Ns,
    LatencyP99Ns,
    LatencyMaxNs,
}

impl Measure {
    pub(super) fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::OperationsPerSecond => Some(figures.operations_per_second),
            Self::BitsPerSecond => Some(figures.bits_per_second),
            Self::LatencyP50Ns => figures.latency_p50_ns.map(|ns| ns as f64),
            Self::LatencyP99Ns => figures.latency_p99_ns.map(|ns| ns as f64),
            Self::LatencyMaxNs => figures.latency_max_ns.map(|ns| ns as f64),
        }
    }

    pub(super) fn is_rate(self) -> bool {
        matches!(self, Self::OperationsPerSecond | Self::BitsPerSecond)
    }

    pub(super) fn is_held(self, measured: f64, bound: f64) -> bool {
        if self.is_rate() { measured >= bound } else { measured <= bound }
    }

    /// Formats a value with its unit.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Self::OperationsPerSecond => units::operation_rate(value),
            Self::BitsPerSecond => units::bit_rate(value),
            Self::LatencyP50Ns => format!("p50 {}", units::duration(value)),
            Self::LatencyP99Ns => format!("p99 {}", units::duration(value)),
            Self::LatencyMaxNs => format!("max {}", units::duration(value)),
        }
    }
}

/// Returns the largest deviation of a repetition from the median, relative to the median.
pub(crate) fn deviation(min: f64, median: f64, max: f64) -> f64 {
    if median > 0.0 { (max - median).max(median - min) / median } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(operations: u64, latencies: Option<&Histogram<u64>>) -> Option<Repetition> {
        Repetition::new(Measured {
            operations,
            size_bytes: 1000,
            elapsed: Duration::from_secs(2),
            latencies,
            cpu_here: Some(Duration::from_micros(500)),
            cpu_peer: None,
        })
    }

    #[test]
    fn rates_follow_from_what_was_counted() {
        let mut latencies = Histogram::new(3).unwrap();
        (1..=100).for_each(|ns| latencies.record(ns).unwrap());
        let repetition = measured(500, Some(&latencies)).unwrap();
        let figures = repetition.figures;
        assert_eq!((repetition.operations, repetition.elapsed_ns), (500, 2_000_000_000));
        assert_eq!((figures.operations_per_second, figures.bits_per_second), (250.0, 2e6));
        assert_eq!((figures.latency_p50_ns, figures.latency_max_ns), (Some(50), Some(100)));
        assert_eq!(figures.cpu_here_ns_per_operation, Some(1000.0));
        assert_eq!(figures.cpu_peer_ns_per_operation, None);
    }

    #[test]
    fn what_did_nothing_has_no_figures() {
        assert_eq!(measured(0, None), None);
        let empty = Histogram::new(3).unwrap();
        assert_eq!(measured(1, Some(&empty)).unwrap().figures.latency_p50_ns, None);
        assert_eq!((Figures::median(&[]), Spread::of(&[])), (None, None));
    }

    #[test]
    fn the_middle_one_counts_and_the_ends_are_told() {
        let all = [300, 100, 200].map(|operations| measured(operations, None).unwrap());
        let rate = |figures: Option<Figures>| figures.unwrap().operations_per_second;
        assert_eq!(rate(Figures::median(&all)), 100.0);
        assert_eq!(rate(Figures::median(&all[..2])), 100.0);
        let Spread { min, max } = Spread::of(&all).unwrap();
        assert_eq!((min.operations_per_second, max.operations_per_second), (50.0, 150.0));
        assert_eq!(deviation(50.0, 100.0, 120.0), 0.5);
        assert_eq!(deviation(0.0, 0.0, 0.0), 0.0);
    }
}

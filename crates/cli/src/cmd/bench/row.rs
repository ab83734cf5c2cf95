//! One row of a report: what was measured, and its figures.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::figures::{Figures, Repetition, Spread};
use crate::report::LatencyOf;
use crate::units;

/// What makes two rows the same measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Key {
    /// `write`, `read`, `send`
    #[serde(deserialize_with = "farreach_text::line")]
    pub(crate) operation: String,
    pub(crate) size_bytes: u64,
    /// Operations in flight at once.
    pub(crate) depth: u32,
    /// Queue pairs or endpoints, on each rail.
    pub(crate) queues: u32,
    #[serde(deserialize_with = "farreach_text::lines")]
    pub(crate) rails: Vec<String>,
}

/// One measurement, with all its repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) latency_of: LatencyOf,
    /// Each figure's, over the repetitions.
    pub(crate) median: Figures,
    pub(crate) spread: Spread,
    pub(crate) repetitions: Vec<Repetition>,
}

impl Row {
    /// Creates a row; returns `None` without a repetition.
    pub(crate) fn new(key: Key, latency_of: LatencyOf, repetitions: Vec<Repetition>) -> Option<Self> {
        let median = Figures::median(&repetitions)?;
        let spread = Spread::of(&repetitions)?;
        Some(Self { key, latency_of, median, spread, repetitions })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, size_bytes, depth, queues, rails } = self;
        write!(f, "{operation} {}, depth {depth}", units::size(*size_bytes))?;
        if *queues != 1 {
            write!(f, ", {queues} queues")?;
        }
        write!(f, ", {}", rails.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;

    #[test]
    fn a_row_is_named_by_what_sets_it_apart() {
        let mut key = sample::key("write", 65536, 16);
        assert_eq!(key.to_string(), "write 64 KiB, depth 16, mlx5_0");
        key.queues = 4;
        key.rails.push("mlx5_1".into());
        assert_eq!(key.to_string(), "write 64 KiB, depth 16, 4 queues, mlx5_0+mlx5_1");
    }
}

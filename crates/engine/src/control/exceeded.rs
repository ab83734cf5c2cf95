//! Budgets of accepted connections that a newcomer exceeds.

use std::time::{Duration, Instant};

/// The interval of reports about one budget. Strangers can exceed it thousands of times a second.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The fix when descriptors have run out.
pub(super) const MORE_FILES: &str =
    "raise the limit of open files (`ulimit -n`): each peer needs at least one";

/// A budget that a newcomer exceeds, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exceeded {
    #[error("{0} peers are connected, as many as `Budgets::peers` allows")]
    Peers(u32),
    #[error("{0} peers with this address are connected, as many as `Budgets::peers_per_address` allows")]
    PeersPerAddress(u32),
    #[error("its handshake was the oldest of more than {0}, as many as `Budgets::handshakes` allows")]
    Handshakes(u32),
    #[error(
        "its handshake was the oldest of more than {0} with its address, as many as \
         `Budgets::handshakes_per_address` allows"
    )]
    HandshakesPerAddress(u32),
    #[error("no descriptor is left for it: too many open files")]
    Descriptors,
}

impl Exceeded {
    /// Returns the fix on the side whose budget it is.
    pub(super) fn fix(self) -> &'static str {
        match self {
            Self::Peers(_) => "close peers that are no longer needed, or raise `Budgets::peers`",
            Self::PeersPerAddress(_) => {
                "check what runs on that host; raise `Budgets::peers_per_address` if it is trusted and needs more"
            }
            Self::Handshakes(_) => {
                "check which programs connect and do not introduce themselves; raise `Budgets::handshakes` if they \
                 are engines"
            }
            Self::HandshakesPerAddress(_) => {
                "check which program of that host connects and does not introduce itself; raise \
                 `Budgets::handshakes_per_address` if it is an engine"
            }
            Self::Descriptors => MORE_FILES,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Peers(_) => 0,
            Self::PeersPerAddress(_) => 1,
            Self::Handshakes(_) => 2,
            Self::HandshakesPerAddress(_) => 3,
            Self::Descriptors => 4,
        }
    }
}

/// Selects which refusals are reported: for each budget, one in [`REPORT_INTERVAL`].
#[derive(Debug, Default)]
pub(super) struct Reports {
    reported_at: [Option<Instant>; 5],
}

impl Reports {
    /// Returns whether to report that this budget was exceeded.
    pub(super) fn is_due(&mut self, exceeded: Exceeded, now: Instant) -> bool {
        let last = &mut self.reported_at[exceeded.index()];
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= REPORT_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_budget_is_reported_once_in_a_while() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let all = [
            Exceeded::Peers(1),
            Exceeded::PeersPerAddress(2),
            Exceeded::Handshakes(3),
            Exceeded::HandshakesPerAddress(4),
            Exceeded::Descriptors,
        ];
        for exceeded in all {
            assert!(reports.is_due(exceeded, now));
            assert!(!reports.is_due(exceeded, now + REPORT_INTERVAL - Duration::from_nanos(1)));
            assert!(reports.is_due(exceeded, now + REPORT_INTERVAL));
            assert!(!reports.is_due(exceeded, now + REPORT_INTERVAL));
        }
    }

    #[test]
    fn each_names_its_setting_in_the_cause_and_in_the_fix() {
        let named = [
            (Exceeded::Peers(1), "`Budgets::peers`"),
            (Exceeded::PeersPerAddress(1), "`Budgets::peers_per_address`"),
            (Exceeded::Handshakes(1), "`Budgets::handshakes`"),
            (Exceeded::HandshakesPerAddress(1), "`Budgets::handshakes_per_address`"),
        ];
        for (exceeded, name) in named {
            assert!(exceeded.to_string().contains(name) && exceeded.fix().contains(name), "{exceeded}");
        }
    }
}

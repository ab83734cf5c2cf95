//! Budgets: how much a peer may cause this side to hold and to do.

use crate::lost::LostReason;

/// How much one peer may ask for. A peer that exceeds a budget is lost; nothing else is affected.
///
/// An engine announces the budgets that an honest peer has to keep in its hello, so that the peer
/// reports an error to its own user instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Rails that a peer may announce.
    pub rails: u32,
    /// Grants that a peer may have given at a time.
    pub grants: u32,
    /// Counters that a peer may have open at a time.
    pub counters: u32,
    /// Resets of rails that a peer may cause within a minute. Only rails whose links do not end
    /// alone are reset.
    pub resets: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { rails: 64, grants: 16_384, counters: 16_384, resets: 8 }
    }
}

/// The interval of the budget of resets, in nanoseconds.
pub(super) const RESETS_WITHIN: u64 = 60_000_000_000;

/// The maximum length of names, and of kinds of rails, in bytes.
pub const NAME_MAX: usize = 255;

impl Budgets {
    pub(super) fn exceeded_rails(&self) -> LostReason {
        LostReason::OverBudget { what: "rails", max: self.rails, setting: "rails" }
    }

    pub(super) fn exceeded_grants(&self) -> LostReason {
        LostReason::OverBudget { what: "grants", max: self.grants, setting: "grants" }
    }

    pub(super) fn exceeded_counters(&self) -> LostReason {
        LostReason::OverBudget { what: "counters", max: self.counters, setting: "counters" }
    }

    pub(super) fn exceeded_resets(&self) -> LostReason {
        LostReason::OverBudget { what: "rail resets a minute", max: self.resets, setting: "resets" }
    }
}

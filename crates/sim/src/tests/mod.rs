//! Two machines over simulated cards, and what the histories have found to be wrong: each by itself.

mod closing;
mod pair;
mod unstopped;

use pair::Pair;

const MS: u64 = 1_000_000;

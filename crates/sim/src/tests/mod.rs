//! Two machines over simulated cards: a test for each defect that the histories have found.

mod closing;
mod keys;
mod pair;
mod unstopped;

use pair::Pair;

const MS: u64 = 1_000_000;

//! Two machines over simulated cards, and what the histories of the simulation have found to be wrong: each by itself.

mod pair;
mod strays;

use pair::Pair;

//! The cost of a page: allocations and instructions. This is a separate program because it replaces
//! the allocator.

#[path = "../fabric/pair.rs"]
#[allow(dead_code, reason = "the suite of the provider uses the rest")]
mod pair;

mod allocations;
mod instructions;

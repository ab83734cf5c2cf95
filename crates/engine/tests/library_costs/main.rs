//! What a page costs: allocations and instructions. It is a program of its own because it replaces the allocator.

#[path = "../fabric/pair.rs"]
#[allow(dead_code, reason = "the suite of the provider uses the rest")]
mod pair;

mod allocations;
mod instructions;

//! What an operation costs: allocations and instructions. It is a program of its own because it replaces the allocator.

#[path = "../suite/pair.rs"]
#[allow(dead_code, reason = "the suite uses the rest")]
mod pair;

mod allocations;
mod instructions;

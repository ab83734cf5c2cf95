//! The cost of an operation: allocations and instructions. It is a separate program because it
//! replaces the allocator.

#[path = "../suite/pair.rs"]
#[allow(dead_code, reason = "the suite uses the rest")]
mod pair;

mod allocations;
mod instructions;

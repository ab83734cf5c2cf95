//! The cost of a page: allocations and instructions. This is a separate program because it replaces
//! the allocator.

#[path = "../../../rail/tests/contract/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "the suites use the rest")]
mod contract;
#[path = "../fabric/pair.rs"]
#[allow(dead_code, unused_imports, reason = "the suites use the rest")]
mod pair;

mod allocations;
mod growth;
mod instructions;
mod lists;
mod within_host;

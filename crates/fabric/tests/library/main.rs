//! The safe API over the providers that need no card, with whichever generation of libfabric the
//! dynamic linker finds.

// Parts of the program `write_pages`, which refer to each other from the root.
#[path = "../../examples/write_pages/arrivals.rs"]
mod arrivals;
#[path = "../../examples/write_pages/message.rs"]
#[allow(dead_code, reason = "the program uses all of it")]
mod message;
#[path = "../../examples/write_pages/plan.rs"]
mod plan;
#[path = "../suite/mod.rs"]
mod suite;
#[path = "../write_pages/mod.rs"]
mod write_pages;

mod attacks;
mod order;
mod over_providers;
mod programs;
mod query;

//! The simulated network itself: it does what real cards do, and nothing that they do not.

#[path = "../../../rail/tests/contract/mod.rs"]
mod contract;

mod dying;
mod faults;
mod keys;
mod pair;
mod requests;
mod violations;

//! Rails over verbs on a real device: two of them in one process, each driven by hand.
//!
//! Nothing of the engine is between a test and its rails: what the contract promises is looked at as the engine would see it.

mod closing;
mod costs;
mod faults;
mod links;
mod messages;
mod naming;
mod pair;
mod requests;
mod sleeping;
mod two_devices;

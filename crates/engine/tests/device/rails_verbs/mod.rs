//! Rails over verbs on a real device: two of them in one process, each polled by the test.
//!
//! No part of the engine is between a test and its rails: the contract of `Rail` is checked as the
//! engine would see it.

mod bound_keys;
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

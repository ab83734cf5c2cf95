//! The bindings on a real device: what is posted through them moves bytes, and what they read is what the kernel says.
//!
//! Every test is of this process with itself: two queue pairs of one device, joined over one of its addresses.

mod classic;
mod connection;
mod extended;
mod persistent;
mod queries;
mod rig;
mod shared;

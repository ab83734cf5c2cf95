//! Tests of the bindings on a device: posted work requests move bytes, and queries agree with the
//! kernel.
//!
//! Every test connects two queue pairs of one device in this process, over one of its addresses.

mod classic;
mod connection;
mod extended;
mod persistent;
mod queries;
mod rig;
mod shared;

//! The rails that an engine can have: RDMA cards by verbs, libfabric's providers, and simulated cards.
//!
//! Nothing else of the engine knows a transport.

pub mod fabric;
pub(crate) mod open;
pub mod sim;
pub mod verbs;

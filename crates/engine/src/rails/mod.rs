//! The rails that an engine can have: RDMA cards through verbs, providers of libfabric, and memory
//! that two processes of a host map.
//!
//! No other module of the engine knows a transport.

pub mod fabric;
pub(crate) mod open;
pub mod shm;
pub mod verbs;

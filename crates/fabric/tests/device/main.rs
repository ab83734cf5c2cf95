//! The safe API over libfabric's verbs provider on a real RDMA device, in the guest.

#[path = "../suite/mod.rs"]
mod suite;
#[path = "../write_pages/mod.rs"]
mod write_pages;

mod cache;
mod over_soft_roce;
mod programs;

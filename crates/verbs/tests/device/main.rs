//! Tests of the safe API on an RDMA device, in the guest.

mod alloc;
mod cm;
mod cost;
mod datagram;
mod examples;
mod faults;
mod objects;
mod post;
mod scale;
mod wire;

//! `farreach doctor PEER`: tries each rail of this host with each one of the peer's. What the tries mean is `farreach-doctor`'s to say.
//!
//! Each is tried on a connection with an agent of its own: a library that hangs costs one of the tries. Two RDMA cards are tried by verbs itself, one step
//! after the other, so that the step that fails tells what is wrong: datagrams (each way apart), a reliable queue pair, one small packet, full packets,
//! smaller ones.

mod agent;
mod cards;
mod client;
mod engine;
mod probe;
mod trouble;
mod words;

pub(crate) use agent::answer;
pub(super) use client::look;
pub(crate) use engine::serve;
pub(crate) use words::Task;

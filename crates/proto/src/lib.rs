//! The protocol of Farreach's engine, without I/O: planning, decisions and accounting.
//!
//! The caller passes in the [`time`], and everything else that could differ between two
//! runs. Memory is represented by numbers, too: the driver of a [`machine`] owns it. A simulation
//! can therefore run this crate through a hundred thousand histories, and replay one that failed.
//!
//! Invariant: nothing in this crate or below it has a thread, a lock, a waker, a socket, a clock,
//! memory of its own mapping, or unsafe code.
//!
//! | module | responsibility |
//! |---|---|
//! | [`machine`] | the state of an engine: its peers, links, transfers, grants and messages |
//! | [`plan`] | splits pages into operations |
//! | [`route`] | chooses the link of the next operation |
//! | [`inflight`] | holds operations in flight, and finds the one of a completion |
//! | [`credit`] | limits what is in flight, and shares bandwidth among peers |
//! | [`counter`] | counts pages that have arrived, and ends waits for them |
//! | [`outbox`] | the sender's queue, including recovery after a lost link |
//! | [`rail`] | work requests for a rail, and its errors |
//! | [`lost`], [`error`] | reasons for failures |
//! | [`priority`] | which transfer is posted first, and how much of it is in flight |
//! | [`stats`] | statistics of a finished transfer |
//! | [`rights`], [`access`] | rights to granted memory, and who may open published memory |
//! | [`sequence`] | numbers things that end roughly in the order of their start |
//! | [`ids`] | names of grants, publications and shared counters |
//! | [`time`] | points in time |
//! | [`wire`] | frames of the control connection |
#![forbid(unsafe_code)]

pub mod access;
pub mod ascending;
pub mod counter;
pub mod credit;
pub mod error;
pub mod ids;
pub mod indices;
pub mod inflight;
pub mod lost;
pub mod machine;
pub mod outbox;
pub mod plan;
mod plan_error;
pub mod priority;
pub mod rail;
pub mod rights;
pub mod route;
pub mod segments;
pub mod sequence;
pub mod stats;
pub mod time;
pub mod wire;

pub use farreach_text::Untrusted;

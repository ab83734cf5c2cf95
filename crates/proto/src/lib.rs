//! The protocol of Farreach's engine without I/O: what is planned, decided and kept account of, before any card or socket hears of it.
//!
//! Time is a number that the caller passes in, and so is everything else that could differ from run to run. Memory is a number, too: whoever
//! drives the [`machine`] has it. That is why a simulation can drive this crate through a hundred thousand histories, and replay the one that went wrong.
//!
//! Invariant: nothing here or below has a thread, a lock, a waker, a socket, a clock, memory of its own mapping, or unsafe code.
//!
//! | module | question |
//! |---|---|
//! | [`machine`] | what does an engine do next, with its peers, links, transfers, grants and messages? |
//! | [`plan`] | which operations move these pages? |
//! | [`route`] | which link takes the next one? |
//! | [`inflight`] | what is in flight, and whose is this completion? |
//! | [`credit`] | may there be one more, and whose turn is it? |
//! | [`counter`] | how many pages have arrived, and when does a wait end? |
//! | [`outbox`] | what does a sender do next, and what after a link was lost? |
//! | [`rail`] | what is asked of a rail, and what does it answer? |
//! | [`lost`], [`error`] | why was something not done? |
//! | [`explain`] | how did a transfer go? |
//! | [`rights`] | what may a peer do with granted memory? |
//! | [`sequence`] | which thing has this number? |
//! | [`wire`] | what do two engines tell each other beside the data? |
#![forbid(unsafe_code)]

pub mod counter;
pub mod credit;
pub mod error;
pub mod explain;
pub mod inflight;
pub mod lost;
pub mod machine;
pub mod outbox;
pub mod plan;
pub mod rail;
pub mod rights;
pub mod route;
pub mod sequence;
pub mod wire;

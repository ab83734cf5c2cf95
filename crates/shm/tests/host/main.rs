//! Tests of links: within one process, between processes that end and stop, and against peers that
//! do not keep to the protocol.

mod attacks;
mod directory;
mod filter;
mod meeting;
mod namespaces;
mod operations;
mod pair;
mod processes;
mod survey;

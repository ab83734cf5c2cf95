//! Allocates memory, grants and counters of an engine, with a timeout that suits the registration
//! of memory.

use std::time::Duration;

use farreach::{Counter, Engine, Error, Grant, Peer, Rights, Slice};

/// Longer than any registration takes.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn allocate(engine: &Engine, len: usize) -> Result<Slice, Error> {
    engine.allocate(len).wait(PATIENCE)
}

pub(crate) fn grant(peer: &Peer, memory: Slice, rights: Rights) -> Result<Grant, Error> {
    peer.grant(memory, rights).wait(PATIENCE).map_err(|refused| refused.error)
}

pub(crate) fn open_counter(peer: &Peer) -> Result<Counter, Error> {
    peer.open_counter().wait(PATIENCE)
}

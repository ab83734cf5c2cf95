//! Planning, counting and the wire format through the public API.

mod counter;
mod outbox;
mod plan;
mod wire;

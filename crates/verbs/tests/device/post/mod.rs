//! The safe API on a real device: every operation by its effect on memory, and every refusal with its request handed back.

mod combinations;
mod failures;
mod list;
mod on_demand;
mod pair;
mod recv;
mod send;
mod wait;
mod window;

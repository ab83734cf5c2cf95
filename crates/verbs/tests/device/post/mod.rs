//! Tests of the safe API on a device: every operation by its effect on memory, and every refusal
//! with its work request returned.

mod combinations;
mod failures;
mod list;
mod on_demand;
mod pair;
mod recv;
mod send;
mod wait;
mod window;

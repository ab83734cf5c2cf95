//! Tests of objects on a device: created, used by the raw API, and dropped in every order.
//!
//! Every test connects queue pairs of one device in this process, over one of its addresses.

mod channel;
mod creation;
mod events;
mod gids;
mod order;
mod rig;
mod states;
mod windows;

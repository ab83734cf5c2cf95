//! The objects on a real device: made, used by the raw API, and dropped in every order.
//!
//! Every test is of this process with itself: queue pairs of one device, joined over one of its addresses.

mod channel;
mod creation;
mod events;
mod gids;
mod order;
mod rig;
mod states;
mod windows;

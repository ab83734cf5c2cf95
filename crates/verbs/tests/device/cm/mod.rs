//! The connection manager on a real device.
//!
//! Every test is of this process with itself, over an address of its own device: requests, answers and rejections travel as packets
//! through the device. Whatever hangs ends the program, by a watchdog in each test.

mod agents;
mod datagram;
mod drops;
mod first_contact;
mod handshake;
mod message;
mod names;
mod refusal;
mod removal;
mod rig;
mod waiting;

//! Tests of the connection manager on a device.
//!
//! Every test connects this process with itself, over an address of its own device: requests,
//! responses and rejections travel as packets through the device. A watchdog in each test ends the
//! program if it hangs.

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

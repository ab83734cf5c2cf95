//! Text that comes from elsewhere, and commands for people to copy.
//!
//! A peer, a file, the kernel or a library may send any text, and a terminal obeys escape
//! sequences. This crate is the only place that makes such text fit to be read:
//!
//! - [`Untrusted`] holds a text of a peer. It has no `Display`, so it cannot be printed by mistake.
//! - [`one_line`] and [`printable`] escape what a terminal would obey, or not show.
//! - [`CommandLine`] is a command whose arguments are quoted for a shell.
//!
//! It is a crate of its own because the protocol, the doctor and the command need the same
//! function, and depend on nothing else in common.
//!
//! ```
//! use farreach_text::{CommandLine, Untrusted};
//!
//! let told = Untrusted::new("busy\x1b[2J\nfix: run this");
//! assert_eq!(told.shown(), r"busy\u001b[2J\nfix: run this");
//!
//! let command = CommandLine::new("ip link set").name("eth0; reboot").shell("up");
//! assert_eq!(command.to_string(), "ip link set 'eth0; reboot' up");
//! ```
#![forbid(unsafe_code)]

mod command;
mod escape;
mod untrusted;

pub use command::{CommandLine, shell_word};
pub use escape::{one_line, printable};
pub use untrusted::{Untrusted, line, lines};

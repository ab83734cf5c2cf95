//! The subcommands. Each test has both of its sides in its folder: the client's, and the agent's that serves it.

pub(crate) mod bench;
pub(crate) mod blast;
pub(crate) mod chip;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod fill;
pub(crate) mod man;
pub(crate) mod ping;
pub(crate) mod serve;

/// This program, also when its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

//! The subcommands. The folder of each test has both sides: the client, and the agent that serves
//! it.

pub(crate) mod bench;
pub(crate) mod blast;
pub(crate) mod chip;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod fill;
pub(crate) mod man;
pub(crate) mod ping;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod tls;

/// The path of this program, valid even if its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";

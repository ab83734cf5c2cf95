//! One module for each subcommand.

#[cfg_attr(not(test), expect(dead_code, reason = "what a run shows; the run itself follows"))]
pub(crate) mod bench;
pub(crate) mod devices;

//! One module for each subcommand.

pub(crate) mod devices;

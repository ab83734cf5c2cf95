//! The command `farreach`.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod exit;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let outcome = match args::Args::parse().command {
        args::Command::Devices(args) => cmd::devices::run(&args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => exit::from_error(&error).into(),
    }
}

//! The command `farreach`.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod exit;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that measure"))]
mod report;
#[cfg(test)]
mod schema;
#[expect(dead_code, reason = "for the commands that measure")]
mod show;
mod terminal;
#[cfg_attr(not(test), expect(dead_code, reason = "for the commands that measure"))]
mod units;

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

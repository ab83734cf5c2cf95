//! The command `farreach`.
#![forbid(unsafe_code)]

mod agent;
mod args;
mod bounds;
mod cmd;
mod command;
mod cpu;
mod exit;
#[cfg(fuzzing)]
pub mod fuzz;
mod handover;
mod interrupt;
mod measure;
mod native;
mod rails;
mod registered;
mod report;
#[cfg(test)]
mod schema;
mod session;
mod show;
mod stream;
mod terminal;
mod units;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};
use command::{Args, Command};
use exit::Exit;

fn main() -> ExitCode {
    cmd::completions::answer_shell(Args::command);
    let args = Args::parse();
    let wants_json = args.command.wants_json();
    match run(&args.command) {
        Ok(exit) => exit.into(),
        Err(error) => terminal::tell_failure(&exit::Failure::of(&error), wants_json).into(),
    }
}

fn run(command: &Command) -> Result<Exit> {
    match command {
        Command::Devices(args) => cmd::devices::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Examine(args) => cmd::doctor::examine(args),
        Command::Serve(args) => cmd::serve::run(args),
        Command::Secret(args) => cmd::secret::run(args),
        Command::Tls(args) => cmd::tls::run(args),
        Command::Ping(args) => cmd::ping::run(args),
        Command::Bench(args) => cmd::bench::run(args),
        Command::Blast(args) => cmd::blast::run(args),
        Command::Fill(args) => cmd::fill::run(args),
        Command::Completions(args) => cmd::completions::completions(args),
        Command::Man(args) => cmd::man::run(args, Args::command()),
        Command::Chip(args) => cmd::chip::run(args),
        Command::Agent(args) => agent::run(args),
        Command::Scout(args) => cmd::serve::scout(args),
    }
}

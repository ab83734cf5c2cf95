//! Attacks on engines and on `farreach serve`, each with the service that honest clients get before,
//! during and after it: `cargo xtask hostile`.
//!
//! `hostile drive` starts a victim, honest clients and, for each line of its table, an attacker:
//! processes of this same program. It measures, judges by the bars of [`judge`], and exits with 1 if
//! one was missed.
//!
//! Attackers use no engine. They speak the control protocol themselves ([`protocol`]), and post to a
//! rail what they want ([`insider`]).
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to developers")]

mod attacks;
mod drive;
mod executor;
mod honest;
mod host;
mod insider;
mod judge;
mod layout;
mod load;
mod protocol;
mod roles;
mod service;

mod victim;
mod witness;

use std::process::ExitCode;

use clap::Parser;

/// Attack an engine and `farreach serve`, and measure what honest clients notice.
#[derive(Debug, Parser)]
#[command(name = "hostile")]
enum Role {
    /// Run the lines of the table, and judge them.
    Drive(drive::DriveArgs),
    /// Judge lines that were measured before.
    Judge(judge::JudgeArgs),
    /// An engine that is attacked.
    #[command(hide = true)]
    Victim(victim::VictimArgs),
    /// A client under steady load.
    #[command(hide = true)]
    Honest(honest::HonestArgs),
    /// A client that connects once.
    #[command(hide = true)]
    Newcomer(honest::NewcomerArgs),
    /// A peer that only tells its names and keys.
    #[command(hide = true)]
    Witness(witness::WitnessArgs),
    /// An attacker.
    #[command(hide = true)]
    Attack(attacks::AttackArgs),
}

fn main() -> ExitCode {
    let result = match Role::parse() {
        Role::Drive(args) => drive::run(&args),
        Role::Judge(args) => judge::run(&args),
        Role::Victim(args) => victim::run(&args).map(|()| true),
        Role::Honest(args) => honest::run(&args).map(|()| true),
        Role::Newcomer(args) => honest::newcomer(&args).map(|()| true),
        Role::Witness(args) => witness::run(&args).map(|()| true),
        Role::Attack(args) => attacks::run(&args).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Converts an error of the engine, with its fix.
fn told(error: farreach::Error) -> anyhow::Error {
    anyhow::anyhow!("{error}\nfix: {}", error.fix())
}

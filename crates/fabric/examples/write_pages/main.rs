//! Pages of random bytes, written by a server into a client's memory, scattered, and checked by the
//! client byte by byte.
//!
//! ```console
//! $ write_pages --provider tcp --node 127.0.0.1
//! 02009c2f7f0000010000000000000000
//! $ write_pages --provider tcp --node 127.0.0.1 02009c2f7f0000010000000000000000 --page-size 65536 --pages 256
//! request 1: 256 pages of 65536 bytes in each of 2 regions, verified
//! ```
//!
//! The server stays up, for many clients at once. The client determines every parameter. Its exit
//! code is 0 if all bytes are right, 1 if the server refused, 2 for wrong arguments, 3 without a
//! provider, 4 if the server is lost, 5 if a byte is wrong.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to its user")]

mod args;
mod arrivals;
mod client;
mod data;
mod failure;
mod message;
mod node;
mod plan;
mod server;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let outcome = match &args.address {
        None => server::serve(&args),
        Some(address) => client::visit(&args, address),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.code)
        }
    }
}

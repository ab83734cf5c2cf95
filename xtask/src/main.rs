//! The repository's development tasks: `cargo xtask …`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to developers")]

mod api;
mod attempts;
mod bench;
mod binaries;
mod bindings;
mod cache;
mod cell;
mod check;
mod ci;
mod cleanroom;
mod cross;
mod debian;
mod fetch;
mod fingerprint;
mod flaky;
mod generated;
mod headers;
mod held;
mod host_tests;
mod in_guest;
mod layout;
mod licences;
mod memcheck;
mod model;
mod mutants;
mod paths;
mod pictures;
mod platform;
mod process;
mod quick;
mod side_by_side;
mod sim;
mod soundness;
mod start;
mod stolen;
mod tidy;
mod vm;

use std::process::ExitCode;

use clap::Parser;

/// The repository's development tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// What to run before each commit: format, lints, house rules, and the tests that a change can break, in minutes.
    Quick(quick::QuickArgs),
    /// Everything that has to pass before a change lands.
    Ci(ci::CiArgs),
    /// Format, lints, documentation, house rules, licences: about a minute.
    Check(check::CheckArgs),
    /// Write the lists of public items of the published libraries, or compare them with the code.
    Api(api::ApiArgs),
    /// List every text that users may read, in one file.
    Strings,
    /// cargo-deny: licences, sources and banned crates.
    Deny,
    /// Fetch what other tasks need from Debian's archive: roots with the libraries, headers, kernels.
    Fetch,
    /// Run tests again and again beside a load, and name those that fail now and then.
    Flaky(flaky::FlakyArgs),
    /// Tests that need no RDMA kernel, with both generations of libfabric and rdma-core.
    Test(host_tests::TestArgs),
    /// What threads share without a lock, run in every order of the threads.
    Model(model::ModelArgs),
    /// Takes each guard of soundness out by itself: the test that watches it must fail.
    Mutants(mutants::MutantsArgs),
    /// The engine beside bare libfabric, in the same run.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// What attacks the first promise and needs no guest: programs that once broke it, and Miri.
    Soundness(soundness::SoundnessArgs),
    /// Whole engines over simulated cards, in virtual time: random histories with faults, each by its seed.
    Sim(sim::SimArgs),
    /// Tests of what calls libfabric, under valgrind's memcheck.
    Memcheck(memcheck::MemcheckArgs),
    /// A guest with a real RDMA kernel.
    #[command(subcommand)]
    Vm(vm::VmCommand),
    /// Runs test programs in a guest, and counts.
    #[command(hide = true)]
    Attempt(in_guest::AttemptArgs),
    /// The rules of the house: who may know what, sizes, leftovers, dead files.
    Tidy(tidy::TidyArgs),
    /// Every size, offset and constant that we bind, compared with C.
    Layout(layout::LayoutArgs),
    /// Build for aarch64, compare its layouts and start the command, under emulation.
    Cross,
    /// Make the checked-in bindings anew.
    Bindings(bindings::BindingsArgs),
    /// Build where there is nothing but rustc and a linker, and run the result there and with the libraries.
    Cleanroom,
    /// Make the pictures of the command's screens anew, each from a real run.
    Pictures(pictures::PicturesArgs),
    /// Follow README word for word on clean machines: each command must end well, and print what README shows.
    Start,
}

fn main() -> ExitCode {
    let result = match Task::parse() {
        Task::Quick(args) => quick::execute(&args).map(|()| 0),
        Task::Ci(args) => ci::execute(&args).map(|()| 0),
        Task::Check(args) => check::execute(&args).map(|()| 0),
        Task::Strings => tidy::strings::execute().map(|()| 0),
        Task::Api(args) => api::execute(&args).map(|()| 0),
        Task::Deny => licences::deny().map(|()| 0),
        Task::Fetch => fetch::execute().map(|()| 0),
        Task::Flaky(args) => flaky::execute(&args).map(|()| 0),
        Task::Test(args) => host_tests::execute(&args).map(|()| 0),
        Task::Model(args) => model::execute(&args).map(|()| 0),
        Task::Mutants(args) => mutants::execute(&args).map(|()| 0),
        Task::Bench(command) => bench::execute(&command).map(|()| 0),
        Task::Soundness(args) => soundness::execute(&args).map(|()| 0),
        Task::Sim(args) => sim::execute(&args).map(|()| 0),
        Task::Memcheck(args) => memcheck::execute(&args).map(|()| 0),
        Task::Vm(command) => vm::execute(command),
        Task::Attempt(args) => in_guest::execute(&args).map(|()| 0),
        Task::Tidy(args) => tidy::execute(&args).map(|()| 0),
        Task::Layout(args) => layout::execute(&args).map(|()| 0),
        Task::Bindings(args) => bindings::execute(&args).map(|()| 0),
        Task::Cross => cross::execute().map(|()| 0),
        Task::Cleanroom => cleanroom::execute().map(|()| 0),
        Task::Pictures(args) => pictures::execute(&args).map(|()| 0),
        Task::Start => start::execute().map(|()| 0),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

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
mod fuzz;
mod generated;
mod headers;
mod held;
mod host_tests;
mod hostile;
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
mod python;
mod quick;
mod side_by_side;
mod sim;
mod soak;
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
    /// Run the checks for each commit: format, lints, house rules, and the tests that the change
    /// can break.
    Quick(quick::QuickArgs),
    /// Run everything that has to pass before a change lands.
    Ci(ci::CiArgs),
    /// Check format, lints, documentation, house rules and licences: about a minute.
    Check(check::CheckArgs),
    /// Write the lists of public items of the published libraries, or compare them with the code.
    Api(api::ApiArgs),
    /// List every text that users may read, in one file.
    Strings,
    /// Run cargo-deny: licences, sources and banned crates.
    Deny,
    /// Fetch the files that other tasks need from Debian's archive: roots with the libraries,
    /// headers, kernels.
    Fetch,
    /// Run tests repeatedly beside a load, and name those that sometimes fail.
    Flaky(flaky::FlakyArgs),
    /// Run fuzz targets: replay their corpora, or search for new inputs.
    Fuzz(fuzz::FuzzArgs),
    /// Run the tests that need no RDMA kernel, with both generations of libfabric and rdma-core.
    Test(host_tests::TestArgs),
    /// Run the loom models of lock-free code in every thread interleaving.
    Model(model::ModelArgs),
    /// Remove each soundness guard in turn; its test must fail.
    Mutants(mutants::MutantsArgs),
    /// Compare the engine with bare libfabric, or with other libraries, in the same run.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Run the soundness tests that need no guest: safe programs that once broke the first promise
    /// of docs/UNSAFE.md, and Miri.
    Soundness(soundness::SoundnessArgs),
    /// Run whole engines over simulated cards in virtual time: random histories with faults, one
    /// for each seed.
    Sim(sim::SimArgs),
    /// Attack an engine and `farreach serve`, and measure what honest clients notice.
    Hostile(hostile::HostileArgs),
    /// Kill and stop processes at random instants, next to an engine that serves steady peers.
    Soak(soak::SoakArgs),
    /// Run the tests that call libfabric under valgrind's memcheck.
    Memcheck(memcheck::MemcheckArgs),
    /// Run commands and tests in a guest with a real RDMA kernel.
    #[command(subcommand)]
    Vm(vm::VmCommand),
    /// Run test programs in a guest, and count the results.
    #[command(hide = true)]
    Attempt(in_guest::AttemptArgs),
    /// Check the house rules: dependencies between crates, cycles, leftover markers, dead files.
    Tidy(tidy::TidyArgs),
    /// Compare every bound size, offset and constant with the C headers.
    Layout(layout::LayoutArgs),
    /// Build for aarch64, compare its layouts and start the command, under emulation.
    Cross,
    /// Regenerate the checked-in bindings.
    Bindings(bindings::BindingsArgs),
    /// Build with only rustc and a linker, and run the result there and with the libraries.
    Cleanroom,
    /// Regenerate the images of the command's screens, each from a real run.
    Pictures(pictures::PicturesArgs),
    /// Run the commands of README on clean machines; each must succeed and print what README shows.
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
        Task::Fuzz(args) => fuzz::execute(&args).map(|()| 0),
        Task::Test(args) => host_tests::execute(&args).map(|()| 0),
        Task::Model(args) => model::execute(&args).map(|()| 0),
        Task::Mutants(args) => mutants::execute(&args).map(|()| 0),
        Task::Bench(command) => bench::execute(&command).map(|()| 0),
        Task::Soundness(args) => soundness::execute(&args).map(|()| 0),
        Task::Sim(args) => sim::execute(&args).map(|()| 0),
        Task::Hostile(args) => hostile::execute(&args).map(|()| 0),
        Task::Soak(args) => soak::execute(&args).map(|()| 0),
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

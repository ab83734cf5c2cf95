//! `cargo xtask attempt`: runs the tests that a guest is told to run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::attempts::{ALLOW_UNSTABLE, Program, REPORT_TIME, Tally, exactly};
use crate::flaky;
use crate::process::{command, last_lines, output};

/// `cargo xtask attempt`: what a guest is told to run.
#[derive(Debug, clap::Args)]
pub(crate) struct AttemptArgs {
    /// Print how long the slowest take.
    #[arg(long)]
    times: bool,

    /// Run them so many times, without second attempts, and name those that failed once.
    #[arg(long)]
    runs: Option<u32>,

    /// A file with the programs and their tests, written by `attempts::write_list`.
    list: PathBuf,
}

/// Runs these tests, which wait for a device, and counts. One that should have run and has not is a failure, never a pass.
pub(crate) fn execute(args: &AttemptArgs) -> Result<()> {
    let list =
        fs::read_to_string(&args.list).with_context(|| format!("cannot read {}", args.list.display()))?;
    let programs: Vec<Program> = serde_json::from_str(&list)?;
    if let Some(runs) = args.runs {
        return flaky::repeat(&programs, runs, 1, |program, _| args.start(program, &exactly(&program.tests)));
    }
    let mut tally = Tally::default();
    for program in &programs {
        tally.run(&program.binary.name(), &program.tests, |chosen| args.start(program, chosen))?;
    }
    tally.close("device", programs.iter().map(|program| program.tests.len()).sum()).inspect_err(|_| {
        // Without it, what failed is told all the same.
        let log = output(&mut Command::new("dmesg")).unwrap_or_else(|error| error.to_string());
        println!("kernel log:\n{}", last_lines(&log, 30));
    })
}

impl AttemptArgs {
    fn start(&self, program: &Program, chosen: &[&str]) -> Result<Command> {
        let binary = &program.binary;
        let mut test = command(binary.path()?, ["--ignored", "--test-threads=1"]);
        test.args(chosen).current_dir(&binary.directory);
        if self.times {
            test.args(REPORT_TIME).env(ALLOW_UNSTABLE.0, ALLOW_UNSTABLE.1);
        }
        Ok(test)
    }
}

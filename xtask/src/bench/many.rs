//! `cargo xtask bench many`: an engine with a thousand peers and more, in few and in many processes.
//!
//! Writes to all peers are compared with a program in C that sends eight bytes over as many plain TCP
//! connections to as many processes, which answer: both programs have to wake every process, and on
//! few cores this is most of the time.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::report::{Goal, Row};
use super::{CommonArgs, Programs};
use crate::binaries::build_dist_example;
use crate::paths;
use crate::process::output;

/// The numbers of idle peers, the processes in which they are, and the time in seconds: longer than
/// the interval at which peers that nothing waits for are pinged.
const IDLE: [u32; 2] = [1000, 2000];
const IDLE_PROCESSES: u32 = 4;
const IDLE_S: u32 = 30;
/// The part of a core that they may use, in percent.
const IDLE_MAX: f64 = 0.3;

/// The peers that are written to, the processes in which they are, and the rounds.
const PEERS: u32 = 1000;
const PROCESSES: [u32; 2] = [4, 400];
const ROUNDS: u32 = 20;

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct ManyArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,

    /// Measure only this.
    #[arg(long, value_name = "WHAT", value_parser = ["idle", "write"])]
    only: Option<String>,
}

/// Runs the measurements, prints them, and returns what is judged.
pub(super) fn measure(args: &ManyArgs) -> Result<Vec<Row>> {
    build_dist_example("farreach", "many")?;
    let programs = Programs::build(&args.common)?;
    let many = Many { programs, rail: &args.common.provider, rounds: args.common.rounds };
    let wants = |what: &str| args.only.as_deref().is_none_or(|only| only == what);
    let mut rows = Vec::new();
    if wants("idle") {
        for peers in IDLE {
            rows.push(many.idle(peers)?);
        }
    }
    if wants("write") {
        for processes in PROCESSES {
            many.write(processes)?;
        }
    }
    Ok(rows)
}

struct Many<'a> {
    programs: Programs,
    rail: &'a str,
    rounds: usize,
}

impl Many<'_> {
    fn idle(&self, peers: u32) -> Result<Row> {
        let words = [peers, IDLE_PROCESSES, IDLE_S].map(|number| number.to_string());
        let told = self.run(&engine(), &["idle", self.rail, &words[0], &words[1], &words[2]])?;
        let label = format!("idle, {peers} peers");
        let percent = number(&told, "percent_of_a_core")?;
        let row = Row::of_figure(label, "percent_of_a_core", percent, Goal::FigureAtMost(IDLE_MAX));
        println!("{row} % of a core");
        Ok(row)
    }

    /// Writes to all peers alternately: C, engine, engine, C.
    fn write(&self, processes: u32) -> Result<()> {
        let [peers, processes, rounds] = [PEERS, processes, ROUNDS].map(|number| number.to_string());
        let counts = ["--peers", &peers, "--processes", &processes, "--count", &rounds];
        let bare = [&["echo", "--provider", self.rail], &counts[..]].concat();
        let engine_words = ["write", self.rail, &peers, &processes, &rounds];
        // Connecting hundreds of processes takes seconds.
        for round in 1..=self.rounds.div_ceil(8) {
            let first = self.run(&self.programs.bare, &bare)?;
            let told = [self.run(&engine(), &engine_words)?, self.run(&engine(), &engine_words)?];
            let last = self.run(&self.programs.bare, &bare)?;
            let us = |told: &Value| number(told, "us_per_write");
            print!("write, {peers} peers in {processes} processes, round {round}: ");
            println!("C {:.1} and {:.1} µs an operation", us(&first)?, us(&last)?);
            for told in &told {
                println!(
                    "    engine {:.1} µs: it runs {:.1} µs with {:.2} context switches, the peers {:.1} µs with {:.2}",
                    us(told)?,
                    number(told, "own_cpu_us")?,
                    number(told, "own_switches")?,
                    number(told, "peers_cpu_us")?,
                    number(told, "peers_switches")?
                );
            }
        }
        Ok(())
    }

    fn run(&self, program: &Path, words: &[&str]) -> Result<Value> {
        let program = program.to_str().context("the path of the program is not UTF-8")?;
        let words = [&[program], words].concat();
        let told = output(&mut self.programs.cell.command(Path::new("/tmp"), &words))?;
        let line = told.lines().find(|line| line.starts_with('{'));
        let line = line.with_context(|| format!("the program printed no result: {told}"))?;
        serde_json::from_str(line).with_context(|| format!("the result is not JSON: {line}"))
    }
}

fn engine() -> PathBuf {
    paths::target().join("dist/examples/many")
}

fn number(told: &Value, field: &str) -> Result<f64> {
    told[field].as_f64().with_context(|| format!("the result has no {field}: {told}"))
}

//! `hostile drive`: runs the lines of the table and judges them.

mod engine;
mod lines;
mod process;
mod serve;
mod stage;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::host::Load;
use crate::insider::is_tcp;
use crate::judge::{Measured, conclude, head, missed, missed_for_sure, shown};

use engine::EngineStage;
use lines::{FEW_DESCRIPTORS, LINES, Line, Victim};
use serve::ServeStage;

/// Others that use more of a core than this may be the reason for a missed bar: the line is run
/// again, once.
const DISTURBANCE_MIN: f64 = 0.25;

/// `hostile drive`
#[derive(Debug, clap::Args)]
pub(crate) struct DriveArgs {
    /// The rail: tcp, or an RDMA device such as rxe0.
    #[arg(long, default_value = "tcp")]
    rail: String,

    /// Attack with small counts: in less than a minute.
    #[arg(long)]
    short: bool,

    /// Attack without a load of honest clients, on machines too slow for it: judge only what attacks
    /// reach, and what they leave.
    #[arg(long)]
    no_load: bool,

    /// The command farreach, whose server is attacked. Without it, only engines are.
    #[arg(long, value_name = "FILE")]
    farreach: Option<PathBuf>,

    /// An address of this host that is not loopback: attackers that come from elsewhere use it.
    #[arg(long, value_name = "ADDRESS")]
    outside: Option<Ipv4Addr>,

    /// Switch off the defences that settings can switch off: peers share endpoints, and budgets are
    /// as large as they get. Shows that the bars can be missed.
    #[arg(long)]
    weak: bool,

    /// Write the figures to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The number of attempts of each line that tries to reach what is another's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    attempts: Option<u64>,

    /// The seed of the attackers' random numbers.
    #[arg(long, default_value_t = 17)]
    seed: u64,

    /// List the lines, and attack nothing.
    #[arg(long)]
    list: bool,

    /// Run only the lines whose names contain one of these.
    filters: Vec<String>,
}

impl DriveArgs {
    /// Returns the time of a phase without an attacker.
    fn calm_time(&self) -> Duration {
        Duration::from_millis(if self.short { 500 } else { 2000 })
    }

    fn calibration_time(&self) -> Duration {
        Duration::from_millis(if self.short { 800 } else { 2000 })
    }

    /// Returns the lines to run, and prints why others are left out.
    fn chosen(&self) -> Vec<&'static Line> {
        // The whole name of a line, such as `keys`, does not name `grant-keys`, too.
        let is_whole = |filter: &str| LINES.iter().any(|line| line.name == filter);
        let names = |filter: &str, line: &Line| {
            if is_whole(filter) { line.name == filter } else { line.name.contains(filter) }
        };
        let is_named =
            |line: &&Line| self.filters.is_empty() || self.filters.iter().any(|filter| names(filter, line));
        let is_possible = |line: &&Line| {
            let reason = match line {
                _ if line.needs_tcp && !is_tcp(&self.rail) => "it attacks the port of libfabric's tcp",
                _ if line.victim.is_serve() && self.no_load => "it measures honest clients",
                _ if line.name == "rail-garbage" && self.no_load => "a rail without a peer has no port",
                _ if line.victim.is_serve() && self.farreach.is_none() => {
                    "the command was not given (--farreach)"
                }
                _ if line.needs_outside && self.outside.is_none() => {
                    "no address was given that is not loopback (--outside)"
                }
                _ => return true,
            };
            println!("skipped: {}, because {reason}", line.name);
            false
        };
        LINES.iter().filter(is_named).filter(is_possible).collect()
    }
}

/// Runs the lines. Returns whether every bar was met.
pub(crate) fn run(args: &DriveArgs) -> Result<bool> {
    if args.list {
        for line in LINES {
            println!("{:<16} {}", line.name, line.attack);
        }
        return Ok(true);
    }
    let chosen = args.chosen();
    ensure!(!chosen.is_empty(), "no line matches: `hostile drive --list` lists them");
    let start = Instant::now();
    let (mut stage, mut results) = (Stage::None, Vec::new());
    println!("{}", head());
    for line in chosen {
        let measured = run_line(args, &mut stage, line)?;
        println!("{}", shown(&measured));
        results.push(measured);
    }
    drop(stage);
    if let Some(file) = &args.json {
        std::fs::write(file, serde_json::to_string_pretty(&results)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!("{:.0} s", start.elapsed().as_secs_f64());
    Ok(conclude(&results))
}

/// Runs a line, and once more if it misses a bar while others use the machine.
fn run_line(args: &DriveArgs, stage: &mut Stage, line: &Line) -> Result<Measured> {
    let mut runs = 0;
    loop {
        runs += 1;
        let load = Load::now();
        let measured = stage.of(args, line).and_then(|()| stage.run(args, line));
        let mut measured = measured.unwrap_or_else(|error| Measured {
            name: line.name.to_owned(),
            attack: line.attack.to_owned(),
            failures: vec![format!("the line could not be run: {error:#}")],
            ..Measured::default()
        });
        (measured.load_of_others, measured.runs) = (load.others_since(), runs);
        if missed(&measured).is_empty() {
            return Ok(measured);
        }
        // What a failed attack has left is not the next line's fault.
        *stage = Stage::None;
        let is_disturbed = measured.load_of_others >= DISTURBANCE_MIN;
        if runs > 1 || !is_disturbed || !missed_for_sure(&measured).is_empty() {
            return Ok(measured);
        }
        println!(
            "{}: missed a bar while others used {:.0} % of a core, and is run again: {}",
            line.name,
            100.0 * measured.load_of_others,
            missed(&measured).join("; ")
        );
    }
}

/// The victim of the current line.
#[derive(Debug)]
enum Stage {
    None,
    Engine(Box<EngineStage>),
    /// With few descriptors.
    Poor(Box<EngineStage>),
    EngineOverTls(Box<EngineStage>),
    Serve(Box<ServeStage>),
    ServeOverTls(Box<ServeStage>),
}

impl Stage {
    /// Starts the victim that a line needs, unless it is there.
    fn of(&mut self, args: &DriveArgs, line: &Line) -> Result<()> {
        let is_right = matches!(
            (&*self, line.victim),
            (Self::Engine(_), Victim::Engine)
                | (Self::Poor(_), Victim::EngineWithFewDescriptors)
                | (Self::EngineOverTls(_), Victim::EngineOverTls)
                | (Self::Serve(_), Victim::Serve)
                | (Self::ServeOverTls(_), Victim::ServeOverTls)
        );
        if is_right {
            return Ok(());
        }
        // Before the next one starts, and not after.
        *self = Self::None;
        *self = match line.victim {
            Victim::Engine => Self::Engine(Box::new(EngineStage::open(args, None, false)?)),
            Victim::EngineWithFewDescriptors => {
                let limit = FEW_DESCRIPTORS[usize::from(args.short)];
                Self::Poor(Box::new(EngineStage::open(args, Some(limit), false)?))
            }
            Victim::EngineOverTls => Self::EngineOverTls(Box::new(EngineStage::open(args, None, true)?)),
            Victim::Serve => Self::Serve(Box::new(ServeStage::open(args, false)?)),
            Victim::ServeOverTls => Self::ServeOverTls(Box::new(ServeStage::open(args, true)?)),
        };
        Ok(())
    }

    fn run(&mut self, args: &DriveArgs, line: &Line) -> Result<Measured> {
        let mut size = line.size(args.short);
        if let Some(attempts) = args.attempts.filter(|_| line.counts_attempts) {
            size.count = attempts;
        }
        match self {
            Self::None => unreachable!("`of` has started a victim"),
            Self::Engine(stage) | Self::Poor(stage) | Self::EngineOverTls(stage) => {
                stage.run(line, size, args.seed)
            }
            Self::Serve(stage) | Self::ServeOverTls(stage) => stage.run(line, size, args.seed),
        }
    }
}

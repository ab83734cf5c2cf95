//! `farreach bench`: measures operations × sizes × depths × rails, and reports as table, JSON, CSV
//! and chart, against a floor or an earlier run.

pub(crate) mod against;
mod agent;
pub(crate) mod chart;
mod check;
mod client;
pub(crate) mod csv;
pub(crate) mod figures;
pub(crate) mod floor;
mod operation;
pub(crate) mod report;
pub(crate) mod row;
#[cfg(test)]
mod sample;
mod series;
mod streams;
pub(crate) mod table;
pub(crate) mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use farreach_verbs::ah::GRH_BYTES;
use serde::{Deserialize, Serialize};

use crate::args::ClientArgs;
use crate::bounds;
use crate::exit::{Exit, Failure, Told};
use crate::interrupt;
use crate::measure::Usage;
use crate::native::{NativeOperation, QueuePairArgs, StreamRules};
use crate::rails::Tuning;
use crate::report::Head;
use crate::session::{Rules, Session, Wait};
use crate::show::paint::Paint;
use crate::show::progress::BenchProgress;
use crate::terminal;
use crate::units::parse;
use crate::units::sweep::{Counts, Sizes};

use against::{Against, Comparisons};
use client::Wanted;
use floor::{Floor, Judge};
use operation::Operation;
use report::{BenchReport, INTERRUPTED, NotMeasured, Parameters};
use verdict::Verdict;

pub(crate) use agent::serve;

/// `farreach bench`
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Operations to measure; the list is below
    #[arg(
        long,
        value_name = "OPS",
        default_value = "send,write,read",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    op: Vec<Operation>,

    /// Bytes per operation: a list (8,4K,1M), a range that doubles (8..1M), or a range with a factor (8..1M*8)
    #[arg(short, long, alias = "size", value_name = "SIZES", default_value = "8..1M*8")]
    sizes: Sizes,

    /// Operations in flight on each queue: a list (1,16) or a range that doubles (1..128)
    #[arg(long, alias = "depth", value_name = "COUNTS", default_value = "1,16")]
    depths: Counts,

    /// Queues: parallel connections, each with its own queue pair on every rail
    #[arg(short, long, value_name = "COUNTS", default_value = "1")]
    queues: Counts,

    /// Number of rails to use; by default all
    #[arg(long, value_name = "COUNTS")]
    rails: Option<Counts>,

    /// Repetitions of each row; the median is reported
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,

    /// Duration of each repetition
    #[arg(short = 'D', long, value_name = "SECONDS", default_value = "0.5", value_parser = parse::seconds_of)]
    seconds: Duration,

    /// Unmeasured time before each row
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = parse::seconds_of)]
    warm_up: Duration,

    /// Print the result as CSV, one line per row; floors and comparisons go to stderr
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Also write a chart to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Exit with 1 if a row is worse than this: 10Gb/s, 500k/s, 20us, p99=50us or 90%of=FILE; may be repeated
    #[arg(long, value_name = "FLOOR")]
    floor: Vec<Floor>,

    /// Compare with an earlier run: a file written with --json
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    #[command(flatten)]
    queue_pair: QueuePairArgs,

    #[command(flatten)]
    pub(crate) client: ClientArgs,

    #[command(flatten)]
    tuning: Tuning,
}

const EXAMPLES: &str = "\
Operations:
  send       messages               cas           compare-and-swap, 8 bytes
  write      writes                 faa           fetch-and-add, 8 bytes
  write-imm  writes with immediate  atomic-write  atomic writes, 8 bytes
  read       reads                  flush         writes, each with a flush
  raw-write  writes without engine  raw-read      reads without engine
  raw-send   messages without engine

Examples:
  farreach bench storage-7                             8 B to 1 MiB
  farreach bench storage-7 --op write --depths 1..128  writes at eight depths
  farreach bench storage-7 --op cas,faa                atomic operations
  farreach bench storage-7 --op raw-write --post-list 16 --inline 64
  farreach bench storage-7 --svg rates.svg             with a chart
  farreach bench storage-7 --json > base.json          save a baseline
  farreach bench storage-7 --against base.json --floor 90%of=base.json

raw-write, raw-read, atomic-write and flush use verbs directly, without the
engine. Latency is the time from post to completion. At depth 1 it is a round
trip.
Exit code: 0 success; 1 a row is below a floor; 3 a rail lacks an operation, or
there are too few rails; 4 peer lost.";

/// The first parameters for the agent. The others follow with each step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    /// The memory of the step that needs most.
    memory_bytes: u64,
}

impl Task {
    /// Returns the memory that the agent needs. It refuses a step that needs more.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

/// The requirements of one row on the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    operation: Operation,
    size_bytes: u64,
    depth: u32,
    #[serde(default)]
    queue_pair: QueuePairArgs,
    wait: Wait,
}

impl Step {
    /// Returns an error unless every number is within its bound, and the memory within that of the
    /// order.
    fn check(&self, task: &Task) -> Result<(), Failure> {
        bounds::TRANSFER_BYTES.check(self.size_bytes)?;
        bounds::DEPTH.check(self.depth)?;
        bounds::INLINE_BYTES.check(self.queue_pair.inline_bytes)?;
        bounds::POST_LIST.check(self.queue_pair.post_list)?;
        bounds::check_memory(self.memory_bytes(), task.memory_bytes)
    }

    /// Returns the memory that the agent needs: a place for each operation in flight, or two receive
    /// buffers, with room for the header of a datagram, and a copy to check the contents.
    fn memory_bytes(&self) -> u64 {
        let places = u64::from(self.depth).saturating_mul(2).saturating_add(2);
        self.size_bytes.saturating_add(GRH_BYTES as u64).saturating_mul(places)
    }

    /// Returns the parameters for verbs, if it is a verbs operation.
    fn native(&self) -> Option<StreamRules> {
        let operation = self.operation.native()?;
        Some(StreamRules {
            operation,
            bytes: self.size_bytes as usize,
            depth: self.depth as usize,
            queue_pair: self.queue_pair,
            wait: self.wait,
        })
    }

    /// Returns the size of the agent's memory: a place for each operation in flight.
    fn places_len(&self) -> usize {
        self.size_bytes as usize * self.depth as usize
    }
}

/// A message of a client to its agent.
#[derive(Debug, Serialize, Deserialize)]
enum Order {
    Step(Step),
    /// A repetition is to begin, after this many operations of the step. It begins with the
    /// agent's [`Begun`].
    Begin(u64),
    /// The repetition has ended, after this many operations of the step.
    End(u64),
    /// The step is done, with this many operations posted.
    StepDone(u64),
    Done,
}

/// The agent has counted all messages before a repetition.
#[derive(Debug, Serialize, Deserialize)]
struct Begun;

/// The messages received and the usage since the start of a repetition.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    messages: u64,
    usage: Usage,
}

/// How long an operation may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a step of a client as its agent does.
#[cfg(fuzzing)]
pub(crate) fn fuzz_step(bytes: &[u8]) -> Result<(), Failure> {
    let Ok(step) = serde_json::from_slice::<Step>(bytes) else { return Ok(()) };
    let task = Task { memory_bytes: 1 << 30 };
    step.check(&task)?;
    assert!(step.memory_bytes() <= task.memory_bytes);
    let _ = step.native();
    Ok(())
}

/// Measures and prints.
pub(crate) fn run(args: &BenchArgs) -> Result<Exit> {
    // Errors in the arguments and unusable files are reported before anything is measured.
    check::arguments(args)?;
    args.svg.as_deref().map(check::picture).transpose()?;
    let rows_of = |file: &Path| anyhow::Ok(BenchReport::read(file)?.rows);
    let against =
        args.against.as_deref().map(|file| anyhow::Ok(Against::new(file, rows_of(file)?))).transpose()?;
    let judge = |floor: &Floor| {
        let baseline = floor.baseline().map(rows_of).transpose()?.unwrap_or_default();
        anyhow::Ok(Judge::new(floor.clone(), baseline))
    };
    let judges = args.floor.iter().map(judge).collect::<Result<Vec<_>>>()?;
    let (mut report, failure) = measure(args)?;
    report.comparisons = against.map(|against| against.compare(&report.rows));
    let verdicts: Vec<Vec<Verdict>> = judges.iter().map(|judge| judge.judge(&report.rows)).collect();
    // Each floor is judged by itself: one without a row to judge has not passed.
    let is_passed = verdicts.iter().all(|verdicts| verdict::is_passed(verdicts));
    report.verdicts = verdicts.concat();
    report.error = failure.as_ref().map(Told::from);
    let printed = terminal::print(&text(args, &report)?);
    // A failure to draw does not prevent printing, and vice versa.
    let undrawn = args.svg.as_deref().and_then(|file| draw(file, &report).err());
    printed?;
    tell(args, &report);
    let failures: Vec<Failure> = failure.into_iter().chain(undrawn).collect();
    for failure in &failures {
        // For human readers: the JSON report contains the failures of the measurement.
        terminal::tell_failure(failure, false);
    }
    Ok(match failures.first() {
        Some(failure) => failure.exit,
        None if report.head.is_interrupted => Exit::Interrupted,
        None if !is_passed => Exit::Failed,
        None if report.not_measured.iter().any(NotMeasured::is_whole) => Exit::Unavailable,
        None => Exit::Ok,
    })
}

fn draw(file: &Path, report: &BenchReport) -> Result<(), Failure> {
    let picture = chart::render(report).map_err(|error| Failure::of(&error))?;
    fs::write(file, picture).map_err(|error| check::unwritable(file, &error))
}

/// Prints on stderr what has no place in the result.
fn tell(args: &BenchArgs, report: &BenchReport) {
    if args.csv {
        let mut text = report.comparisons.as_ref().map(Comparisons::lines).unwrap_or_default();
        text.push_str(&verdict::render(&report.verdicts, None, Paint::PLAIN));
        text.push_str(if report.head.is_interrupted { INTERRUPTED } else { "" });
        text.lines().for_each(terminal::tell);
    }
    for lacking in &report.not_measured {
        if lacking.is_whole() {
            terminal::tell_failure(&lacking.why.failure(Exit::Unavailable), false);
        } else {
            let Told { error, cause, .. } = &*lacking.why;
            terminal::tell(&format!("note: {error}: {}", cause.as_deref().unwrap_or_default()));
        }
    }
}

fn text(args: &BenchArgs, report: &BenchReport) -> Result<String> {
    if args.client.json {
        return report.to_json();
    }
    if args.csv {
        return Ok(csv::render(&report.rows));
    }
    let (width, paint) = (terminal::width(), Paint::for_stdout());
    let mut text = table::render(report, width, paint);
    if !report.verdicts.is_empty() {
        text.push_str(&verdict::render(&report.verdicts, width, paint));
    }
    Ok(text)
}

/// Returns all rows, or those before a failure, with the failure.
fn measure(args: &BenchArgs) -> Result<(BenchReport, Option<Failure>)> {
    let mut begun = None;
    let error = measure_into(args, &mut begun).err();
    if let Some(report) = &mut begun {
        report.head.is_interrupted = interrupt::is_asked();
    }
    match (begun, error) {
        (Some(report), Some(error)) if !report.rows.is_empty() => Ok((report, Some(Failure::of(&error)))),
        (_, Some(error)) => Err(error),
        (Some(report), None) => Ok((report, None)),
        (None, None) => Err(interrupt::before_anything().into()),
    }
}

fn measure_into(args: &BenchArgs, begun: &mut Option<BenchReport>) -> Result<()> {
    let wanted = wanted(args);
    let steps = wanted.iter().map(|wanted| wanted.step(args));
    let task = Task { memory_bytes: steps.map(|step| step.memory_bytes()).max().unwrap_or(0) };
    let mut progress = BenchProgress::new(sessions(args).len() * wanted.len(), args.client.json);
    for (rails, queues) in sessions(args) {
        if interrupt::is_asked() {
            break;
        }
        let rules = rules(args, rails, queues);
        let session = match Session::open(&args.client, rules, "Bench", &task) {
            // After an interrupt, the rows measured so far are reported.
            Err(_) if interrupt::is_asked() => break,
            opened => opened?,
        };
        let report = begun.get_or_insert_with(|| {
            BenchReport::new(Head::new(report::COMMAND, &session, args.client.wait), parameters(args))
        });
        match check::rails(rails, &session) {
            Ok(()) => measure_over(args, &session, &wanted, report, &mut progress)?,
            Err(lacking) if report.not_measured.contains(&lacking) => {}
            Err(lacking) => report.not_measured.push(lacking),
        }
        for channel in &session.channels {
            // If the peer is lost, this was reported already, or there is nothing more to do.
            let _ = channel.send(Order::Done);
        }
    }
    Ok(())
}

/// Measures the rows of one session.
fn measure_over(
    args: &BenchArgs,
    session: &Session,
    wanted: &[Wanted],
    report: &mut BenchReport,
    progress: &mut BenchProgress,
) -> Result<()> {
    if let Some(lacking) = check::messages(session, wanted).filter(|it| !report.not_measured.contains(it)) {
        report.not_measured.push(lacking);
    }
    for wanted in wanted {
        if interrupt::is_asked() {
            break;
        }
        progress.tick(&wanted.told());
        let name = wanted.operation.name();
        if report.not_measured.iter().any(|lacking| lacking.has(name, wanted.size_bytes)) {
            continue;
        }
        match client::row(args, session, wanted).map_err(|error| session.explained(error))? {
            Ok(row) => report.rows.extend(row),
            Err(failure) => {
                let error = format!("{name} was not measured");
                report.not_measured.push(NotMeasured::new(Some(name), error, &failure));
            }
        }
    }
    Ok(())
}

/// Returns the operations without duplicates, in the order typed.
fn operations(args: &BenchArgs) -> Vec<Operation> {
    let mut distinct = Vec::new();
    for operation in &args.op {
        if !distinct.contains(operation) {
            distinct.push(*operation);
        }
    }
    distinct
}

/// Combines each number of rails with each number of connections.
fn sessions(args: &BenchArgs) -> Vec<(Option<usize>, usize)> {
    let rails: Vec<Option<usize>> = match &args.rails {
        Some(counts) => counts.numbers().iter().map(|count| Some(*count as usize)).collect(),
        None => vec![None],
    };
    let queues = args.queues.numbers();
    rails.iter().flat_map(|rails| queues.iter().map(|queues| (*rails, *queues as usize))).collect()
}

fn wanted(args: &BenchArgs) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for operation in operations(args) {
        for depth in args.depths.numbers() {
            let sizes = if operation.is_of_a_word() { &[8][..] } else { args.sizes.bytes() };
            let each = |size: &u64| Wanted { operation, size_bytes: *size, depth: *depth };
            wanted.extend(sizes.iter().map(each));
        }
    }
    wanted
}

fn rules(args: &BenchArgs, rails_max: Option<usize>, queues: usize) -> Rules {
    let longest = args.sizes.bytes().iter().copied().max().unwrap_or(0) as usize;
    let sends = args.op.contains(&Operation::Send);
    let depth = args.depths.numbers().iter().copied().max().unwrap_or(1) as usize;
    let row = args.seconds.saturating_mul(args.repetitions).saturating_add(args.warm_up);
    Rules {
        depth: depth.max(16),
        time: row.saturating_mul(wanted(args).len() as u32),
        message_bytes_max: if sends { longest.max(4096) } else { 4096 },
        // Longer ones are reported as not measured.
        may_shorten: true,
        queues,
        rails_max,
        tuning: args.tuning,
        ..Rules::default()
    }
}

fn parameters(args: &BenchArgs) -> Parameters {
    Parameters {
        operations: operations(args).iter().map(|operation| operation.name().to_owned()).collect(),
        sizes_bytes: args.sizes.bytes().to_vec(),
        depths: args.depths.numbers().to_vec(),
        queues: args.queues.numbers().to_vec(),
        repetitions: args.repetitions,
        duration_ns: args.seconds.as_nanos() as u64,
        warm_up_ns: args.warm_up.as_nanos() as u64,
        queue_pair: args.op.iter().any(|operation| operation.native().is_some()).then_some(args.queue_pair),
    }
}

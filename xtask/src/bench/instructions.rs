//! `cargo xtask bench instructions`: the instructions of a page and of a message, in the engine and in
//! the program in C that does the same.
//!
//! valgrind counts those of the side that writes. The difference of two runs of different length has
//! no setup in it. Polls that find nothing are counted with the work, and their number depends on the
//! load of the machine: the median of some counts is taken.

use std::path::Path;

use anyhow::{Context, Result};

use super::growth::collected;
use super::report::{Goal, Row};
use super::spread::Spread;
use super::{CommonArgs, Programs};

/// Pages of a round of `write`.
const PAGES: f64 = 4096.0;

/// Repetitions of a short run and of a long one: rounds of pages, or round trips.
const ROUNDS: [u32; 2] = [2, 6];
const TRIPS: [u32; 2] = [200, 1_000];

/// How often each is counted.
const TIMES: usize = 5;

/// Instructions that the engine may take beyond those of the program in C.
const PAGE_ABOVE_MAX: f64 = 200.0;
/// Instructions of a round trip of a message on one side.
const MESSAGE_MAX: f64 = 2_500.0;

/// Counts all, prints them, and returns what is judged.
pub(super) fn measure(args: &CommonArgs) -> Result<Vec<Row>> {
    let programs = Programs::build(args)?;
    let provider = &args.provider;
    println!("instructions in C and in the engine over {provider}: medians and quartiles of {TIMES} counts");
    let page = |each: &str| ["write", "--provider", provider, "--each", each].map(str::to_owned);
    let trip = ["ping", "--provider", provider, "--by", "message", "--wait", "sleep"].map(str::to_owned);
    let [of_pages, of_trips] = [("--rounds", ROUNDS, PAGES), ("--count", TRIPS, 1.0)];
    let engine = programs.count(&programs.engine, &page("1"), of_pages)?;
    let mut rows = Vec::new();
    for each in ["1", "4"] {
        let bare = programs.count(&programs.bare, &page(each), of_pages)?;
        println!("page of 4 KiB, C with {each} in an operation: {bare}; engine {engine}");
        let label = format!("page above C with {each}");
        let above = engine.median - bare.median;
        rows.push(Row::of_figure(label, "instructions", above, Goal::FigureAtMost(PAGE_ABOVE_MAX)));
    }
    let [bare, engine] =
        [&programs.bare, &programs.engine].map(|program| programs.count(program, &trip, of_trips));
    let (bare, engine) = (bare?, engine?);
    println!("round trip of a message of 8 bytes: C {bare}; engine {engine}");
    let goal = Goal::FigureAtMost(MESSAGE_MAX);
    rows.push(Row::of_figure("message round trip".to_owned(), "instructions", engine.median, goal));
    rows.iter().for_each(|row| println!("{row}"));
    Ok(rows)
}

impl Programs {
    /// Counts the instructions of one operation. The option takes the number of repetitions, of which
    /// each has so many operations.
    fn count(
        &self,
        program: &Path,
        words: &[String],
        (option, repetitions, operations): (&str, [u32; 2], f64),
    ) -> Result<Spread> {
        let program = program.to_str().context("the path of the program is not UTF-8")?;
        let run = |repetitions: u32| -> Result<f64> {
            let mut all = vec!["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program];
            all.extend(words.iter().map(String::as_str));
            let repetitions = repetitions.to_string();
            all.extend([option, &repetitions]);
            Ok(collected(&mut self.cell.command(Path::new("/tmp"), &all))? as f64)
        };
        let [short, long] = repetitions;
        let one = || Ok((run(long)? - run(short)?) / f64::from(long - short) / operations);
        let counts = (0..TIMES).map(|_| one()).collect::<Result<Vec<f64>>>()?;
        Spread::of(&counts).context("nothing was counted")
    }
}

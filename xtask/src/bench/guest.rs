//! `cargo xtask bench guest`: writes, messages and their latency on Soft-RoCE, through `farreach-verbs`
//! and through the engine, beside perftest.
//!
//! Everything runs in one guest under counted time (`--icount`), in which the same program gives
//! nearly the same figure in each run. The guest has one processor, and both sides share it. So a
//! rate is limited by the instructions of both sides and of the kernel together, and a program that
//! polls takes time from the kernel, which is the device. Programs are therefore compared in the
//! same mode: sleeping with sleeping, polling with polling.
//!
//! Times fail nothing: the goal is printed beside the ratio.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::spread::Spread;
use crate::binaries::{build_release_example, release_command};
use crate::paths;
use crate::vm::{self, GuestSpec, Task};

/// The share of perftest's performance to reach.
const GOAL: f64 = 0.90;

#[derive(Debug, clap::Args)]
pub(crate) struct GuestArgs {
    /// The number of runs of each program.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,

    /// Measure only the rows whose name contains this, such as `SEND` or `event`.
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,

    /// End the guest after this number of seconds. A busy machine needs more.
    #[arg(long, value_name = "SECONDS", default_value_t = 7200)]
    limit: u64,

    /// Also write the results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One line of the table: the same work by three programs.
struct Work {
    name: &'static str,
    unit: Unit,
    /// The ways to run perftest. The best of them counts.
    perftest: &'static [&'static str],
    /// The words of `farreach-verbs`'s example `perf`.
    verbs: &'static str,
    /// The words of the command.
    engine: &'static str,
}

/// The measure of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    MibPerS,
    MessagesPerS,
    /// Half a round trip, the median.
    HalfRttUs,
}

/// perftest signals every 100th request, or with a shorter queue its last one. `-Q 1` signals each,
/// as the other two programs do; both are tried.
const WORKS: &[Work] = &[
    Work {
        name: "WRITE 64 KiB, busy",
        unit: Unit::MibPerS,
        perftest: &["ib_write_bw -s 65536 -n 400 -t 16 -Q 1", "ib_write_bw -s 65536 -n 400 -t 16"],
        verbs: "--op write --size 65536 --depth 16 --count 400 --wait busy",
        engine: "bench --op write --sizes 64K --depths 16 --wait busy -r 1 -D 0.5 --warm-up 0.05",
    },
    Work {
        name: "WRITE 64 KiB, event",
        unit: Unit::MibPerS,
        // ib_write_bw has no `-e`. A message of this length is the same work for the device.
        perftest: &["ib_send_bw -e -s 65536 -n 400 -t 16 -Q 1", "ib_send_bw -e -s 65536 -n 400 -t 16"],
        verbs: "--op write --size 65536 --depth 16 --count 400 --wait event",
        engine: "bench --op write --sizes 64K --depths 16 --wait event -r 1 -D 0.5 --warm-up 0.05",
    },
    Work {
        name: "SEND 64 B, busy",
        unit: Unit::MessagesPerS,
        perftest: &["ib_send_bw -s 64 -n 5000 -t 16 -Q 1", "ib_send_bw -s 64 -n 5000 -t 16"],
        verbs: "--op send --size 64 --depth 16 --count 5000 --wait busy",
        engine: "bench --op send --sizes 64 --depths 16 --wait busy -r 1 -D 0.3 --warm-up 0.05",
    },
    Work {
        name: "SEND 64 B, event",
        unit: Unit::MessagesPerS,
        perftest: &["ib_send_bw -e -s 64 -n 5000 -t 16 -Q 1", "ib_send_bw -e -s 64 -n 5000 -t 16"],
        verbs: "--op send --size 64 --depth 16 --count 5000 --wait event",
        engine: "bench --op send --sizes 64 --depths 16 --wait event -r 1 -D 0.3 --warm-up 0.05",
    },
    // Busy latency is that of the scheduler's tick here: each side polls until its time is up.
    Work {
        name: "latency 64 B, event",
        unit: Unit::HalfRttUs,
        perftest: &["ib_send_lat -e -s 64 -n 2000"],
        verbs: "--op ping --size 64 --count 2000 --wait event",
        engine: "ping --op send -s 64 -n 2000 --wait event",
    },
];

/// Boots the guest, runs everything in it, and prints the table. Returns an error if a program failed.
pub(super) fn execute(args: &GuestArgs) -> Result<()> {
    let works: Vec<&Work> = WORKS.iter().filter(|work| work.name.contains(&args.only)).collect();
    ensure!(!works.is_empty(), "no row contains `{}`\nfix: use a part of {}", args.only, names());
    let perf = build_release_example("farreach-verbs", "perf")?;
    let farreach = release_command()?;
    let folder = paths::target().join("bench-guest");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("guest.sh"), include_str!("guest.sh"))?;
    fs::write(folder.join("measurements"), list(&works))?;
    let text = |path: &Path| {
        path.to_str().map(ToOwned::to_owned).with_context(|| format!("{} is not valid UTF-8", path.display()))
    };
    let words = vec![
        "sh".to_owned(),
        text(&folder.join("guest.sh"))?,
        text(&folder)?,
        text(&perf)?,
        text(&farreach)?,
        args.runs.to_string(),
    ];
    let limit = args.limit.to_string();
    let spec = GuestSpec::from_words(&["--icount", "--topology", "two", "--limit", &limit]);
    let code = vm::guest(&spec, Task::Command(words))?;

    let lines: Vec<Line> = works.iter().map(|work| Line::read(work, &folder, args.runs)).collect();
    print!("{}", table(&lines, args.runs));
    if let Some(file) = &args.json {
        let lines: Vec<Value> = lines.iter().map(Line::to_json).collect();
        fs::write(file, serde_json::to_string_pretty(&lines)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    ensure!(
        code != vm::TIMED_OUT,
        "the guest was ended after {limit} s\nfix: use a longer --limit, or fewer --runs"
    );
    let failed: Vec<&str> = lines.iter().flat_map(|line| line.failures.iter().map(String::as_str)).collect();
    ensure!(failed.is_empty(), "{}\nthe output is in {}", failed.join("\n"), folder.display());
    ensure!(code == 0, "the guest exited with {code}");
    Ok(())
}

fn names() -> String {
    WORKS.iter().map(|work| format!("`{}`", work.name)).collect::<Vec<_>>().join(", ")
}

/// Returns the programs of a line: the name of their files, the kind of program, and its words.
fn programs(work: &Work) -> Vec<(String, &'static str, String)> {
    let base: String =
        work.name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let mut programs = Vec::new();
    for (number, words) in work.perftest.iter().enumerate() {
        programs.push((format!("{base}.perftest{number}"), PERFTEST, (*words).to_owned()));
    }
    programs.push((format!("{base}.verbs"), VERBS, format!("verbs {}", work.verbs)));
    programs.push((format!("{base}.engine"), ENGINE, format!("engine {}", work.engine)));
    programs
}

const PERFTEST: &str = "perftest";
const VERBS: &str = "verbs";
const ENGINE: &str = "engine";

/// Returns the list for the script: name, program and words, separated by tabs.
fn list(works: &[&Work]) -> String {
    let mut list = String::new();
    for (name, _, words) in works.iter().flat_map(|work| programs(work)) {
        let (program, words) = words.split_once(' ').unwrap_or((&words, ""));
        let _ = writeln!(list, "{name}\t{program}\t{words}");
    }
    list
}

/// The figures of one line.
#[derive(Debug)]
struct Line {
    name: &'static str,
    unit: Unit,
    /// The words of the perftest that counts, and its figures.
    perftest: (String, Vec<f64>),
    verbs: Vec<f64>,
    engine: Vec<f64>,
    failures: Vec<String>,
}

impl Line {
    /// Reads the output of all programs of a line.
    fn read(work: &Work, folder: &Path, runs: u32) -> Self {
        let (unit, mut failures) = (work.unit, Vec::new());
        let mut line = Self {
            name: work.name,
            unit,
            perftest: Default::default(),
            verbs: vec![],
            engine: vec![],
            failures: vec![],
        };
        for (name, program, words) in programs(work) {
            let mut figures = Vec::new();
            for run in 1..=runs {
                let output = fs::read_to_string(folder.join(format!("{name}.{run}"))).unwrap_or_default();
                let figure = match program {
                    PERFTEST => perftest_figure(&output, unit),
                    VERBS => verbs_figure(&output, unit),
                    _ => engine_figure(&output, unit),
                };
                match figure {
                    Ok(figure) => figures.push(figure),
                    Err(error) => failures.push(format!("{name}.{run}: {error:#}")),
                }
            }
            match program {
                PERFTEST if line.perftest.1.is_empty() || unit.is_better(&figures, &line.perftest.1) => {
                    line.perftest = (words, figures);
                }
                PERFTEST => {}
                VERBS => line.verbs = figures,
                _ => line.engine = figures,
            }
        }
        Self { failures, ..line }
    }

    fn to_json(&self) -> Value {
        let (ours, share) = ([&self.verbs, &self.engine], |it: &[f64]| self.unit.share(it, &self.perftest.1));
        json!({
            "measurement": self.name,
            "unit": self.unit.name(),
            "perftest_command": self.perftest.0,
            "perftest": self.perftest.1,
            "verbs": self.verbs,
            "engine": self.engine,
            "verbs_share": share(ours[0]),
            "engine_share": share(ours[1]),
        })
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::MibPerS => "MiB/s",
            Self::MessagesPerS => "messages/s",
            Self::HalfRttUs => "µs, half RTT",
        }
    }

    fn digits(self) -> usize {
        if self == Self::MessagesPerS { 0 } else { 2 }
    }

    /// Returns the performance of one program as a share of another's: above 1 is better.
    fn share(self, of: &[f64], to: &[f64]) -> Option<f64> {
        let (of, to) = (median(of)?, median(to)?);
        Some(if self == Self::HalfRttUs { to / of } else { of / to })
    }

    fn is_better(self, figures: &[f64], than: &[f64]) -> bool {
        self.share(figures, than).is_some_and(|share| share > 1.0)
    }
}

fn median(figures: &[f64]) -> Option<f64> {
    Spread::of(figures).map(|spread| spread.median)
}

/// Returns the table: each figure is a median with the range of its runs.
fn table(lines: &[Line], runs: u32) -> String {
    let mut text = format!(
        "Soft-RoCE in one guest with one processor, counted time, {runs} run(s) each: median (range)\n\
         {:<22}{:<14}{:>24}{:>24}{:>24}{:>15}{:>16}\n",
        "", "unit", "perftest", "verbs", "engine", "verbs/perftest", "engine/perftest"
    );
    for line in lines {
        let cell = |figures: &[f64]| match Spread::of(figures) {
            None => "failed".to_owned(),
            Some(spread) => {
                let digits = line.unit.digits();
                let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
                let most = figures.iter().copied().fold(0.0, f64::max);
                format!("{:.digits$} ({least:.digits$}-{most:.digits$})", spread.median)
            }
        };
        let ratio = |figures: &[f64]| match line.unit.share(figures, &line.perftest.1) {
            None => "-".to_owned(),
            Some(share) if share < GOAL => format!("{share:.2} below"),
            Some(share) => format!("{share:.2}"),
        };
        let _ = writeln!(
            text,
            "{:<22}{:<14}{:>24}{:>24}{:>24}{:>15}{:>16}",
            line.name,
            line.unit.name(),
            cell(&line.perftest.1),
            cell(&line.verbs),
            cell(&line.engine),
            ratio(&line.verbs),
            ratio(&line.engine),
        );
    }
    let _ = writeln!(
        text,
        "A ratio compares performance: above 1 is better than perftest. \"below\": the goal is {GOAL:.2}."
    );
    for line in lines.iter().filter(|line| !line.perftest.0.is_empty()) {
        let _ = writeln!(text, "{:<22}beside {}", line.name, line.perftest.0);
    }
    text
}

/// Reads the only line of figures in the output of perftest.
///
/// A rate has five columns: `#bytes #iterations BW-peak BW-average MsgRate`, in MiB/s and millions a
/// second. A latency has nine: `#bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%`, in
/// µs of half a round trip.
fn perftest_figure(output: &str, unit: Unit) -> Result<f64> {
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    let mut figures = output
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("#bytes"))
        .filter_map(numbers)
        .filter(|columns| !columns.is_empty());
    let columns = figures.next().with_context(|| format!("perftest printed no figures: {}", tail(output)))?;
    ensure!(figures.next().is_none(), "perftest printed figures of several sizes");
    let (expected, column) = match unit {
        Unit::MibPerS => (5, 3),
        Unit::MessagesPerS => (5, 4),
        Unit::HalfRttUs => (9, 4),
    };
    ensure!(columns.len() == expected, "perftest printed {} columns instead of {expected}", columns.len());
    let factor = if unit == Unit::MessagesPerS { 1e6 } else { 1.0 };
    checked(columns[column] * factor)
}

/// Reads the line of JSON of the example `perf`.
fn verbs_figure(output: &str, unit: Unit) -> Result<f64> {
    let line = output.lines().find(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("perf printed no result: {}", tail(output)))?;
    let result: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
    let field = match unit {
        Unit::MibPerS => "mib_per_s",
        Unit::MessagesPerS => "per_s",
        Unit::HalfRttUs => "half_rtt_us",
    };
    checked(result[field].as_f64().with_context(|| format!("the result has no {field}: {line}"))?)
}

/// Reads the report of `farreach bench` or `farreach ping`, which has one row.
fn engine_figure(output: &str, unit: Unit) -> Result<f64> {
    let report: Value = serde_json::from_str(output)
        .with_context(|| format!("farreach printed no report: {}", tail(output)))?;
    let rows = report["rows"].as_array().context("the report has no rows")?;
    ensure!(rows.len() == 1, "the report has {} rows instead of one: {}", rows.len(), tail(output));
    let number =
        |value: &Value, name: &str| value[name].as_f64().with_context(|| format!("the report has no {name}"));
    checked(match unit {
        Unit::MibPerS => number(&rows[0]["median"], "bits_per_second")? / 8.0 / f64::from(1 << 20),
        Unit::MessagesPerS => number(&rows[0]["median"], "operations_per_second")?,
        Unit::HalfRttUs => number(&rows[0]["rtt"], "p50_ns")? / 2000.0,
    })
}

fn checked(figure: f64) -> Result<f64> {
    ensure!(figure > 0.0 && figure.is_finite(), "{figure} cannot be measured");
    Ok(figure)
}

fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: &str = "
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rxea
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 65536      300              43.31              43.20\t\t     0.000691
---------------------------------------------------------------------------------------
";
    const LATENCY: &str = " local address: LID 0000 QPN 0x0011
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          58.11          99.20        59.21              59.81          1.20            61.00                  99.20
";

    #[test]
    fn perftest_prints_rates_and_latencies() {
        assert_eq!(perftest_figure(RATE, Unit::MibPerS).unwrap(), 43.20);
        assert_eq!(perftest_figure(RATE, Unit::MessagesPerS).unwrap().round(), 691.0);
        assert_eq!(perftest_figure(LATENCY, Unit::HalfRttUs).unwrap(), 59.21);
    }

    #[test]
    fn what_is_no_result_of_perftest_is_an_error() {
        let with = |from: &str, to: &str| RATE.replace(from, to);
        for (output, why) in [
            (String::new(), "no figures"),
            (" Events feature not available on WRITE verb\n".to_owned(), "not available"),
            (with("43.20", "inf"), "cannot be"),
            (with("43.20", "0.00"), "cannot be"),
            (with("43.20", "-nan"), "cannot be"),
            (with("43.20", "fast"), "no figures"),
            (with("0.000691", ""), "4 columns"),
            (format!("{RATE} 128 300 1.0 1.0 0.1\n"), "several"),
        ] {
            let error = perftest_figure(&output, Unit::MibPerS).unwrap_err().to_string();
            assert!(error.contains(why), "{error} of {output}");
        }
        assert!(perftest_figure(RATE, Unit::HalfRttUs).is_err(), "a rate is no latency");
        assert!(perftest_figure(LATENCY, Unit::MibPerS).is_err(), "a latency is no rate");
    }

    #[test]
    fn our_programs_print_json() {
        let verbs = "{\"program\":\"verbs\",\"per_s\":100.5,\"mib_per_s\":6.25}\n";
        assert_eq!(verbs_figure(verbs, Unit::MibPerS).unwrap(), 6.25);
        assert!(verbs_figure(verbs, Unit::HalfRttUs).is_err() && verbs_figure("", Unit::MibPerS).is_err());
        let row = json!({ "median": { "bits_per_second": 8388608.0, "operations_per_second": 16.0 } });
        let bench = json!({ "rows": [row] }).to_string();
        assert_eq!(engine_figure(&bench, Unit::MibPerS).unwrap(), 1.0);
        assert_eq!(engine_figure(&bench, Unit::MessagesPerS).unwrap(), 16.0);
        let ping = json!({ "rows": [{ "rtt": { "p50_ns": 120_000 } }] }).to_string();
        assert_eq!(engine_figure(&ping, Unit::HalfRttUs).unwrap(), 60.0);
        for wrong in ["", "{}", "{\"rows\":[]}", &json!({ "rows": [row, row] }).to_string()] {
            assert!(engine_figure(wrong, Unit::MibPerS).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_best_way_to_run_perftest_counts() {
        let (folder, work) = (tempfile::tempdir().unwrap(), &WORKS[0]);
        let put = |program: &str, run: u32, text: &str| {
            fs::write(folder.path().join(format!("WRITE-64-KiB--busy.{program}.{run}")), text).unwrap();
        };
        for run in 1..=3 {
            put("perftest0", run, RATE);
            put("perftest1", run, &RATE.replace("43.20", "86.40"));
            put("verbs", run, "{\"mib_per_s\":86.4}");
            put(
                "engine",
                run,
                &json!({ "rows": [{ "median": { "bits_per_second": 362387865.6 } }] }).to_string(),
            );
        }
        let line = Line::read(work, folder.path(), 3);
        assert_eq!((&line.perftest.1, &line.failures), (&vec![86.4; 3], &vec![]));
        assert_eq!(line.perftest.0, work.perftest[1]);
        let text = table(&[line], 3);
        assert!(text.contains("86.40 (86.40-86.40)") && text.contains("0.50 below"), "{text}");
        // A run that failed is named, and its program has no ratio.
        let line = Line::read(work, folder.path(), 4);
        assert_eq!(line.failures.len(), 4, "{:?}", line.failures);
    }

    #[test]
    fn a_lower_latency_is_better() {
        assert_eq!(Unit::HalfRttUs.share(&[50.0], &[100.0]), Some(2.0));
        assert_eq!(Unit::MibPerS.share(&[50.0], &[100.0]), Some(0.5));
        assert_eq!(Unit::MibPerS.share(&[], &[100.0]), None);
    }

    #[test]
    fn the_list_has_three_fields_in_each_line() {
        let list = list(&WORKS.iter().collect::<Vec<_>>());
        let names: std::collections::HashSet<&str> =
            list.lines().map(|line| line.split_once('\t').unwrap().0).collect();
        assert_eq!(names.len(), list.lines().count(), "each has its own files");
        assert!(list.lines().all(|line| line.split('\t').count() == 3 && !line.ends_with('\t')), "{list}");
    }
}

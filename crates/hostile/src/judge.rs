//! The bars, and whether a line of the table has met them.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::roles::Newcomer;
use crate::service::Summary;

/// The share of operations that must end well and in time.
pub(crate) const SHARE_MIN: f64 = 0.99;

/// In time is within so many times the undisturbed 99th percentile.
pub(crate) const SLOWDOWN_MAX: u32 = 5;

/// Memory in MiB that a victim may keep after an attack. libfabric keeps pools of about 17 MiB for
/// each of two domains after resets of a rail, and no more of them, however often it is attacked.
const KEPT_MIB_MAX: u64 = 48;

/// Descriptors that a victim may have more after an attack than before, for what it opens once.
const KEPT_DESCRIPTORS_MAX: usize = 4;

/// One line of the table, as measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    pub(crate) name: String,
    /// The attack, for people.
    pub(crate) attack: String,
    /// What the attacker did.
    pub(crate) did: String,
    /// The service of honest clients. Before and after are missing where the clients themselves are
    /// what is tried, and all three where there are none.
    pub(crate) before: Option<Summary>,
    pub(crate) during: Option<Summary>,
    pub(crate) after: Option<Summary>,
    /// The latency above which an operation is not in time.
    pub(crate) limit_us: u64,
    /// The largest undisturbed 99th percentile with which a line can be judged: on a busier machine,
    /// five times of it would excuse every attack.
    pub(crate) p99_max_us: u64,
    /// The share of operations that must end well and in time.
    pub(crate) share_min: f64,
    /// The operations of a phase with which it can be judged.
    pub(crate) operations_min: u64,
    /// Clients that connected during the attack.
    pub(crate) newcomers: Vec<Newcomer>,
    /// Whether the attack takes what newcomers need, so that they may be refused.
    pub(crate) may_refuse: bool,
    pub(crate) memory_mib: Usage,
    pub(crate) descriptors: Usage,
    /// What was left behind: peers, processes, files.
    pub(crate) left: Vec<String>,
    /// What was reached and is another's, and other promises that were broken.
    pub(crate) breaches: Vec<String>,
    /// Attempts to reach what is another's, how many the line claims, and how many have reached it.
    pub(crate) attempts: u64,
    pub(crate) attempts_min: u64,
    pub(crate) hits: u64,
    /// How the victim crashed or hung, if it did.
    pub(crate) failures: Vec<String>,
    /// How much of a core others used meanwhile.
    pub(crate) load_of_others: f64,
    /// How often the line was run.
    pub(crate) runs: u32,
}

/// The use of something limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    pub(crate) before: u64,
    pub(crate) peak: u64,
    pub(crate) after: u64,
    /// The largest peak that is allowed.
    pub(crate) budget: u64,
}

/// Returns the bars that a line has missed, in words.
pub(crate) fn missed(line: &Measured) -> Vec<String> {
    let mut missed = missed_for_sure(line);
    missed.extend(missed_in_time(line));
    missed
}

/// Returns the bars that a line has missed and that depend on time: a busy machine misses them, too.
fn missed_in_time(line: &Measured) -> Vec<String> {
    let mut missed = Vec::new();
    let p99_us = line.limit_us / u64::from(SLOWDOWN_MAX);
    if line.before.is_some() && p99_us > line.p99_max_us {
        missed.push(format!(
            "not judged, because the machine is too busy: the undisturbed 99th percentile is {}, and must be at most {}",
            milliseconds(p99_us),
            milliseconds(line.p99_max_us)
        ));
    }
    for (phase, summary) in [("before", &line.before), ("during", &line.during), ("after", &line.after)] {
        missed.extend(summary.as_ref().and_then(|summary| missed_service(line, phase, summary)));
    }
    for newcomer in &line.newcomers {
        match newcomer {
            Newcomer::Served { .. } => {}
            Newcomer::Refused { reason, .. } if line.may_refuse && !reason.is_empty() => {}
            Newcomer::Refused { reason, .. } => missed.push(format!("a newcomer was refused: {reason}")),
            Newcomer::Unanswered { reason } => missed.push(format!("a newcomer got no answer: {reason}")),
        }
    }
    missed
}

/// Returns the bars that a line has missed whatever else the machine did.
pub(crate) fn missed_for_sure(line: &Measured) -> Vec<String> {
    let mut missed = line.failures.clone();
    missed.extend(line.breaches.iter().cloned());
    if line.hits > 0 && line.breaches.is_empty() {
        missed.push(format!("{} attempts have reached what is another's", line.hits));
    }
    if line.attempts < line.attempts_min {
        missed.push(format!("only {} of {} attempts were made", line.attempts, line.attempts_min));
    }
    let Usage { before, peak, after, budget } = line.memory_mib;
    if peak > budget {
        missed.push(format!("memory rose from {before} to {peak} MiB, and the budget is {budget} MiB"));
    }
    if after > before + KEPT_MIB_MAX {
        missed.push(format!("memory was {before} MiB before and is {after} MiB after"));
    }
    let Usage { before, after, .. } = line.descriptors;
    if after > before + KEPT_DESCRIPTORS_MAX as u64 {
        missed.push(format!("{before} descriptors were open before, and {after} are after"));
    }
    missed.extend(line.left.iter().map(|left| format!("left behind: {left}")));
    missed
}

/// Returns why the service of a phase is not enough.
fn missed_service(line: &Measured, phase: &str, summary: &Summary) -> Option<String> {
    if summary.operations == 0 {
        return Some(format!("{phase}: no operation of an honest client ended"));
    }
    if summary.operations < line.operations_min {
        let (operations, min) = (summary.operations, line.operations_min);
        return Some(format!(
            "{phase}: not judged, because {operations} operations ended, and {min} are needed"
        ));
    }
    if summary.share() >= line.share_min {
        return None;
    }
    let mut text = format!(
        "{phase}: {:.2} % of {} operations ended well within {}, and {} % must",
        floored(summary.share()),
        summary.operations,
        milliseconds(line.limit_us),
        100.0 * line.share_min,
    );
    if let Some((error, count)) = summary.errors.iter().max_by_key(|(_, count)| **count) {
        let _ = write!(text, "; {count} failed with: {error}");
    }
    Some(text)
}

/// Returns a percentage that is not rounded up to a bar that was missed.
fn floored(share: f64) -> f64 {
    (share * 10_000.0).floor() / 100.0
}

fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1000.0)
}

/// The head of the table.
pub(crate) fn head() -> String {
    row(["line", "before", "during", "after", "newcomers", "memory MiB", "descriptors", "result"])
}

/// Returns the row of a line.
pub(crate) fn shown(line: &Measured) -> String {
    let service = |summary: Option<&Summary>| {
        summary.map_or_else(
            || "-".to_owned(),
            |it| format!("{:.2} %, p99 {}", floored(it.share()), milliseconds(it.p99_us)),
        )
    };
    let newcomer = |newcomer: &Newcomer| match newcomer {
        Newcomer::Served { ms } => format!("{ms} ms"),
        Newcomer::Refused { .. } => "refused".to_owned(),
        Newcomer::Unanswered { .. } => "none".to_owned(),
    };
    let newcomers: Vec<String> = line.newcomers.iter().map(newcomer).collect();
    let memory = &line.memory_mib;
    let missed = missed(line);
    let result = if missed.is_empty() { "ok".to_owned() } else { format!("MISSED {}", missed.len()) };
    let mut text = row([
        &line.name,
        &service(line.before.as_ref()),
        &service(line.during.as_ref()),
        &service(line.after.as_ref()),
        &newcomers.join(" "),
        &format!("{} {} {}", memory.before, memory.peak, memory.after),
        &format!("{} {}", line.descriptors.before, line.descriptors.after),
        &result,
    ]);
    let _ = write!(text, "\n    {}: {}", line.attack, line.did);
    for missed in missed {
        let _ = write!(text, "\n    missed: {missed}");
    }
    text
}

/// Returns the row of a line in Markdown.
fn in_markdown(line: &Measured) -> String {
    let service = |summary: &Option<Summary>| {
        let text = |it: &Summary| {
            format!("{:.2} % of {}, p99 {}", floored(it.share()), it.operations, milliseconds(it.p99_us))
        };
        summary.as_ref().map_or_else(|| "–".to_owned(), text)
    };
    let Usage { before, peak, after, .. } = line.memory_mib;
    let missed = missed(line);
    let result = if missed.is_empty() { "met".to_owned() } else { format!("missed: {}", missed.join("; ")) };
    let [early, during, late] = [&line.before, &line.during, &line.after].map(service);
    let (name, did) = (&line.name, line.did.replace(['|', '\n'], " "));
    format!(
        "| `{name}` | {}: {did} | {early} | {during} | {late} | {before}, {peak}, {after} | {result} |",
        line.attack
    )
}

fn row(cells: [&str; 8]) -> String {
    const WIDTHS: [usize; 8] = [16, 26, 26, 26, 12, 14, 12, 0];
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
    cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// Prints the result of all lines. Returns whether every bar was met.
pub(crate) fn conclude(lines: &[Measured]) -> bool {
    let failed: Vec<&str> =
        lines.iter().filter(|line| !missed(line).is_empty()).map(|line| line.name.as_str()).collect();
    if failed.is_empty() {
        println!("hostile: {} lines, every bar met", lines.len());
    } else {
        println!("hostile: {} of {} lines missed a bar: {}", failed.len(), lines.len(), failed.join(", "));
    }
    let forging = lines.iter().filter(|line| line.attempts_min > 0);
    let attempts: Vec<String> = forging.map(|line| format!("{} {}", line.name, line.attempts)).collect();
    if !attempts.is_empty() {
        let hits: u64 = lines.iter().map(|line| line.hits).sum();
        println!("attempts to reach what is another's: {}; successful: {hits}", attempts.join(", "));
    }
    // An empty table shows nothing.
    failed.is_empty() && !lines.is_empty()
}

/// `hostile judge`
#[derive(Debug, clap::Args)]
pub(crate) struct JudgeArgs {
    /// Print the table in Markdown, for the documentation.
    #[arg(long)]
    markdown: bool,

    /// The file that `hostile drive --json` has written.
    file: PathBuf,
}

/// Judges lines that were measured before.
pub(crate) fn run(args: &JudgeArgs) -> Result<bool> {
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let lines: Vec<Measured> = serde_json::from_str(&text)?;
    if args.markdown {
        println!("| line | attack | before | during | after | memory in MiB | result |");
        println!("|---|---|---|---|---|---|---|");
        lines.iter().for_each(|line| println!("{}", in_markdown(line)));
        return Ok(conclude(&lines));
    }
    println!("{}", head());
    for line in &lines {
        println!("{}", shown(line));
    }
    Ok(conclude(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(operations: u64, in_time: u64) -> Summary {
        Summary { operations, in_time, p99_us: 900, ..Summary::default() }
    }

    /// A line that has met every bar.
    fn good() -> Measured {
        Measured {
            name: "good".into(),
            before: Some(summary(1000, 1000)),
            during: Some(summary(1000, 990)),
            after: Some(summary(1000, 995)),
            limit_us: 5000,
            p99_max_us: 1000,
            operations_min: 1000,
            share_min: SHARE_MIN,
            newcomers: vec![Newcomer::Served { ms: 20 }],
            memory_mib: Usage { before: 10, peak: 70, after: 10 + KEPT_MIB_MAX, budget: 70 },
            descriptors: Usage { before: 20, peak: 90, after: 24, budget: 0 },
            runs: 1,
            ..Measured::default()
        }
    }

    /// Asserts that a change of a good line misses exactly one bar, in these words.
    #[track_caller]
    fn misses(words: &str, change: impl FnOnce(&mut Measured)) {
        let mut line = good();
        change(&mut line);
        let missed = missed(&line);
        assert_eq!(missed.len(), 1, "{missed:?}");
        assert!(missed[0].contains(words), "{missed:?}");
        assert!(!conclude(&[good(), line.clone()]));
        assert!(shown(&line).contains("MISSED 1") && shown(&line).contains(words), "{}", shown(&line));
    }

    #[test]
    fn a_good_line_passes() {
        assert_eq!(missed(&good()), [""; 0]);
        assert!(conclude(&[good()]) && shown(&good()).contains(" ok\n"), "{}", shown(&good()));
    }

    #[test]
    fn too_little_service_is_told_in_each_phase() {
        misses("during: 98.90 % of 1000 operations ended well within 5.0 ms, and 99 % must", |line| {
            line.during = Some(summary(1000, 989));
        });
        misses("before: ", |line| line.before = Some(summary(1000, 900)));
        misses("after: ", |line| line.after = Some(summary(1000, 900)));
        misses("during: no operation", |line| line.during = Some(Summary::default()));
        misses("7 failed with: the peer is lost", |line| {
            let errors = [("other".into(), 3), ("the peer is lost".into(), 7)].into();
            line.during = Some(Summary { errors, ..summary(1000, 900) });
        });
    }

    #[test]
    fn a_share_is_never_rounded_up_to_its_bar() {
        misses("98.99 % of", |line| line.during = Some(summary(1_000_000, 989_999)));
    }

    #[test]
    fn a_machine_that_is_too_busy_to_judge_is_no_pass() {
        misses(
            "not judged, because the machine is too busy: the undisturbed 99th percentile is 1.0 ms",
            |line| {
                line.p99_max_us = 999;
            },
        );
    }

    #[test]
    fn too_few_operations_are_no_pass() {
        misses("during: not judged, because 999 operations ended, and 1000 are needed", |line| {
            line.during = Some(summary(999, 999));
        });
    }

    #[test]
    fn all_of_a_crowd_must_be_served() {
        misses("during: 99.60 %", |line| {
            (line.before, line.after, line.share_min) = (None, None, 1.0);
            line.operations_min = 256;
            line.during = Some(summary(256, 255));
        });
    }

    #[test]
    fn newcomers_are_served_or_told_why_not() {
        let refused = || Newcomer::Refused { ms: 1, reason: "64 peers are connected".into() };
        misses("refused: 64 peers", |line| line.newcomers.push(refused()));
        misses("a newcomer was refused: ", |line| {
            line.may_refuse = true;
            line.newcomers = vec![Newcomer::Refused { ms: 1, reason: String::new() }];
        });
        misses("no answer: late", |line| {
            line.may_refuse = true;
            line.newcomers = vec![Newcomer::Unanswered { reason: "late".into() }];
        });
        let told = Measured { may_refuse: true, newcomers: vec![refused()], ..good() };
        assert_eq!(missed(&told), [""; 0]);
    }

    #[test]
    fn memory_and_descriptors_have_budgets() {
        misses("rose from 10 to 71 MiB, and the budget is 70", |line| line.memory_mib.peak = 71);
        misses("10 MiB before and is 59 MiB after", |line| line.memory_mib.after = 59);
        misses("20 descriptors were open before, and 25 are after", |line| line.descriptors.after = 25);
    }

    #[test]
    fn breaches_crashes_and_what_is_left_are_told() {
        misses("8 bytes of the witness", |line| line.breaches.push("8 bytes of the witness changed".into()));
        misses("signal", |line| line.failures.push("the victim was ended by signal 11".into()));
        misses("left behind: 3 files", |line| line.left.push("3 files in /dev/shm".into()));
    }

    #[test]
    fn fewer_attempts_than_claimed_and_every_hit_are_told() {
        misses("only 2499 of 2500 attempts were made", |line| {
            (line.attempts, line.attempts_min) = (2499, 2500);
        });
        misses("1 attempts have reached", |line| {
            (line.attempts, line.attempts_min, line.hits) = (2500, 2500, 1);
        });
        let enough = Measured { attempts: 2500, attempts_min: 2500, ..good() };
        assert_eq!(missed(&enough), [""; 0]);
    }

    #[test]
    fn only_what_depends_on_time_is_tried_again() {
        let late = Measured { during: Some(summary(1000, 900)), newcomers: vec![], ..good() };
        assert!(missed_for_sure(&late).is_empty() && !missed(&late).is_empty());
        let unanswered = Newcomer::Unanswered { reason: "late".into() };
        assert!(missed_for_sure(&Measured { newcomers: vec![unanswered], ..good() }).is_empty());
        let breach = Measured { breaches: vec!["a key".into()], ..late.clone() };
        assert_eq!((missed_for_sure(&breach).len(), missed(&breach).len()), (1, 2));
        let full = Usage { before: 10, peak: 99, after: 10, budget: 70 };
        assert_eq!(missed_for_sure(&Measured { memory_mib: full, ..late }).len(), 1);
    }

    #[test]
    fn a_row_in_markdown_has_its_seven_cells() {
        let mut line = good();
        line.did = "a|b".into();
        let row = in_markdown(&line);
        assert_eq!(row.matches('|').count(), 8, "{row}");
        assert!(
            row.contains("99.00 % of 1000, p99 0.9 ms") && row.ends_with("| 10, 70, 58 | met |"),
            "{row}"
        );
        line.breaches.push("a key".into());
        assert!(in_markdown(&line).ends_with("| missed: a key |"));
    }

    #[test]
    fn an_empty_table_shows_nothing() {
        assert!(!conclude(&[]));
    }
}

//! Everything that has to pass before a change lands, in two tiers: `ci`, which is short enough for
//! every change, and `ci --full`, which runs everything and resumes after an interruption.

mod progress;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use self::progress::Progress;
use crate::side_by_side::{self, AfterFailure, Job, Report};
use crate::stolen;

/// `cargo xtask ci`
#[derive(Debug, clap::Args)]
pub(crate) struct CiArgs {
    /// Run everything. Steps that passed for the same files before an interruption are not run
    /// again.
    #[arg(long)]
    full: bool,
}

/// An xtask command, in one or both tiers.
struct Step {
    /// The words after `cargo xtask` in `ci`; `None` if only `ci --full` runs the step.
    ci: Option<&'static str>,
    /// The words in `ci --full`.
    full: &'static str,
    /// The part that only `ci --full` runs; empty if there is none.
    left_out: &'static str,
}

const fn both(words: &'static str) -> Step {
    Step { ci: Some(words), full: words, left_out: "" }
}

const fn full(words: &'static str, left_out: &'static str) -> Step {
    Step { ci: None, full: words, left_out }
}

/// The steps, in the order that finds mistakes soonest. The steps of a phase run two at a time and
/// start in their order, the longest first. Each has its own build folder, or builds nothing new.
const PHASES: &[&[Step]] = &[
    &[
        Step { ci: Some("check"), full: "check --all", left_out: "lints without optional features" },
        both("fetch"),
    ],
    &[both("test --host")],
    // It uses what the tests have built.
    &[both("fuzz --replay")],
    &[
        Step {
            ci: Some("test --libraries --with newest"),
            full: "test --libraries --with newest --long",
            left_out: "64 clients for 60 s instead of 10 s, the table of the engine's ends for 200 s instead of 20 s, \
                       the last message 1,000 times instead of 10 times",
        },
        Step {
            ci: Some("test --libraries --with debian12 --short"),
            full: "test --libraries --with debian12 --long",
            left_out: "the command, instructions and scale with the libraries of Debian 12",
        },
        Step {
            ci: Some("mutants --changed"),
            full: "mutants",
            left_out: "mutants whose files have not changed since they were last caught",
        },
        full(
            "mutants --generated --changed",
            "generated mutants whose files have changed since they were last run",
        ),
        both("cleanroom"),
        Step {
            ci: Some("model --changed"),
            full: "model",
            left_out: "loom models whose files have not changed since they last held",
        },
        both("memcheck"),
        both("layout"),
        // It documents what `check` has built.
        both("api --check"),
        // It uses the build of `cleanroom`.
        both("start"),
        Step {
            ci: Some("soundness --changed"),
            full: "soundness --strict",
            left_out: "Miri on files that have not changed since it last found nothing; a missing Miri \
                       is an error",
        },
        full("cross", "aarch64: build, layouts, start"),
        full("deny", "cargo-deny: licence texts, wildcard versions"),
    ],
    &[Step {
        ci: Some("sim --seconds 20 --test-build"),
        full: "sim --seconds 120",
        left_out: "simulated histories for 120 s, optimised, instead of 20 s",
    }],
    &[full("sim --explore", "all orders of the scenarios that take minutes")],
    &[full("fuzz --seconds 60", "new inputs for each fuzz target, for 60 s")],
    // Alone, because it compares latencies.
    &[Step {
        ci: Some(
            "hostile --short --no-load keys marks immediates frames revoked rail-stranger grant-keys \
             links numbers bad-grants unread garbage tls-records",
        ),
        full: "hostile",
        left_out: "attacks against an engine and a server, with honest clients beside them; `ci` judges \
                   what attackers reach and leave behind, with small counts, and no latencies",
    }],
    &[Step {
        ci: Some("vm test --guest newest --short"),
        full: "vm test --guest newest",
        left_out: "long device tests (a diagnosis of every link fault), and tests on two hosts that \
                   also run on one",
    }],
    &[full(
        "vm test --guest debian12",
        "Linux 6.1 with rdma-core 44: one guest, and two joined by a network",
    )],
    &[full("vm test --itself", "the guest itself: streams, exit codes, limits, perftest")],
];

const AT_ONCE: usize = 2;

/// `ci` prints a warning above this time. `ci --full` has its own limit.
const SLOW: Duration = Duration::from_secs(30 * 60);
const FULL_SLOW: Duration = Duration::from_secs(80 * 60);
/// `ci` fails above this time, so that it cannot grow unnoticed. Steal time does not count. The same
/// work has taken 31 and 40 minutes on two machines of one kind, so that a lower limit would judge the
/// machine.
const TOO_SLOW: Duration = Duration::from_secs(60 * 60);

/// The variable with the start time of the script that prepares the machine, in seconds since 1970.
/// The time since then counts too.
const STARTED: &str = "FARREACH_CI_STARTED";

/// Runs every step of a tier. Stops at the first failure.
pub(crate) fn execute(args: &CiArgs) -> Result<()> {
    let (started, stolen_before) = (started(), stolen::time());
    // Without resuming, no progress is read or written.
    let progress = args.full.then(Progress::of_this_tree).transpose()?;
    let mut reports = Vec::new();
    for phase in PHASES {
        reports.extend(run_phase(phase, args.full, progress.as_ref())?);
    }
    let took = match progress {
        Some(progress) => {
            let took = progress.took();
            progress.clear()?;
            took
        }
        None => started.elapsed().unwrap_or_default(),
    };
    print!("{}", summary(&reports, args.full, took));
    let stolen = stolen::time().saturating_sub(stolen_before);
    if stolen > SLOW / 10 {
        println!("{} of it is steal time", minutes(stolen));
    }
    check_time(args.full, took.saturating_sub(stolen))
}

fn check_time(is_full: bool, took: Duration) -> Result<()> {
    if !is_full && took > TOO_SLOW {
        bail!("ci took {}, and must not take more than {}", minutes(took), minutes(TOO_SLOW));
    }
    Ok(())
}

fn started() -> SystemTime {
    let given = std::env::var(STARTED).ok().and_then(|seconds| seconds.parse().ok());
    given.map_or_else(SystemTime::now, |seconds| UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Runs the steps of a phase that belong to this tier and have not passed yet.
fn run_phase(phase: &[Step], is_full: bool, progress: Option<&Progress>) -> Result<Vec<Report>> {
    let (mut reports, mut jobs) = (Vec::new(), Vec::new());
    for words in phase.iter().filter_map(|step| step.words(is_full)) {
        if let Some(report) = progress.and_then(|progress| progress.passed(words)) {
            println!("═══ {words}: passed before, in {}", minutes(report.took));
            reports.push(report);
            continue;
        }
        jobs.push(Job::task(words, words.split(' ')));
    }
    if jobs.is_empty() {
        return Ok(reports);
    }
    let names: Vec<_> = jobs.iter().map(Job::name).collect();
    println!("═══ {}", names.join(", "));
    side_by_side::run_noting(jobs, AT_ONCE, AfterFailure::Stop, &mut |report| {
        reports.push(report.clone());
        progress.map_or(Ok(()), |progress| progress.note(report))
    })?;
    Ok(reports)
}

impl Step {
    fn words(&self, is_full: bool) -> Option<&'static str> {
        if is_full { Some(self.full) } else { self.ci }
    }
}

fn minutes(duration: Duration) -> String {
    format!("{} min {} s", duration.as_secs() / 60, duration.as_secs() % 60)
}

fn summary(reports: &[Report], is_full: bool, took: Duration) -> String {
    let mut text = String::from("═══ steps\n");
    for report in reports {
        text.push_str(&format!("{:>7} s  {}\n", report.took.as_secs(), report.name));
    }
    let unsteady: Vec<_> =
        reports.iter().flat_map(|it| it.unsteady.iter().map(move |test| (test, &it.name))).collect();
    match unsteady.len() {
        0 => text.push_str("second attempts: none\n"),
        count => text.push_str(&format!("second attempts: {count} (repair each of these tests)\n")),
    }
    for (test, step) in unsteady {
        text.push_str(&format!("    {test}  ({step})\n"));
    }
    if !is_full {
        text.push_str("not run here, only by `cargo xtask ci --full`:\n");
        for left_out in PHASES.iter().flat_map(|phase| phase.iter()).map(|step| step.left_out) {
            if !left_out.is_empty() {
                text.push_str(&format!("    {left_out}\n"));
            }
        }
    }
    let (name, limit) = if is_full { ("ci --full", FULL_SLOW) } else { ("ci", SLOW) };
    if took > limit {
        text.push_str(&format!("warning: {name} should not take more than {}\n", minutes(limit)));
    }
    text.push_str(&format!("═══ {name} passed in {}\n", minutes(took)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> impl Iterator<Item = &'static Step> {
        PHASES.iter().flat_map(|phase| phase.iter())
    }

    #[test]
    fn what_ci_does_not_run_is_named_in_its_summary() {
        for step in steps() {
            assert_eq!(step.ci == Some(step.full), step.left_out.is_empty(), "{}", step.full);
        }
        let told = summary(&[], false, Duration::from_secs(61));
        for step in steps() {
            assert!(told.contains(step.left_out), "{told}");
        }
        assert!(told.ends_with("═══ ci passed in 1 min 1 s\n") && !told.contains("warning"), "{told}");
        assert!(!summary(&[], true, Duration::ZERO).contains("not run here"));
    }

    #[test]
    fn a_slow_run_warns() {
        assert!(summary(&[], false, SLOW + Duration::from_secs(1)).contains("warning: ci should"));
        assert!(!summary(&[], true, SLOW + Duration::from_secs(1)).contains("warning"));
        assert!(summary(&[], true, FULL_SLOW + Duration::from_secs(1)).contains("warning: ci --full should"));
    }

    #[test]
    fn above_an_hour_it_fails() {
        let took = |minutes: u64| Duration::from_secs(minutes * 60 + 1);
        check_time(false, took(59)).unwrap();
        assert!(
            check_time(false, took(60)).unwrap_err().to_string().contains("must not take more than 60 min")
        );
        check_time(true, took(79)).unwrap();
    }

    #[test]
    fn every_second_attempt_is_named_at_the_end() {
        let report = Report {
            name: "test --libraries".into(),
            took: Duration::from_secs(5),
            unsteady: vec!["cli/library serve::x".into()],
        };
        let told = summary(&[report], false, Duration::ZERO);
        assert!(told.contains("second attempts: 1"), "{told}");
        assert!(told.contains("    cli/library serve::x  (test --libraries)\n"), "{told}");
    }

    #[test]
    fn every_step_is_a_task() {
        use clap::CommandFactory;
        for words in steps().flat_map(|step| step.ci.into_iter().chain([step.full])) {
            let parsed =
                crate::Task::command().try_get_matches_from(std::iter::once("xtask").chain(words.split(' ')));
            assert!(parsed.is_ok(), "{words}: {parsed:?}");
        }
    }
}

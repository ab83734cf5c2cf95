//! All that has to hold before a change lands, in the order that finds mistakes soonest.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::side_by_side::{self, AfterFailure, Job};
use crate::{check, host_tests, sim, vm};

/// What is run, one after the other.
enum Step {
    /// Takes every core, or minds who else is there: its tests have deadlines.
    Alone(&'static str, fn() -> Result<()>),
    /// Tasks that mostly use one core, so two at a time. Each has a build folder of its own, or builds nothing new. Begun in this order: what
    /// takes longest stands first.
    ///
    /// The first minds who else is there, so the others leave it the processor when it wants it.
    SideBySide(&'static str, &'static [&'static str]),
}

const STEPS: [Step; 5] = [
    Step::Alone("check", check::execute),
    Step::Alone("test", host_tests::workspace),
    // `start` goes on with what `cleanroom` has built.
    Step::SideBySide(
        "test --engines",
        &["mutants", "cleanroom", "model", "cross", "memcheck", "layout", "start"],
    ),
    Step::Alone("sim", sim::for_a_while),
    Step::Alone("vm test", vm::test_everything),
];

const AT_ONCE: usize = 2;

/// Runs every step; the first one that fails ends it.
pub(crate) fn execute() -> Result<()> {
    let started = Instant::now();
    let mut took = Vec::new();
    for step in STEPS {
        took.extend(step.run()?);
    }
    let took: Vec<_> =
        took.iter().map(|(name, duration)| format!("{name} {:.0} s", duration.as_secs_f32())).collect();
    println!("═══ all passed in {:.0} s: {}", started.elapsed().as_secs_f32(), took.join(", "));
    Ok(())
}

impl Step {
    /// How long it took, or each of its tasks.
    fn run(&self) -> Result<Vec<(String, Duration)>> {
        match self {
            Self::Alone(name, step) => {
                println!("═══ {name}");
                let started = Instant::now();
                step().with_context(|| format!("`cargo xtask {name}` failed"))?;
                Ok(vec![((*name).to_owned(), started.elapsed())])
            }
            Self::SideBySide(first, others) => {
                println!("═══ {first}, {}", others.join(", "));
                let mut jobs = vec![Job::task(*first, first.split(' '))];
                jobs.extend(others.iter().map(|name| Job::task(*name, [name]).giving_way()));
                side_by_side::run(jobs, AT_ONCE, AfterFailure::Stop)
            }
        }
    }
}

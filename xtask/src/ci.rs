//! All that has to hold before a change lands, in the order that finds mistakes soonest.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::{check, cleanroom, cross, host_tests, layout, memcheck, model, mutants, sim, start, vm};

type Step = (&'static str, fn() -> Result<()>);

const STEPS: [Step; 11] = [
    ("check", check::execute),
    ("test", host_tests::execute),
    ("memcheck", memcheck::run_part),
    ("model", model::execute),
    ("sim", sim::for_a_while),
    ("mutants", mutants::run_all),
    ("layout", layout::run),
    ("cleanroom", cleanroom::execute),
    ("start", start::execute),
    ("cross", cross::execute),
    ("vm test", vm::test_everything),
];

/// Runs every step; the first one that fails ends it.
pub(crate) fn execute() -> Result<()> {
    let mut took = Vec::new();
    for (name, step) in STEPS {
        println!("═══ {name}");
        let started = Instant::now();
        step().with_context(|| format!("`cargo xtask {name}` failed"))?;
        took.push(format!("{name} {:.0} s", started.elapsed().as_secs_f32()));
    }
    println!("═══ all passed: {}", took.join(", "));
    Ok(())
}

//! The checks on recorded hosts: all is well on each, and every fault is told by the check that is there for it, and by no other.

use std::collections::{BTreeMap, BTreeSet};

use crate::prose;
use crate::recorded::{Base, Report, bases};

/// What cannot be known even of a host on which all is well, by pack and check, and why.
const UNKNOWN_ON_A_GOOD_HOST: &[(&str, &str, &str)] = &[];

/// Checks of which a pass, a problem or an unknown case cannot be, and why.
const CASES_THAT_CANNOT_BE: &[(&str, &str, &str)] =
    &[("on-chip memory", "problem", "few cards have any, and nothing needs it")];

#[test]
fn all_is_well_on_every_recorded_host() {
    let mut objections = Vec::new();
    let bases = bases();
    assert!(!bases.is_empty(), "no host is recorded");
    for base in &bases {
        let report = Report::of(&base.pack);
        for (check, verdict) in report.verdicts() {
            let is_fine = match verdict.as_str() {
                "pass" | "not here" => true,
                "unknown" => may_be_unknown(base, &check),
                _ => false,
            };
            if !is_fine {
                objections.push(format!("{}: {check}: {verdict}: {:#}", base.name, report.of_check(&check)));
            }
        }
    }
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

fn may_be_unknown(base: &Base, check: &str) -> bool {
    UNKNOWN_ON_A_GOOD_HOST.iter().any(|(pack, name, _)| *pack == base.name && *name == check)
}

#[test]
fn every_fault_is_told_by_its_check_and_by_no_other() {
    let mut objections = Vec::new();
    for base in bases() {
        let good = Report::of(&base.pack);
        let mut names = BTreeSet::new();
        for variant in &base.variants {
            let place = format!("{}, {}", base.name, variant.name);
            if !names.insert(&variant.name) {
                objections.push(format!("{place}: there are two of this name"));
            }
            match variant.of(&base) {
                Ok(pack) => {
                    let found = variant.objections(&Report::of(&pack), &good);
                    objections.extend(found.into_iter().map(|objection| format!("{place}: {objection}")));
                }
                Err(why) => objections.push(format!("{place}: {why}")),
            }
        }
    }
    assert!(objections.is_empty(), "{} objections:\n{}", objections.len(), objections.join("\n"));
}

#[test]
fn every_check_is_seen_to_pass_to_find_and_not_to_know() {
    let mut seen: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for base in bases() {
        for (check, verdict) in Report::of(&base.pack).verdicts() {
            seen.entry(check).or_default().extend(case(&verdict));
        }
        // That it is so, the test of faults shows.
        for variant in &base.variants {
            let verdicts = [(&variant.check, &variant.verdict)].into_iter().chain(&variant.also);
            for (check, verdict) in verdicts {
                seen.entry(check.clone()).or_default().extend(case(verdict));
            }
        }
    }
    let mut objections = Vec::new();
    for (check, cases) in &seen {
        for wanted in ["pass", "problem", "unknown"] {
            let cannot_be =
                CASES_THAT_CANNOT_BE.iter().any(|(name, case, _)| name == check && *case == wanted);
            if cases.contains(wanted) == cannot_be {
                objections
                    .push(format!("{check}: {wanted}: {}", if cannot_be { "seen" } else { "never seen" }));
            }
        }
    }
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

/// A command to copy stands alone on its line.
#[test]
fn no_fix_mixes_prose_and_commands() {
    let (mut objections, mut commands_count) = (BTreeSet::new(), 0);
    for base in bases() {
        // A variant without a change is told by the test of faults.
        let packs = base.variants.iter().filter_map(|variant| variant.of(&base).ok());
        for (what, commands) in packs.flat_map(|pack| Report::of(&pack).fixes()) {
            commands_count += commands.len();
            objections.extend(prose::objections(&what, &commands));
        }
    }
    assert!(objections.is_empty(), "{objections:#?}");
    assert!(commands_count > 200, "{commands_count}");
}

fn case(verdict: &str) -> Option<&'static str> {
    match verdict {
        "pass" => Some("pass"),
        "unknown" => Some("unknown"),
        "warn" | "fail" => Some("problem"),
        _ => None,
    }
}

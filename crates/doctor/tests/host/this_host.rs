//! What is read of this host, whatever it has.

use std::collections::BTreeSet;

use farreach_doctor::collect::{self, InProcess, ProgramError, Runner};
use farreach_doctor::probes::{Fabric, Reading, Shm, Trial, Verbs};
use farreach_doctor::{Dump, Verdict, checks};

/// Asks no library and starts nothing.
struct Nothing;

const WHY: &str = "nobody was asked";

impl Runner for Nothing {
    fn verbs(&self) -> Reading<Verbs> {
        Reading::Unread(WHY.to_owned())
    }

    fn fabric(&self) -> Reading<Fabric> {
        Reading::Unread(WHY.to_owned())
    }

    fn shm(&self) -> Reading<Shm> {
        Reading::Unread(WHY.to_owned())
    }

    fn transfers(&self) -> Reading<std::collections::BTreeMap<String, Trial>> {
        Reading::LeftOut(WHY.to_owned())
    }

    fn output(&self, _program: &str, _args: &[&str]) -> Result<String, ProgramError> {
        Err(ProgramError::NotInstalled)
    }
}

#[test]
fn what_a_runner_answers_is_in_the_pack() {
    let pack = collect::host(&Nothing);
    assert_eq!(pack.probes().verbs.get(), Err(WHY));
    assert_eq!(pack.probes().fabric.get(), Err(WHY));
    let report = checks::run(&pack);
    let transfer = report.not_here.iter().find(|it| it.check == "transfer").expect("it does not apply");
    assert_eq!(transfer.reason, WHY);
    let libfabric = report.checks.iter().find(|it| it.check == "libfabric").expect("it applies everywhere");
    assert_eq!(libfabric.verdict, Verdict::Unknown);
}

#[test]
fn every_check_answers_and_a_dump_says_the_same() {
    let pack = collect::host(&InProcess);
    let report = checks::run(&pack);
    let told = report.checks.iter().map(|it| it.check.as_str());
    let told: BTreeSet<&str> = told.chain(report.not_here.iter().map(|it| it.check.as_str())).collect();
    assert_eq!(told, checks::all().iter().map(|check| check.name()).collect());
    let json = Dump::Host(Box::new(pack)).to_json().expect("a pack is JSON");
    match Dump::from_json(json.as_bytes()).expect("it was written just now") {
        Dump::Host(pack) => assert_eq!(checks::run(&pack), report),
        Dump::Pair(_) => panic!("it is of one host"),
    }
}

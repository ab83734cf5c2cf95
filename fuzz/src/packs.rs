//! Packs of `farreach doctor`, which come from another host or from a file.

use farreach_doctor::pair::diagnose;
use farreach_doctor::{Dump, Pack, checks};

pub(crate) fn run(input: &[u8]) {
    let Ok(dump) = Dump::from_json(input) else { return };
    let json = dump.to_json().expect("a dump can be written");
    assert_eq!(Dump::from_json(json.as_bytes()).expect("a dump that was written can be read"), dump);
    match &dump {
        Dump::Host(pack) => host(pack),
        Dump::Pair(pair) => {
            let report = diagnose(pair);
            let _ = (report.verdict(), report.beside_matrix().count());
            serde_json::to_string(&report).expect("a report can be written");
            host(pair.here());
            host(pair.peer());
        }
    }
}

fn host(pack: &Pack) {
    let report = checks::run(pack);
    assert_eq!(report.host, pack.host());
    assert_eq!(report.checks.len() + report.not_here.len(), checks::all().len(), "every check answers");
    let _ = (report.verdict(), report.working_rails(), report.tried_rails());
    serde_json::to_string(&report).expect("a report can be written");
}

//! Packs of `farreach doctor`, which come from another host or from a file.

use farreach_doctor::pair::diagnose;
use farreach_doctor::{Dump, Finding, Pack, checks};
use farreach_text::one_line;

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
            report.findings.iter().for_each(printable);
            assert!([&report.here, &report.peer].into_iter().all(|name| is_printable(name)));
            host(pair.here());
            host(pair.peer());
        }
    }
}

fn host(pack: &Pack) {
    let report = checks::run(pack);
    assert!(is_printable(&report.host), "{:?}", report.host);
    report.checks.iter().flat_map(|check| &check.findings).for_each(printable);
    assert_eq!(report.checks.len() + report.not_here.len(), checks::all().len(), "every check answers");
    let _ = (report.verdict(), report.working_rails(), report.tried_rails());
    serde_json::to_string(&report).expect("a report can be written");
}

/// Whatever a pack contains, a finding has nothing that a terminal would obey or hide.
fn printable(finding: &Finding) {
    let fixes = finding.fixes.iter().flat_map(|fix| fix.place.iter().chain([&fix.what]).chain(&fix.commands));
    let texts = finding.subject.iter().chain([&finding.found]).chain(&finding.read).chain(fixes);
    for text in texts {
        assert!(is_printable(text), "{text:?}");
    }
}

fn is_printable(text: &str) -> bool {
    one_line(text, usize::MAX) == text
}

//! Formats the report of one host: problems first, passed checks in one line.

use std::fmt::Write;

use farreach_doctor::{CheckReport, HostReport, Verdict};

use super::findings::{ORDER, Style, finding, grouped, names};
use crate::terminal::folded;

/// Formats the report of one host.
pub(super) fn host(host: &HostReport, style: Style) -> String {
    let mut text = folded("", &headline(host), style.width);
    let mut has_problems = false;
    for verdict in ORDER {
        let is_pass = verdict == Verdict::Pass;
        // A problem has several lines, and a blank one sets it apart.
        let mut told: Vec<String> = Vec::new();
        for CheckReport { check, why, findings, .. } in &host.checks {
            let groups = grouped(findings, verdict);
            told.extend(groups.iter().map(|group| finding(check, Some(why), group, style)));
        }
        if is_pass && !style.is_verbose {
            told = vec![names("pass", &passed(host), style)];
        }
        if is_pass && has_problems && told.iter().any(|it| !it.is_empty()) {
            text.push('\n');
        }
        has_problems |= !told.is_empty();
        for it in &told {
            text.push_str(if is_pass { "" } else { "\n" });
            text.push_str(it);
        }
    }
    let not_here: Vec<String> = match host.not_here.len() {
        _ if style.is_verbose => {
            host.not_here.iter().map(|it| format!("{} ({})", it.check, it.reason)).collect()
        }
        // Without a device nearly all checks are skipped, and their names say nothing.
        many if many > NAMES_MAX => vec![format!("{many} checks do not apply here (-v lists them)")],
        _ => host.not_here.iter().map(|it| it.check.clone()).collect(),
    };
    text.push_str(&names("skipped", &not_here, style));
    text
}

/// A longer list of names is not readable.
const NAMES_MAX: usize = 20;

/// Formats the first line: `storage-7: 1 check fails, 2 warn, 1 is unknown, 23 pass`.
fn headline(host: &HostReport) -> String {
    let count = |verdict| host.checks.iter().filter(|check| check.verdict == verdict).count();
    let words = |verdict, one: &str, many: &str| match count(verdict) {
        0 => None,
        1 => Some(format!("1 {one}")),
        several => Some(format!("{several} {many}")),
    };
    let counts: Vec<String> = [
        words(Verdict::Fail, "check fails", "checks fail"),
        words(Verdict::Warn, "warns", "warn"),
        words(Verdict::Unknown, "is unknown", "are unknown"),
        words(Verdict::Pass, "passes", "pass"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let counts = match count(Verdict::Pass) {
        all if all > 1 && all == host.checks.len() => format!("all {all} checks pass"),
        _ => counts.join(", "),
    };
    let mut headline = format!("{}: {counts}", host.host);
    if !host.has_rdma {
        headline.push_str("; there is no RDMA here");
        let works = host.working_rails();
        if !works.is_empty() {
            let _ = write!(headline, ", and what works is {}", works.join(", "));
        }
    }
    if let Some(constructed) = &host.constructed {
        let _ = write!(headline, " (no real host: {constructed})");
    }
    headline
}

/// Returns the checks that passed.
fn passed(host: &HostReport) -> Vec<String> {
    let passed = host.checks.iter().filter(|check| check.verdict == Verdict::Pass);
    passed.map(|check| check.check.clone()).collect()
}

#[cfg(test)]
mod tests {
    use farreach_doctor::Finding;
    use serde_json::json;

    use super::*;
    use crate::show::paint::Paint;

    const STYLE: Style = Style { is_verbose: false, width: Some(60), paint: Paint::PLAIN };

    fn check(name: &str, findings: Vec<Finding>) -> CheckReport {
        let verdict = findings.iter().map(|it| it.verdict).max().unwrap();
        let report = json!({ "check": name, "why": "It matters.", "verdict": verdict, "findings": findings });
        serde_json::from_value(report).unwrap()
    }

    fn report() -> HostReport {
        let refused = |device: &str| {
            Finding::fail("64 KiB may be locked, and 1 MiB was refused")
                .of(device)
                .read("/proc/self/limits")
                .fix_in("shell", "ulimit -l unlimited")
                .fix_in("systemd", "LimitMEMLOCK=infinity")
        };
        let mut report: HostReport = serde_json::from_value(json!({
            "host": "storage-7",
            "read_unix_seconds": 0,
            "constructed": null,
            "has_rdma": true,
            "checks": [],
            "not_here": [{ "check": "efa", "reason": "no such card" }],
        }))
        .unwrap();
        report.checks = vec![
            check("kernel", vec![Finding::pass("it speaks RDMA").read("/sys")]),
            check("acs", vec![Finding::unknown("needs root")]),
            check("memlock", vec![refused("rxe0"), refused("rxe1")]),
        ];
        report
    }

    #[test]
    fn problems_come_first_and_what_is_well_is_folded() {
        let expected = "\
storage-7: 1 check fails, 1 is unknown, 1 passes

FAIL     memlock, rxe0, rxe1: 64 KiB may be locked, and 1
         MiB was refused
         why   It matters.
         fix   shell    ulimit -l unlimited
               systemd  LimitMEMLOCK=infinity

unknown  acs: needs root

pass     kernel
skipped  efa
";
        assert_eq!(host(&report(), STYLE), expected);
    }

    #[test]
    fn who_asks_for_more_sees_what_passes_and_where_it_was_read() {
        let text = host(&report(), Style { is_verbose: true, ..STYLE });
        for line in
            ["pass     kernel: it speaks RDMA\n         read  /sys\n", "skipped  efa (no such card)\n"]
        {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn where_all_is_well_the_first_line_says_so() {
        let checks = ["kernel", "port"].map(|name| check(name, vec![Finding::pass("well")]));
        let mut report = report();
        report.checks = checks.into();
        assert_eq!(headline(&report), "storage-7: all 2 checks pass");
    }

    #[test]
    fn without_rdma_the_first_line_says_what_works() {
        let worked = Finding::pass("1 µs").of("tcp");
        let checks = vec![
            check("kernel", vec![Finding::fail("none")]),
            check("transfer", vec![worked, Finding::fail("no").of("efa")]),
        ];
        let mut report = report();
        (report.has_rdma, report.checks) = (false, checks);
        let headline = "storage-7: 2 checks fail; there is no RDMA here, and what works is tcp";
        assert_eq!(super::headline(&report), headline);
    }
}

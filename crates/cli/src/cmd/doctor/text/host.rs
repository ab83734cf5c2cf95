//! Formats the report of one host: problems first, passed checks in one line.

use std::fmt::Write;

use farreach_doctor::{CheckReport, HostReport, Verdict};

use super::findings::{Context, ORDER, Style, finding, grouped, names};
use crate::terminal::folded;

/// Formats the report of one host. A blank line separates findings.
///
/// `fixes_host` is the host that the fixes name.
pub(super) fn host(host: &HostReport, label: &str, fixes_host: Option<&str>, style: Style) -> String {
    let mut text = folded("", &headline(host, label), style.width);
    for verdict in ORDER.into_iter().filter(|verdict| *verdict != Verdict::Pass || style.is_verbose) {
        for CheckReport { check, why, findings, .. } in &host.checks {
            let context = Context { why: Some(why), host: fixes_host };
            for group in grouped(findings, verdict) {
                text.push('\n');
                text.push_str(&finding(check, &context, &group, style));
            }
        }
    }
    let passed = if style.is_verbose { Vec::new() } else { passed(host) };
    let summary = names("pass", &passed, style) + &skipped(host, style);
    if !summary.is_empty() {
        text.push('\n');
        text.push_str(&summary);
    }
    text
}

/// Formats the checks that do not apply; if verbose, with one line for each reason.
fn skipped(host: &HostReport, style: Style) -> String {
    let all = &host.not_here;
    if !style.is_verbose {
        // Without a device nearly all checks are skipped, and their names say nothing.
        let told = match all.len() {
            many if many > NAMES_MAX => {
                vec![format!("{many} checks do not apply to this host (-v lists them)")]
            }
            _ => all.iter().map(|it| it.check.clone()).collect(),
        };
        return names("skipped", &told, style);
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for it in all {
        match reasons.iter_mut().find(|(reason, _)| *reason == it.reason) {
            Some((_, checks)) => checks.push(&it.check),
            None => reasons.push((&it.reason, vec![&it.check])),
        }
    }
    let line = |(reason, checks): (&str, Vec<&str>)| {
        names("skipped", &[format!("{reason}: {}", checks.join(", "))], style)
    };
    reasons.into_iter().map(line).collect()
}

/// A longer list of names is not readable.
const NAMES_MAX: usize = 20;

/// Formats the first line: `storage-7: 1 check fails, 2 warn, 1 is unknown, 23 pass`.
fn headline(host: &HostReport, label: &str) -> String {
    let count = |verdict| host.checks.iter().filter(|check| check.verdict == verdict).count();
    let words = [
        (Verdict::Fail, "fails", "fail"),
        (Verdict::Warn, "warns", "warn"),
        (Verdict::Unknown, "is unknown", "are unknown"),
        (Verdict::Pass, "passes", "pass"),
    ];
    let mut counts: Vec<String> = Vec::new();
    for (verdict, one, many) in words {
        // Only the first count names the checks.
        let is_first = counts.is_empty();
        match count(verdict) {
            0 => {}
            1 => counts.push(format!("1 {}{one}", if is_first { "check " } else { "" })),
            several => counts.push(format!("{several} {}{many}", if is_first { "checks " } else { "" })),
        }
    }
    let counts = match count(Verdict::Pass) {
        all if all > 1 && all == host.checks.len() => format!("all {all} checks pass"),
        _ => counts.join(", "),
    };
    let mut headline = format!("{label}: {counts}");
    if !host.has_rdma {
        headline.push_str("; no RDMA device");
        let works = host.working_rails();
        if !works.is_empty() {
            let _ = write!(headline, "; {} works", works.join(", "));
        }
    }
    if let Some(constructed) = &host.constructed {
        let _ = write!(headline, " (not a real host: {constructed})");
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
    use farreach_doctor::{Finding, Fix};
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
                .fix(Fix::new("raise the limit").at("this shell").run("ulimit -l unlimited"))
                .fix(Fix::new("add this line to the unit").at("systemd").run("LimitMEMLOCK=infinity"))
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
            check("kernel", vec![Finding::pass("RDMA devices: rxe0").read("/sys")]),
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
         fix   this shell: raise the limit:
                 ulimit -l unlimited
               systemd: add this line to the unit:
                 LimitMEMLOCK=infinity

unknown  acs: needs root

pass     kernel
skipped  efa
";
        assert_eq!(host(&report(), "storage-7", None, STYLE), expected);
    }

    #[test]
    fn who_asks_for_more_sees_what_passes_and_where_it_was_read() {
        let text = host(&report(), "storage-7", None, Style { is_verbose: true, ..STYLE });
        for line in [
            "\n\npass     kernel: RDMA devices: rxe0\n         read  /sys\n",
            "\n\nskipped  no such card: efa\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn where_all_is_well_the_first_line_says_so() {
        let checks = ["kernel", "port"].map(|name| check(name, vec![Finding::pass("well")]));
        let mut report = report();
        report.checks = checks.into();
        assert_eq!(headline(&report, "storage-7"), "storage-7: all 2 checks pass");
    }

    #[test]
    fn the_first_count_names_the_checks() {
        let mut report = report();
        report.checks = vec![check("acs", vec![Finding::warn("a")]), check("port", vec![Finding::pass("a")])];
        assert_eq!(headline(&report, "storage-7"), "storage-7: 1 check warns, 1 passes");
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
        let headline = "storage-7: 2 checks fail; no RDMA device; tcp works";
        assert_eq!(super::headline(&report, "storage-7"), headline);
    }
}

//! The report as a person reads it: problems first, what is well folded into one line.

use super::finding::{Finding, Verdict};
use super::pair::pair_text;
use super::report::{HostReport, Report};
use crate::show::paint::Paint;
use crate::terminal::folded;

/// The whole of it. `is_verbose` unfolds what passes.
pub(super) fn render(report: &Report, is_verbose: bool, width: Option<u16>, paint: Paint) -> String {
    let mut text: String =
        report.hosts.iter().map(|host| host_text(host, is_verbose, width, paint)).collect();
    if let Some(pair) = &report.pair {
        text.push_str(&pair_text(pair, is_verbose, width, paint, |finding| {
            finding_text("pair", finding, width, paint)
        }));
    }
    text
}

fn host_text(host: &HostReport, is_verbose: bool, width: Option<u16>, paint: Paint) -> String {
    let mut text = String::new();
    for verdict in [Verdict::Fail, Verdict::Warn, Verdict::Unknown, Verdict::Pass] {
        for check in &host.checks {
            let findings = check.findings.iter().filter(|finding| finding.verdict == verdict);
            for finding in findings.filter(|_| verdict != Verdict::Pass || is_verbose) {
                text.push_str(&finding_text(&check.check, finding, width, paint));
            }
        }
    }
    text
}

fn finding_text(check: &str, finding: &Finding, width: Option<u16>, paint: Paint) -> String {
    let mark = match finding.verdict {
        Verdict::Pass => paint.good("pass"),
        Verdict::Warn => paint.figure("warn"),
        Verdict::Fail => paint.bad("FAIL"),
        Verdict::Unknown => paint.faint("unknown"),
    };
    let subject = finding.subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default();
    let mut text = folded(&format!("{mark}  {check}{subject}: "), &finding.found, width);
    for fix in &finding.fixes {
        let place = fix.place.as_ref().map(|place| format!(" {place}")).unwrap_or_default();
        text.push_str(&folded(&format!("  fix{place}: "), &fix.how, width));
    }
    text
}

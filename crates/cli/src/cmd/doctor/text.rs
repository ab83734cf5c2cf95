//! The report as a person reads it: problems first, what is well folded into one line.

use std::fmt::Write;

use super::finding::{Finding, Fix, Verdict};
use super::pair::pair_text;
use super::report::{CheckReport, HostReport, Report};
use crate::show::paint::Paint;
use crate::terminal::folded;

/// How to write it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Whether what passes is told in full, and where everything was read.
    pub(super) is_verbose: bool,
    pub(super) width: Option<u16>,
    pub(super) paint: Paint,
}

/// What every line of a finding is indented by.
const INDENT: usize = 9;

/// The worst first.
const ORDER: [Verdict; 4] = [Verdict::Fail, Verdict::Warn, Verdict::Unknown, Verdict::Pass];

/// All of it: what is between two hosts before what is on each.
pub(super) fn report(report: &Report, style: Style) -> String {
    let pair = report.pair.as_ref().map(|pair| pair_text(pair, style));
    let hosts = match report.hosts.as_slice() {
        // A host that meets itself is told of once.
        [here, peer] if here.host == peer.host && here.checks == peer.checks => &report.hosts[..1],
        hosts => hosts,
    };
    let hosts = hosts.iter().map(|it| host(it, style));
    pair.into_iter().chain(hosts).collect::<Vec<_>>().join("\n")
}

/// All about one host.
fn host(host: &HostReport, style: Style) -> String {
    let mut text = folded("", &headline(host), style.width);
    for verdict in ORDER {
        if verdict == Verdict::Pass && !style.is_verbose {
            text.push_str(&names("pass", &passed(host), style));
            continue;
        }
        for CheckReport { check, why, findings, .. } in &host.checks {
            for group in grouped(findings, verdict) {
                text.push_str(&finding(check, Some(why), &group, style));
            }
        }
    }
    let not_here: Vec<String> = match host.not_here.len() {
        _ if style.is_verbose => {
            host.not_here.iter().map(|it| format!("{} ({})", it.check, it.reason)).collect()
        }
        // Without a device that is nearly all of them, which says nothing.
        many if many > NAMES_MAX => vec![format!("what {many} more checks are of; -v tells")],
        _ => host.not_here.iter().map(|it| it.check.clone()).collect(),
    };
    text.push_str(&names("not here", &not_here, style));
    text
}

/// More names than these nobody reads.
const NAMES_MAX: usize = 20;

/// Findings that are of no check of a host's, the worst first. What passes is told only to those who ask for more.
pub(super) fn findings(what: &str, findings: &[Finding], style: Style) -> String {
    let told = ORDER.into_iter().filter(|verdict| *verdict != Verdict::Pass || style.is_verbose);
    told.flat_map(|verdict| grouped(findings, verdict))
        .map(|group| finding(what, None, &group, style))
        .collect()
}

/// `storage-7: 1 check fails, 2 warn, 1 is unknown, 23 pass`
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

/// The checks of which nothing is wrong or unknown.
fn passed(host: &HostReport) -> Vec<String> {
    let passed = host.checks.iter().filter(|check| check.verdict == Verdict::Pass);
    passed.map(|check| check.check.clone()).collect()
}

/// A line of names; none where there are none.
pub(super) fn names(label: &str, names: &[String], style: Style) -> String {
    match names {
        [] => String::new(),
        names => labelled(label, &names.join(", "), style),
    }
}

/// Findings that say the same of several cards are told once.
struct Group<'a> {
    finding: &'a Finding,
    subjects: Vec<&'a str>,
}

fn grouped(findings: &[Finding], verdict: Verdict) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.verdict == verdict) {
        let same = |group: &&mut Group<'_>| {
            group.finding.found == finding.found && group.finding.fixes == finding.fixes
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.subjects.extend(finding.subject.as_deref()),
            None => {
                groups.push(Group { finding, subjects: finding.subject.as_deref().into_iter().collect() })
            }
        }
    }
    groups
}

fn finding(check: &str, why: Option<&str>, group: &Group<'_>, style: Style) -> String {
    let Group { finding, subjects } = group;
    let label = match finding.verdict {
        Verdict::Pass => "pass",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
        Verdict::Unknown => "unknown",
    };
    let subject = if subjects.is_empty() { String::new() } else { format!(", {}", subjects.join(", ")) };
    let mut text = labelled(label, &format!("{check}{subject}: {}", finding.found), style);
    let is_problem = matches!(finding.verdict, Verdict::Warn | Verdict::Fail);
    if let Some(why) = why.filter(|_| is_problem) {
        text.push_str(&noted("why", why, style));
    }
    if style.is_verbose && !finding.read.is_empty() {
        text.push_str(&noted("read", &finding.read.join(", "), style));
    }
    text.push_str(&fixes(&finding.fixes, style));
    text
}

fn fixes(fixes: &[Fix], style: Style) -> String {
    let widest = fixes.iter().filter_map(|fix| fix.place.as_ref()).map(|place| place.chars().count()).max();
    let mut text = String::new();
    for (number, fix) in fixes.iter().enumerate() {
        let label = if number == 0 { "fix" } else { "" };
        let margin = format!("{:INDENT$}{label:<4}  ", "");
        let place = fix.place.as_deref().unwrap_or("here");
        let lead = widest.map_or_else(|| margin.clone(), |widest| format!("{margin}{place:widest$}  "));
        let fits =
            |lead: &str| style.width.is_none_or(|width| columns(lead) + columns(&fix.how) <= width.into());
        // A command is to be copied, and a line that is folded breaks it.
        let told = if !fits(&lead) && fits(&margin) {
            format!("{margin}{place}:\n{}{}\n", " ".repeat(columns(&margin)), fix.how)
        } else {
            folded(&lead, &fix.how, style.width)
        };
        text.push_str(&painted(&told, label, style.paint));
    }
    text
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

fn noted(label: &str, words: &str, style: Style) -> String {
    let lead = format!("{:INDENT$}{label:<4}  ", "");
    painted(&folded(&lead, words, style.width), label, style.paint)
}

fn labelled(label: &str, words: &str, style: Style) -> String {
    let lead = format!("{label:<INDENT$}");
    painted(&folded(&lead, words, style.width), label, style.paint)
}

/// The text with its label in colour: only now, because colour has no width.
fn painted(text: &str, label: &str, paint: Paint) -> String {
    let colour = match label {
        "" => return text.to_owned(),
        "FAIL" => Paint::bad,
        "warn" => Paint::figure,
        "pass" => Paint::good,
        _ => Paint::faint,
    };
    text.replacen(label, &colour(paint, label), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::report::NotHere;

    const STYLE: Style = Style { is_verbose: false, width: Some(60), paint: Paint::PLAIN };

    fn check(name: &str, findings: Vec<Finding>) -> CheckReport {
        CheckReport {
            check: name.to_owned(),
            why: "It matters.".to_owned(),
            verdict: findings.iter().map(|it| it.verdict).max().unwrap(),
            findings,
        }
    }

    fn report() -> HostReport {
        let refused = |device: &str| {
            Finding::fail("64 KiB may be locked, and 1 MiB was refused")
                .of(device)
                .read("/proc/self/limits")
                .fix_in("shell", "ulimit -l unlimited")
                .fix_in("systemd", "LimitMEMLOCK=infinity")
        };
        HostReport {
            host: "storage-7".to_owned(),
            read_unix_seconds: 0,
            constructed: None,
            has_rdma: true,
            checks: vec![
                check("kernel", vec![Finding::pass("it speaks RDMA").read("/sys")]),
                check("acs", vec![Finding::unknown("needs root")]),
                check("memlock", vec![refused("rxe0"), refused("rxe1")]),
            ],
            not_here: vec![NotHere { check: "efa".to_owned(), reason: "no such card".to_owned() }],
        }
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
not here efa
";
        assert_eq!(host(&report(), STYLE), expected);
    }

    #[test]
    fn who_asks_for_more_sees_what_passes_and_where_it_was_read() {
        let text = host(&report(), Style { is_verbose: true, ..STYLE });
        for line in
            ["pass     kernel: it speaks RDMA\n         read  /sys\n", "not here efa (no such card)\n"]
        {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_fix_that_does_not_fit_beside_its_place_is_below_it() {
        let fix = |place: &str, how: &str| Fix { place: Some(place.to_owned()), how: how.to_owned() };
        let all =
            [fix("shell", "ulimit -l unlimited"), fix("container", "docker run --ulimit memlock=-1 IMAGE")];
        let expected = "         fix   shell      ulimit -l unlimited
               container:
               docker run --ulimit memlock=-1 IMAGE
";
        assert_eq!(fixes(&all, STYLE), expected);
    }

    #[test]
    fn where_all_is_well_the_first_line_says_so() {
        let checks = ["kernel", "port"].map(|name| check(name, vec![Finding::pass("well")]));
        let report = HostReport { checks: checks.into(), ..report() };
        assert_eq!(headline(&report), "storage-7: all 2 checks pass");
    }

    #[test]
    fn without_rdma_the_first_line_says_what_works() {
        let worked = Finding::pass("1 µs").of("tcp");
        let checks = vec![
            check("kernel", vec![Finding::fail("none")]),
            check("transfer", vec![worked, Finding::fail("no").of("efa")]),
        ];
        let report = HostReport { has_rdma: false, checks, ..report() };
        let headline = "storage-7: 2 checks fail; there is no RDMA here, and what works is tcp";
        assert_eq!(super::headline(&report), headline);
    }
}

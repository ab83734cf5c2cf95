//! Formats findings as text.

use farreach_doctor::{Finding, Fix, Verdict};

use crate::show::paint::Paint;
use crate::terminal::folded;

/// The style of the text.
#[derive(Debug, Clone, Copy)]
pub(in crate::cmd::doctor) struct Style {
    /// Whether passed checks are listed in full, with all sources.
    pub(in crate::cmd::doctor) is_verbose: bool,
    pub(in crate::cmd::doctor) width: Option<u16>,
    pub(in crate::cmd::doctor) paint: Paint,
}

/// The indentation of every line of a finding.
const INDENT: usize = 9;

/// The additional indentation of a command below the words of its fix.
const COMMAND_INDENT: usize = 2;

/// The order of findings: the worst first.
pub(super) const ORDER: [Verdict; 4] = [Verdict::Fail, Verdict::Warn, Verdict::Unknown, Verdict::Pass];

/// Formats findings that belong to no check of a host, the worst first. Those that pass are left
/// out unless `is_verbose`.
pub(super) fn findings(what: &str, findings: &[Finding], style: Style) -> String {
    let told = ORDER.into_iter().filter(|verdict| *verdict != Verdict::Pass || style.is_verbose);
    told.flat_map(|verdict| grouped(findings, verdict))
        .map(|group| format!("\n{}", finding(what, &Context::default(), &group, style)))
        .collect()
}

/// Formats a line of names; empty if there are none.
pub(super) fn names(label: &str, names: &[String], style: Style) -> String {
    match names {
        [] => String::new(),
        names => labelled(label, &names.join(", "), style),
    }
}

/// Findings with the same text for several subjects, which are printed once.
pub(super) struct Group<'a> {
    finding: &'a Finding,
    subjects: Vec<&'a str>,
}

pub(super) fn grouped(findings: &[Finding], verdict: Verdict) -> Vec<Group<'_>> {
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

/// What is known about a finding beyond the finding itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Context<'a> {
    /// Why the check matters.
    pub(super) why: Option<&'a str>,
    /// The host on which the fixes are to be run, if the report is about two hosts.
    pub(super) host: Option<&'a str>,
}

/// Formats one finding, for all of its subjects.
pub(super) fn finding(check: &str, context: &Context<'_>, group: &Group<'_>, style: Style) -> String {
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
    if let Some(why) = context.why.filter(|_| is_problem) {
        text.push_str(&noted("why", why, style));
    }
    if style.is_verbose && !finding.read.is_empty() {
        text.push_str(&noted("read", &finding.read.join(", "), style));
    }
    text.push_str(&fixes(&finding.fixes, context.host, style));
    text
}

/// Formats fixes in one layout: the place and the words, then each command alone on its line.
///
/// Commands are never folded, so that they can be copied.
fn fixes(fixes: &[Fix], host: Option<&str>, style: Style) -> String {
    let host = host.map(|host| format!("on {host}"));
    let mut text = String::new();
    for (number, fix) in fixes.iter().enumerate() {
        let label = if number == 0 { "fix" } else { "" };
        let margin = format!("{:INDENT$}{label:<4}  ", "");
        let place: Vec<&str> = host.iter().chain(&fix.place).map(String::as_str).collect();
        let place = if place.is_empty() { String::new() } else { format!("{}: ", place.join(", ")) };
        let end = if fix.commands.is_empty() { "" } else { ":" };
        let words = folded(&margin, &format!("{place}{}{end}", fix.what), style.width);
        text.push_str(&painted(&words, label, style.paint));
        let indent = " ".repeat(margin.chars().count() + COMMAND_INDENT);
        text.extend(fix.commands.iter().map(|command| format!("{indent}{command}\n")));
    }
    text
}

fn noted(label: &str, words: &str, style: Style) -> String {
    let lead = format!("{:INDENT$}{label:<4}  ", "");
    painted(&folded(&lead, words, style.width), label, style.paint)
}

fn labelled(label: &str, words: &str, style: Style) -> String {
    let lead = format!("{label:<INDENT$}");
    painted(&folded(&lead, words, style.width), label, style.paint)
}

/// Colours the label. This is the last step, because escape codes would count as width.
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

    const STYLE: Style = Style { is_verbose: false, width: Some(60), paint: Paint::PLAIN };

    #[test]
    fn each_command_stands_alone_on_its_line_and_is_never_folded() {
        let found = Finding::fail("64 KiB may be locked")
            .fix(Fix::new("raise the limit, as root or up to the hard limit").run("ulimit -l unlimited"))
            .fix(
                Fix::new("start the container without the limit")
                    .at("container")
                    .run("docker run --ulimit memlock=-1 --cap-add IPC_LOCK IMAGE"),
            )
            .fix("use less memory");
        let expected = "         fix   raise the limit, as root or up to the hard
               limit:
                 ulimit -l unlimited
               container: start the container without the
               limit:
                 docker run --ulimit memlock=-1 --cap-add IPC_LOCK IMAGE
               use less memory
";
        assert_eq!(fixes(&found.fixes, None, STYLE), expected);
    }

    #[test]
    fn a_fix_of_one_of_two_hosts_names_the_host() {
        let load = Fix::new("load it").at("at boot").run("modprobe rdma_rxe");
        let expected = "         fix   on storage-7, at boot: load it:
                 modprobe rdma_rxe
";
        assert_eq!(fixes(&[load], Some("storage-7"), STYLE), expected);
    }
}

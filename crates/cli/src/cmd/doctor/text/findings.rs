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

/// The order of findings: the worst first.
pub(super) const ORDER: [Verdict; 4] = [Verdict::Fail, Verdict::Warn, Verdict::Unknown, Verdict::Pass];

/// Formats findings that belong to no check of a host, the worst first. Those that pass are left
/// out unless `is_verbose`.
pub(super) fn findings(what: &str, findings: &[Finding], style: Style) -> String {
    let told = ORDER.into_iter().filter(|verdict| *verdict != Verdict::Pass || style.is_verbose);
    told.flat_map(|verdict| grouped(findings, verdict))
        .map(|group| format!("\n{}", finding(what, None, &group, style)))
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

/// Formats one finding, for all of its subjects.
pub(super) fn finding(check: &str, why: Option<&str>, group: &Group<'_>, style: Style) -> String {
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
        // A command has to be copied, and folding would break it.
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
    fn a_fix_that_does_not_fit_beside_its_place_is_below_it() {
        let found = Finding::fail("64 KiB may be locked")
            .fix_in("shell", "ulimit -l unlimited")
            .fix_in("container", "docker run --ulimit memlock=-1 IMAGE");
        let expected = "         fix   shell      ulimit -l unlimited
               container:
               docker run --ulimit memlock=-1 IMAGE
";
        assert_eq!(fixes(&found.fixes, STYLE), expected);
    }
}

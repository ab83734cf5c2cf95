//! What `farreach doctor --json` says of a host.
#![allow(dead_code, reason = "each test uses its part")]

use serde_json::Value;

use super::host::Host;
use super::run::{Ended, FARREACH};

/// A report, of this host alone.
#[derive(Debug)]
pub(crate) struct Doctor {
    pub(crate) code: Option<i32>,
    report: Value,
}

impl Doctor {
    /// Asks on a host. Without the transfers, unless they are what is asked for.
    pub(crate) fn on(host: Host, words: &[&str]) -> Self {
        Self::of(&host.run(&[&[FARREACH, "doctor", "--json"], words].concat()))
    }

    /// Asks where the test runs, without transfers.
    pub(crate) fn here() -> Self {
        Self::on(Host::HERE, &["--no-transfers"])
    }

    /// Of one that has ended.
    pub(crate) fn of(ended: &Ended) -> Self {
        Self { code: ended.code, report: ended.json() }
    }

    /// What a check has found: `(verdict, what, commands of the fixes)` of each finding.
    pub(crate) fn findings(&self, check: &str) -> Vec<(String, String, Vec<String>)> {
        let checks = self.report["hosts"][0]["checks"].as_array().expect("a report has checks");
        let Some(found) = checks.iter().find(|it| it["check"] == check) else {
            panic!("{check} is not among the checks of this host: {:#}", self.report);
        };
        let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let finding = |finding: &Value| {
            let fixes = finding["fixes"].as_array().expect("a finding has fixes");
            let told = format!("{} {}", words(&finding["subject"]), words(&finding["found"]));
            let commands = fixes.iter().flat_map(|fix| fix["commands"].as_array().expect("a list"));
            (words(&finding["verdict"]), told, commands.map(words).collect())
        };
        found["findings"].as_array().expect("a check has findings").iter().map(finding).collect()
    }

    /// The one finding of this verdict that has all of these words: its fixes.
    pub(crate) fn assert_found(&self, check: &str, verdict: &str, words: &[&str]) -> Vec<String> {
        let findings = self.findings(check);
        let fits = |(of, told, _): &&(String, String, Vec<String>)| {
            of == verdict && words.iter().all(|word| told.contains(word))
        };
        match findings.iter().find(fits) {
            Some((_, _, fixes)) => fixes.clone(),
            None => panic!("{check} does not say {verdict} with {words:?}: {findings:#?}"),
        }
    }

    /// Nothing is wrong with it, nor unknown.
    pub(crate) fn assert_passes(&self, check: &str) {
        let findings = self.findings(check);
        assert!(findings.iter().all(|(verdict, ..)| verdict == "pass"), "{check}: {findings:#?}");
    }
}

/// Does what a fix says: the first of them that begins with these words, as a person would paste it into a shell.
pub(crate) fn apply(host: Host, fixes: &[String], begins: &str) {
    let Some(fix) = fixes.iter().find(|fix| fix.starts_with(begins)) else {
        panic!("no fix begins with {begins:?}: {fixes:#?}");
    };
    host.output(&["sh", "-c", fix]);
}

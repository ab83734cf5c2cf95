//! Recorded hosts, and each with one fault at a time.
//!
//! `tests/packs/NAME.json` is a host as `farreach doctor --dump` writes it, on which all is well. `packs/NAME.variants.json` is a list of faults:
//! what is changed, and which verdict it has to lead to. `packs/NAME.SUBJECT.variants.json` has more of them, where one file would be long.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use farreach_doctor::{Dump, checks};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The verdict of each check by its name; `not here` where it has nothing to look at.
pub(crate) type Verdicts = BTreeMap<String, String>;

/// A host on which all is well.
pub(crate) struct Base {
    pub(crate) name: String,
    pub(crate) pack: Value,
    pub(crate) variants: Vec<Variant>,
}

/// A fault.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub(crate) name: String,
    /// The check that has to tell.
    pub(crate) check: String,
    /// What it has to say: `pass`, `unknown`, `warn`, `fail`, `not here`.
    pub(crate) verdict: String,
    /// What it has to say it of; any, if it does not matter.
    #[serde(default)]
    subject: Option<String>,
    /// What that finding, or one of its fixes, has to have in it; of `not here`, the reason.
    contains: Texts,
    /// Files: a text, `{"link": …}`, `{"error": …}`, or null for one that is gone. `FOLDER/**` with null is all that is below.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    /// What changes in the probes, as a merge patch (RFC 7396).
    #[serde(default)]
    probes: Value,
    /// Other checks that change their verdict with it: what one fault may lead to elsewhere is listed.
    #[serde(default)]
    pub(crate) also: Verdicts,
    /// The fault takes the device away: whatever else looks at it has nothing to look at, and is not listed.
    #[serde(default)]
    takes_the_device: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    fn each(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }
}

/// Every host that is recorded.
pub(crate) fn bases() -> Vec<Base> {
    let folder = folder();
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<String> = entries
        .map(|entry| entry.expect("an entry of the folder").file_name().into_string().expect("a plain name"))
        .collect();
    files.sort();
    let mut bases: Vec<Base> = Vec::new();
    for name in
        files.iter().filter(|file| !file.ends_with(VARIANTS)).filter_map(|file| file.strip_suffix(".json"))
    {
        let pack = json(&folder.join(format!("{name}.json")));
        bases.push(Base { name: name.to_owned(), pack, variants: Vec::new() });
    }
    for file in files.iter().filter(|file| file.ends_with(VARIANTS)) {
        let name = file.split('.').next();
        let base = bases.iter_mut().find(|base| Some(base.name.as_str()) == name);
        let variants: Vec<Variant> = serde_json::from_value(json(&folder.join(file)))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        base.unwrap_or_else(|| panic!("{file} is of no host that is recorded")).variants.extend(variants);
    }
    bases
}

const VARIANTS: &str = ".variants.json";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packs")
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Variant {
    /// The host with this fault. An error where there is nothing to change: such a fault proves nothing.
    pub(crate) fn of(&self, base: &Base) -> Result<Value, String> {
        let mut pack = base.pack.clone();
        let files = pack["files"].as_object_mut().expect("a pack has files");
        for (path, value) in &self.set {
            if !set(files, path, value) {
                return Err(format!("{path} is like that on the base"));
            }
        }
        merge(&mut pack["probes"], &self.probes);
        if pack == base.pack { Err("it changes nothing".to_owned()) } else { Ok(pack) }
    }

    /// What is wrong with what was said of this host, one line for each; none if it is as it should be.
    pub(crate) fn objections(&self, report: &Report, base: &Report) -> Vec<String> {
        let verdicts = report.verdicts();
        let mut expected = base.verdicts();
        if self.takes_the_device {
            expected.extend(verdicts.clone().into_iter().filter(|(_, verdict)| verdict == "not here"));
        }
        expected.insert(self.check.clone(), self.verdict.clone());
        expected.extend(self.also.clone());
        let mut objections: Vec<String> = difference(&verdicts, &expected);
        if !report.says(&self.check, &self.verdict, self.subject.as_deref(), self.contains.each()) {
            let said = report.of_check(&self.check);
            objections.push(format!(
                "{}: no {} of {:?} with {:?} in it: {said:#}",
                self.check, self.verdict, self.subject, self.contains
            ));
        }
        objections
    }
}

/// Sets or removes a file; false where that changes nothing.
fn set(files: &mut Map<String, Value>, path: &str, value: &Value) -> bool {
    if !value.is_null() {
        return files.insert(path.to_owned(), value.clone()).as_ref() != Some(value);
    }
    let Some(folder) = path.strip_suffix("**") else { return files.remove(path).is_some() };
    let before = files.len();
    files.retain(|path, _| !path.starts_with(folder));
    files.len() < before
}

/// RFC 7396; null on its own, which is what a variant without `probes` has, changes nothing.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            Value::Object(_) => merge(target.entry(key.clone()).or_insert(Value::Null), value),
            _ => drop(target.insert(key.clone(), value.clone())),
        }
    }
}

/// Where the verdicts are not those that were expected.
fn difference(verdicts: &Verdicts, expected: &Verdicts) -> Vec<String> {
    let names = verdicts.keys().chain(expected.keys().filter(|name| !verdicts.contains_key(*name)));
    let other = |name: &&String| verdicts.get(*name) != expected.get(*name);
    let words = |verdict: Option<&String>| verdict.map_or("missing", String::as_str).to_owned();
    let line = |name: &String| {
        format!("{name}: {}, and not {}", words(verdicts.get(name)), words(expected.get(name)))
    };
    names.filter(other).map(line).collect()
}

/// What was said of a host.
#[derive(Debug)]
pub(crate) struct Report {
    host: Value,
}

impl Report {
    /// Runs the checks.
    pub(crate) fn of(pack: &Value) -> Self {
        match Dump::from_json(pack.to_string().as_bytes()) {
            Ok(Dump::Host(pack)) => {
                Self { host: serde_json::to_value(checks::run(&pack)).expect("a report is JSON") }
            }
            other => panic!("no pack of a host: {other:?}"),
        }
    }

    fn list(&self, key: &str) -> &[Value] {
        self.host[key].as_array().unwrap_or_else(|| panic!("no {key} in {:#}", self.host))
    }

    /// The verdict of each check.
    pub(crate) fn verdicts(&self) -> Verdicts {
        let name = |check: &Value| check["check"].as_str().expect("a name").to_owned();
        let verdict = |check: &Value| check["verdict"].as_str().expect("a verdict").to_owned();
        let here = self.list("checks").iter().map(|check| (name(check), verdict(check)));
        here.chain(self.list("not_here").iter().map(|check| (name(check), "not here".to_owned()))).collect()
    }

    /// The fixes of all findings: the words and the commands of each.
    pub(crate) fn fixes(&self) -> Vec<(String, Vec<String>)> {
        let findings = self.list("checks").iter().filter_map(|check| check["findings"].as_array()).flatten();
        let fixes = findings.filter_map(|finding| finding["fixes"].as_array()).flatten();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let commands = |fix: &Value| fix["commands"].as_array().expect("a list").iter().map(text).collect();
        fixes.map(|fix| (text(&fix["what"]), commands(fix))).collect()
    }

    /// Everything that was said by one check.
    pub(crate) fn of_check(&self, name: &str) -> &Value {
        let all = self.list("checks").iter().chain(self.list("not_here"));
        all.into_iter().find(|check| check["check"] == name).unwrap_or(&Value::Null)
    }

    fn says(&self, check: &str, verdict: &str, subject: Option<&str>, texts: &[String]) -> bool {
        let check = self.of_check(check);
        let has_all = |words: &str| texts.iter().all(|text| words.contains(text.as_str()));
        if verdict == "not here" {
            return check["reason"].as_str().is_some_and(has_all);
        }
        let findings = check["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        findings
            .iter()
            .filter(|finding| finding["verdict"] == verdict)
            .filter(|finding| subject.is_none_or(|subject| finding["subject"] == subject))
            .any(|finding| has_all(&words(finding)))
    }
}

/// What a person would read of a finding.
fn words(finding: &Value) -> String {
    let fixes = finding["fixes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fix = |fix: &Value| {
        let commands = fix["commands"].as_array().expect("a list").clone();
        [fix["place"].clone(), fix["what"].clone()].into_iter().chain(commands).collect::<Vec<_>>()
    };
    let words = std::iter::once(finding["found"].clone()).chain(fixes.iter().flat_map(fix));
    words.filter_map(|word| word.as_str().map(str::to_owned)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_sets_removes_and_leaves() {
        let mut probes =
            json!({ "verbs": { "read": { "library": "a", "devices": {} } }, "nodes": { "read": {} } });
        merge(&mut probes, &Value::Null);
        merge(
            &mut probes,
            &json!({ "verbs": { "read": { "library": "b" } }, "nodes": { "read": null, "unread": "no" } }),
        );
        let expected =
            json!({ "verbs": { "read": { "library": "b", "devices": {} } }, "nodes": { "unread": "no" } });
        assert_eq!(probes, expected);
    }

    #[test]
    fn a_file_that_is_as_it_was_is_no_fault() {
        let mut files =
            json!({ "/a/b": "1", "/a/c": "2", "/ab": "3" }).as_object().expect("an object").clone();
        assert!(!set(&mut files, "/a/b", &json!("1")) && !set(&mut files, "/a/d", &Value::Null));
        assert!(set(&mut files, "/a/b", &json!("2")) && set(&mut files, "/a/**", &Value::Null));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["/ab"]);
    }
}

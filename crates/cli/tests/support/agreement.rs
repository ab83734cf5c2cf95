//! Compares a JSON document with what witnesses say about it, field by field.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// One field's value, as a witness has it.
#[derive(Debug)]
struct Statement {
    witness: &'static str,
    field: String,
    value: Value,
}

/// All that the witnesses said.
#[derive(Debug, Default)]
pub(crate) struct Testimony(Vec<Statement>);

impl Testimony {
    /// Notes a value. A field is named by its path, places of an array by what they are called:
    /// `devices[rxe0].ports[1].state`.
    pub(crate) fn says(&mut self, witness: &'static str, field: impl Into<String>, value: impl Into<Value>) {
        self.0.push(Statement { witness, field: field.into(), value: in_order(value.into()) });
    }

    /// Where the document and the witnesses differ; empty if they agree.
    ///
    /// Every statement must be true of the document. Every field must have a statement, except those of
    /// `unwitnessed`, which must have none. `counted` names the fields that each of several witnesses must speak of: by
    /// them a device or address that only one side knows is found out.
    pub(crate) fn differences(
        &self,
        document: &Value,
        unwitnessed: &[&str],
        counted: &[(&str, &[&str])],
    ) -> Vec<String> {
        let fields = fields(document);
        let mut differences = Vec::new();
        for Statement { witness, field, value } in &self.0 {
            let ours = fields.get(field);
            if ours != Some(value) {
                let ours = ours.map_or("nothing".to_owned(), Value::to_string);
                differences.push(format!("{field}: {witness} says {value}, we say {ours}"));
            }
        }
        let spoken_of: BTreeSet<_> = self.0.iter().map(|it| (it.witness, it.field.as_str())).collect();
        let mut silent: BTreeSet<&str> = unwitnessed.iter().copied().collect();
        for field in fields.keys() {
            let pattern = pattern(field);
            let is_spoken_of = self.0.iter().any(|statement| statement.field == *field);
            if is_spoken_of == unwitnessed.contains(&pattern.as_str()) {
                let has = if is_spoken_of { "has a witness" } else { "has no witness" };
                differences.push(format!("{field} {has}: mend the list of fields without one, or add one"));
            }
            silent.remove(pattern.as_str());
            for (_, witnesses) in counted.iter().filter(|(counted, _)| *counted == pattern) {
                for witness in witnesses.iter().filter(|witness| !spoken_of.contains(&(**witness, field))) {
                    differences.push(format!("{field}: {witness} knows nothing of it"));
                }
            }
        }
        differences.extend(silent.iter().map(|field| format!("{field} is in the list and in no document")));
        differences
    }
}

/// Each value of a document by its path.
fn fields(document: &Value) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    gather("", document, &mut fields);
    fields
}

fn gather(path: &str, value: &Value, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let dot = if path.is_empty() { "" } else { "." };
                gather(&format!("{path}{dot}{key}"), member, fields);
            }
        }
        Value::Array(places) if places.iter().any(Value::is_object) => {
            for place in places {
                gather(&format!("{path}[{}]", called(place)), place, fields);
            }
        }
        value => {
            fields.insert(path.to_owned(), in_order(value.clone()));
        }
    }
}

/// What a place of an array is called: its name or number, whichever it has.
fn called(place: &Value) -> String {
    let name = ["name", "number", "index"].into_iter().find_map(|key| place.get(key));
    match name {
        Some(Value::String(name)) => name.clone(),
        Some(number) => number.to_string(),
        None => panic!("nothing to call it by: {place}"),
    }
}

/// Lists of words are sets: their order means nothing.
fn in_order(mut value: Value) -> Value {
    if let Value::Array(words) = &mut value {
        words.sort_by_key(Value::to_string);
    }
    value
}

/// The path without the names of places: `devices[].ports[].state`.
fn pattern(field: &str) -> String {
    let mut parts = field.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |pattern, part| pattern + "[]" + part.split_once(']').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"devices": [{"name": "rxe0", "words": ["b", "a"], "ports": [{"number": 1, "lid": 7}]}], "told": []})
    }

    fn testimony() -> Testimony {
        let mut testimony = Testimony::default();
        testimony.says("one", "devices[rxe0].name", "rxe0");
        testimony.says("one", "devices[rxe0].words", ["a", "b"].as_slice());
        testimony.says("two", "devices[rxe0].ports[1].number", 1);
        testimony.says("two", "devices[rxe0].ports[1].lid", 7);
        testimony
    }

    #[test]
    fn what_agrees_has_no_differences() {
        assert_eq!(testimony().differences(&document(), &["told"], &[("devices[].name", &["one"])]), [""; 0]);
    }

    #[test]
    fn each_kind_of_difference_is_found() {
        let differ =
            |testimony: &Testimony, unwitnessed: &[&str], counted: &[(&str, &[&str])], words: &str| {
                let differences = testimony.differences(&document(), unwitnessed, counted);
                assert!(differences.len() == 1 && differences[0].contains(words), "{words}: {differences:?}");
            };
        differ(&testimony(), &[], &[], "told has no witness");
        differ(&testimony(), &["told", "devices[].words"], &[], "devices[rxe0].words has a witness");
        differ(&testimony(), &["told", "gone"], &[], "gone is in the list and in no document");
        differ(&testimony(), &["told"], &[("devices[].name", &["one", "two"])], "two knows nothing of it");
        let mut wrong = testimony();
        wrong.says("three", "devices[rxe0].ports[1].lid", 8);
        differ(&wrong, &["told"], &[], "devices[rxe0].ports[1].lid: three says 8, we say 7");
        let mut other = testimony();
        other.says("three", "devices[rxe1].name", "rxe1");
        differ(&other, &["told"], &[], "devices[rxe1].name: three says \"rxe1\", we say nothing");
    }
}

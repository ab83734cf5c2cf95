//! Holds what `--json` prints against docs/schema, as a user's program may.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Panics with every place where the document is not what docs/schema/NAME.json says.
pub(crate) fn assert_valid(name: &str, document: &Value) {
    let found = violations(name, document);
    assert!(found.is_empty(), "not as docs/schema/{name}.json says:\n{}\n{document:#}", found.join("\n"));
}

fn violations(name: &str, document: &Value) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schema/{name}.json"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let schema = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let validator =
        jsonschema::validator_for(&schema).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_or_of_another_kind_is_found() {
        let mut document = json!({
            "schema_version": 1,
            "verbs": { "library": null, "devices": [], "problems": [] },
            "fabric": { "library": null, "version": null, "offers": [], "problems": [] },
            "shm": { "reach": null, "problems": [] },
            "rails": [],
        });
        assert_valid("devices", &document);
        document["verbs"]["devices"] = json!("none");
        document["fabric"].as_object_mut().expect("an object").remove("version");
        document["schema_version"] = json!(2);
        let found = violations("devices", &document);
        assert_eq!(found.len(), 3, "{found:?}");
        for words in
            ["/verbs/devices: ", "/fabric: \"version\" is a required property", "/schema_version: 1 was"]
        {
            assert!(found.iter().any(|line| line.contains(words)), "{words}: {found:?}");
        }
    }
}

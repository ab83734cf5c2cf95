//! Compares docs/schema with the types of the reports. `FARREACH_BLESS=1 cargo test -p
//! farreach-cli` writes the files.

use std::path::PathBuf;
use std::{env, fs};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

/// Compares docs/schema/NAME.json with the type, or writes it if `FARREACH_BLESS` is set.
pub(crate) fn assert_current<T: JsonSchema>(name: &str) {
    let text = serde_json::to_string_pretty(&schema::<T>()).expect("a schema is JSON") + "\n";
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(name);
    if env::var_os("FARREACH_BLESS").is_some() {
        fs::write(&file, &text).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let file = file.display();
    assert!(written == text, "{file} is not what the type says: FARREACH_BLESS=1 cargo test -p farreach-cli");
}

/// Asserts that the JSON of this value matches the schema of its type.
pub(crate) fn assert_describes<T: JsonSchema + Serialize>(value: &T) {
    let document = serde_json::to_value(value).expect("a report is JSON");
    let validator = jsonschema::validator_for(schema::<T>().as_value()).expect("a schema");
    let found: Vec<_> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(found.is_empty(), "{found:?}\n{document:#}");
}

fn schema<T: JsonSchema>() -> Schema {
    // The schema of what is written, not of what is read: a field that may be null is still
    // present.
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

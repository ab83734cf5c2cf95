//! docs/schema is what the types of the reports say. `FARREACH_BLESS=1 cargo test -p farreach-cli` writes it anew.

use std::path::PathBuf;
use std::{env, fs};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

/// Compares docs/schema/NAME.json with the type, or writes it where that is wanted.
pub(crate) fn assert_current<T: JsonSchema>(name: &str) {
    // What we write, not what we would read: a field that may be null is still there.
    let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n";
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(name);
    if env::var_os("FARREACH_BLESS").is_some() {
        fs::write(&file, &text).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let file = file.display();
    assert!(written == text, "{file} is not what the type says: FARREACH_BLESS=1 cargo test -p farreach-cli");
}

//! The JSON form of reports, and its schema.

use schemars::JsonSchema;
use serde::Serialize;

/// The value as indented JSON that ends with a line break.
pub fn json(value: &impl Serialize) -> String {
    // Reports hold no map with keys that are not strings, the only thing that JSON could not write.
    serde_json::to_string_pretty(value).map(|text| text + "\n").unwrap_or_default()
}

/// The JSON Schema of a type under a title.
pub fn schema<T: JsonSchema>(title: &str) -> String {
    let mut schema = schemars::schema_for!(T);
    schema.insert("title".into(), title.into());
    json(&schema)
}

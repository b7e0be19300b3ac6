//! The JSON Schema of the report's JSON.

use crate::record::Record;

/// The schema of what [`Format::Json`](super::Format::Json) gives: an array of records.
pub fn render() -> String {
    let mut schema = schemars::schema_for!(Vec<Record>);
    schema.insert("title".into(), "inferbench report: an object a case and run".into());
    serde_json::to_string_pretty(&schema).map(|text| text + "\n").unwrap_or_default()
}

//! JSON: the records as they are, for scripts.

use crate::record::Record;

/// An array with an object a record; names and units are the columns'.
pub fn render(records: &[Record]) -> String {
    // Records hold no map with keys that are not strings, the only thing that JSON could not write.
    serde_json::to_string_pretty(records).map(|text| text + "\n").unwrap_or_default()
}

//! The columns of a table, derived from the Rust type of its rows.
//!
//! A column of Parquet and DuckDB has a type even if every value is absent, and a column of a CSV file has a name even if
//! there is no row. Both come from the type's own `Serialize` and `JsonSchema`, so that a field which is added to a row is
//! a column everywhere.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// What a column holds, by DuckDB's names. Any value may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum ColumnType {
    Boolean,
    BigInt,
    Double,
    /// Lists are texts with commas.
    Text,
    /// UTC, to the microsecond.
    Timestamp,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub column_type: ColumnType,
}

impl Column {
    /// A column of this name and type.
    pub fn new(name: &str, column_type: ColumnType) -> Self {
        Column { name: name.to_owned(), column_type }
    }
}

/// The names of the columns of a flat struct, in the order of its fields.
pub fn names_of<T: Default + Serialize>() -> Vec<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let is_written = writer.serialize(T::default()).is_ok();
    let bytes = if is_written { writer.into_inner().unwrap_or_default() } else { Vec::new() };
    let header = csv::Reader::from_reader(bytes.as_slice()).headers().cloned().unwrap_or_default();
    header.iter().map(str::to_owned).collect()
}

/// The columns of a flat struct, in the order of its fields.
pub fn columns_of<T: Default + Serialize + JsonSchema>() -> Vec<Column> {
    let schema = schemars::schema_for!(T);
    let column = |name: String| {
        let column_type = schema.get("properties").map_or(ColumnType::Text, |fields| column_type(&fields[&name]));
        Column { name, column_type }
    };
    names_of::<T>().into_iter().map(column).collect()
}

fn column_type(field: &Value) -> ColumnType {
    let is = |name: &str| match &field["type"] {
        Value::Array(types) => types.iter().any(|known| known == name),
        known => known == name,
    };
    match field["format"].as_str() {
        Some("date-time") => ColumnType::Timestamp,
        _ if is("boolean") => ColumnType::Boolean,
        _ if is("integer") => ColumnType::BigInt,
        _ if is("number") => ColumnType::Double,
        _ => ColumnType::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Phase;
    use jiff::Timestamp;

    #[derive(Default, Serialize, JsonSchema)]
    struct Row {
        id: String,
        at: Timestamp,
        ended: Option<Timestamp>,
        phase: Option<Phase>,
        count: Option<usize>,
        version: u32,
        is_new: Option<bool>,
        mean: Option<f64>,
        names: Option<Vec<String>>,
    }

    #[test]
    fn types_are_known_without_a_value() {
        use ColumnType::{BigInt, Boolean, Double, Text, Timestamp};
        let expected = [
            ("id", Text),
            ("at", Timestamp),
            ("ended", Timestamp),
            ("phase", Text),
            ("count", BigInt),
            ("version", BigInt),
            ("is_new", Boolean),
            ("mean", Double),
            ("names", Text),
        ];
        assert_eq!(columns_of::<Row>(), expected.map(|(name, column_type)| Column::new(name, column_type)));
    }
}

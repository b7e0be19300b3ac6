//! The columns of a table, out of the Rust type of its rows.
//!
//! A column of Parquet and DuckDB has a type also where every value is absent, and CSV has none. It is asked of the row's
//! own `Deserialize`, so that a field which is added to a row is a column everywhere, with no list to keep in step.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// What a column holds; any value may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Boolean,
    BigInt,
    Double,
    /// Lists are texts with commas.
    Text,
    /// UTC, to the microsecond.
    Timestamp,
}

impl ColumnType {
    /// DuckDB's name.
    pub fn sql(self) -> &'static str {
        match self {
            ColumnType::Boolean => "BOOLEAN",
            ColumnType::BigInt => "BIGINT",
            ColumnType::Double => "DOUBLE",
            ColumnType::Text => "VARCHAR",
            ColumnType::Timestamp => "TIMESTAMP",
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub column_type: ColumnType,
}

/// The columns of a flat struct, in the order of its fields.
///
/// # Panics
/// The type is no struct, or has a field that is none of [`ColumnType`]: a mistake in this package, which its tests find.
pub fn columns_of<T: for<'de> Deserialize<'de>>() -> Vec<Column> {
    let mut timestamps = BTreeSet::new();
    loop {
        let mut probe = Probe { columns: Vec::new(), timestamps: &timestamps };
        let Err(error) = T::deserialize(&mut probe) else { return probe.columns };
        // What takes no empty text is a timestamp, or nothing that there is a column for.
        match probe.columns.last() {
            Some(Column { name, column_type: ColumnType::Text }) if !timestamps.contains(name) => {
                timestamps.insert(*name);
            }
            last => panic!("{} has no columns: {error}, at {last:?}", std::any::type_name::<T>()),
        }
    }
}

struct Probe<'a> {
    columns: Vec<Column>,
    timestamps: &'a BTreeSet<&'static str>,
}

impl<'de> Deserializer<'de> for &mut Probe<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { probe: self, fields: fields.iter(), current: "" })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(unknown("a row that is no struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn unknown(what: impl fmt::Display) -> Error {
    serde::de::Error::custom(format_args!("no column type for {what}"))
}

struct Fields<'a, 'b> {
    probe: &'a mut Probe<'b>,
    fields: std::slice::Iter<'static, &'static str>,
    current: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(field) = self.fields.next() else { return Ok(None) };
        self.current = field;
        seed.deserialize(field.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Field { probe: self.probe, name: self.current })
    }
}

struct Field<'a, 'b> {
    probe: &'a mut Probe<'b>,
    name: &'static str,
}

impl Field<'_, '_> {
    fn is(&mut self, column_type: ColumnType) {
        self.probe.columns.push(Column { name: self.name, column_type });
    }
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
            self.is(ColumnType::BigInt);
            visitor.visit_u64(0)
        }
    )*};
}

impl<'de> Deserializer<'de> for Field<'_, '_> {
    type Error = Error;

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is(ColumnType::Boolean);
        visitor.visit_bool(false)
    }

    fn deserialize_f64<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is(ColumnType::Double);
        visitor.visit_f64(0.0)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        if self.probe.timestamps.contains(self.name) {
            self.is(ColumnType::Timestamp);
            return visitor.visit_str("1970-01-01T00:00:00Z");
        }
        self.is(ColumnType::Text);
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.is(ColumnType::Text);
        visitor.visit_seq(serde::de::value::SeqDeserializer::new(std::iter::empty::<()>()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.is(ColumnType::Text);
        let first: &'static str = variants.first().ok_or_else(|| unknown(name))?;
        visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(first))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(unknown(self.name))
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Phase;
    use jiff::Timestamp;

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only its columns are looked at")]
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
        let types: Vec<_> =
            columns_of::<Row>().iter().map(|column| format!("{} {}", column.name, column.column_type.sql())).collect();
        assert_eq!(
            types,
            [
                "id VARCHAR",
                "at TIMESTAMP",
                "ended TIMESTAMP",
                "phase VARCHAR",
                "count BIGINT",
                "version BIGINT",
                "is_new BOOLEAN",
                "mean DOUBLE",
                "names VARCHAR"
            ]
        );
    }

    #[test]
    #[should_panic(expected = "no column type for nested")]
    fn a_field_that_no_column_can_hold_is_found() {
        #[derive(Deserialize)]
        struct Nested {
            #[allow(dead_code, reason = "only its columns are looked at")]
            nested: std::collections::BTreeMap<String, String>,
        }
        columns_of::<Nested>();
    }
}

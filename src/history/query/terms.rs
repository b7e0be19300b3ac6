//! The terms of a question, as a user writes them: columns, figures of groups, and conditions.

use std::cmp::Ordering::{self, Equal, Greater, Less};
use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};
use csv::ByteRecord;
use serde_json::Value;

use crate::history::columns::{Column, ColumnType};
use crate::history::facts::Table;
use crate::statistics::median;

/// Short names of numeric columns. `report --columns` takes the same names.
pub const SHORT_NAMES: &[(&str, &str)] = &[
    ("batch", "batch_size"),
    ("p50", "latency_p50_ms"),
    ("p90", "latency_p90_ms"),
    ("p95", "latency_p95_ms"),
    ("p99", "latency_p99_ms"),
    ("mean", "latency_mean_ms"),
    ("samples", "throughput_ips"),
    ("tokens", "tokens_per_second"),
    ("first-token", "first_token_ms"),
    ("device-memory", "device_memory_mb"),
    ("host-memory", "memory_mb"),
    ("memory-growth", "memory_growth_mb"),
    ("energy", "energy_j_per_sample"),
    ("power", "power_w"),
    ("load", "load_time_ms"),
    ("trace", "trace_time_ms"),
    ("compile", "compilation_time_ms"),
    ("first-call", "first_inference_ms"),
    ("preprocess", "preprocess_ms"),
    ("h2d", "h2d_ms"),
    ("compute", "compute_ms"),
    ("d2h", "d2h_ms"),
    ("postprocess", "postprocess_ms"),
    ("gflops", "gflops_per_second"),
    ("roofline", "roofline_percent"),
    ("calls", "iterations"),
    ("disturbed", "disturbed_share"),
    ("accuracy", "accuracy"),
    ("accuracy-change", "accuracy_change"),
    ("top5", "accuracy_top5"),
    ("cosine", "output_cosine"),
    ("error", "max_rel_error"),
    ("size", "model_size_mb"),
    ("parameters", "parameters"),
];

/// Short names of text columns.
const SHORT_NAMES_OF_TEXT: &[(&str, &str)] = &[
    ("host", "host_id"),
    ("energy-source", "energy_kind"),
    ("timed-samples", "timed_samples"),
    ("stopped-by", "stopped_by"),
];

/// A column of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordColumn {
    place: usize,
}

/// A column of an answer: a column of the records, and how the values of a group become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    pub(super) column: RecordColumn,
    pub(super) aggregate: Option<Aggregate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub(super) enum Aggregate {
    Median,
    Min,
    Max,
}

/// A condition on a row, such as `model=resnet50`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub(super) column: RecordColumn,
    comparison: Comparison,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    /// One of the values.
    Equal,
    /// None of the values.
    NotEqual,
    /// The order of the cell and the value is one of these.
    Ordered(&'static [Ordering]),
    /// The text contains the value, ignoring case.
    Contains,
}

/// A sign comes after longer ones that begin with it.
const SIGNS: [(&str, Comparison); 8] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::Ordered(&[Less, Equal])),
    (">=", Comparison::Ordered(&[Greater, Equal])),
    ("=", Comparison::Equal),
    ("<", Comparison::Ordered(&[Less])),
    (">", Comparison::Ordered(&[Greater])),
    ("~", Comparison::Contains),
];

impl RecordColumn {
    pub(super) fn named(name: &str) -> Option<Self> {
        Table::Results.columns().iter().position(|column| column.name == name).map(|place| RecordColumn { place })
    }

    pub(super) fn column(self) -> &'static Column {
        &Table::Results.columns()[self.place]
    }

    pub(super) fn is_number(self) -> bool {
        matches!(self.column().column_type, ColumnType::BigInt | ColumnType::Double)
    }

    pub(super) fn cell(self, row: &ByteRecord) -> &str {
        row.get(self.place).and_then(|cell| std::str::from_utf8(cell).ok()).unwrap_or_default()
    }

    /// Whether the row's cell is this text.
    pub(super) fn is(self, text: &str, row: &ByteRecord) -> bool {
        row.get(self.place).unwrap_or_default() == text.as_bytes()
    }

    pub(super) fn value(self, text: &str) -> Value {
        match self.column().column_type {
            _ if text.is_empty() => Value::Null,
            ColumnType::BigInt | ColumnType::Double => text.parse().map_or(Value::Null, |number| self.number(number)),
            ColumnType::Boolean => Value::Bool(text == "true"),
            ColumnType::Text | ColumnType::Timestamp => text.into(),
        }
    }

    fn number(self, number: f64) -> Value {
        let is_whole = self.column().column_type == ColumnType::BigInt && number.fract() == 0.0;
        if is_whole { (number as i64).into() } else { number.into() }
    }
}

impl FromStr for RecordColumn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut short_names = SHORT_NAMES.iter().chain(SHORT_NAMES_OF_TEXT);
        let name = short_names.find(|(short, _)| *short == text).map_or(text, |(_, name)| name);
        RecordColumn::named(name).with_context(|| {
            let names = Table::Results.columns().iter().map(|column| column.name.as_str());
            let is_like = |name: &&str| name.contains(text) || strsim::jaro_winkler(name, text) > 0.85;
            let like: Vec<&str> = names.filter(is_like).take(8).collect();
            let others = "`report --format json-schema` describes all columns";
            match like.as_slice() {
                [] => format!("no column {text:?}; {others}"),
                like => format!("no column {text:?}: did you mean {}? {others}", like.join(", ")),
            }
        })
    }
}

impl FromStr for Figure {
    type Err = Error;

    /// `p50`, `min:p50`.
    fn from_str(text: &str) -> Result<Self> {
        let (word, name) = text.split_once(':').map_or((None, text), |(word, name)| (Some(word), name));
        let known = |word: &str| word.parse().ok().with_context(|| format!("{word:?} is not median, min or max"));
        let aggregate: Option<Aggregate> = word.map(known).transpose()?;
        let column: RecordColumn = name.parse()?;
        ensure!(
            aggregate != Some(Aggregate::Median) || column.is_number(),
            "{name} is text and has no median; min and max go by alphabetical order"
        );
        Ok(Figure { column, aggregate })
    }
}

impl Figure {
    /// The figure for a group: the median unless an aggregate is given.
    pub(super) fn of_group(self) -> Result<Self> {
        let name = &self.column.column().name;
        ensure!(
            self.aggregate.is_some() || self.column.is_number(),
            "{name} is text, and a group may have several: add it to --by, or show min:{name}"
        );
        Ok(Figure { aggregate: self.aggregate.or(Some(Aggregate::Median)), ..self })
    }

    pub(super) fn header(self) -> String {
        let name = &self.column.column().name;
        self.aggregate.map_or_else(|| name.clone(), |aggregate| format!("{aggregate}_{name}"))
    }

    /// The value of these cells. Without an aggregate, there is at most one cell.
    pub(super) fn value(self, cells: &[String]) -> Value {
        if !self.column.is_number() {
            let chosen = if self.aggregate == Some(Aggregate::Max) { cells.iter().max() } else { cells.iter().min() };
            return self.column.value(chosen.map_or("", String::as_str));
        }
        let numbers: Vec<f64> = cells.iter().filter_map(|cell| cell.parse().ok()).collect();
        let found = match self.aggregate {
            None | Some(Aggregate::Median) => median(&numbers),
            Some(Aggregate::Min) => numbers.into_iter().reduce(f64::min),
            Some(Aggregate::Max) => numbers.into_iter().reduce(f64::max),
        };
        found.map_or(Value::Null, |number| self.column.number(number))
    }
}

impl FromStr for Condition {
    type Err = Error;

    /// `model=resnet50,vit_b_16`, `p50<20`, `message~memory`.
    fn from_str(text: &str) -> Result<Self> {
        let signs = SIGNS.iter().filter_map(|(sign, comparison)| Some((text.find(sign)?, *sign, *comparison)));
        // If two signs are at one place, the first in `SIGNS`, which is the longer one.
        let Some((place, sign, comparison)) = signs.min_by_key(|(place, ..)| *place) else {
            bail!("no =, !=, <, <=, >, >= or ~ in {text:?}; write model=resnet50 or p50<20");
        };
        let column: RecordColumn = text[..place].trim().parse()?;
        let value = text[place + sign.len()..].trim();
        let is_list = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        let values: Vec<String> = match is_list {
            true => value.split(',').map(|value| value.trim().to_owned()).collect(),
            false => vec![value.to_owned()],
        };
        let is_contained = comparison == Comparison::Contains;
        for value in values.iter().filter(|value| !(is_contained || is_list && value.is_empty())) {
            let Column { name, column_type } = column.column();
            let is_number = value.parse::<f64>().is_ok();
            ensure!(!column.is_number() || is_number, "{name} is a number without a unit, and {value:?} is not one");
            let is_boolean = ["true", "false"].contains(&value.as_str());
            ensure!(
                *column_type != ColumnType::Boolean || is_boolean,
                "{name} is true or false, and {value:?} is neither"
            );
        }
        Ok(Condition { column, comparison, values })
    }
}

impl Condition {
    /// Whether it holds for a cell. A cell without a value equals the empty text, and is neither less nor greater than
    /// anything.
    pub(super) fn holds(&self, cell: &str) -> bool {
        let is_equal = |value: &String| match (self.column.is_number(), cell.parse::<f64>(), value.parse::<f64>()) {
            (true, Ok(cell), Ok(value)) => cell == value,
            _ => cell == value,
        };
        let order = || {
            let value = self.values.first().filter(|_| !cell.is_empty())?;
            match self.column.is_number() {
                true => cell.parse::<f64>().ok()?.partial_cmp(&value.parse::<f64>().ok()?),
                false => Some(cell.cmp(value.as_str())),
            }
        };
        match self.comparison {
            Comparison::Equal => self.values.iter().any(is_equal),
            Comparison::NotEqual => !self.values.iter().any(is_equal),
            Comparison::Ordered(allowed) => order().is_some_and(|order| allowed.contains(&order)),
            Comparison::Contains => {
                let cell = cell.to_lowercase();
                self.values.iter().any(|value| cell.contains(&value.to_lowercase()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_of_columns_of_the_records() {
        for (short, name) in SHORT_NAMES.iter().chain(SHORT_NAMES_OF_TEXT) {
            assert_eq!(short.parse::<RecordColumn>().unwrap().column().name, *name, "{short}");
        }
        assert!("host".parse::<Condition>().is_err() && "host=h".parse::<Condition>().is_ok());
    }

    #[test]
    fn conditions_compare_numbers_as_numbers_and_absent_values_with_nothing() {
        let holds = |condition: &str, cell: &str| condition.parse::<Condition>().unwrap().holds(cell);
        assert!(holds("p50<20", "9.5") && !holds("p50<20", "20.0") && holds("p50<=20", "20.0"));
        assert!(
            holds("p50>=9.5", "9.5") && !holds("p50>9.5", "9.5") && holds("batch=8", "8") && holds("batch!=8", "80")
        );
        assert!(holds("backend = ort, tch", "tch") && !holds("backend!=ort,tch", "ort"));
        assert!(holds("message~MEMORY", "out of memory") && !holds("message~memory", ""));
        assert!(holds("timestamp>2026-01", "2026-02-01T00:00:00Z"));
        assert!(!holds("p50<20", "") && holds("p50=", "") && holds("message!=", "x") && holds("message!=x", ""));
        let refused = |text: &str| text.parse::<Condition>().unwrap_err().to_string();
        assert!(refused("p50").contains("write model=resnet50"));
        assert!(refused("p50<20ms").contains("latency_p50_ms is a number without a unit"));
        assert!(holds("verified=true", "true") && refused("verified=yes").contains("verified is true or false"));
        assert!(refused("latency=1").contains("latency_p50_ms"), "{}", refused("latency=1"));
        assert!(refused("modle=m").contains("did you mean model"), "{}", refused("modle=m"));
    }
}

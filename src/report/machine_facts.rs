//! The facts about a machine, as names and values for readers.

use serde::Serialize;
use serde_json::{Value, json};

use super::numbers::percent;
use crate::history::Table;
use crate::machine::Machine;

/// A name and a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

/// The facts that are known, in the order of the columns of `hardware_info`; the units of memory and shares are in the values.
pub fn facts(host_id: &str, machine: Option<&Machine>) -> Vec<Fact> {
    let known = machine.map_or_else(|| json!({ "host_id": host_id }), |machine| json!(machine));
    let fact = |column: &str| {
        let value = match &known[column] {
            Value::Null => return None,
            Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
            Value::Number(bytes) if column.ends_with("_bytes") => format!("{:.1} GB", bytes.as_f64()? / 1e9),
            Value::Number(share) if column.ends_with("_share") => percent(share.as_f64()?),
            Value::String(text) => text.clone(),
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            other => other.to_string(),
        };
        let name = column.trim_end_matches("_bytes").replace('_', " ");
        (!value.is_empty()).then_some(Fact { name, value })
    };
    Table::Hardware.columns().iter().filter_map(|column| fact(&column.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let machine = Machine {
            cpu_model: Some("A CPU".into()),
            memory_bytes: Some(1_500_000_000),
            gpus: Some(Vec::new()),
            ..Machine::default()
        };
        let named =
            |name: &str| facts("1a", Some(&machine)).into_iter().find(|fact| fact.name == name).map(|fact| fact.value);
        assert_eq!(named("memory").as_deref(), Some("1.5 GB"));
        assert_eq!((named("gpus"), named("turbo")), (None, None));
        assert_eq!(facts("1a", None).len(), 1);
    }
}

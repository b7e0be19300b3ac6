//! JSON: the whole comparison, for scripts, and its schema.

use schemars::JsonSchema;
use serde::Serialize;

use super::{VariantTable, Variants};

/// The first table, and beside it the tables of other sequence lengths, phases and machines, which are mostly none.
#[derive(Serialize, JsonSchema)]
struct Document {
    #[serde(flatten)]
    table: VariantTable,
    others: Vec<VariantTable>,
}

/// An object; names and units of a row's figures are those of the records' columns.
pub fn render(variants: &Variants) -> String {
    let mut tables = variants.tables.iter().cloned();
    let Some(table) = tables.next() else { return String::new() };
    let document = Document { table, others: tables.collect() };
    // It holds no map with keys that are not strings, the only thing that JSON could not write.
    serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
}

/// The JSON Schema of that object.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(Document);
    schema.insert("title".into(), "inferbench report --variants: the variants of a model".into());
    serde_json::to_string_pretty(&schema).map(|text| text + "\n").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::example;
    use super::super::{Options, compare};
    use super::*;

    #[test]
    fn a_script_finds_figures_differences_and_the_recommendation() {
        let found: Value = serde_json::from_str(&render(&compare(&example(), &Options::new("m")).unwrap())).unwrap();
        assert_eq!(
            (&found["model"], &found["phase"], &found["sequence_length"]),
            (&json!("m"), &json!("forward"), &Value::Null)
        );
        assert_eq!((&found["batch_size"], &found["others"]), (&json!(1), &json!([])));
        let row = &found["rows"][2];
        assert_eq!(row["variant"], "int8-static");
        assert_eq!((&row["latency_p50_ms"], &row["accuracy_change_lower"]), (&json!(1.25), &json!(-0.006)));
        assert_eq!(row["differences"]["latency_p50"], 0.625);
        assert_eq!(
            (&row["is_on_front"], &row["is_recommended"], &row["quality"]),
            (&json!(true), &json!(true), &json!("kept"))
        );
        assert_eq!(found["rows"][4]["status"], "failed");
        assert_eq!(found["recommendation"]["case_id"], row["case_id"]);
    }
}

//! JSON: the whole comparison, for scripts.

use crate::compare::Comparison;

/// An object; names and units are those of the records' columns, parts are from 0 to 1.
pub fn render(comparison: &Comparison) -> String {
    // A comparison holds no map with keys that are not strings, the only thing that JSON could not write.
    serde_json::to_string_pretty(comparison).map(|text| text + "\n").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report::comparison::tests::comparison;

    #[test]
    fn a_script_finds_verdicts_changes_and_the_conclusion() {
        let found: Value = serde_json::from_str(&render(&comparison())).unwrap();
        assert_eq!((&found["conclusion"], &found["exit_code"]), (&json!("regression"), &json!(1)));
        assert_eq!(found["cases"][0]["id"], "m/ort-cpu-f32/1");
        assert_eq!(found["cases"][0]["latency"]["verdict"], "slower");
        assert_eq!(found["cases"][0]["latency"]["interval"]["ratio"], 1.2);
        assert_eq!(found["cases"][0]["latency"]["base_noise"]["source"], "runs");
        assert_eq!(found["cases"][3]["latency"]["verdict"], "cannot-say");
        assert_eq!(
            found["cases"][1]["changes"][0],
            json!({
                "quantity": "memory_mb", "base": 100.0, "candidate": 150.0, "effect": "regression"
            })
        );
        assert_eq!(found["refused"][0]["differences"][0]["condition"], "library");
    }
}

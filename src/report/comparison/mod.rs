//! A comparison as something to read: a table for a terminal, Markdown for a pull request, and JSON for scripts.

mod figures;
mod markdown;
mod terminal;
mod wording;

use std::collections::BTreeMap;

use serde::Serialize;

use self::figures::{Figure, figures};
use super::Format;
use crate::compare::Comparison;

/// The comparison's text, ending with a line break. Tables of figures have the columns of these names, or the usual ones
/// if there is no name.
pub fn render(comparison: &Comparison, format: Format, columns: &[String]) -> String {
    match format {
        Format::Table => terminal::render(comparison, columns),
        Format::Markdown => markdown::render(comparison, columns),
        Format::Json => json(comparison),
    }
}

/// An object for scripts; names and units are those of the records' columns, and fractions are from 0 to 1.
fn json(comparison: &Comparison) -> String {
    #[derive(Serialize)]
    struct WithFigures<'a> {
        #[serde(flatten)]
        comparison: &'a Comparison,
        figures: BTreeMap<&'a str, BTreeMap<&'static str, Figure>>,
    }
    let with_figures = WithFigures { comparison, figures: figures(comparison) };
    super::json::json(&with_figures)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::compare::{
        Allowance, Change, ComparedCase, Comparison, Conclusion, Condition, Difference, Effect, LatencyChange, Noise,
        RatioInterval, RefusedPair, SideSummary, Source, Value, Verdict,
    };
    use crate::report::tests::record;
    use crate::run_data::Record;

    /// A case of each verdict, one that fails, and one that was refused.
    pub fn comparison() -> Comparison {
        let case = |batch_size, ratio: f64, verdict, changes| {
            let case = record("m", "ort", batch_size, None).case();
            let of_side = |ratio: f64| Record {
                load_time_ms: Some(10.0 * ratio),
                latency_p95_ms: Some(3.0 * ratio),
                latency_p95_upper_ms: Some(4.0 * ratio),
                ..record("m", "ort", batch_size, Some(2.0 * ratio))
            };
            let records = [1.0, ratio].map(|ratio| vec![of_side(ratio)]);
            let noise = Noise { deviation: 0.01, freedom: Some(9.0), runs: 10, source: Source::Runs, usual_step: 0.02 };
            let latency = LatencyChange {
                base_ms: 2.0,
                candidate_ms: 2.0 * ratio,
                base_runs: 1,
                candidate_runs: 1,
                interval: RatioInterval { ratio, lower: ratio - 0.03, upper: ratio + 0.03, confidence: 0.99 },
                p_value: 0.001,
                floor: 0.025,
                base_noise: noise,
                candidate_noise: if batch_size == 8 { Noise::assumed() } else { noise },
                verdict,
                is_small_change: batch_size == 4,
            };
            ComparedCase {
                id: case.to_string(),
                case,
                latency: Some(latency),
                changes,
                allowed_differences: Vec::new(),
                records,
            }
        };
        let memory = Change {
            quantity: "memory_mb",
            base: Value::Number(100.0),
            candidate: Value::Number(150.0),
            effect: Effect::Regression,
        };
        let status = Change {
            quantity: "status",
            base: Value::Text("ok".into()),
            candidate: Value::Text("failed: a | b".into()),
            effect: Effect::Regression,
        };
        let failing = record("m", "ort", 16, None).case();
        let side = |name: &str| SideSummary {
            name: name.into(),
            run_ids: vec![format!("{name}-run")],
            git_commit: Some("0123456789abcdef".into()),
            git_dirty: Some(name == "new"),
            host_id: Some("h".into()),
            disturbed_share: Some(if name == "new" { 0.5 } else { 0.0 }),
        };
        Comparison {
            base: side("main"),
            candidate: side("new"),
            confidence: 0.99,
            tolerance: 0.05,
            allowance: Allowance { memory: 0.1, accuracy: 0.005 },
            conclusion: Conclusion::Regression,
            exit_code: 1,
            cases: vec![
                case(1, 1.2, Verdict::Slower, Vec::new()),
                case(2, 0.8, Verdict::Faster, vec![memory]),
                case(4, 1.0, Verdict::Same, Vec::new()),
                case(8, 1.04, Verdict::CannotSay, Vec::new()),
                ComparedCase {
                    id: failing.to_string(),
                    case: failing,
                    latency: None,
                    changes: vec![status],
                    allowed_differences: Vec::new(),
                    records: Default::default(),
                },
            ],
            refused: vec![RefusedPair {
                id: "m/tch-cpu-f32/1".into(),
                differences: vec![Difference {
                    condition: Condition::Library,
                    base: "1.0".into(),
                    candidate: "2.0".into(),
                }],
            }],
            disturbed_runs: 2,
            notes: vec!["main: 1 case is left out".into()],
        }
    }

    #[test]
    fn a_script_finds_verdicts_changes_and_the_conclusion() {
        let found: serde_json::Value =
            serde_json::from_str(&super::render(&comparison(), super::Format::Json, &[])).unwrap();
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
        assert_eq!(found["figures"]["m/ort-cpu-f32/1"]["load"], json!({ "base": 10.0, "candidate": 12.0 }));
        assert_eq!(found["refused"][0]["differences"][0]["condition"], "library");
    }
}

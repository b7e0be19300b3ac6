//! A comparison for readers: a table for a terminal, Markdown for a pull request, and JSON for scripts.

mod figures;
mod wording;

use std::collections::BTreeMap;

use serde::Serialize;

use self::figures::{Figure, figures};
use self::wording::{footnotes, headline, lines, measure_again, outcome, refusal, refusals, side, table};
use super::Format;
use super::checks::{Check, CheckSuite, Checks, Outcome};
use super::escape::markdown as escape;
use super::load::{check_of_lost, check_of_rate, rates};
use super::numbers::plural;
use super::table::wrapped;
use crate::compare::{ComparedCase, Comparison, RefusedPair};

/// The comparison's text, ending with a line break. Tables of figures have the columns of these names, or the usual ones
/// if there is no name.
pub fn render(comparison: &Comparison, format: Format, columns: &[String]) -> String {
    match format {
        Format::Table => terminal(comparison, columns),
        Format::Markdown => markdown(comparison, columns),
        Format::Json => json(comparison),
    }
}

/// The comparison for continuous integration: a check for each case, refused pair and rate under load.
pub fn checks(comparison: &Comparison, columns: &[String]) -> Checks {
    let of_case = |case: &ComparedCase| {
        let (outcome, message) = outcome(comparison, case);
        let latency_ms = case.latency.as_ref().map(|latency| latency.candidate_ms);
        Check { case_id: case.id.clone(), latency_ms, outcome, message }
    };
    let of_pair = |refused: &RefusedPair| Check {
        case_id: refused.id.clone(),
        latency_ms: None,
        outcome: Outcome::Undecided,
        message: refusal(refused),
    };
    let of_unread = |id: &String| Check {
        case_id: id.clone(),
        latency_ms: None,
        outcome: Outcome::Undecided,
        message: "its measurement cannot be read, or has no time".into(),
    };
    let is_regression = |id: &&String| comparison.cases.iter().any(|case| case.id == **id && case.is_regression());
    let is_read = |case: &&ComparedCase| case.is_regression() || !comparison.unread.contains(&case.id);
    let cases = comparison.cases.iter().filter(is_read).map(of_case).chain(comparison.refused.iter().map(of_pair));
    let cases = cases.chain(comparison.unread.iter().filter(|id| !is_regression(id)).map(of_unread));
    let title = format!("compare {} {}", comparison.base.name, comparison.candidate.name);
    let rates = comparison.rates.iter().map(check_of_rate).chain(comparison.lost.iter().map(check_of_lost));
    let checks = cases.chain(rates).collect();
    // The comment has a heading of its own.
    let details = markdown(comparison, columns).lines().skip(1).map(|line| line.to_owned() + "\n").collect();
    Checks { suites: vec![CheckSuite { name: title.clone(), checks }], title, verdict: headline(comparison), details }
}

/// A row for each pair that was compared, their other figures, then the other changes, the refused pairs, the footnotes, and
/// the conclusion.
fn terminal(comparison: &Comparison, columns: &[String]) -> String {
    let mut parts = vec![format!("base       {}\ncandidate  {}", side(&comparison.base), side(&comparison.candidate))];
    match measure_again(comparison) {
        Some(advice) => parts.push(wrapped(&advice, 0)),
        None => {
            let tables = [table(comparison, |_| true), figures::table(comparison, columns)];
            parts.extend(tables.iter().filter(|table| !table.is_empty()).map(|table| table.terminal()));
        }
    }
    if !comparison.rates.is_empty() {
        parts.push(rates(&comparison.rates).terminal());
    }
    let indented = |lines: Vec<String>| lines.into_iter().map(|line| wrapped(&line, 2)).collect::<String>();
    parts.extend([
        indented(lines(comparison)),
        indented(refusals(comparison)),
        footnotes(comparison).iter().map(|line| wrapped(line, 0)).collect(),
        wrapped(&headline(comparison), 0),
    ]);
    parts.iter().filter(|part| !part.is_empty()).map(|part| format!("\n{}\n", part.trim_end())).collect()
}

/// The conclusion as a heading, a table of the faster and slower cases, and everything else below; the other cases and figures are folded.
fn markdown(comparison: &Comparison, columns: &[String]) -> String {
    let list = |lines: Vec<String>| lines.iter().map(|line| format!("- {}\n", escape(line))).collect::<String>();
    let sides = [&comparison.base, &comparison.candidate].map(|it| escape(&side(it)));
    let mut parts = vec![
        format!("### inferbench: {}\n", escape(&headline(comparison))),
        format!("Base {}; candidate {}.\n", sides[0], sides[1]),
    ];
    let advice = measure_again(comparison);
    let verdicts = |is_change: bool| table(comparison, |verdict| verdict.is_change() == is_change);
    let tables = [verdicts(true), verdicts(false), figures::table(comparison, columns)];
    let [changed, others, figures] = tables.map(|table| {
        let is_shown = advice.is_none() && !table.is_empty();
        if is_shown { table.markdown() } else { String::new() }
    });
    parts.extend(advice.iter().map(|advice| format!("{}\n", escape(advice))));
    if !comparison.rates.is_empty() {
        parts.push(rates(&comparison.rates).markdown());
    }
    parts.extend([changed, list(lines(comparison)), list(refusals(comparison))]);
    let folded = [others, figures].into_iter().filter(|table| !table.is_empty()).collect::<Vec<_>>().join("\n");
    if !folded.is_empty() {
        let verdicts = comparison.cases.iter().filter_map(|case| case.verdict());
        let count = plural(verdicts.filter(|verdict| !verdict.is_change()).count(), "case", "cases");
        let summary = format!("{count} without a change that can be shown, and other figures");
        parts.push(format!("<details><summary>{summary}</summary>\n\n{folded}\n</details>\n"));
    }
    parts.push(footnotes(comparison).iter().map(|line| format!("{}  \n", escape(line))).collect());
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
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
    super::json(&with_figures)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::compare::{
        Allowance, Change, ComparedCase, Conclusion, Condition, Difference, Effect, LatencyChange, Noise, RateChange,
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
                open_because: None,
            };
            ComparedCase {
                id: case.to_string(),
                case,
                latency: Some(latency),
                changes,
                allowed_differences: Vec::new(),
                is_open: false,
                records,
            }
        };
        let memory = Change {
            quantity: "memory_mb".into(),
            base: Value::Number(100.0),
            candidate: Value::Number(150.0),
            effect: Effect::Regression,
        };
        let status = Change {
            quantity: "status".into(),
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
                    is_open: false,
                    records: Default::default(),
                },
            ],
            rates: vec![RateChange {
                case_id: "m/ort-cpu-f32/1".into(),
                instances: 2,
                threads: 1,
                callers: None,
                percentile: 0.99,
                bound_ms: Some(20.0),
                ttft_bound_ms: None,
                tpot_bound_ms: None,
                base_rate: 400.0,
                new_rate: Some(300.0),
                base_tests: 3,
                new_tests: 3,
                ratio: 0.75,
                ratio_lower: 0.7,
                ratio_upper: 0.8,
                is_lower: true,
            }],
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
            lost: Vec::new(),
            unread: Vec::new(),
            is_left_out: true,
        }
    }

    #[test]
    fn a_script_finds_verdicts_changes_and_the_conclusion() {
        let found: serde_json::Value = serde_json::from_str(&render(&comparison(), Format::Json, &[])).unwrap();
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

    #[test]
    fn each_case_is_a_check_that_fails_for_any_regression() {
        use crate::report::checks::{CheckFormat, tests::tests_of};

        let checks = checks(&comparison(), &[]);
        let found = tests_of(&checks.render(CheckFormat::Junit));
        let test = |place: usize| (found[place].0.as_str(), found[place].1.as_str());
        assert_eq!(test(0), ("m/ort-cpu-f32/1", "failure"));
        assert_eq!(found[0].2, "regression: slower: 2.00 ms → 2.40 ms, +20.0 % (+17.0 … +23.0 %)");
        assert_eq!(test(1), ("m/ort-cpu-f32/2", "failure"));
        assert_eq!(found[1].2, "regression: memory_mb 100 → 150 (+50.0 %)");
        assert_eq!((test(2), test(3)), (("m/ort-cpu-f32/4", "passed"), ("m/ort-cpu-f32/8", "skipped")));
        assert!(found[3].2.starts_with("undecided: +4.0 % (+1.0 … +7.0 %): a slow-down of more than 5 % is neither"));
        assert_eq!(found[4].2, "regression: status ok → failed: a | b");
        assert_eq!(found[5].2, "undecided: refused: library: 1.0 ↔ 2.0");
        assert_eq!(found[6].1, "failure");
        assert!(found[6].2.contains("400/s → 300/s") && found[6].2.contains("p99 ≤ 20.0 ms"), "{}", found[6].2);
        assert_eq!(checks.render(CheckFormat::Github).matches("::error ").count(), 4);
        let comment = checks.render(CheckFormat::MarkdownComment);
        let rows = comment.matches("\n| `m/ort-cpu-f32/1` | regression: ").count();
        assert_eq!((comment.matches("### ").count(), rows), (1, 2), "{comment}");
        assert!(comment.contains("</summary>\n\nBase main") && comment.contains("| same |"), "{comment}");
    }

    #[test]
    fn an_open_case_without_times_is_a_warning() {
        use crate::report::checks::CheckFormat;

        let mut comparison = comparison();
        let mut warnings = |is_open| {
            let failing = comparison.cases.last_mut().unwrap();
            (failing.is_open, failing.changes[0].effect) = (is_open, Effect::Notice);
            checks(&comparison, &[]).render(CheckFormat::Github).matches("::warning ").count()
        };
        assert_eq!([false, true].map(&mut warnings), [2, 3]);
    }

    #[test]
    fn every_pair_has_a_row_and_the_rest_a_line() {
        let text = render(&comparison(), Format::Table, &[]);
        let line =
            |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
        let slower = line("m/ort-cpu-f32/1 ");
        assert!(slower.contains('▲') && slower.contains("2.40 ms") && slower.contains("+20.0 %"), "{slower}");
        assert!(slower.contains("+17.0 … +23.0 %") && slower.trim_end().ends_with("slower"), "{slower}");
        assert!(line("m/ort-cpu-f32/8 ").trim_end().ends_with("cannot-say"));
        assert!(line("m/ort-cpu-f32/16:").contains("status ok → failed"));
        assert!(line("m/tch-cpu-f32/1:").contains("refused: library: 1.0 ↔ 2.0"));
        assert!(line("base ").contains("main (run main-run), commit 0123456789ab"));
        assert!(line("candidate  new").ends_with(", changed"));
        assert!(text.trim_end().ends_with("1 case refused"), "{text}");
        let rate = line("2 × 1");
        assert!(rate.contains("p99 ≤ 20.0 ms") && rate.contains("400/s") && rate.contains("lower"), "{rate}");
        assert!(text.contains("1 lower rate under load"), "{text}");
        assert!(line("m/ort-cpu-f32/4:").contains("a sure change of +0.0 %, within the tolerance of 5 %"), "{text}");
        assert!(text.contains("`inferbench profile 'm/ort-cpu-f32/1'` shows where"), "{text}");
        assert!(!text.contains("measure again"), "{text}");
    }

    #[test]
    fn without_any_verdict_there_is_no_table_of_verdicts() {
        let mut noisy = Comparison { rates: Vec::new(), ..comparison() };
        for latency in noisy.cases.iter_mut().filter_map(|case| case.latency.as_mut()) {
            latency.floor = 5.02;
        }
        let text = render(&noisy, Format::Table, &[]);
        assert!(text.contains("measure again: identical code differs by up to 502 % here"), "{text}");
        assert!(!text.contains('─') && !text.contains('▲'), "{text}");
        let markdown = render(&noisy, Format::Markdown, &[]);
        assert!(markdown.contains("measure again") && !markdown.contains("| case |"), "{markdown}");
    }

    #[test]
    fn what_changed_is_above_the_fold() {
        let text = render(&comparison(), Format::Markdown, &[]);
        let fold = text.find("<details><summary>2 cases").unwrap();
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
        assert!(text.starts_with("### inferbench: regression: 1 slower"));
        assert!(place("| ▲ | `m/ort-cpu-f32/1` | 2.00 ms | 2.40 ms | +20.0 % |") < fold);
        assert!(place("| **faster** |") < fold && place("- m/ort-cpu-f32/16: status ok → failed: a \\| b") < fold);
        assert!(place("| `m/ort-cpu-f32/1` | 3.00 → 3.60 ms | 10.0 → 12.0 ms |") > fold);
        assert!(place("| same |") > fold && place("| cannot-say |") > fold);
    }
}

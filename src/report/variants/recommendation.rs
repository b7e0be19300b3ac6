//! Which variant to ship, in a sentence that follows from the figures, and what speaks against it.
//!
//! Compared is with the fastest original. A variant is acceptable if it is shown to lose at most the accuracy that may be
//! lost; without accuracy, if it agrees with the original. Among the acceptable the best for the goal is
//! recommended; what would be better and is not shown to be good enough is named, and never recommended.

use schemars::JsonSchema;
use serde::Serialize;

use super::choice::{Rules, cost};
use super::sentence::Writer;
use super::wording::{listed, name};
use super::{Goal, Measure, Quality, Row, Terms};

/// More say less.
const MOST_REASONS: usize = 2;

/// What to ship.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Recommendation {
    pub sentence: String,
    /// The recommended row; none where nothing can be recommended.
    pub case_id: Option<String>,
    /// At most two: what else there is to know, the most important first.
    pub reasons: Vec<String>,
}

/// The rows are those of one batch size.
pub fn recommend(rows: &[Row], measure: Measure, terms: &Terms<'_>) -> Recommendation {
    let options = terms.options;
    let nothing = |why: String| Recommendation {
        sentence: format!("Nothing is recommended: {why}."),
        case_id: None,
        reasons: Vec::new(),
    };
    let rules = Rules { goal: options.goal, measure, floor: terms.floor, least_gain: terms.least_gain };
    let Some(baseline) = rows.iter().find(|row| row.is_baseline) else {
        return nothing("no original that was measured and right is among these records".into());
    };
    if cost(options.goal, baseline).is_none() {
        let quantity = match options.goal {
            Goal::Latency => "latency",
            Goal::Throughput => "throughput",
            Goal::Size => "size",
            Goal::Memory => "memory in a process of its own",
        };
        return nothing(format!("of {} the {quantity} is not known", name(baseline, rows)));
    }
    let choose = |or: Option<Quality>| -> &Row {
        let is_wanted = |quality: Quality| quality.is_acceptable() || Some(quality) == or;
        let candidates: Vec<&Row> = rows.iter().filter(|row| row.is_candidate() && is_wanted(row.quality)).collect();
        rules.choose(&candidates, baseline)
    };
    let writer = Writer { rows, baseline, rules, terms };
    let chosen = choose(None);
    let mut reasons = Vec::new();
    if let Some(row) = writer.unshown_gain(chosen) {
        reasons.push(writer.unshown(row));
    }
    for quality in [Quality::Open, Quality::Unknown, Quality::Lost] {
        let row = choose(Some(quality));
        if row.quality == quality {
            reasons.push(writer.why_not(row));
        }
    }
    reasons.truncate(MOST_REASONS);
    Recommendation { sentence: writer.sentence(chosen), case_id: Some(chosen.record.case_id.clone()), reasons }
}

impl Recommendation {
    /// `different`: what is the choice elsewhere, `at batch 8 int8-static on ort`.
    pub fn warn_of_batch_sizes(&mut self, different: &[String]) {
        if !different.is_empty() {
            let warning = format!(
                "Another batch size has another choice: {}. Decide by the one that you serve.",
                listed(different)
            );
            self.reasons.truncate(MOST_REASONS - 1);
            self.reasons.push(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, at, measured, table_of, unlabelled, with};
    use super::*;
    use crate::definition::{Dtype, Status};
    use crate::record::Record;

    fn original() -> Record {
        measured("original", "ort", 10.2, 2.0, SAME)
    }

    fn of(others: Vec<Record>) -> Recommendation {
        table_of([vec![original()], others].concat()).recommendation
    }

    #[test]
    fn the_sentence_has_the_figures_of_the_rows() {
        let found = of(vec![measured("int8-static", "ort", 3.0, 1.25, SAME)]);
        assert_eq!(
            found.sentence,
            "Ship int8-static on ort: 1.6 × faster and 3.4 × smaller than the original on ort, accuracy 98.2 % against \
             98.2 % of 450 samples (change 0.0 points, 95 % interval −0.6 to +0.6)."
        );
        assert_eq!((found.case_id.as_deref(), found.reasons.len()), (Some("m-int8-static/ort-cpu-f32/1"), 0));
    }

    #[test]
    fn what_speaks_against_the_choice_is_in_the_sentence() {
        let heavy = Record { memory_mb: Some(330.6), ..measured("fast", "ort", 20.4, 1.0, SAME) };
        let sentence = of(vec![heavy]).sentence;
        let expected =
            "Ship fast on ort: 2.0 × faster than the original on ort, but 2.0 × larger and 3.0 × higher in memory, ";
        assert!(sentence.starts_with(expected), "{sentence}");
    }

    #[test]
    fn a_slower_choice_says_that_it_is_slower() {
        let int8 = |ms| measured("int8", "ort", 3.0, ms, SAME);
        let sentence = |ms, deviation| {
            let table = with(vec![original(), int8(ms)], |options| options.deviation = deviation);
            table.recommendation.sentence
        };
        assert!(sentence(3.0, 0.05).starts_with("Keep the original on ort: "));
        let start = "Ship int8 on ort: 3.4 × smaller than the original on ort, but 1.3 × slower (within what equal code \
                     differs by here), accuracy";
        assert!(sentence(2.64, 0.13).starts_with(start), "{}", sentence(2.64, 0.13));
        assert!(sentence(2.02, 0.13).starts_with("Ship int8 on ort: 3.4 × smaller than the original on ort, accuracy"));
        // So does what would be chosen.
        let open = measured("int8", "ort", 3.0, 2.64, (-0.4, -1.6, 0.8));
        let table = with(vec![original(), open], |options| options.deviation = 0.13);
        let reason = &table.recommendation.reasons[0];
        assert!(reason.starts_with("int8 on ort would be 3.4 × smaller, though 1.3 × slower (within"), "{reason}");
    }

    #[test]
    fn a_gain_that_is_not_shown_is_neither_claimed_nor_denied() {
        let unsteady = Record { latency_min_ms: Some(0.9), ..original() };
        let pruned = |size| measured("pruned", "ort", size, 1.0, SAME);
        let found = table_of(vec![unsteady.clone(), pruned(10.2)]).recommendation;
        assert!(
            found.sentence.starts_with("Keep the original on ort: nothing of acceptable quality is shown to be more")
        );
        let expected =
            "pruned on ort was 2.0 × faster, but that is not shown: the original on ort was as fast at times.";
        assert_eq!(found.reasons, [expected]);
        let smaller = table_of(vec![unsteady.clone(), pruned(5.1)]).recommendation;
        assert!(smaller.sentence.starts_with("Ship pruned on ort: 2.0 × smaller than the original on ort, accuracy"));
        assert_eq!(smaller.reasons, [expected]);
        // The best of two seems to be 5.7 % faster by chance.
        let several = vec![original(), measured("a", "ort", 10.2, 1.9, SAME), measured("b", "ort", 10.2, 2.0, SAME)];
        let found = table_of(several).recommendation;
        assert_eq!(
            found.reasons,
            [
                "a on ort was 1.05 × faster, but that is not shown: the best of 2 rows of equal code may seem to be by chance."
            ]
        );
        let faster = vec![unsteady, pruned(10.2), measured("distilled", "ort", 10.2, 0.8, SAME)];
        assert!(table_of(faster).recommendation.reasons.is_empty());
    }

    #[test]
    fn the_accuracy_beside_is_that_of_the_original_that_the_change_is_to() {
        let int8 = Record {
            compared_with: Some("m/tch-cpu-f32/8".into()),
            ..measured("int8", "tch", 3.0, 1.0, (0.4, -0.5, 1.3))
        };
        let of_others = |record| Record { accuracy: Some(0.5), accuracy_samples: Some(10), ..record };
        let table = table_of(vec![of_others(original()), measured("original", "tch", 10.2, 3.0, SAME), int8.clone()]);
        let sentence = table.recommendation.sentence;
        let expected = "accuracy 98.6 % against 98.2 % by the original on tch of 450 samples (change +0.4 points";
        assert!(sentence.contains(expected), "{sentence}");
        let here = Record { compared_with: Some("m/ort-cpu-f32/8".into()), ..int8 };
        let sentence = of(vec![here]).sentence;
        assert!(sentence.contains("accuracy 98.6 % against 98.2 % of 450 samples (change +0.4 points"), "{sentence}");
    }

    #[test]
    fn an_original_in_its_own_dtype_is_compared_with() {
        let half = |record| Record { dtype: Dtype::F16, ..record };
        let found = table_of(vec![half(original()), half(measured("int8", "ort", 10.2, 2.0, SAME))]).recommendation;
        assert!(found.sentence.starts_with("Keep the original in f16 on ort: "), "{}", found.sentence);
    }

    #[test]
    fn the_fastest_original_of_all_backends_is_what_is_compared_with() {
        let others = vec![measured("original", "tch", 10.2, 1.0, SAME), measured("int8", "ort", 3.0, 0.5, SAME)];
        let sentence = of(others).sentence;
        assert!(
            sentence.starts_with("Ship int8 on ort: 2.0 × faster and 3.4 × smaller than the original on tch, "),
            "{sentence}"
        );
        let kept = of(vec![measured("original", "tch", 10.2, 1.0, SAME), measured("int8", "ort", 9.9, 1.0, SAME)]);
        assert_eq!(
            kept.sentence,
            "Keep the original on tch: nothing of acceptable quality is shown to be more than 5.7 % faster, or as fast and \
             smaller."
        );
        assert_eq!(kept.case_id.as_deref(), Some("m/tch-cpu-f32/1"));
    }

    #[test]
    fn what_is_not_shown_to_be_good_enough_is_named_and_not_recommended() {
        let open = measured("int8-static", "ort", 10.0, 0.95, (-0.4, -1.6, 0.8));
        let found = of(vec![open.clone(), measured("pruned", "ort", 10.2, 1.5, SAME)]);
        assert_eq!(found.case_id.as_deref(), Some("m-pruned/ort-cpu-f32/1"));
        assert_eq!(
            found.reasons,
            ["int8-static on ort would be 2.1 × faster, but 450 samples do not show that it loses less than 1 point \
              (change −0.4 points, 95 % interval −1.6 to +0.8)."]
        );
        // It would not win: nobody needs to know.
        let slow = Record { latency_p50_ms: Some(1.9), ..open.clone() };
        assert!(of(vec![slow, measured("pruned", "ort", 10.2, 1.5, SAME)]).reasons.is_empty());
        let allowed = with(vec![original(), open], |options| options.accuracy_loss = Some(0.02));
        assert_eq!(allowed.recommendation.case_id.as_deref(), Some("m-int8-static/ort-cpu-f32/1"));
    }

    #[test]
    fn what_loses_more_is_never_recommended() {
        let found = of(vec![measured("pruned", "ort", 1.0, 0.5, (-3.0, -4.0, -2.0))]);
        assert!(found.sentence.starts_with("Keep the original on ort: "));
        assert_eq!(
            found.reasons,
            ["pruned on ort would be 4.0 × faster and 10 × smaller, but it loses accuracy (change −3.0 points, 95 % \
              interval −4.0 to −2.0)."]
        );
    }

    #[test]
    fn without_accuracy_agreement_counts_and_is_called_that() {
        let table = table_of(vec![
            unlabelled("original", "ort", 10.0, 2.0, (1.0, 1.0)),
            unlabelled("int8-static", "ort", 2.5, 1.0, (0.984, 0.9987)),
            unlabelled("int8-dynamic", "ort", 2.5, 0.5, (0.7, 0.93)),
        ]);
        let found = &table.recommendation;
        assert_eq!(
            found.sentence,
            "Ship int8-static on ort: 2.0 × faster and 4.0 × smaller than the original on ort, agreement 98.4 % of 64 \
             samples, cosine 0.9987; quality here is agreement with the original, not accuracy: there were no labelled \
             samples."
        );
        assert_eq!(
            found.reasons,
            [
                "int8-dynamic on ort would be 4.0 × faster and 4.0 × smaller, but it answers differently (agreement 70.0 % \
              of 64 samples, cosine 0.9300)."
            ]
        );
        assert!(table.notes[0].starts_with("no accuracy: there were no labelled samples"), "{:?}", table.notes);
    }

    #[test]
    fn what_nobody_has_judged_is_not_recommended() {
        let unknown = |record| Record { accuracy: None, accuracy_change: None, ..record };
        let found = of(vec![unknown(measured("int8", "ort", 1.0, 1.0, SAME))]);
        assert!(found.sentence.starts_with("Keep"));
        assert_eq!(
            found.reasons,
            ["int8 on ort would be 2.0 × faster and 10 × smaller, but its accuracy on digits was not measured."]
        );
        // It was measured, and in its run there was nothing to compare with.
        let alone = Record { accuracy_change: None, ..measured("int8", "ort", 1.0, 1.0, SAME) };
        let reason = of(vec![alone]).reasons.remove(0);
        assert!(reason.ends_with("but no original was judged by the same samples in its run."), "{reason}");
        let nothing = |variant, ms| Record {
            agreement: None,
            output_cosine: None,
            ..unlabelled(variant, "ort", 1.0, ms, (0.0, 0.0))
        };
        let table = table_of(vec![nothing("original", 2.0), nothing("int8", 1.0)]);
        assert_eq!(table.measure, Measure::Unknown);
        assert_eq!(table.recommendation.case_id.as_deref(), Some("m/ort-cpu-f32/1"));
        assert!(table.recommendation.reasons[0].ends_with("its agreement with the original was not measured."));
    }

    #[test]
    fn wrong_and_failed_rows_are_no_candidates() {
        let wrong = Record { verified: Some(false), ..measured("int8", "ort", 1.0, 0.1, SAME) };
        let failed = Record { status: Status::Failed, ..measured("pruned", "ort", 1.0, 0.1, SAME) };
        assert!(of(vec![wrong, failed]).sentence.starts_with("Keep"));
    }

    #[test]
    fn without_an_original_or_its_figure_nothing_is_recommended() {
        let table = table_of(vec![measured("int8", "ort", 1.0, 1.0, SAME)]);
        assert_eq!(table.recommendation.case_id, None);
        assert!(
            table.recommendation.sentence.contains("no original that was measured and right"),
            "{}",
            table.recommendation.sentence
        );
        let without = |record| Record { memory_mb: None, ..record };
        let records = vec![without(original()), measured("int8", "ort", 1.0, 1.0, SAME)];
        let table = with(records, |options| options.goal = Goal::Memory);
        assert_eq!(
            table.recommendation.sentence,
            "Nothing is recommended: of the original on ort the memory in a process of its own is not known."
        );
    }

    #[test]
    fn the_goal_comes_first_in_the_sentence() {
        let variant = || measured("int8", "ort", 2.04, 1.0, SAME);
        let started = |goal, start: &str| {
            let sentence = with(vec![original(), variant()], |options| options.goal = goal).recommendation.sentence;
            assert!(sentence.starts_with(start), "{sentence}");
        };
        started(Goal::Size, "Ship int8 on ort: 5.0 × smaller and 2.0 × faster than");
        started(Goal::Throughput, "Ship int8 on ort: 2.0 × higher in throughput, 2.0 × faster and 5.0 × smaller than");
        started(Goal::Memory, "Ship int8 on ort: 1.08 × lower in memory, 2.0 × faster and 5.0 × smaller than");
    }

    #[test]
    fn batch_sizes_that_disagree_are_warned_of() {
        let table = table_of(vec![
            original(),
            measured("one", "ort", 10.0, 1.0, SAME),
            measured("many", "ort", 10.0, 1.5, SAME),
            at(8, measured("original", "ort", 10.2, 12.0, SAME)),
            at(8, measured("one", "ort", 10.0, 8.0, SAME)),
            at(8, measured("many", "ort", 10.0, 4.0, SAME)),
        ]);
        assert!(table.recommendation.sentence.starts_with("Ship one on ort"));
        assert_eq!(
            table.recommendation.reasons,
            ["Another batch size has another choice: at batch 8 many on ort. Decide by the one that you serve."]
        );
        assert!(!table.other_batch_sizes[0].is_same_choice);
    }
}

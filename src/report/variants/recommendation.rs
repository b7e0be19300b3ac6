//! Which variant to ship, in a sentence that follows from the figures, and what speaks against it.
//!
//! Compared is with the fastest original in f32. A variant is acceptable if it is shown to lose at most the accuracy
//! that may be lost; without accuracy, if it agrees with the original. Among the acceptable the best for the goal is
//! recommended; what would be better and is not shown to be good enough is named, and never recommended.

use schemars::JsonSchema;
use serde::Serialize;

use super::choice::{Rules, cost};
use super::wording::{count_of_points, listed, name, percent, points, short_percent, times};
use super::{Goal, Measure, Options, Quality, Row, Terms};

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
    let rules = Rules { goal: options.goal, measure, floor: terms.floor };
    let Some(baseline) = rows.iter().find(|row| row.is_baseline) else {
        return nothing("there is no measured original in f32 to compare with".into());
    };
    if cost(options.goal, baseline).is_none() {
        let quantity = match options.goal {
            Goal::Latency => "latency",
            Goal::Throughput => "throughput",
            Goal::Size => "size",
            Goal::Memory => "memory",
        };
        return nothing(format!("the {quantity} of {} is not known", name(baseline, rows)));
    }
    let of = |is_wanted: &dyn Fn(Quality) -> bool| -> Vec<&Row> {
        rows.iter().filter(|row| row.is_candidate() && is_wanted(row.quality)).collect()
    };
    let choose = |candidates: &[&'_ Row]| -> String {
        // The baseline is acceptable and has the figure, so there is always a choice.
        rules.choose(candidates, baseline).map_or_else(String::new, |row| row.record.case_id.clone())
    };
    let find = |id: &str| rows.iter().find(|row| row.record.case_id == id).unwrap_or(baseline);
    let writer = Writer { rows, baseline, rules, options };

    let chosen = find(&choose(&of(&Quality::is_acceptable)));
    let or_open = find(&choose(&of(&|quality| quality.is_acceptable() || quality == Quality::Open)));
    let or_lost = find(&choose(&of(&|quality| quality.is_acceptable() || quality == Quality::Lost)));
    let or_unknown = find(&choose(&of(&|quality| quality.is_acceptable() || quality == Quality::Unknown)));
    let mut reasons = Vec::new();
    if or_open.quality == Quality::Open {
        reasons.push(writer.open(or_open));
    }
    if or_unknown.quality == Quality::Unknown {
        reasons.push(writer.unknown(or_unknown));
    }
    if or_lost.quality == Quality::Lost {
        reasons.push(writer.lost(or_lost));
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

/// What the sentences are made of.
struct Writer<'a> {
    rows: &'a [Row],
    baseline: &'a Row,
    rules: Rules,
    options: &'a Options,
}

impl Writer<'_> {
    fn sentence(&self, chosen: &Row) -> String {
        let base = name(self.baseline, self.rows);
        let by_agreement = match self.rules.measure {
            Measure::Agreement => {
                "; quality here is agreement with the original, not accuracy: seeded weights have no accuracy"
            }
            Measure::Accuracy | Measure::Unknown => "",
        };
        if chosen.is_baseline {
            let floor = short_percent(self.rules.floor_of(self.options.goal));
            let ahead = match self.options.goal {
                Goal::Latency => format!("is more than {floor} faster, or as fast and smaller"),
                Goal::Throughput => format!("has over {floor} more throughput, or as much and is smaller"),
                Goal::Size => format!("is more than {floor} smaller"),
                Goal::Memory => format!("needs over {floor} less memory, or as much and is smaller"),
            };
            return format!("Keep {base}: nothing of acceptable quality {ahead}{by_agreement}.");
        }
        let (gains, losses) = self.against_baseline(chosen);
        let but = if losses.is_empty() { String::new() } else { format!(", but {}", listed(&losses)) };
        format!(
            "Ship {}: {} than {base}{but}{}{by_agreement}.",
            name(chosen, self.rows),
            listed(&gains),
            self.quality(chosen)
        )
    }

    /// `, accuracy 98.2 % against 98.0 % of 450 samples (change +0.2 points, 95 % interval −0.6 to +1.0)`.
    fn quality(&self, row: &Row) -> String {
        let record = &row.record;
        match self.rules.measure {
            Measure::Accuracy => {
                let Some(accuracy) = record.accuracy else { return String::new() };
                let against = self.baseline.record.accuracy.map(|base| format!(" against {}", percent(base)));
                let samples = record.accuracy_samples.map(|samples| format!(" of {samples} samples"));
                let change = change(row).map(|change| format!(" ({change})"));
                let parts = [against, samples, change].map(Option::unwrap_or_default).concat();
                format!(", accuracy {}{parts}", percent(accuracy))
            }
            Measure::Agreement => match agreement(row) {
                Some(agreement) => format!(", {agreement}"),
                None => String::new(),
            },
            Measure::Unknown => String::new(),
        }
    }

    fn open(&self, row: &Row) -> String {
        let samples = row.record.accuracy_samples.map_or("the".to_owned(), |samples| samples.to_string());
        let change = change(row).map(|change| format!(" ({change})")).unwrap_or_default();
        format!(
            "{} would be {}, but {samples} samples do not show that it loses less than {}{change}.",
            name(row, self.rows),
            listed(&self.against_baseline(row).0),
            count_of_points(self.options.accuracy_loss),
        )
    }

    fn lost(&self, row: &Row) -> String {
        let loss = match self.rules.measure {
            Measure::Accuracy => match change(row) {
                Some(change) => format!("loses accuracy ({change})"),
                None => "loses accuracy".to_owned(),
            },
            Measure::Agreement | Measure::Unknown => match agreement(row) {
                Some(agreement) => format!("answers differently ({agreement})"),
                None => "answers differently".to_owned(),
            },
        };
        format!("{} would be {}, but {loss}.", name(row, self.rows), listed(&self.against_baseline(row).0))
    }

    fn unknown(&self, row: &Row) -> String {
        let what = if self.rules.measure == Measure::Accuracy { "accuracy" } else { "agreement with the original" };
        format!(
            "{} would be {}, but its {what} was not measured.",
            name(row, self.rows),
            listed(&self.against_baseline(row).0)
        )
    }

    /// In what a row is better than the baseline, and in what worse, by more than the floor; the goal first.
    fn against_baseline(&self, row: &Row) -> (Vec<String>, Vec<String>) {
        let mut quantities = vec![
            (Goal::Latency, "faster", "slower"),
            (Goal::Size, "smaller", "larger"),
            (Goal::Memory, "lower in memory", "higher in memory"),
        ];
        if self.options.goal == Goal::Throughput {
            quantities.push((Goal::Throughput, "higher in throughput", "lower in throughput"));
        }
        // Memory is told of where it is asked for, or where it speaks against the row.
        quantities.sort_by_key(|(goal, ..)| *goal != self.options.goal);
        let (mut gains, mut losses) = (Vec::new(), Vec::new());
        for (goal, better, worse) in quantities {
            let Some((own, base)) = cost(goal, row).zip(cost(goal, self.baseline)) else { continue };
            if self.rules.is_level(goal, row, self.baseline) {
                continue;
            }
            if own > base {
                losses.push(format!("{} {worse}", times(own / base)));
            } else if goal != Goal::Memory || self.options.goal == Goal::Memory {
                gains.push(format!("{} {better}", times(base / own)));
            }
        }
        (gains, losses)
    }
}

/// `change −0.2 points, 95 % interval −1.4 to +1.0`.
fn change(row: &Row) -> Option<String> {
    let record = &row.record;
    let change = format!("change {} points", points(record.accuracy_change?));
    let interval = record.accuracy_change_lower.zip(record.accuracy_change_upper);
    Some(match interval {
        Some((lower, upper)) => format!("{change}, 95 % interval {} to {}", points(lower), points(upper)),
        None => change,
    })
}

/// `agreement 99.2 % of 64 samples, cosine 0.9998`.
fn agreement(row: &Row) -> Option<String> {
    let record = &row.record;
    let samples = record.agreement_samples.map(|samples| format!(" of {samples} samples")).unwrap_or_default();
    let agreement = record.agreement.map(|agreement| format!("agreement {}{samples}", percent(agreement)));
    let cosine = record.output_cosine.map(|cosine| format!("cosine {cosine:.4}"));
    let parts: Vec<String> = [agreement, cosine].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, at, measured, table_of, unlabelled, with};
    use super::*;
    use crate::definition::Status;
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
            "Keep the original on tch: nothing of acceptable quality is more than 5 % faster, or as fast and smaller."
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
        let allowed = with(vec![original(), open], |options| options.accuracy_loss = 0.02);
        assert_eq!(allowed.recommendation.case_id.as_deref(), Some("m-int8-static/ort-cpu-f32/1"));
    }

    #[test]
    fn what_loses_more_is_never_recommended() {
        let found = of(vec![measured("pruned", "ort", 1.0, 0.5, (-3.0, -4.0, -2.0))]);
        assert!(found.sentence.starts_with("Keep the original on ort: "));
        assert_eq!(
            found.reasons,
            ["pruned on ort would be 4.0 × faster and 10 × smaller, but loses accuracy (change −3.0 points, 95 % \
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
             samples, cosine 0.9987; quality here is agreement with the original, not accuracy: seeded weights have no \
             accuracy."
        );
        assert_eq!(
            found.reasons,
            ["int8-dynamic on ort would be 4.0 × faster and 4.0 × smaller, but answers differently (agreement 70.0 % \
              of 64 samples, cosine 0.9300)."]
        );
        assert!(table.notes[0].starts_with("no accuracy: seeded weights have none"), "{:?}", table.notes);
    }

    #[test]
    fn what_nobody_has_judged_is_not_recommended() {
        let unknown = |record| Record { accuracy: None, accuracy_change: None, ..record };
        let found = of(vec![unknown(measured("int8", "ort", 1.0, 1.0, SAME))]);
        assert!(found.sentence.starts_with("Keep"));
        assert_eq!(
            found.reasons,
            ["int8 on ort would be 2.0 × faster and 10 × smaller, but its accuracy was not measured."]
        );
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
            table.recommendation.sentence.contains("no measured original in f32"),
            "{}",
            table.recommendation.sentence
        );
        let without = |record| Record { memory_mb: None, ..record };
        let records = vec![without(original()), measured("int8", "ort", 1.0, 1.0, SAME)];
        let table = with(records, |options| options.goal = Goal::Memory);
        assert_eq!(
            table.recommendation.sentence,
            "Nothing is recommended: the memory of the original on ort is not known."
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

//! The sentences that the table and Markdown share.

use crate::compare::{
    ASSUMED_DEVIATION, Change, Comparison, Conclusion, Condition, Difference, Effect, LatencyChange, SideSummary,
    Source, Value, Verdict,
};

/// Other work on the machine shows from this part of the samples on.
const DISTURBED_FROM: f64 = 0.1;

/// `regression: 1 slower, 2 faster, 3 same, 4 cannot-say; 1 other regression; 2 not compared`.
pub fn headline(comparison: &Comparison) -> String {
    let start = match comparison.conclusion {
        Conclusion::Well => "no regression",
        Conclusion::Regression => "regression",
        Conclusion::NothingToCompare => "nothing to compare",
        Conclusion::CannotSay => "too unstable to say",
    };
    let verdicts = [Verdict::Slower, Verdict::Faster, Verdict::Same, Verdict::CannotSay].map(|verdict| {
        let count = comparison.cases.iter().filter(|case| case.verdict() == Some(verdict)).count();
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    let counts: Vec<String> = verdicts.into_iter().flatten().collect();
    let others = changes(comparison).filter(|(_, change)| change.effect == Effect::Regression).count();
    let parts = [
        (!counts.is_empty()).then(|| counts.join(", ")),
        (others > 0).then(|| plural(others, "other regression", "other regressions")),
        (!comparison.refused.is_empty()).then(|| plural(comparison.refused.len(), "case refused", "cases refused")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { start.to_owned() } else { format!("{start}: {}", parts.join("; ")) }
}

pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Every change besides that of the time, with its case.
pub fn changes(comparison: &Comparison) -> impl Iterator<Item = (&str, &Change)> {
    comparison.cases.iter().flat_map(|case| case.changes.iter().map(|change| (case.id.as_str(), change)))
}

/// `memory_mb 100 → 150 (+50.0 %), a regression`.
pub fn change(change: &Change) -> String {
    let shown = |value: &Value| match value {
        Value::Number(number) => format!("{number:.6}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        Value::Text(text) => text.clone(),
    };
    let part = match (&change.base, &change.candidate) {
        (Value::Number(before), Value::Number(after)) if *before > 0.0 => {
            format!(" ({})", signed_percent(after / before))
        }
        _ => String::new(),
    };
    let effect = match change.effect {
        Effect::Regression => ": a regression",
        Effect::Improvement => ": an improvement",
        Effect::Notice => "",
    };
    format!("{} {} → {}{part}{effect}", change.quantity, shown(&change.base), shown(&change.candidate))
}

/// `+4.2 %` of a ratio of 1.042.
pub fn signed_percent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

/// `+1.2 … +7.3 %`.
pub fn interval(latency: &LatencyChange) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1} … {:+.1} %", percent(latency.interval.lower), percent(latency.interval.upper))
}

/// `library: 1.0 ↔ 2.0`.
pub fn difference(difference: &Difference) -> String {
    let Difference { condition, base, candidate } = difference;
    if base == candidate {
        return format!("{}: {base} on both sides", condition.name());
    }
    format!("{}: {base} ↔ {candidate}", condition.name())
}

/// What to add to the command so that the refused pairs are compared.
pub fn advice_about_refused(comparison: &Comparison) -> Option<String> {
    let differences = || comparison.refused.iter().flat_map(|refused| &refused.differences);
    let differs = |condition: &Condition| differences().any(|difference| difference.condition == *condition);
    let names: Vec<&str> = Condition::ALL.into_iter().filter(differs).map(Condition::name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "refused because more than the code differs; compare all the same with `--allow-different {}`",
            names.join(",")
        )
    })
}

/// `main: run …, commit …, host …`.
pub fn side(side: &SideSummary) -> String {
    let commit = side.git_commit.as_deref().map_or("unknown", |commit| &commit[..commit.len().min(12)]);
    let changed = if side.git_dirty == Some(true) { ", changed" } else { "" };
    let runs = side.run_ids.join(", ");
    let runs = if runs == side.name { String::new() } else { format!(" (run {runs})") };
    format!("{}{runs}, commit {commit}{changed}", side.name)
}

/// Where the noise was taken from, what disturbed the measurements, and what was left out: a line each.
pub fn footnotes(comparison: &Comparison) -> Vec<String> {
    let latencies: Vec<&LatencyChange> = comparison.cases.iter().filter_map(|case| case.latency.as_ref()).collect();
    // The worse known of the two sides counts.
    let source = |latency: &LatencyChange| latency.base_noise.source.max(latency.candidate_noise.source);
    let with = |wanted: Source| latencies.iter().filter(|latency| source(latency) == wanted).count();
    let mut lines = Vec::new();
    if !latencies.is_empty() {
        lines.push(format!(
            "changes of the median time of a call, with {} intervals; up to the floor they are noise, up to {} they do not matter",
            percent(comparison.confidence),
            percent(comparison.tolerance),
        ));
    }
    for (source, text) in [
        (Source::Runs, "noise from runs of equal code".to_owned()),
        (Source::Selftest, "noise from `inferbench selftest`, of a model of its own and of one day".to_owned()),
        (
            Source::Assumed,
            format!(
                "noise unknown, {} between runs assumed; four runs of one commit without changes, or `inferbench \
                 selftest`, make it known",
                percent(ASSUMED_DEVIATION)
            ),
        ),
    ] {
        let count = with(source);
        if count > 0 {
            lines.push(format!("{}: {text}", plural(count, "case", "cases")));
        }
    }
    for side in [&comparison.base, &comparison.candidate] {
        if let Some(share) = side.disturbed_share.filter(|share| *share > DISTURBED_FROM) {
            lines.push(format!("{} of the samples of {} were disturbed", percent_of(share, 0), side.name));
        }
    }
    let allowed: Vec<(&str, &Difference)> = comparison
        .cases
        .iter()
        .flat_map(|case| case.allowed_differences.iter().map(|difference| (case.id.as_str(), difference)))
        .collect();
    lines.extend(allowed.iter().map(|(id, different)| format!("{id}: allowed to differ: {}", difference(different))));
    lines.extend(comparison.notes.iter().cloned());
    lines
}

/// `99 %`, `99.5 %`.
fn percent(part: f64) -> String {
    let text = format!("{:.2}", 100.0 * part);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn percent_of(part: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tests::comparison;

    #[test]
    fn the_headline_counts_everything() {
        assert_eq!(
            headline(&comparison()),
            "regression: 1 slower, 1 faster, 1 same, 1 cannot-say; 2 other regressions; 1 case refused"
        );
    }

    #[test]
    fn changes_are_told_with_their_size_and_effect() {
        let comparison = comparison();
        let lines: Vec<String> = changes(&comparison).map(|(id, found)| format!("{id}: {}", change(found))).collect();
        assert_eq!(
            lines,
            [
                "m/ort-cpu-f32/2: memory_mb 100 → 150 (+50.0 %): a regression",
                "m/ort-cpu-f32/16: status ok → failed: a | b: a regression"
            ]
        );
    }

    #[test]
    fn the_footnotes_say_where_the_noise_is_from_and_what_was_disturbed() {
        let lines = footnotes(&comparison()).join("\n");
        assert!(lines.contains("with 99 % intervals") && lines.contains("up to 5 % they do not matter"), "{lines}");
        assert!(
            lines.contains("3 cases: noise from runs of equal code\n1 case: noise unknown, 5 % between runs"),
            "{lines}"
        );
        assert!(lines.contains("50 % of the samples of new were disturbed"), "{lines}");
        assert!(!lines.contains("samples of main") && lines.ends_with("main: 1 case is left out"), "{lines}");
    }

    #[test]
    fn refused_pairs_come_with_the_flag_that_compares_them() {
        assert!(advice_about_refused(&comparison()).unwrap().ends_with("`--allow-different library`"));
    }
}

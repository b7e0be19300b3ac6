//! The table and the sentences that the terminal and Markdown share.

use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::compare::{
    ACCURACY, ASSUMED_DEVIATION, Change, ComparedCase, Comparison, Conclusion, Condition, Difference, Effect,
    LatencyChange, RefusedPair, SideSummary, Source, Value, Verdict,
};
use crate::report::checks::Outcome;
use crate::report::load::lower_rates;
use crate::report::numbers::{commit, latency as shown_latency, percent, plural, short_percent, signed_percent};
use crate::report::ranking::DISTURBED_FROM;
use crate::report::table::{Cell, Column, Table};

/// A row for each case with a wanted verdict.
pub fn table(comparison: &Comparison, is_wanted: impl Fn(Verdict) -> bool) -> Table {
    let mut table = Table::new([
        Column::code("case"),
        Column::number("base"),
        Column::number("candidate"),
        Column::number("change").essential(),
        Column::number("interval"),
        Column::number("floor").minor(),
        Column::text("verdict").essential(),
    ]);
    for case in &comparison.cases {
        let Some(latency) = case.latency.as_ref().filter(|latency| is_wanted(latency.verdict)) else { continue };
        let verdict = Cell::from(latency.verdict.to_string());
        let row = table.row([
            Cell::from(case.id.as_str()),
            Cell::from(shown_latency(latency.base_ms)),
            Cell::from(shown_latency(latency.candidate_ms)),
            Cell::from(signed_percent(latency.interval.ratio)),
            Cell::from(interval(latency)),
            Cell::from(percent(latency.floor)),
            if latency.verdict.is_change() { verdict.strong() } else { verdict },
        ]);
        match latency.verdict {
            Verdict::Slower => row.mark("▲"),
            Verdict::Faster => row.mark("▼"),
            Verdict::Same | Verdict::NotSlower | Verdict::CannotSay => {}
        }
    }
    table
}

/// The advice instead of a table of verdicts, if identical code differs too much in every case.
pub fn measure_again(comparison: &Comparison) -> Option<String> {
    let floors = comparison.cases.iter().filter_map(|case| case.latency.as_ref()).map(|latency| latency.floor);
    let most = floors.fold(0.0, f64::max);
    comparison.is_too_noisy().then(|| {
        format!(
            "measure again: identical code differs by up to {:.0} % here, and nothing can be said about changes; close other \
             programs, and measure both sides in several runs",
            100.0 * most
        )
    })
}

/// A line for each sure change within the tolerance, and for each change other than time.
pub fn lines(comparison: &Comparison) -> Vec<String> {
    let small = comparison.cases.iter().filter_map(|case| {
        let latency = case.latency.as_ref().filter(|latency| latency.is_small_change)?;
        let (change, tolerance) = (signed_percent(latency.interval.ratio), short_percent(comparison.tolerance));
        Some(format!("{}: a sure change of {change}, within the tolerance of {tolerance}", case.id))
    });
    small.chain(changes(comparison).map(|(id, found)| format!("{id}: {}", change(found)))).collect()
}

/// `regression: 1 slower, 2 faster, 3 same, 4 cannot-say; 1 other regression; 2 cases refused`.
pub fn headline(comparison: &Comparison) -> String {
    let start = match comparison.conclusion {
        Conclusion::Well => "no regression",
        Conclusion::Regression => "regression",
        Conclusion::NothingToCompare => "nothing to compare",
        Conclusion::CannotSay => "undecided",
    };
    let all = [Verdict::Slower, Verdict::Faster, Verdict::Same, Verdict::NotSlower, Verdict::CannotSay];
    let verdicts = all.map(|verdict| {
        let count = comparison.cases.iter().filter(|case| case.verdict() == Some(verdict)).count();
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    let is_untimed = |case: &&ComparedCase| case.is_open && case.latency.is_none() && !case.is_regression();
    let untimed = comparison.cases.iter().filter(is_untimed).count();
    let untimed = (untimed > 0).then(|| format!("{untimed} not compared"));
    let counts: Vec<String> = verdicts.into_iter().flatten().chain(untimed).collect();
    let others = changes(comparison).filter(|(_, change)| change.effect == Effect::Regression).count();
    let parts = [
        (!counts.is_empty()).then(|| counts.join(", ")),
        lower_rates(&comparison.rates),
        (others > 0).then(|| plural(others, "other regression", "other regressions")),
        (!comparison.refused.is_empty()).then(|| plural(comparison.refused.len(), "case refused", "cases refused")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { start.to_owned() } else { format!("{start}: {}", parts.join("; ")) }
}

/// Every change other than time, with its case.
fn changes(comparison: &Comparison) -> impl Iterator<Item = (&str, &Change)> {
    comparison.cases.iter().flat_map(|case| case.changes.iter().map(|change| (case.id.as_str(), change)))
}

/// `memory_mb 100 → 150 (+50.0 %): a regression`.
fn change(change: &Change) -> String {
    let effect = match change.effect {
        Effect::Regression => ": a regression",
        Effect::Improvement => ": an improvement",
        Effect::Notice => "",
    };
    amount(change) + effect
}

/// `memory_mb 100 → 150 (+50.0 %)`, `accuracy 0.9 → 0.89 (-1.00 points)`.
fn amount(change: &Change) -> String {
    let shown = |value: &Value| match value {
        Value::Number(number) => format!("{number:.6}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        Value::Text(text) => text.clone(),
    };
    let difference = match (&change.base, &change.candidate) {
        (Value::Number(before), Value::Number(after)) if change.quantity == ACCURACY => {
            format!(" ({:+.2} points)", 100.0 * (after - before))
        }
        (Value::Number(before), Value::Number(after)) if *before > 0.0 => {
            format!(" ({})", signed_percent(after / before))
        }
        _ => String::new(),
    };
    let [base, candidate] = [&change.base, &change.candidate].map(shown);
    match base == candidate {
        true => format!("{} {base}, on both sides", change.quantity),
        false => format!("{} {base} → {candidate}{difference}", change.quantity),
    }
}

/// `+1.2 … +7.3 %`.
fn interval(latency: &LatencyChange) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1} … {:+.1} %", percent(latency.interval.lower), percent(latency.interval.upper))
}

/// `library: 1.0 ↔ 2.0`.
fn difference(difference: &Difference) -> String {
    let Difference { condition, base, candidate } = difference;
    if base == candidate {
        format!("{condition}: {base} on both sides")
    } else {
        format!("{condition}: {base} ↔ {candidate}")
    }
}

/// What became of a case, and why it has not passed.
pub fn outcome(comparison: &Comparison, case: &ComparedCase) -> (Outcome, String) {
    let size = |latency: &LatencyChange| format!("{} ({})", signed_percent(latency.interval.ratio), interval(latency));
    let slower = case.latency.as_ref().filter(|latency| latency.verdict == Verdict::Slower).map(|latency| {
        let [base, candidate] = [latency.base_ms, latency.candidate_ms].map(shown_latency);
        format!("slower: {base} → {candidate}, {}", size(latency))
    });
    let worse = case.changes.iter().filter(|change| change.effect == Effect::Regression).map(amount);
    let regressions: Vec<String> = slower.into_iter().chain(worse).collect();
    if !regressions.is_empty() {
        return (Outcome::Regression, regressions.join("; "));
    }
    match &case.latency {
        Some(latency) if latency.verdict == Verdict::CannotSay => {
            let tolerance = short_percent(comparison.tolerance);
            let usual = || format!("a slow-down of more than {tolerance} is neither shown nor excluded");
            let open = latency.open_because.map_or_else(usual, str::to_owned);
            (Outcome::Undecided, format!("{}: {open}", size(latency)))
        }
        Some(_) => (Outcome::Passed, String::new()),
        None if case.changes.is_empty() => (Outcome::Skipped, "not measured on both sides".into()),
        None => {
            let outcome = if case.is_open { Outcome::Undecided } else { Outcome::Skipped };
            (outcome, case.changes.iter().map(amount).collect::<Vec<_>>().join("; "))
        }
    }
}

/// A line for each refused pair, and the flag that makes the command compare them, too; empty if no pair was refused.
pub fn refusals(comparison: &Comparison) -> Vec<String> {
    let differences = || comparison.refused.iter().flat_map(|refused| &refused.differences);
    let differs = |condition: &Condition| differences().any(|difference| difference.condition == *condition);
    let names: Vec<String> =
        Condition::value_variants().iter().filter(|it| differs(it)).map(Condition::to_string).collect();
    let advice = (!names.is_empty()).then(|| {
        format!(
            "refused because the conditions differ; to compare them anyway, use `--allow-different {}`",
            names.join(",")
        )
    });
    let line = |refused: &RefusedPair| format!("{}: {}", refused.id, refusal(refused));
    comparison.refused.iter().map(line).chain(advice).collect()
}

/// `refused: library: 1.0 ↔ 2.0`.
pub fn refusal(refused: &RefusedPair) -> String {
    let differences: Vec<String> = refused.differences.iter().map(difference).collect();
    format!("refused: {}", differences.join("; "))
}

/// `main (run …), commit …`.
pub fn side(side: &SideSummary) -> String {
    let runs = side.run_ids.join(", ");
    let runs = if runs.is_empty() || runs == side.name { String::new() } else { format!(" (run {runs})") };
    format!("{}{runs}, commit {}", side.name, commit(side.git_commit.as_deref(), side.git_dirty))
}

/// Lines about the sources of the noise, disturbances, allowed differences, and what was left out.
pub fn footnotes(comparison: &Comparison) -> Vec<String> {
    let latencies: Vec<&LatencyChange> = comparison.cases.iter().filter_map(|case| case.latency.as_ref()).collect();
    let mut lines = Vec::new();
    if !latencies.is_empty() {
        lines.push(format!(
            "changes of the median time of a call with {} intervals; changes up to the floor are noise, changes up to the \
             tolerance of {} do not matter",
            short_percent(comparison.confidence),
            short_percent(comparison.tolerance),
        ));
    }
    let noises = || latencies.iter().flat_map(|latency| [latency.base_noise, latency.candidate_noise]);
    let runs = noises().filter(|noise| noise.source == Source::Runs).map(|noise| noise.runs).min().unwrap_or_default();
    let mut sources: BTreeMap<Source, usize> = BTreeMap::new();
    for latency in &latencies {
        // The source of the side about which less is known counts.
        *sources.entry(latency.base_noise.source.max(latency.candidate_noise.source)).or_default() += 1;
    }
    for (source, count) in sources {
        let noise = match source {
            Source::Runs => format!("noise from at least {} of identical code", plural(runs, "run", "runs")),
            Source::Processes => "noise from the processes of each row".into(),
            Source::Selftest => "noise from `inferbench selftest`, which measures another model".into(),
            Source::Assumed => format!(
                "noise unknown, {} between runs assumed; `run --processes 5` on both sides, or four runs besides the \
                 compared ones, of one commit without changes or of one executable, make it known",
                short_percent(ASSUMED_DEVIATION)
            ),
        };
        lines.push(format!("{}: {noise}", plural(count, "case", "cases")));
    }
    if comparison.conclusion == Conclusion::CannotSay {
        lines.push(
            "a regression is not excluded for every case: more runs of both sides or `inferbench duel` decide more, and \
             `--allow-undecided` accepts open cases only beside a decided one"
                .into(),
        );
    }
    if let Some(slower) = comparison.slower().next() {
        lines.push(format!("`inferbench profile '{}'` shows where the time of a slower case goes", slower.case));
    }
    if comparison.disturbed_runs > 0 {
        let runs = plural(comparison.disturbed_runs, "earlier run is", "earlier runs are");
        lines.push(format!("{runs} left out of the noise: other load affected most of their samples"));
    }
    for side in [&comparison.base, &comparison.candidate] {
        if let Some(share) = side.disturbed_share.filter(|share| *share > DISTURBED_FROM) {
            lines.push(format!("{:.0} % of the samples of {} were disturbed", 100.0 * share, side.name));
        }
    }
    for case in &comparison.cases {
        let allowed = case.allowed_differences.iter();
        let how =
            |it: &Difference| if it.condition.may_change() { "compared, and changed" } else { "allowed to differ" };
        lines.extend(allowed.map(|it| format!("{}: {}: {}", case.id, how(it), difference(it))));
    }
    lines.extend(comparison.notes.iter().cloned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::tests::comparison;

    #[test]
    fn the_headline_counts_everything() {
        assert_eq!(
            headline(&comparison()),
            "regression: 1 slower, 1 faster, 1 same, 1 cannot-say; 1 lower rate under load; 2 other regressions; \
             1 case refused"
        );
        let mut stopped = comparison();
        let not_reached = stopped.cases.last_mut().unwrap();
        (not_reached.is_open, not_reached.changes[0].effect) = (true, Effect::Notice);
        let said = headline(&stopped);
        assert!(said.contains("1 cannot-say, 1 not compared;") && said.contains("1 other regression;"), "{said}");
    }

    #[test]
    fn a_change_of_accuracy_is_in_points() {
        let (base, candidate) = (Value::Number(0.2), Value::Number(0.196));
        let change = Change { quantity: ACCURACY.into(), base, candidate, effect: Effect::Notice };
        assert_eq!(amount(&change), "accuracy 0.2 → 0.196 (-0.40 points)");
    }

    #[test]
    fn changes_are_told_with_their_size_and_effect() {
        let comparison = comparison();
        assert_eq!(
            lines(&comparison),
            [
                "m/ort-cpu-f32/4: a sure change of +0.0 %, within the tolerance of 5 %",
                "m/ort-cpu-f32/2: memory_mb 100 → 150 (+50.0 %): a regression",
                "m/ort-cpu-f32/16: status ok → failed: a | b: a regression"
            ]
        );
    }

    #[test]
    fn the_footnotes_say_where_the_noise_is_from_and_what_was_disturbed() {
        let lines = footnotes(&comparison()).join("\n");
        assert!(
            lines.contains("with 99 % intervals") && lines.contains("the tolerance of 5 % do not matter"),
            "{lines}"
        );
        assert!(
            lines.contains(
                "3 cases: noise from at least 10 runs of identical code\n1 case: noise unknown, 5 % between runs"
            ),
            "{lines}"
        );
        assert!(lines.contains("2 earlier runs are left out of the noise"), "{lines}");
        assert!(lines.contains("50 % of the samples of new were disturbed"), "{lines}");
        assert!(!lines.contains("samples of main") && lines.ends_with("main: 1 case is left out"), "{lines}");
    }

    #[test]
    fn refused_pairs_come_with_the_flag_that_compares_them() {
        assert!(refusals(&comparison()).last().unwrap().ends_with("`--allow-different library`"));
    }
}

//! A duel to read: a table for a terminal, and Markdown for a pull request.

use super::numbers::{commit, latency, short_percent};
use super::table::{Column, Table};
use super::{Format, escape, json};
use crate::compare::{CaseOutcome, Duel, Program, Verdict, in_percent};
use crate::exit_codes;

/// The duel's text, ending with a line break.
pub fn render(duel: &Duel, format: Format) -> String {
    let escaped = |text: String| escape::markdown(&text);
    let (conclusion, table, facts) = (conclusion(duel), table(duel), facts(duel));
    match format {
        Format::Table => format!("{}\n{facts}\n{conclusion}\n", table.terminal()),
        Format::Markdown => format!("### {}\n\n{}\n{}\n", escaped(conclusion), table.markdown(), escaped(facts)),
        Format::Json => json(duel),
    }
}

fn table(duel: &Duel) -> Table {
    let names = [Column::code("case")].into_iter().chain(has_several(duel).then(|| Column::text("against")));
    let columns = ["base", "candidate", "change [99 %]", "null control"].map(Column::number);
    let mut table = Table::new(names.chain(columns).chain([Column::text("verdict")]));
    for case in &duel.cases {
        let names = [case.id.clone(), duel.candidates[case.candidate].name.clone()];
        table.row(names.into_iter().take(1 + usize::from(has_several(duel))).chain(figures(case)));
    }
    notes(duel).into_iter().for_each(|note| table.footnote(note));
    table
}

fn has_several(duel: &Duel) -> bool {
    duel.candidates.len() > 1
}

fn figures(case: &CaseOutcome) -> Vec<String> {
    let Some(found) = &case.comparison else {
        let status = case.loss.as_ref().map(|loss| loss.status.to_string()).unwrap_or_default();
        return [vec![String::new(); 4], vec![status]].concat();
    };
    vec![
        latency(found.base_ns / 1e6),
        latency(found.candidate_ns / 1e6),
        in_percent(&found.change.interval),
        in_percent(&found.null.interval),
        found.verdict.to_string(),
    ]
}

/// What a reader has to know about single cases.
fn notes(duel: &Duel) -> Vec<String> {
    let note = |case: &CaseOutcome| {
        let candidate = &duel.candidates[case.candidate].name;
        if let Some(loss) = &case.loss {
            let whose = if loss.is_candidates() { candidate } else { &duel.base.name };
            let message = loss.message.lines().next().unwrap_or_default();
            return Some(format!("{}: {} in {whose}: {message}", case.id, loss.status));
        }
        let found = case.comparison.as_ref()?;
        let id = if has_several(duel) { format!("{} against {candidate}", case.id) } else { case.id.clone() };
        if found.is_null_changed {
            return Some(format!("{id}: the null control changed, although it is the base itself"));
        }
        if found.is_mean_apart {
            return Some(format!(
                "{id}: the medians do not differ, but the mean of all slices does ({:+.1} %): some slices or processes are \
                 slower",
                100.0 * (found.mean_ratio - 1.0)
            ));
        }
        found.is_small_change.then(|| format!("{id}: changed for certain, but within the tolerance"))
    };
    let is_slower = |case: &CaseOutcome| case.comparison.as_ref().is_some_and(|found| found.verdict == Verdict::Slower);
    let profile =
        duel.cases.iter().any(is_slower).then(|| "`duel --profile` shows which operators take longer".to_owned());
    duel.cases.iter().filter_map(note).chain(profile).collect()
}

/// How it was measured.
fn facts(duel: &Duel) -> String {
    let measured = || duel.cases.iter().filter_map(|case| case.comparison.as_ref());
    let candidates: Vec<String> = duel.candidates.iter().map(named).collect();
    let range = |values: Vec<usize>| match (values.iter().min(), values.iter().max()) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => "no".into(),
    };
    let slowdown = duel.null_slowdown.map_or(String::new(), |fraction| {
        format!(" Candidates were slowed down by {} on purpose.", short_percent(fraction))
    });
    let processors: Vec<String> = duel.processors.iter().map(usize::to_string).collect();
    let pins = match processors.as_slice() {
        [] => "threads not pinned".to_owned(),
        _ => format!("threads pinned to processor {}", processors.join(", ")),
    };
    format!(
        "{} against {}: {} generations of processes, {} slices of {} ms per arm in random order (seed {}), \
         {pins}, {:.1} min on {} processors ({}). Changes up to {} do not matter. The null control is the base against \
         itself.{slowdown}",
        named(&duel.base),
        candidates.join(", "),
        range(measured().map(|found| found.generations).collect()),
        range(measured().map(|found| found.slices).collect()),
        duel.slice_ms,
        duel.seed,
        duel.seconds / 60.0,
        duel.machine.logical_processors,
        duel.machine.cpu_model.as_deref().unwrap_or("of an unknown kind"),
        short_percent(duel.tolerance),
    )
}

fn named(program: &Program) -> String {
    let identity = program.commit.as_ref().unwrap_or(&program.sha256);
    format!("{} ({})", program.name, commit(Some(identity), None))
}

fn conclusion(duel: &Duel) -> String {
    let find = |is_so: fn(&CaseOutcome) -> bool| duel.cases.iter().find(|case| is_so(case));
    match duel.exit_code {
        exit_codes::OK => "no regression".into(),
        exit_codes::REGRESSION_OR_WRONG => "a regression".into(),
        exit_codes::UNSTABLE => {
            if let Some(case) = find(|case| case.comparison.as_ref().is_some_and(|found| found.is_null_changed)) {
                format!(
                    "unstable: {} changed in the null control, where nothing has changed; no verdict holds",
                    case.id
                )
            } else if let Some(case) = find(|case| case.loss.is_some()) {
                format!("unstable: the base lost {}; nothing can be said of it", case.id)
            } else {
                "unstable: nothing can be said; take more time (--minutes), or a quieter machine".into()
            }
        }
        _ => "nothing could be measured".into(),
    }
}

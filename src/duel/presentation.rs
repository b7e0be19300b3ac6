//! A duel to read: a table for a terminal, and Markdown for a pull request. JSON is the duel itself.

use super::fighter::Side;
use super::outcome::{CaseOutcome, Duel};
use super::pairing::Whose;
use super::progress::change_with_interval;
use crate::exit_codes;
use crate::report::ruled_table;

const HEADER: [&str; 6] = ["case", "base", "candidate", "change [99 %]", "null control", "verdict"];

/// For a terminal.
pub fn table(duel: &Duel) -> String {
    let mut table = ruled_table(&HEADER);
    for case in &duel.cases {
        table.add_row(cells(case));
    }
    let troubles: String = duel.cases.iter().filter_map(|case| trouble(duel, case)).map(|line| line + "\n").collect();
    format!("{table}\n{troubles}\n{}\n{}\n", facts(duel), conclusion(duel))
}

/// For a comment on a pull request.
pub fn markdown(duel: &Duel) -> String {
    let row =
        |cells: &[String]| format!("| {} |\n", cells.iter().map(|cell| escape(cell)).collect::<Vec<_>>().join(" | "));
    let mut text = format!("### {}\n\n", conclusion(duel));
    text.push_str(&row(&HEADER.map(str::to_owned)));
    text.push_str("| --- | ---: | ---: | ---: | ---: | --- |\n");
    for case in &duel.cases {
        text.push_str(&row(&cells(case)));
    }
    for line in duel.cases.iter().filter_map(|case| trouble(duel, case)) {
        text.push_str(&format!("\n- {}", escape(&line)));
    }
    format!("{text}\n{}\n", facts(duel))
}

fn cells(case: &CaseOutcome) -> [String; 6] {
    let Some(judgement) = &case.judgement else {
        let status = case.trouble.as_ref().map(|trouble| trouble.status.to_string()).unwrap_or_default();
        return [case.id.clone(), String::new(), String::new(), String::new(), String::new(), status];
    };
    let change = |interval: &Option<_>| interval.as_ref().map(change_with_interval).unwrap_or_default();
    [
        case.id.clone(),
        time(judgement.base_ns),
        time(judgement.candidate_ns),
        change(&judgement.change),
        change(&judgement.null),
        judgement.verdict.to_string(),
    ]
}

fn trouble(duel: &Duel, case: &CaseOutcome) -> Option<String> {
    let trouble = case.trouble.as_ref()?;
    let whose = match trouble.whose {
        Whose::Base => &duel.base.name,
        Whose::Candidate => &duel.candidate.name,
    };
    let message = trouble.message.lines().next().unwrap_or_default();
    Some(format!("{}: {} in {whose}: {message}", case.id, trouble.status))
}

/// What it was measured by.
fn facts(duel: &Duel) -> String {
    let test = if duel.is_sequential {
        format!("{} of at most {} rounds, by a test that may stop early", duel.rounds, duel.planned_rounds)
    } else {
        format!("{} rounds, their number fixed before", duel.rounds)
    };
    let slowdown = duel.null_slowdown.map_or(String::new(), |part| {
        format!(" The candidate was slowed down by {} % on purpose.", (1e4 * part).round() / 1e2)
    });
    let machine = &duel.machine;
    format!(
        "{} against {}: {test}, two processes a contestant and round in random mirrored order (seed {}), {} s of calls a \
         case and process, {:.1} min on {} processors ({}). The null control is the base against itself.{slowdown}",
        named(&duel.base),
        named(&duel.candidate),
        duel.seed,
        duel.seconds_a_case,
        duel.seconds / 60.0,
        machine.logical_processors,
        machine.cpu_model.as_deref().unwrap_or("of an unknown kind"),
    )
}

fn named(side: &Side) -> String {
    match &side.commit {
        Some(commit) => format!("{} ({})", side.name, &commit[..commit.len().min(12)]),
        None => format!("{} ({})", side.name, &side.sha256[..side.sha256.len().min(12)]),
    }
}

fn conclusion(duel: &Duel) -> String {
    let void = duel.cases.iter().find(|case| case.judgement.as_ref().is_some_and(|found| found.is_null_changed));
    match duel.exit_code {
        exit_codes::OK => "no regression".into(),
        exit_codes::REGRESSION_OR_WRONG => "a regression".into(),
        exit_codes::UNSTABLE => match void {
            Some(case) => format!(
                "unstable: {} changed in the null control, where nothing has changed; no verdict holds",
                case.id
            ),
            None => "unstable: nothing can be said; take more rounds (--minutes), or a quieter machine".into(),
        },
        _ => "nothing could be measured".into(),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}

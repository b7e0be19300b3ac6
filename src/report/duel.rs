//! A duel to read: a table for a terminal, and Markdown for a pull request.

use std::collections::BTreeSet;

use super::checks::{Check, CheckSuite, Checks, Outcome};
use super::numbers::{commit, latency, plural, short_percent, signed_percent};
use super::table::{Column, Table, wrapped};
use super::{Format, escape, json};
use crate::compare::{CaseOutcome, Duel, DuelStanding, DuetPlan, Loss, Program, Role, Verdict, in_percent};
use crate::exit_codes;

/// The duel's text, ending with a line break.
pub fn render(duel: &Duel, format: Format) -> String {
    let escaped = |text: String| escape::markdown(&text);
    let (conclusion, table, facts) = (conclusion(duel), table(duel), facts(duel));
    match format {
        Format::Table => format!("{}\n{}{}", table.terminal(), wrapped(&facts, 0), wrapped(&conclusion, 0)),
        Format::Markdown => format!("### {}\n\n{}\n{}\n", escaped(conclusion), table.markdown(), escaped(facts)),
        Format::Json => json(duel),
    }
}

/// The duel for continuous integration: a suite for each candidate.
pub fn checks(duel: &Duel) -> Checks {
    let names: Vec<&str> = duel.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    let suite = |(place, name): (usize, &&str)| CheckSuite {
        name: format!("duel {} {name}", duel.base.name),
        checks: duel.cases.iter().filter(|case| case.candidate == place).map(|case| check(duel, case)).collect(),
    };
    Checks {
        title: format!("duel {} {}", duel.base.name, names.join(" ")),
        verdict: conclusion(duel),
        suites: names.iter().enumerate().map(suite).collect(),
        details: format!("{}\n{}\n", table(duel).markdown(), escape::markdown(&facts(duel))),
    }
}

fn check(duel: &Duel, case: &CaseOutcome) -> Check {
    let found = case.comparison.as_ref();
    let outcome = match case.standing() {
        DuelStanding::Regression => Outcome::Regression,
        DuelStanding::Well => Outcome::Passed,
        DuelStanding::Void | DuelStanding::Scattered => Outcome::Undecided,
        DuelStanding::Unmeasured => Outcome::Skipped,
    };
    let change = found.map(|found| {
        let [base, candidate] = [found.base_ns, found.candidate_ns].map(|ns| latency(ns / 1e6));
        format!("{}: {base} → {candidate}, {}", found.verdict, in_percent(&found.change.interval))
    });
    let message = case.loss.as_ref().map(|loss| lost(duel, loss)).or(change);
    Check {
        case_id: case.id.clone(),
        latency_ms: found.map(|found| found.candidate_ns / 1e6),
        outcome,
        message: message.unwrap_or_else(|| "not measured".into()),
    }
}

/// `failed in main: killed`, `left out: unsupported in candle.toml: …`.
fn lost(duel: &Duel, loss: &Loss) -> String {
    let whose = if let Role::Candidate(number) = loss.role { &duel.candidates[number].name } else { &duel.base.name };
    let what = if loss.is_left_out { "left out: " } else { "" };
    format!("{what}{} in {whose}: {}", loss.status, loss.message.lines().next().unwrap_or_default())
}

fn table(duel: &Duel) -> Table {
    let names = [Column::code("case")].into_iter().chain(has_several(duel).then(|| Column::text("against")));
    let columns = ["base", "candidate", "change [99 %]", "null control"].map(Column::number);
    let mut table = Table::new(names.chain(columns).chain([Column::text("verdict")]))
        .essential(&["against", "change [99 %]", "verdict"])
        .minor(&["null control"]);
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

/// Notes about single cases.
fn notes(duel: &Duel) -> Vec<String> {
    let note = |case: &CaseOutcome| {
        let candidate = &duel.candidates[case.candidate].name;
        if let Some(loss) = &case.loss {
            return Some(format!("{}: {}", case.id, lost(duel, loss)));
        }
        let found = case.comparison.as_ref()?;
        let id = if has_several(duel) { format!("{} against {candidate}", case.id) } else { case.id.clone() };
        if found.is_null_changed {
            return Some(format!(
                "{id}: open: the null control changed, although it is the base itself; repeat the duel on a quieter machine"
            ));
        }
        if found.is_mean_apart {
            return Some(format!(
                "{id}: open: the medians show no slow-down, but the mean of all slices does ({}): some slices or processes may \
                 be slower, or other load struck them; a longer duel (`--minutes`) shows which",
                signed_percent(found.mean_ratio)
            ));
        }
        if found.is_within_layout {
            let open = if found.verdict == Verdict::CannotSay { "open: " } else { "" };
            return Some(format!(
                "{id}: {open}a change of this size is sure, and can come from other addresses of the same machine code, since the \
                 executables differ; `--same-code` says that it does not"
            ));
        }
        if found.verdict == Verdict::CannotSay {
            let tolerance = short_percent(duel.tolerance);
            return Some(format!("{id}: open: a slow-down of more than {tolerance} is neither shown nor excluded"));
        }
        found.is_small_change.then(|| format!("{id}: changed for certain, but within the tolerance"))
    };
    let is_slower = |case: &CaseOutcome| case.comparison.as_ref().is_some_and(|found| found.verdict == Verdict::Slower);
    // A slow-down on purpose is in no operator.
    let is_real = duel.null_slowdown.is_none() && duel.cases.iter().any(is_slower);
    let profile = is_real.then(|| "`duel --profile` shows which operators take longer".to_owned());
    // `--generations` excludes early looks and `--minutes`.
    let is_counted = duel.cases.iter().filter_map(|case| case.plan).any(|plan| !plan.may_stop_early);
    let instead = if is_counted { " in place of `--generations`" } else { "" };
    let minutes = duel.minutes_needed.map(|minutes| {
        format!(
            "about {minutes} min would decide what only lacks time: the same command with `--minutes {minutes}`{instead}"
        )
    });
    duel.cases.iter().filter_map(note).chain(minutes).chain(profile).collect()
}

/// How the duel was measured.
fn facts(duel: &Duel) -> String {
    let measured = || duel.cases.iter().filter_map(|case| case.comparison.as_ref());
    let differs = duel.candidates.iter().any(|candidate| candidate.libraries != duel.base.libraries);
    let named = |program: &Program| named(program, differs);
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
    if measured().next().is_none() {
        return format!("{} against {}: no case was measured.", named(&duel.base), candidates.join(", "));
    }
    format!(
        "{} against {}: {} generations of processes, {} slices of {} per arm in random order (seed {}), \
         {pins}, {:.1} min on {} processors ({}). Changes up to {} do not matter. The null control is the base against \
         itself.{slowdown}",
        named(&duel.base),
        candidates.join(", "),
        range(measured().map(|found| found.generations).collect()),
        range(measured().map(|found| found.slices).collect()),
        slices(duel),
        duel.seed,
        duel.seconds / 60.0,
        duel.machine.logical_processors,
        duel.machine.cpu_model.as_deref().unwrap_or("of an unknown kind"),
        short_percent(duel.tolerance),
    )
}

/// `main (0123456789)`, or `env (0123456789; ort 1.20.1)`.
fn named(program: &Program, has_libraries: bool) -> String {
    let identity = program.commit.as_ref().or(program.suite_sha256.as_ref()).unwrap_or(&program.sha256);
    let libraries: Vec<&str> = program.libraries.iter().map(String::as_str).filter(|_| has_libraries).collect();
    let libraries = if libraries.is_empty() { String::new() } else { format!("; {}", libraries.join(", ")) };
    format!("{} ({}{libraries})", program.name, commit(Some(identity), None))
}

/// `2 ms or 2 calls`: the lengths of the cases' slices.
fn slices(duel: &Duel) -> String {
    let of_plan = |DuetPlan { slice, .. }: DuetPlan| match slice.ns {
        0 => plural(slice.counted, "call", "calls"),
        ns => latency(ns as f64 / 1e6),
    };
    let all: BTreeSet<String> = duel.cases.iter().filter_map(|case| case.plan).map(of_plan).collect();
    all.into_iter().collect::<Vec<_>>().join(" or ")
}

/// `a regression; 2 of 12 cases are open`
fn conclusion(duel: &Duel) -> String {
    let open = duel.cases.iter().filter(|case| case.is_open()).count();
    let result = match duel.exit_code {
        exit_codes::OK => "no regression",
        exit_codes::REGRESSION_OR_WRONG => "a regression",
        exit_codes::UNSTABLE => "undecided",
        _ => "nothing could be measured",
    };
    let is_lost = |case: &&CaseOutcome| case.loss.as_ref().is_some_and(|loss| !matches!(loss.role, Role::Candidate(_)));
    let lost = duel.cases.iter().find(is_lost);
    let lost =
        lost.map_or(String::new(), |case| format!("; the base lost {}, so nothing can be said about it", case.id));
    match open {
        0 => result.into(),
        _ => format!("{result}: {open} of {} open{lost}", plural(duel.cases.len(), "case", "cases")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{PairedChange, RatioEstimate, RatioInterval, SliceLength, duel_exit_code};
    use crate::definition::Status;
    use crate::machine::Machine;
    use crate::report::checks::{CheckFormat, tests::tests_of};

    fn case(id: &str, verdict: Verdict) -> CaseOutcome {
        let interval = RatioInterval { ratio: 1.0, lower: 0.99, upper: 1.012, confidence: 0.99 };
        let estimate = RatioEstimate { interval, p_value: 1.0 };
        let comparison = PairedChange {
            verdict,
            change: estimate,
            null: estimate,
            is_null_changed: false,
            is_small_change: false,
            is_within_layout: false,
            floor: 0.0,
            layout: 0.0,
            mean_ratio: 1.0,
            is_mean_apart: false,
            generations: 12,
            slices: 60,
            base_ns: 2e6,
            candidate_ns: 2e6,
        };
        let slice = SliceLength { ns: 0, dropped: 1, counted: 2 };
        let plan = DuetPlan { generations: 40, slices: 5, slice, may_stop_early: true };
        let (plan, comparison) = (Some(plan), Some(comparison));
        CaseOutcome { id: id.into(), own_ids: None, candidate: 0, plan, comparison, loss: None }
    }

    fn shown(cases: Vec<CaseOutcome>, minutes_needed: Option<f64>) -> String {
        render(&duel(cases, minutes_needed), Format::Table)
    }

    fn duel(cases: Vec<CaseOutcome>, minutes_needed: Option<f64>) -> Duel {
        let program = Program {
            name: "main".into(),
            commit: None,
            suite: None,
            suite_sha256: None,
            executable: "inferbench".into(),
            sha256: "0123456789abcdef".into(),
            root: ".".into(),
            environment: None,
            libraries: BTreeSet::new(),
        };
        Duel {
            format: 4,
            name: "d".into(),
            base: program.clone(),
            candidates: vec![program],
            null_slowdown: None,
            seed: 1,
            tolerance: 0.01,
            is_same_code: false,
            undecided_is_allowed: false,
            processors: Vec::new(),
            preparation_seconds: 5.0,
            seconds: 40.0,
            minutes_needed,
            machine: Machine::default(),
            exit_code: duel_exit_code(&cases, false),
            cases,
        }
    }

    #[test]
    fn each_case_is_a_check_that_fails_if_the_candidate_is_slower_or_lost_it() {
        let loss = |role| Some(Loss { role, status: Status::Failed, message: "killed".into(), is_left_out: false });
        let lost = |id, role| CaseOutcome { comparison: None, loss: loss(role), ..case(id, Verdict::Same) };
        let cases = vec![
            case("m/a/1", Verdict::Slower),
            case("m/b/1", Verdict::NotSlower),
            case("m/c/1", Verdict::CannotSay),
            lost("m/d/1", Role::Candidate(0)),
            lost("m/e/1", Role::Base),
        ];
        let checks = checks(&duel(cases, None));
        let found = tests_of(&checks.render(CheckFormat::Junit));
        let kinds: Vec<&str> = found.iter().map(|(_, kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["failure", "passed", "skipped", "failure", "skipped"]);
        assert!(found[0].2.starts_with("regression: slower: 2.00 ms → 2.00 ms, "), "{}", found[0].2);
        assert_eq!(found[3].2, "regression: failed in main: killed");
        assert_eq!(checks.render(CheckFormat::Github).matches("::warning ").count(), 2);
        assert!(
            checks.render(CheckFormat::MarkdownComment).starts_with("### inferbench: a regression: 2 of 5 cases open")
        );
    }

    #[test]
    fn a_loss_is_named_after_the_candidate_whose_it_is() {
        let (role, status) = (Role::Candidate(1), Status::Failed);
        let loss = Loss { role, status, message: "killed".into(), is_left_out: false };
        let of = |candidate| CaseOutcome {
            candidate,
            comparison: None,
            loss: Some(loss.clone()),
            ..case("m/a/1", Verdict::Same)
        };
        let mut duel = duel(vec![of(0), of(1)], None);
        duel.candidates = ["one", "two"].map(|name| Program { name: name.into(), ..duel.base.clone() }).into();
        let found = tests_of(&checks(&duel).render(CheckFormat::Junit));
        assert_eq!([&found[0].1, &found[1].1], ["skipped", "failure"]);
        assert!(found.iter().all(|(_, _, message)| message.ends_with("failed in two: killed")), "{found:?}");
        assert!(!conclusion(&duel).contains("the base lost"), "{}", conclusion(&duel));
        // No program has lost a case that one candidate does not have.
        let left_out = Loss { role: Role::Candidate(0), is_left_out: true, ..loss.clone() };
        duel.cases = vec![CaseOutcome { loss: Some(left_out), ..of(0) }, case("m/a/1", Verdict::Same)];
        let found = tests_of(&checks(&duel).render(CheckFormat::Junit));
        assert_eq!((found[0].1.as_str(), found[0].2.as_str()), ("skipped", "skipped: left out: failed in one: killed"));
    }

    #[test]
    fn open_cases_are_named_with_the_time_that_they_would_take() {
        let text = shown(vec![case("a", Verdict::Same), case("b", Verdict::CannotSay)], Some(3.5));
        assert!(text.ends_with("\nundecided: 1 of 2 cases open\n"), "{text}");
        assert!(text.contains("b: open: a slow-down of more than 1 % is neither shown nor excluded"), "{text}");
        assert!(text.contains("the same command with `--minutes 3.5`") && !text.contains("in place of"), "{text}");
        let mut counted = case("b", Verdict::CannotSay);
        counted.plan.as_mut().unwrap().may_stop_early = false;
        let words = shown(vec![counted], Some(3.5)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("`--minutes 3.5` in place of `--generations`"), "{words}");
        assert!(text.contains("60 slices of 2 calls per arm"), "{text}");
        assert!(shown(vec![case("a", Verdict::NotSlower)], None).ends_with("\nno regression\n"));
        let text = shown(vec![case("a", Verdict::Slower), case("b", Verdict::CannotSay)], None);
        assert!(text.ends_with("\na regression: 1 of 2 cases open\n"), "{text}");
        let (role, status) = (Role::Base, Status::Failed);
        let loss = Loss { role, status, message: "killed".into(), is_left_out: false };
        let lost = CaseOutcome { comparison: None, loss: Some(loss), ..case("b", Verdict::Same) };
        assert!(shown(vec![lost], None).contains("the base lost b"));
    }

    #[test]
    fn a_change_that_layout_may_explain_says_so_and_how_to_exclude_it() {
        let mut moved = case("a", Verdict::CannotSay);
        moved.comparison.as_mut().unwrap().is_within_layout = true;
        let text = shown(vec![moved], None);
        assert!(text.contains("can come from other addresses of the same machine code"), "{text}");
        assert!(text.contains("`--same-code` says that it does not"), "{text}");
    }
}

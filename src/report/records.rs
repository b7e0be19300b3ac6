//! Records as text: a table per model for a terminal or as Markdown, and JSON with its schema.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::checks::{Check, CheckSuite, Checks, Outcome};
use super::columns::{HOST, P50, RecordColumn, chosen};
use super::numbers::{commit, plural, short_percent};
use super::ranking::{Entry, first_line, notes_on_calls, rank};
use super::table::{BEST, Cell, Table, wrapped};
use super::{Format, ReportedRun, escape, json, schema_of};
use crate::definition::{Case, Status};
use crate::run_data::{Metric, Record};

const LEGEND: &str = "● fastest of its batch size; a percentile in parentheses has too few calls for a 99 % bound";
/// Why a planned case has no record.
const NOT_REACHED: &str = "not reached: the run was stopped, or is still measuring";

/// The report's text with the columns of these names, ending with a line break. `resolution` is the line about the
/// smallest change that the machine of the run can show. JSON, which has only the records and their metrics, is without
/// it.
pub fn render(run: &ReportedRun, columns: &[String], resolution: &str, format: Format) -> String {
    let records = &run.records;
    let groups = rank(records, run.equal_machines.is_some());
    let has_hosts = records.iter().any(|record| record.host_id != records[0].host_id);
    let table = |rows: &[Entry<'_>]| table(rows, columns, has_hosts);
    let is_measured = records.iter().any(|it| it.status == Status::Ok && it.latency_p50_ms.is_some());
    let legend = if is_measured { LEGEND } else { "" };
    let notes: Vec<String> =
        run.equal_machines.map(equality).into_iter().chain(not_reached(&run.not_reached)).collect();
    let tables = groups.iter().map(|(title, rows)| match format {
        Format::Markdown => format!("### {}\n\n{}\n", escape::markdown(title), table(rows).markdown()),
        _ => format!("\n{}\n{}", escape::terminal(title), table(rows).terminal()),
    });
    match format {
        Format::Table => {
            let lines = [legend].into_iter().chain(notes.iter().map(String::as_str)).chain([resolution]);
            let lines = lines.filter(|line| !line.is_empty());
            format!("{}\n{}", tables.collect::<String>(), lines.map(|line| wrapped(line, 0)).collect::<String>())
        }
        Format::Markdown => {
            let notes: String = notes.iter().map(|note| format!("\n{}\n", escape::markdown(note))).collect();
            let source = source(records);
            format!("{}{legend}\n{notes}\n{source}\n{resolution}\n", tables.collect::<String>())
        }
        Format::Json => render_json(std::slice::from_ref(run)),
    }
}

/// A line about the cases that a run did not reach, with the ids of the first ones. Returns `None` if there are none.
pub fn not_reached(cases: &[Case]) -> Option<String> {
    const MOST_NAMED: usize = 10;
    let count = plural(cases.len(), "case was", "cases were");
    let named = cases.iter().take(MOST_NAMED).map(Case::to_string).collect::<Vec<_>>().join(", ");
    let more = cases.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!cases.is_empty()).then(|| format!("{count} {NOT_REACHED} ({named}{more})"))
}

/// One array of the records of all runs, each with the metrics of its run.
pub fn render_json(runs: &[ReportedRun]) -> String {
    let mut reported = Vec::new();
    for ReportedRun { records, metrics, .. } in runs {
        let metrics_of = |record| Metric::all_of(metrics, record);
        reported.extend(records.iter().map(|record| ReportedRecord { record, metrics: metrics_of(record) }));
    }
    json(&reported)
}

/// Runs for continuous integration: a suite for each run, in which a case that failed or has wrong outputs is a failed
/// test, and a case that was not reached is open. The tables of a comment have these columns.
pub fn checks(runs: &[ReportedRun], columns: &[String]) -> Checks {
    let open = |case: &Case| Check {
        case_id: case.to_string(),
        latency_ms: None,
        outcome: Outcome::Undecided,
        message: NOT_REACHED.to_owned(),
    };
    let suite = |run: &ReportedRun| {
        let ReportedRun { records, not_reached, .. } = run;
        let hosts: BTreeSet<&str> = records.iter().map(|record| record.host_id.as_str()).collect();
        let reached = records.iter().map(|record| check(record, hosts.len() > 1));
        CheckSuite {
            name: format!("run {}", run.run_id()),
            checks: reached.chain(not_reached.iter().map(open)).collect(),
        }
    };
    let suites: Vec<CheckSuite> = runs.iter().map(suite).collect();
    let details = runs.iter().map(|run| render(run, columns, "", Format::Markdown)).collect();
    let names: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
    let outcomes = [Outcome::Failed, Outcome::Undecided, Outcome::Passed, Outcome::Skipped].into_iter();
    let counted = outcomes.filter_map(|outcome| {
        let count = suites.iter().flat_map(|suite| &suite.checks).filter(|it| it.outcome == outcome).count();
        (count > 0).then(|| format!("{count} {outcome}"))
    });
    let verdict = counted.collect::<Vec<_>>().join(", ");
    Checks { title: format!("report of {}", names.join(", ")), verdict, details, suites }
}

fn check(record: &Record, is_one_of_several_machines: bool) -> Check {
    let outcome = match record.status {
        Status::Ok => Outcome::Passed,
        // As in the exit codes of `run` and `verify`.
        Status::Failed | Status::WrongOutput | Status::Timeout => Outcome::Failed,
        Status::OutOfMemory | Status::Suspicious | Status::Unstable => Outcome::Undecided,
        Status::Unsupported | Status::Unavailable => Outcome::Skipped,
    };
    let message = record.message.as_deref().unwrap_or_default();
    let (id, status) = (&record.case_id, record.status.to_string());
    Check {
        case_id: if is_one_of_several_machines { format!("{id} on {}", record.host_id) } else { id.clone() },
        latency_ms: record.latency_p50_ms.filter(|_| record.status == Status::Ok),
        outcome,
        // The message follows the outcome.
        message: if status == outcome.to_string() { message.to_owned() } else { format!("{status}: {message}") },
    }
}

/// A line about a run of equal machines: how far the slowest one is from the fastest.
pub(super) fn equality(slowest_to_fastest: f64) -> String {
    let difference = short_percent(slowest_to_fastest - 1.0);
    format!(
        "backends of a model were measured on several equal machines and are ranked together: by calibration and anchor, these differ by up to \
         {difference}, and so may the ratios"
    )
}

/// A record with its metrics.
#[derive(Serialize, JsonSchema)]
struct ReportedRecord<'a> {
    #[serde(flatten)]
    record: &'a Record,
    /// Figures that are not columns.
    metrics: Vec<&'a Metric>,
}

/// The JSON Schema of [`Format::Json`]: an array of records.
pub fn schema() -> String {
    schema_of::<Vec<ReportedRecord<'_>>>("inferbench report: an object per case and run")
}

/// The fastest of each batch size is marked; a case without figures says why below the table.
fn table(rows: &[Entry<'_>], columns: &[String], has_hosts: bool) -> Table {
    let is_asked = !columns.is_empty();
    let mut columns = chosen(columns, rows);
    if has_hosts && !is_asked {
        columns.splice(0..0, RecordColumn::find(HOST));
    }
    let heads = columns.iter().map(|column| column.head());
    let mut table = Table::new(heads).minor(&["accuracy"]).whole(is_asked);
    for entry in rows {
        let cell = |column: &&RecordColumn| {
            let cell = Cell::from(column.text(entry));
            if entry.is_best() && column.name == P50 { cell.strong() } else { cell }
        };
        let added = table.row(columns.iter().map(cell));
        if entry.is_best() {
            added.mark(BEST);
        }
    }
    for record in rows.iter().map(|row| row.record).filter(|record| record.status != Status::Ok) {
        let id = record.case().benchmark_id();
        let host = if has_hosts { format!(" on {}", record.host_id) } else { String::new() };
        table.footnote(format!("{}/{}{host}: {}: {}", id.function, id.value, record.status, first_line(record)));
    }
    notes_on_calls(rows).into_iter().for_each(|line| table.footnote(line));
    table
}

/// The run of the records, its hosts and its commit.
fn source(records: &[Record]) -> String {
    let Some(record) = records.first() else { return String::new() };
    let hosts: BTreeSet<&str> = records.iter().map(|record| record.host_id.as_str()).collect();
    let hosts = format!("{} {}", if hosts.len() > 1 { "hosts" } else { "host" }, Vec::from_iter(hosts).join(", "));
    let commit = commit(record.git_commit.as_deref(), record.git_dirty);
    format!("Run {} on {hosts}, commit {commit}.\n", record.run_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::record;

    fn text(records: &[Record], resolution: &str, format: Format) -> String {
        let run = ReportedRun { records: records.to_vec(), ..ReportedRun::default() };
        render(&run, &[], resolution, format)
    }

    #[test]
    fn the_best_is_marked_and_a_failure_says_why() {
        let mut absent = record("m", "tch", 1, None);
        absent.status = Status::Unavailable;
        absent.message = Some("not in this build".into());
        let records = [record("m", "ort", 1, Some(2.0)), record("m", "candle", 1, Some(4.0)), absent];
        let text = text(&records, "", Format::Table);
        let line = |backend: &str| text.lines().find(|line| line.contains(&format!(" {backend} "))).unwrap();
        assert!(line("ort").contains('●') && line("ort").contains("2.00 ms"));
        assert!(line("candle").contains(" 2.00  ") && line("candle").contains("medium"), "{text}");
        assert!(line("tch").contains("unavailable") && line("tch").contains("none"), "{text}");
        assert!(text.contains("tch-cpu-f32/1: unavailable: not in this build"), "{text}");
    }

    #[test]
    fn a_case_that_failed_is_a_failed_test_and_one_that_cannot_run_here_is_none() {
        use crate::report::checks::{CheckFormat, tests::tests_of};

        let of_status = |batch_size, status| Record {
            status,
            message: Some("why\nin detail".into()),
            ..record("m", "ort", batch_size, Some(2.0))
        };
        let statuses = [Status::Ok, Status::WrongOutput, Status::Timeout, Status::Suspicious, Status::Unavailable];
        let records =
            Vec::from_iter(statuses.into_iter().enumerate().map(|(place, status)| of_status(place + 1, status)));
        let run = |records: &[Record]| ReportedRun { records: records.to_vec(), ..ReportedRun::default() };
        let stopped = ReportedRun { not_reached: vec![record("m", "ort", 9, None).case()], ..run(&records[..1]) };
        // This one was stopped in its first case.
        let not_begun = ReportedRun { name: "later".into(), records: Vec::new(), ..stopped.clone() };
        let text = render(&not_begun, &[], "", Format::Table);
        assert!(text.contains("1 case was not reached") && !text.contains(BEST), "{text}");
        let with_legend = [&records[..1], &records[1..]].map(|rows| render(&run(rows), &[], "", Format::Table));
        assert_eq!(with_legend.map(|text| text.contains(LEGEND)), [true, false]);
        assert_eq!(super::checks(&[not_begun], &[]).title, "report of run later");
        let checks = checks(&[run(&records), stopped], &[]);
        assert_eq!(checks.verdict, "2 failed, 2 undecided, 2 passed, 1 skipped");
        let found = tests_of(&checks.render(CheckFormat::Junit));
        let kinds: Vec<&str> = found.iter().map(|(_, kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["passed", "failure", "failure", "skipped", "skipped", "passed", "skipped"]);
        let not_reached = "not reached: the run was stopped, or is still measuring";
        assert_eq!((found[6].0.as_str(), found[6].2.clone()), ("m/ort-cpu-f32/9", format!("undecided: {not_reached}")));
        assert!(checks.details.contains(&format!("\n1 case was {not_reached} (m/ort-cpu-f32/9)\n")), "{checks:?}");
        assert_eq!(found[1].0, "m/ort-cpu-f32/2");
        assert_eq!(found[1].2, "failed: wrong-output: why in detail");
        let github = checks.render(CheckFormat::Github);
        assert!(github.contains("/2::failed: wrong-output: why%0Ain detail\n"), "{github}");
    }

    #[test]
    fn rows_of_equal_machines_are_ranked_together_with_a_line_about_it() {
        let elsewhere = Record { host_id: "other".into(), ..record("m", "tch", 1, Some(3.0)) };
        let records = vec![record("m", "ort", 1, Some(2.0)), elsewhere];
        let run = |equal_machines| ReportedRun { records: records.clone(), equal_machines, ..ReportedRun::default() };
        let shown = |equal_machines| render(&run(equal_machines), &[], "", Format::Table);
        let (apart, together) = (shown(None), shown(Some(1.02)));
        assert_eq!(
            (apart.matches(" 1.00  ").count(), together.matches(" 1.50  ").count()),
            (2, 1),
            "{apart}{together}"
        );
        assert!(together.contains("these differ by up to 2 %") && !apart.contains("equal machines"), "{together}");
        // A paragraph of its own.
        let markdown = render(&run(Some(1.02)), &[], "", Format::Markdown);
        assert!(markdown.contains("99 % bound\n\nbackends of a model"), "{markdown}");
    }

    #[test]
    fn a_message_cannot_break_the_markdown() {
        let mut failed = record("m", "ort", 1, None);
        failed.status = Status::Failed;
        failed.message = Some("a | <b\nc".into());
        let text = text(&[failed, record("m", "tch", 1, Some(1.0))], "", Format::Markdown);
        assert!(text.contains("- ort-cpu-f32/1: failed: a \\| &lt;b\n"), "{text}");
        assert!(text.contains("| ● | tch | cpu | f32 | 1 | **1.00 ms** |"), "{text}");
    }

    #[test]
    fn disturbed_samples_and_what_can_be_shown_are_below_the_figures() {
        let with_share = |batch_size, disturbed_share| Record {
            disturbed_share: Some(disturbed_share),
            ..record("m", "ort", batch_size, Some(1.0))
        };
        let records = [with_share(1, 0.0), with_share(2, 0.25), record("m", "tch", 1, Some(1.0))];
        let shown = text(&records, "what can be shown", Format::Table);
        assert!(shown.contains("\n  disturbed samples: ort-cpu-f32 batch 2 has 25 %\n"), "{shown}");
        assert!(shown.ends_with("\nwhat can be shown\n"), "{shown}");
        assert!(!text(&[with_share(1, 0.1)], "", Format::Table).contains("disturbed"));
    }
}

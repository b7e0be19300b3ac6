//! The comparison as a table for a terminal, as Markdown and as JSON, with the sentence of the recommendation and the notes.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::quality::{LEAST_AGREEMENT, LEAST_COSINE, labelled_change, labelled_metric, likeness};
use super::{Differences, Excluded, Goal, Measure, Row, VariantTable, Variants};
use crate::compare::{RatioInterval, is_like};
use crate::definition::{Boundary, Case, Dtype, ORIGINAL, Phase, TimedOn};
use crate::report::columns::{P50, RecordColumn, change_in_points};
use crate::report::metrics::{self, names};
use crate::report::numbers::{fixed, latency, megabytes, percent, plural, three_digits};
use crate::report::ranking::{Entry, first_line};
use crate::report::table::{Cell, Column, Table, wrapped};
use crate::report::{Format, escape, json, schema_of};
use crate::run_data::{Metric, Record, Work};

impl Variants {
    /// The text of all tables. The recommendation comes last in a terminal, and first in Markdown.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => self.printed(|title, sentence, table| {
                let title = escape::terminal(title);
                format!("\n{title}\n{}\n{}", table.terminal(), wrapped(sentence, 0))
            }),
            Format::Markdown => self.printed(|title, sentence, table| {
                let (title, sentence) = (escape::markdown(title), escape::markdown(sentence));
                format!("### {title}\n\n**{sentence}**\n\n{}\n", table.markdown())
            }),
            Format::Json => {
                let document = |(table, others)| json(&Document { table, others });
                self.tables.split_first().map(document).unwrap_or_default()
            }
        }
    }

    /// A section of a page for each table, which begins with the recommendation.
    pub fn html(&self) -> String {
        self.printed(|title, sentence, table| {
            let (title, sentence, table) = (escape::html(title), escape::html(sentence), table.html());
            format!("<section>\n<h2>{title}</h2>\n<p class=\"recommendation\">{sentence}</p>\n{table}</section>\n")
        })
    }

    /// Prints each table from its title, its recommendation and the table itself.
    fn printed(&self, print: impl Fn(&str, &str, Table) -> String) -> String {
        self.tables.iter().map(|it| print(&title(it, self), &it.recommendation.sentence, table(it))).collect()
    }
}

/// The first table, and beside it the tables of other batch sizes, sequence lengths, phases and machines. Names and units of a
/// row's figures are those of the records' columns.
#[derive(Serialize, JsonSchema)]
struct Document<'a> {
    #[serde(flatten)]
    table: &'a VariantTable,
    others: &'a [VariantTable],
}

/// The JSON Schema of [`Format::Json`].
pub fn schema() -> String {
    schema_of::<Document<'_>>("inferbench report --variants: the variants of a model")
}

/// `digits · sequence length 128 · batch 1`, with the machine and the shapes of a sample if there are tables of several.
pub fn title(table: &VariantTable, variants: &Variants) -> String {
    let has_machines = variants.tables.iter().any(|other| other.host_id != table.host_id);
    let VariantTable { phase, sequence_length, boundary, timed_on, batch_size, .. } = *table;
    let case = Case { phase, sequence_length, boundary, timed_on, ..Case::new(&table.model, "", batch_size) };
    let host = if has_machines { format!(" · host {}", table.host_id) } else { String::new() };
    let kind = |it: &VariantTable| (it.phase, it.sequence_length, it.boundary, it.timed_on);
    let shape = |it: &VariantTable| it.rows.iter().find_map(|row| Work::of(&row.record).sample_shape());
    let is_other = |other: &VariantTable| kind(other) == kind(table) && shape(other) != shape(table);
    let inputs = shape(table).filter(|_| variants.tables.iter().any(is_other));
    format!("{} · batch {batch_size}{host}", title_of(&case, inputs.as_ref()))
}

/// `digits · sequence length 128 · prefill`: the model, and the parts of its work that are not the default.
pub fn title_of(case: &Case, input_shape: Option<&String>) -> String {
    let parts = [
        Some(case.model.clone()),
        case.sequence_length.map(|length| format!("sequence length {length}")),
        (!case.dims.0.is_empty()).then(|| case.dims.to_string()),
        input_shape.map(|shape| format!("inputs {shape}")),
        (case.phase != Phase::Forward).then(|| case.phase.to_string()),
        (case.timed_on != TimedOn::Seeded).then(|| case.timed_on.to_string()),
        (case.boundary != Boundary::Compute).then(|| case.boundary.to_string()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The columns of the records that may be shown. The batch size is in the title.
const COLUMNS: &str = "variant,backend,device,dtype,p50,size,accuracy,accuracy-change,top5,agreement,cosine,samples,\
                       tokens,memory,parameters";

/// The ratio of a column's figure to that of the original.
fn factor(differences: &Differences, column: &str) -> Option<f64> {
    match column {
        P50 => differences.latency_p50,
        "size" => differences.model_size,
        "samples" | "tokens" => differences.throughput,
        "memory" => differences.memory,
        _ => None,
    }
}

/// The measured rows; below them the others and the notes.
pub fn table(shown: &VariantTable) -> Table {
    let measured: Vec<&Row> = shown.rows.iter().filter(|row| row.is_measured()).collect();
    let entries: Vec<Entry<'_>> =
        measured.iter().map(|row| Entry { record: &row.record, ratio_to_best: None }).collect();
    let by_accuracy = shown.measure == Measure::Accuracy;
    let is_shown = |column: &&RecordColumn| {
        column.is_known(&entries) && !(by_accuracy && ["agreement", "cosine"].contains(&column.name))
    };
    let columns: Vec<&RecordColumn> = COLUMNS.split(',').filter_map(RecordColumn::find).filter(is_shown).collect();
    // The cosine of the outputs is already a column of the records.
    let mut metrics = names(measured.iter().flat_map(|row| &row.metrics));
    metrics.retain(|name| *name != "cosine");
    let of_metrics = metrics.iter().map(|name| Column::number(metrics::title(name)));
    let change = if shown.goal == Goal::Energy { "energy ÷ original" } else { "time ÷ original" };
    let own = [Column::number(change), Column::text("verdict"), Column::text("quality")];
    let mut table = Table::new(columns.iter().map(|column| column.head()).chain(of_metrics).chain(own))
        .essential(&[change, "verdict", "quality", "dtype", "model size"])
        .or_below(&["accuracy", "accuracy change"])
        .minor(&["device", "top-5", "samples/s", "memory", "parameters"]);
    for (row, entry) in measured.iter().zip(&entries) {
        let cell = |column: &&RecordColumn| {
            let cell = Cell::from(column.text(entry));
            match row.differences.as_ref().and_then(|it| factor(it, column.name)) {
                Some(factor) => cell.detail(format!("{} ×", three_digits(factor))),
                None if column.name == "variant" && row.is_recommended => cell.strong(),
                None => cell,
            }
        };
        let own = [
            row.change.as_ref().map(ratio),
            row.verdict.map(|verdict| verdict.to_string()),
            Some(row.quality.to_string()),
        ];
        let of_metric = |name: &&str| {
            let metric = row.metrics.iter().find(|metric| metric.metric == *name);
            Cell::from(metric.map(metrics::text))
        };
        let of_metrics = metrics.iter().map(of_metric);
        table.row(columns.iter().map(cell).chain(of_metrics).chain(own.map(Cell::from))).mark(mark(row));
    }
    for row in shown.rows.iter().filter(|row| !row.is_measured()) {
        table.footnote(format!("{}: {}: {}", name(row), row.record.status, first_line(&row.record)));
    }
    for note in &shown.notes {
        table.footnote(note.clone());
    }
    table
}

fn mark(row: &Row) -> &'static str {
    match (row.is_recommended, row.is_on_front) {
        (true, true) => "●◇",
        (true, false) => "●",
        (false, true) => "◇",
        (false, false) => "",
    }
}

/// The recommendation in one sentence: the row to use with its figures, and their ratios to those of the baseline.
pub fn sentence(row: &Row, rows: &[Row], measure: Measure, goal: Goal) -> String {
    let record = &row.record;
    let quality = quality_text(row, measure);
    let latency = record.latency_p50_ms.map(|ms| format!("p50 {}", latency(ms)));
    let size = record.model_size_mb.map(|size| format!("size {}", megabytes(size)));
    let figures = listed([latency, size, quality]);
    let Some(baseline) = rows.iter().find(|row| row.is_baseline && !row.is_recommended) else {
        return format!("Keep {}: {figures}; no row of kept quality is shown to be better in {goal}.", name(row));
    };
    let sizes = record.model_size_mb.zip(baseline.record.model_size_mb);
    let of_times = if goal.is_of_times() { goal } else { Goal::Latency };
    let against = listed([
        row.change.as_ref().map(|change| format!("{} × {}", ratio(change), of_times.measured_in())),
        sizes.map(|(own, base)| format!("{} × the size", three_digits(own / base))),
        match measure {
            Measure::Metric => labelled_change(&row.metrics).map(named),
            _ => change_in_points(record).map(|change| format!("accuracy change {change} points")),
        },
    ]);
    format!("Ship {}: {figures}; against {}: {against}.", name(row), name(baseline))
}

fn named(metric: &Metric) -> String {
    format!("{} {}", metrics::title(&metric.metric), metrics::text(metric))
}

/// How well a row answers, in words.
pub fn quality_text(row: &Row, measure: Measure) -> Option<String> {
    let record = &row.record;
    match measure {
        Measure::Accuracy => record.accuracy.map(|accuracy| format!("accuracy {}", percent(accuracy))),
        Measure::Metric => labelled_metric(&row.metrics).map(named),
        Measure::Agreement => {
            let agreement = record
                .agreement
                .map(|it| format!("agreement with the original {}, which is not accuracy", percent(it)));
            let divergence = row.metrics.iter().find(|metric| metric.metric == "kl_divergence").map(named);
            let beside = |metric| {
                let all = listed([Some(named(metric)), divergence]);
                format!("{all} against the original, which is not accuracy")
            };
            let cosine = record
                .output_cosine
                .map(|it| format!("outputs with a cosine of {it:.4} to the original's, which is not accuracy"));
            agreement.or_else(|| likeness(&row.metrics).map(beside)).or(cosine)
        }
        Measure::Unknown => None,
    }
}

/// The figures that are known, with commas between them.
pub fn listed<const N: usize>(figures: [Option<String>; N]) -> String {
    figures.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `int8-static on ort`, `the original on tch (cuda) in f16`.
pub fn name(row: &Row) -> String {
    let record = &row.record;
    let variant = if record.variant == ORIGINAL { "the original" } else { &record.variant };
    let device = if record.device == "cpu" { String::new() } else { format!(" ({})", record.device) };
    let dtype = if record.dtype == Dtype::F32 { String::new() } else { format!(" in {}", record.dtype) };
    format!("{variant} on {}{device}{dtype}", record.backend)
}

/// How to read the figures.
pub fn notes(table: &VariantTable) -> Vec<String> {
    let measured: Vec<&Row> = table.rows.iter().filter(|row| row.is_measured()).collect();
    let mut notes = vec!["● recommended; ◇ on the Pareto front of latency, quality and size".to_owned()];
    match table.rows.iter().find(|row| row.is_baseline) {
        Some(row) => {
            let is_elsewhere = |row: &&&Row| {
                let place = |row: &Row| (row.record.backend.clone(), row.record.device.clone());
                let original = row.differences.as_ref().map(|it| &it.original);
                let original = measured.iter().find(|other| Some(&other.record.case_id) == original);
                original.is_some_and(|original| place(original) != place(row))
            };
            let or_else =
                if measured.iter().any(|row| is_elsewhere(&row)) { ", or else to the fastest original" } else { "" };
            let dtype = row.record.dtype;
            notes.push(format!("× is relative to the original in {dtype} on the same backend and device{or_else}"));
            notes.push(format!(
                "times are geometric means of at least {}; more runs show smaller changes (`--last 3`); verdicts are against {}; \
                 times of identical code differ by up to {} here",
                plural(table.runs, "run", "runs"),
                name(row),
                percent(table.floor)
            ));
        }
        None => notes.push("no row can be recommended, so there is no baseline to compare with".into()),
    }
    let is_uncompared = |row: &&&Row| row.excluded.as_ref().is_some_and(|it| it.limit == Excluded::UNCOMPARED);
    let uncompared: Vec<String> = measured.iter().filter(is_uncompared).map(|row| name(row)).collect();
    if !uncompared.is_empty() {
        notes.push(format!("not chosen, since their outputs were compared with nothing: {}", uncompared.join(", ")));
    }
    let loss = percent(table.accuracy_loss);
    let by_labels = |figure: &str| {
        format!(
            "quality is {figure} on {} with 95 % intervals: kept if it is shown to lose at most {loss}, open if the samples \
             are too few to show that, lost if it loses more, unknown if its change was not measured",
            table.data_source.as_deref().unwrap_or("unnamed samples")
        )
    };
    notes.push(match table.measure {
        Measure::Accuracy => by_labels("accuracy"),
        Measure::Metric => {
            let metric = measured.iter().find_map(|row| labelled_metric(&row.metrics));
            by_labels(&format!("the {}", metric.map(|metric| metrics::title(&metric.metric)).unwrap_or_default()))
        }
        Measure::Agreement => format!(
            "there were no labelled samples, so that quality is agreement with the original and not accuracy: kept from {} and \
             a cosine of {LEAST_COSINE} on; no accuracy loss ({loss}) is checked",
            percent(LEAST_AGREEMENT)
        ),
        Measure::Unknown => "neither accuracy nor agreement with the original was measured".into(),
    });
    let runs: BTreeSet<&str> = measured.iter().flat_map(|row| &row.run_ids).map(String::as_str).collect();
    if runs.len() > 1 {
        notes.push(format!("the rows are from {} runs: {}", runs.len(), Vec::from_iter(runs).join(", ")));
    }
    let is_other = |row: &&Row| {
        let (one, first) = (&row.record, &measured[0].record);
        let has_place = (&one.backend, &one.device) == (&first.backend, &first.device);
        code(one) != code(first) || (has_place && !is_like(one, first))
    };
    if measured.iter().any(is_other) {
        let different = "the rows are not all from the same code, libraries and number of threads";
        notes.push(format!("{different}: a difference may be due to that"));
    }
    notes
}

/// What identifies code: the commit and, unless the tree had no changes, the executable or else the run.
fn code(record: &Record) -> (Option<&str>, Option<&str>) {
    let own = record.program.as_ref().unwrap_or(&record.run_id);
    (record.git_commit.as_deref(), (record.git_dirty != Some(false)).then_some(own.as_str()))
}

/// `0.63 (0.59 … 0.66)`.
pub fn ratio(interval: &RatioInterval) -> String {
    let [ratio, lower, upper] = [interval.ratio, interval.lower, interval.upper].map(|ratio| fixed(ratio, 2));
    format!("{ratio} ({lower} … {upper})")
}

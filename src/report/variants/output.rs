//! The comparison as a table for a terminal, as Markdown and as JSON, with the sentence of the recommendation and the notes.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::quality::{LEAST_AGREEMENT, LEAST_COSINE};
use super::repeated::{Repeated, other_samples, samples_of};
use super::{Measure, Options, Row, VariantTable, Variants, own_memory, rate};
use crate::compare::{RatioInterval, is_like};
use crate::definition::{Boundary, Dtype, ORIGINAL, Phase};
use crate::report::ranking::{latency, percent, short_message, three_digits};
use crate::report::table::{Cell, Column, Table};
use crate::report::{Format, json};
use crate::run_data::Record;

/// The text of all tables. The recommendation comes last in a terminal, and first in Markdown.
pub fn render(variants: &Variants, format: Format) -> String {
    let texts = variants.tables.iter().map(|shown| {
        let (title, sentence) = (title(shown, variants), &shown.recommendation.sentence);
        match format {
            Format::Table => format!("\n{title}\n{}\n{sentence}\n", table(shown).terminal()),
            Format::Markdown => {
                let escape = crate::report::escape::markdown;
                format!("### {}\n\n**{}**\n\n{}\n", escape(&title), escape(sentence), table(shown).markdown())
            }
            Format::Json => String::new(),
        }
    });
    if format == Format::Json { document(variants) } else { texts.collect() }
}

/// The first table, and beside it the tables of other sequence lengths, phases and machines.
#[derive(Serialize, JsonSchema)]
struct Document {
    #[serde(flatten)]
    table: VariantTable,
    others: Vec<VariantTable>,
}

/// An object; names and units of a row's figures are those of the records' columns.
fn document(variants: &Variants) -> String {
    let mut tables = variants.tables.iter().cloned();
    let Some(table) = tables.next() else { return String::new() };
    let document = Document { table, others: tables.collect() };
    json::json(&document)
}

/// The JSON Schema of [`Format::Json`].
pub fn schema() -> String {
    json::schema::<Document>("inferbench report --variants: the variants of a model")
}

/// `digits · sequence length 128 · batch 1`, with the machine if there are tables of several.
pub fn title(table: &VariantTable, variants: &Variants) -> String {
    let has_machines = variants.tables.iter().any(|other| other.host_id != table.host_id);
    let parts = [
        Some(table.model.clone()),
        table.sequence_length.map(|length| format!("sequence length {length}")),
        (table.phase != Phase::Forward).then(|| table.phase.to_string()),
        (table.boundary != Boundary::Compute).then(|| table.boundary.to_string()),
        Some(format!("batch {}", table.batch_size)),
        has_machines.then(|| format!("host {}", table.host_id)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The measured rows; below them the others, the recommendations at other batch sizes, and the notes.
pub fn table(shown: &VariantTable) -> Table {
    let has_top5 = shown.rows.iter().any(|row| row.is_measured() && row.record.accuracy_top5.is_some());
    let mut columns: Vec<Column> = ["variant", "backend", "device", "dtype"].map(Column::text).into();
    columns.extend(["batch", "p50", "size"].map(Column::number));
    match shown.measure {
        Measure::Accuracy => {
            columns.extend(["accuracy", "change, points"].map(Column::number));
            columns.extend(has_top5.then(|| Column::number("top-5")));
        }
        Measure::Agreement => columns.extend(["agreement", "cosine"].map(Column::number)),
        Measure::Unknown => {}
    }
    let is_in_tokens = matches!(shown.phase, Phase::Prefill | Phase::Decode);
    let rate = if is_in_tokens { "tokens/s" } else { "samples/s" };
    columns.extend([rate, "memory", "parameters", "time ÷ original"].map(Column::number));
    columns.extend(["verdict", "quality"].map(Column::text));
    let mut table = Table::new(columns);
    for row in shown.rows.iter().filter(|row| row.is_measured()) {
        let added = table.row(cells(shown, row, has_top5)).mark(mark(row));
        if row.is_recommended {
            added.best();
        }
    }
    for row in shown.rows.iter().filter(|row| !row.is_measured()) {
        table.footnote(format!("{}: {}: {}", name(row), row.record.status, short_message(&row.record)));
    }
    for other in &shown.other_batch_sizes {
        let recommendation = match other.is_same_choice && other.recommendation.case_id.is_some() {
            true => "the same recommendation",
            false => &other.recommendation.sentence,
        };
        table.footnote(format!("at batch {}: {recommendation}", other.batch_size));
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

/// The cells of a row in the order of the columns; an unknown figure is empty.
fn cells(shown: &VariantTable, row: &Row, has_top5: bool) -> Vec<Cell> {
    let record = &row.record;
    let with_factor = |figure: Option<String>, factor: Option<f64>| match factor {
        Some(factor) => Cell::from(figure).detail(format!("{} ×", three_digits(factor))),
        None => Cell::from(figure),
    };
    let factor = |of: fn(&super::Differences) -> Option<f64>| row.differences.as_ref().and_then(of);
    let variant = Cell::from(record.variant.as_str());
    let mut cells = vec![
        if row.is_recommended { variant.strong() } else { variant },
        Cell::from(record.backend.as_str()),
        Cell::from(record.device.as_str()),
        Cell::from(record.dtype.to_string()),
        Cell::from(record.batch_size.to_string()),
        with_factor(record.latency_p50_ms.map(|ms| latency(Some(ms))), factor(|it| it.latency_p50)),
        with_factor(record.model_size_mb.map(megabytes), factor(|it| it.model_size)),
    ];
    match shown.measure {
        Measure::Accuracy => {
            let interval = record.accuracy_lower.zip(record.accuracy_upper);
            cells.push(Cell::from(fraction_of(record.accuracy, interval, record.accuracy_samples)));
            cells.push(Cell::from(change(record)));
            cells.extend(has_top5.then(|| Cell::from(record.accuracy_top5.map(percent))));
        }
        Measure::Agreement => {
            let interval = row.agreement_lower.zip(row.agreement_upper);
            cells.push(Cell::from(fraction_of(record.agreement, interval, record.agreement_samples)));
            cells.push(Cell::from(record.output_cosine.map(|cosine| format!("{cosine:.5}"))));
        }
        Measure::Unknown => {}
    }
    cells.extend([
        with_factor(rate(record).map(three_digits), factor(|it| it.throughput)),
        with_factor(record.memory_mb.map(|mb| format!("{mb:.0} MB")), factor(|it| it.memory)),
        Cell::from(parameters(record)),
        Cell::from(row.change.as_ref().map(ratio)),
        Cell::from(row.verdict.map(|verdict| verdict.to_string())),
        Cell::from(row.quality.to_string()),
    ]);
    cells
}

/// The one sentence to remember: the row to use with its figures, and the figures beside those of the baseline.
pub fn sentence(table: &VariantTable, recommended: Result<&Row, String>) -> String {
    let row = match recommended {
        Ok(row) => row,
        Err(why) => return format!("Nothing is recommended: {why}."),
    };
    let record = &row.record;
    let quality = match table.measure {
        Measure::Accuracy => record.accuracy.map(|accuracy| format!("accuracy {}", percent(accuracy))),
        Measure::Agreement => {
            record.agreement.map(|it| format!("agreement with the original {}, which is no accuracy", percent(it)))
        }
        Measure::Unknown => None,
    };
    let latency = record.latency_p50_ms.map(|ms| format!("p50 {}", latency(Some(ms))));
    let figures = listed([latency, record.model_size_mb.map(megabytes), quality]);
    let Some(baseline) = table.rows.iter().find(|row| row.is_baseline && !row.is_recommended) else {
        let goal = table.goal;
        return format!("Keep {}: {figures}; no row of kept quality is shown to be better in {goal}.", name(row));
    };
    let sizes = record.model_size_mb.zip(baseline.record.model_size_mb);
    let against = listed([
        row.change.as_ref().map(|change| format!("{} × the time", ratio(change))),
        sizes.map(|(own, base)| format!("{} × the size", three_digits(own / base))),
        change(record).map(|change| format!("accuracy change {change} points")),
    ]);
    format!("Ship {}: {figures}; against {}: {against}.", name(row), name(baseline))
}

fn listed(figures: [Option<String>; 3]) -> String {
    figures.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `int8-static on ort`, `the original on tch (cuda) in f16`.
fn name(row: &Row) -> String {
    let record = &row.record;
    let variant = if record.variant == ORIGINAL { "the original" } else { &record.variant };
    let device = if record.device == "cpu" { String::new() } else { format!(" ({})", record.device) };
    let dtype = if record.dtype == Dtype::F32 { String::new() } else { format!(" in {}", record.dtype) };
    format!("{variant} on {}{device}{dtype}", record.backend)
}

/// How the figures are to be read, and what is not in the table.
pub fn notes(table: &VariantTable, cases: &[Repeated<'_>], options: &Options) -> Vec<String> {
    let measured: Vec<&Row> = table.rows.iter().filter(|row| row.is_measured()).collect();
    let baseline = table.rows.iter().find(|row| row.is_baseline);
    let source = table.data_source.as_deref().unwrap_or("unnamed samples");
    let loss = percent(options.loss());
    let quality = match table.measure {
        Measure::Accuracy => format!(
            "quality is accuracy on {source} with 95 % intervals: kept if it is shown to lose at most {loss}, open if the \
             samples are too few to show that, lost if it loses more, unknown if its change was not measured"
        ),
        Measure::Agreement => format!(
            "there were no labelled samples, so that quality is agreement with the original and not accuracy: kept from {} and \
             a cosine of {LEAST_COSINE} on; no accuracy loss ({loss}) is checked",
            percent(LEAST_AGREEMENT)
        ),
        Measure::Unknown => "neither accuracy nor agreement with the original was measured".into(),
    };
    let times = match table.runs {
        1 => "times are from one run; several runs of one commit show smaller changes: `report --variants MODEL --last 3`"
            .to_owned(),
        runs => format!("times are geometric means of at least {runs} runs"),
    };
    let others: Vec<&str> = other_samples(cases, samples_of(cases)).into_iter().collect();
    let at_any: BTreeSet<_> =
        cases.iter().filter(|case| !case.like.is_empty()).map(|case| alike(case.newest)).collect();
    let here = measured.iter().map(|row| alike(&row.record)).collect::<BTreeSet<_>>().len();
    let runs: BTreeSet<&str> = measured.iter().flat_map(|row| &row.run_ids).map(String::as_str).collect();
    let is_mixed = |one: &Row, other: &Row| {
        let has_place = (&one.record.backend, &one.record.device) == (&other.record.backend, &other.record.device);
        code(&one.record) != code(&other.record) || (has_place && !is_like(&one.record, &other.record))
    };
    let counts: BTreeSet<u64> = measured.iter().filter_map(|row| row.record.accuracy_samples).collect();
    let is_shared = |row: &&Row| row.record.memory_mb.is_some() && own_memory(&row.record).is_none();
    let notes = [
        Some("● recommended; ◇ on the Pareto front of latency, quality and size".to_owned()),
        baseline.map(|row| format!("× is to the original in {} on the same backend and device", row.record.dtype)),
        baseline.map(|row| {
            let floor = percent(table.floor);
            format!("{times}; verdicts are against {}; times of equal code differ by up to {floor} here", name(row))
        }),
        baseline.is_none().then(|| "no original was measured with right outputs: there is nothing to compare with".into()),
        baseline.filter(|row| row.record.dtype != Dtype::F32).map(|row| {
            format!("no original in f32 was measured with right outputs: the one in {} takes its place", row.record.dtype)
        }),
        Some(quality),
        (counts.len() > 1).then(|| "not all rows were evaluated with equally many samples: compare their changes".into()),
        (!others.is_empty()).then(|| format!("answers to other samples are left out: {}", others.join(", "))),
        measured.iter().any(is_shared).then(|| "memory without × may be the peak of several cases; it is not compared".into()),
        (runs.len() > 1).then(|| format!("the rows are from {} runs: {}", runs.len(), runs.into_iter().collect::<Vec<_>>().join(", "))),
        measured.iter().any(|row| is_mixed(row, measured[0])).then(|| {
            "the rows are not all from the same code, libraries and number of threads: a difference may be due to that".into()
        }),
        cases.iter().any(|case| case.has_others).then(|| {
            "runs of other code, libraries or files than a row's newest run, and of trees with changes, are left out".into()
        }),
        (at_any.len() > here)
            .then(|| format!("{} of {} rows were not measured at this batch size", at_any.len() - here, at_any.len())),
    ];
    notes.into_iter().flatten().collect()
}

fn alike(record: &Record) -> (&str, &str, &str, Dtype) {
    (&record.variant, &record.backend, &record.device, record.dtype)
}

/// What tells code apart: the commit, and the run of a tree with changes.
fn code(record: &Record) -> (Option<&str>, Option<&str>) {
    (record.git_commit.as_deref(), (record.git_dirty != Some(false)).then_some(record.run_id.as_str()))
}

/// `0.62 (0.59 … 0.66)`.
fn ratio(interval: &RatioInterval) -> String {
    format!("{:.2} ({:.2} … {:.2})", interval.ratio, interval.lower, interval.upper)
}

/// `60.7 kB`, `3.30 MB`, `102 MB`.
fn megabytes(size: f64) -> String {
    if size < 1.0 { format!("{} kB", three_digits(size * 1e3)) } else { format!("{} MB", three_digits(size)) }
}

/// `25.6 M`; `25.6 M, 41 % not 0` if many are 0.
fn parameters(record: &Record) -> Option<String> {
    let count = record.parameters?;
    let shown = match count as f64 {
        few if few < 1e3 => count.to_string(),
        some if some < 1e6 => format!("{} k", three_digits(some / 1e3)),
        many if many < 1e9 => format!("{} M", three_digits(many / 1e6)),
        most => format!("{} G", three_digits(most / 1e9)),
    };
    let nonzero = record.nonzero_parameters.map(|nonzero| nonzero as f64 / count.max(1) as f64);
    let nonzero = nonzero.filter(|nonzero| *nonzero < 0.995).map(|nonzero| format!(", {:.0} % not 0", 100.0 * nonzero));
    Some(format!("{shown}{}", nonzero.unwrap_or_default()))
}

/// `98.2 % (96.5 … 99.2) of 450`.
fn fraction_of(fraction: Option<f64>, interval: Option<(f64, f64)>, count: Option<u64>) -> Option<String> {
    let interval = interval.map(|(lower, upper)| format!(" ({:.1} … {:.1})", 100.0 * lower, 100.0 * upper));
    let count = count.map(|count| format!(" of {count}"));
    Some(format!("{}{}{}", percent(fraction?), interval.unwrap_or_default(), count.unwrap_or_default()))
}

/// `−0.2 (−1.4 … +1.0)`, in percentage points.
fn change(record: &Record) -> Option<String> {
    let bounds = record.accuracy_change_lower.zip(record.accuracy_change_upper);
    let interval = bounds.map(|(lower, upper)| format!(" ({} … {})", points(lower), points(upper)));
    Some(format!("{}{}", points(record.accuracy_change?), interval.unwrap_or_default()))
}

/// `−0.6`, `0.0`, `+1.2`: a difference of fractions in percentage points.
fn points(difference: f64) -> String {
    let text = format!("{:.1}", 100.0 * difference.abs());
    match difference {
        _ if text == "0.0" => text,
        below if below < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

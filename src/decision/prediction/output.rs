//! Predictions and their evaluation as text for a terminal, Markdown and JSON.

use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::drift::Drift;
use super::anchor::Anchor;
use super::evaluation::Evaluation;
use super::example::{Lessons, MOST_DISTURBED};
use super::predictor::{Basis, Estimate, Prediction, Refusal};
use super::scaling::in_words;
use crate::definition::Dtype;
use crate::report::numbers::{latency, megabytes, percent, plural, three_digits};
use crate::report::table::{Cell, Column, Table, wrapped};
use crate::report::{Format, escape, json, schema_of};

/// A case that was asked about, and the answer: a prediction or a refusal.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Asked {
    pub case_id: String,
    pub model: String,
    pub variant: String,
    pub backend: String,
    pub device: String,
    pub dtype: Dtype,
    pub batch_size: usize,
    /// The sizes that were asked for, as in `height=224,width=224`.
    pub dims: Option<String>,
    pub sequence_length: Option<usize>,
    /// Absent for a machine that is described by its peaks only.
    pub host_id: Option<String>,
    pub threads: Option<usize>,
    /// The largest batch that is predicted to fit into the machine's memory, 0 if not even one sample does; absent if nothing is known, or
    /// all fit.
    pub largest_batch: Option<usize>,
    /// The measurements of `--anchor`, by whose factor the predicted times are multiplied.
    pub anchor: Option<Anchor>,
    pub prediction: Option<Prediction>,
    pub refusal: Option<Refusal>,
}

/// The JSON Schema of [`Asked`] cases.
pub fn schema() -> String {
    schema_of::<Vec<Asked>>("inferbench predict: latency, throughput and memory of cases")
}

/// `1.25 ms`, with its interval as a detail.
fn cell(estimate: Estimate, text: fn(f64) -> String) -> Cell {
    let cell = Cell::from(text(estimate.value));
    if estimate.lower == estimate.upper {
        return cell;
    }
    cell.detail(format!("({} … {})", text(estimate.lower), text(estimate.upper)))
}

/// The predictions as a table, with their errors, refusals and what would help below.
pub fn predictions_text(all: &[Asked], lessons: &Lessons, format: Format) -> String {
    if format == Format::Json {
        return json(&all);
    }
    let columns = [Column::code("case"), Column::number("p50"), Column::number("samples/s"), Column::number("memory")];
    let mut table = Table::new(columns.into_iter().chain([Column::text("from").minor()])).essential(&["p50"]);
    for asked in all {
        let Some(found) = &asked.prediction else { continue };
        let memory = found.memory_mb.map(|memory| cell(memory, megabytes));
        let basis = match found.basis {
            Basis::Measured => "measured".to_owned(),
            basis => {
                let (rows, families) =
                    (plural(found.rows, "row", "rows"), plural(found.families, "family", "families"));
                format!("{}, {rows} of {families}", basis.to_string().replace('-', " "))
            }
        };
        table.row([
            Cell::from(asked.case_id.clone()),
            cell(found.latency_ms, latency),
            cell(found.throughput_ips, three_digits),
            memory.unwrap_or_default(),
            Cell::from(basis),
        ]);
    }
    let mut notes = notes(all);
    notes.extend(left_out(lessons));
    let has_figures = all.iter().any(|asked| asked.prediction.is_some());
    for note in &notes {
        table.footnote(note.clone());
    }
    match format {
        Format::Markdown if has_figures => table.markdown(),
        _ if has_figures => table.terminal(),
        Format::Markdown => notes.iter().map(|note| format!("- {}\n", escape::markdown(note))).collect(),
        _ => notes.iter().map(|note| wrapped(note, 0)).collect(),
    }
}

fn notes(all: &[Asked]) -> Vec<String> {
    let mut notes = Vec::new();
    let predicted =
        || all.iter().filter_map(|asked| asked.prediction.as_ref()).filter(|it| it.basis != Basis::Measured);
    if predicted().next().is_some() {
        notes.push("in parentheses: the interval that should hold 80 % of such cases".to_owned());
    }
    for (basis, what) in [
        (
            Basis::OtherBatches,
            "one batch size of a model is left out (or a family, where no model has several batch sizes)",
        ),
        (Basis::OtherModels, "a family is left out"),
        (
            Basis::OtherMachines,
            "a machine is left out (or a family, where there is only one machine; the interval is wider then)",
        ),
    ] {
        let errors: Vec<f64> = predicted().filter(|it| it.basis == basis).filter_map(|it| it.median_error).collect();
        let end = |of: fn(f64, f64) -> f64| errors.iter().copied().reduce(of).map(percent);
        if let Some((least, most)) = end(f64::min).zip(end(f64::max)) {
            let errors = if least == most { most } else { format!("{least} to {most}") };
            notes.push(format!("median error of this history if {what}: {errors}"));
        }
    }
    let place = |it: &Asked| {
        let threads = it.threads.map(|threads| format!(" with {}", plural(threads, "thread", "threads")));
        Some(format!("the figures are for host {}{}", it.host_id.as_ref()?, threads.unwrap_or_default()))
    };
    let answered = all.iter().filter(|it| it.prediction.is_some());
    notes.extend(answered.filter_map(place).collect::<IndexSet<String>>());
    let runtime = |it: &Asked| format!("{} on {} in {}", it.backend, it.device, it.dtype);
    let anchors = all.iter().filter_map(|it| Some(it.anchor.as_ref()?.text(&runtime(it))));
    notes.extend(anchors.collect::<IndexSet<String>>());
    for asked in all {
        if let Some(Refusal { reason, would_help }) = &asked.refusal {
            notes.push(format!("{}: not predicted: {reason}; what would help most: {would_help}", asked.case_id));
        }
    }
    let helped = all.iter().filter_map(|asked| asked.prediction.as_ref()).filter(|it| it.would_help.is_some());
    let ratio = |it: &Prediction| it.latency_ms.upper / it.latency_ms.lower;
    let widest = helped.max_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    if let Some(command) = widest.and_then(|it| it.would_help.as_ref()) {
        notes.push(format!("what would help most: {command}"));
    }
    notes.extend(scaling(all));
    notes
}

/// What larger batches bring, and the largest that fits, for the cases that differ in nothing else.
fn scaling(all: &[Asked]) -> Vec<String> {
    let mut groups: IndexMap<&str, Vec<&Asked>> = IndexMap::new();
    for asked in all.iter().filter(|asked| asked.prediction.is_some()) {
        let name = asked.case_id.rsplit_once('/').map_or(asked.case_id.as_str(), |(name, _)| name);
        groups.entry(name).or_default().push(asked);
    }
    let text = |(name, group): (&str, Vec<&Asked>)| {
        let time = |it: &&Asked| Some((it.batch_size, it.prediction.as_ref()?.latency_ms.value));
        let scaling = in_words(&group.iter().filter_map(time).collect::<Vec<_>>());
        let largest = group.iter().filter_map(|it| it.largest_batch).min();
        let largest = largest.map(|it| match it {
            0 => "not even batch 1 is predicted to fit into the memory".to_owned(),
            _ => format!("batch {it} is the largest that is predicted to fit into the memory"),
        });
        let texts: Vec<String> = scaling.into_iter().chain(largest).collect();
        (!texts.is_empty()).then(|| format!("{name}: {}", texts.join("; ")))
    };
    groups.into_iter().filter_map(text).collect()
}

/// Which rows were left out or count less, and which peaks were raised.
fn left_out(lessons: &Lessons) -> Vec<String> {
    let mut notes = Vec::new();
    if lessons.disturbed > 0 {
        let rows = plural(lessons.disturbed, "row was", "rows were");
        notes
            .push(format!("{rows} left out: other load affected more than {} of the samples", percent(MOST_DISTURBED)));
    }
    if lessons.uncounted > 0 {
        let rows = plural(lessons.uncounted, "row has", "rows have");
        notes.push(format!("{rows} no counted cost: of an older version, of a model without an ONNX graph, or with an operator whose cost is not known"));
    }
    notes.extend(lessons.drifted.iter().map(Drift::text));
    for (site, before, after) in &lessons.raised {
        notes.push(format!(
            "on host {} several rows reached {} GFLOP/s, more than the measured peak of {}: the peak is raised to this",
            site.host_id,
            three_digits(*after),
            three_digits(*before)
        ));
    }
    notes
}

/// The errors of a history as a table.
pub fn evaluation_text(evaluation: &Evaluation, lessons: &Lessons, format: Format) -> String {
    if format == Format::Json {
        return json(evaluation);
    }
    let texts = ["left out", "backend", "device", "dtype", "host"].map(Column::text);
    let numbers =
        ["threads", "rows", "families", "median error", "mean error", "within 25 %", "worst", "in the 80 % interval"];
    let mut table = Table::new(texts.into_iter().chain(numbers.map(Column::number)))
        .essential(&["backend", "median error", "in the 80 % interval"])
        .minor(&["device", "dtype", "host", "threads", "families", "mean error"]);
    for errors in &evaluation.errors {
        table.row([
            errors.left_out.to_owned(),
            errors.backend.clone(),
            errors.device.clone(),
            errors.dtype.clone(),
            errors.host_id.clone().unwrap_or_else(|| "all".into()),
            errors.threads.map(|threads| threads.to_string()).unwrap_or_default(),
            errors.rows.to_string(),
            errors.families.to_string(),
            percent(errors.median_error),
            percent(errors.mean_error),
            percent(errors.within_quarter),
            format!("× {:.2}", errors.worst_factor),
            percent(errors.coverage),
        ]);
    }
    if let Some(loss) = &evaluation.recommendations {
        table.footnote(format!(
            "the fastest backend by half of the rows and predictions of the rest, {} decisions: right {}, {} slower than the fastest on \
             average, {} at most; {} slower than a measured row; {} not counted",
            loss.decisions,
            percent(loss.right),
            percent(loss.mean_loss),
            percent(loss.largest_loss),
            plural(loss.contradictions, "prediction was chosen that is", "predictions were chosen that are"),
            plural(loss.refused, "refusal is", "refusals are")
        ));
    }
    left_out(lessons).into_iter().for_each(|note| table.footnote(note));
    if format == Format::Markdown { table.markdown() } else { table.terminal() }
}

//! The variants of one model side by side: what each costs, what it answers as well as the original, and which to ship.
//!
//! The comparison is data here; one small file an output shows it. Rows are compared at one batch size, since a call of
//! another does another amount of work.

mod choice;
mod columns;
mod difference;
mod front;
mod html;
mod json;
mod markdown;
mod picture;
mod quality;
mod recommendation;
mod selection;
mod table;
mod wording;

pub use difference::Differences;
pub use html::render as page;
pub use json::schema;
pub use quality::{LEAST_AGREEMENT, LEAST_COSINE, Measure, Quality};
pub use recommendation::Recommendation;

use schemars::JsonSchema;
use serde::Serialize;

use self::selection::{Typical, of_model, tables, typical};
use super::Format;
use crate::compare::ASSUMED_DEVIATION;
use crate::definition::{Boundary, Dtype, ORIGINAL, Phase, Status};
use crate::record::Record;

/// What the recommended variant is to be best at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The median time of a call
    #[default]
    Latency,
    /// Samples, or tokens, a second
    Throughput,
    /// The model's files
    Size,
    /// The peak of the process
    Memory,
}

/// What is compared, and what counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub model: String,
    pub goal: Goal,
    /// A variant must be shown to lose at most this part of the samples: 0.01 is one percentage point.
    pub accuracy_loss: f64,
    /// The standard deviation of the logarithm of a latency from one process to the next.
    pub deviation: f64,
}

impl Options {
    /// The fastest, with at most one point less of accuracy, on a machine of whose noise nothing is known.
    pub fn new(model: impl Into<String>) -> Self {
        Options { model: model.into(), goal: Goal::default(), accuracy_loss: 0.01, deviation: ASSUMED_DEVIATION }
    }
}

/// A model's variants: a table a phase, sequence length, boundary and machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Variants {
    /// At least one.
    pub tables: Vec<VariantTable>,
}

/// What does the same work on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct VariantTable {
    pub model: String,
    pub host_id: String,
    pub phase: Phase,
    pub sequence_length: Option<usize>,
    pub boundary: Boundary,
    pub batch_size: usize,
    pub goal: Goal,
    pub accuracy_loss: f64,
    /// Times that differ by at most this part are taken as equal: of equal code 95 % do.
    pub floor: f64,
    /// Runs that each row's figures are the median of, at least.
    pub runs: usize,
    /// By what the answers are judged.
    pub measure: Measure,
    pub recommendation: Recommendation,
    /// Those that were measured, the original first; then those that were not.
    pub rows: Vec<Row>,
    /// What would be recommended at the other batch sizes.
    pub other_batch_sizes: Vec<OtherBatchSize>,
    /// How the figures are to be read.
    pub notes: Vec<String>,
}

/// A variant on a backend and device, in a dtype: all columns of its record, and how they compare.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    #[serde(flatten)]
    pub record: Record,
    pub quality: Quality,
    pub differences: Option<Differences>,
    /// Whether it is what the recommendation compares with: the fastest original in f32.
    pub is_baseline: bool,
    /// Whether no other row is at least as good in latency, quality and size, and better in one of them.
    pub is_on_front: bool,
    pub is_recommended: bool,
}

/// The choice at another batch size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OtherBatchSize {
    pub batch_size: usize,
    pub recommendation: Recommendation,
    /// Whether the same variant, backend, device and dtype are recommended.
    pub is_same_choice: bool,
}

/// What is asked for, and what the figures can show.
struct Terms<'a> {
    options: &'a Options,
    floor: f64,
    runs: usize,
}

/// The part by which two medians of so many runs differ in one of twenty cases although nothing has changed:
/// `exp(1.96 · s · √(2 / n)) - 1` for a standard deviation `s` of logarithms.
fn smallest_difference(deviation: f64, runs: usize) -> f64 {
    (1.96 * deviation * (2.0 / runs.max(1) as f64).sqrt()).exp_m1()
}

/// Compares the variants of a model. Of several runs of one commit, a case's record is the one with the median latency.
///
/// # Errors
/// The records have no such model, or nothing but its original; the message says what there is, or how to measure more.
pub fn compare(records: &[Record], options: &Options) -> Result<Variants, String> {
    let of_model = of_model(records, &options.model)?;
    let Typical { records, runs } = typical(&of_model);
    let floor = smallest_difference(options.deviation, runs);
    Ok(Variants { tables: tables(&records, &Terms { options, floor, runs }) })
}

impl Variants {
    /// The comparison's text, ending with a line break.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Table => table::render(self),
            Format::Markdown => markdown::render(self),
            Format::Json => json::render(self),
        }
    }
}

impl Row {
    pub fn is_measured(&self) -> bool {
        self.record.status == Status::Ok
    }

    /// Measured, and not known to be wrong.
    pub fn is_candidate(&self) -> bool {
        self.is_measured() && self.quality != Quality::Wrong
    }

    /// Tokens a second where they are counted, samples a second otherwise.
    pub fn rate(&self) -> Option<f64> {
        rate(&self.record)
    }
}

fn rate(record: &Record) -> Option<f64> {
    record.tokens_per_second.or(record.throughput_ips)
}

/// The model as it was published: what every variant is compared with.
fn is_original_in_f32(record: &Record) -> bool {
    record.variant == ORIGINAL && record.dtype == Dtype::F32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::report::tests::record;

    /// A measured row of a model `m`: 450 samples, megabytes, milliseconds, and a change of accuracy with its interval,
    /// in points.
    pub fn measured(variant: &str, backend: &str, size: f64, ms: f64, change: (f64, f64, f64)) -> Record {
        let (change, lower, upper) = change;
        Record {
            accuracy: Some(0.982 + change / 100.0),
            accuracy_lower: Some(0.965 + change / 100.0),
            accuracy_upper: Some((0.992 + change / 100.0).min(1.0)),
            accuracy_samples: Some(450),
            accuracy_change: Some(change / 100.0),
            accuracy_change_lower: Some(lower / 100.0),
            accuracy_change_upper: Some(upper / 100.0),
            data_source: Some("digits".into()),
            ..unlabelled(variant, backend, size, ms, (1.0, 1.0))
        }
    }

    /// The same without labels, with agreement and cosine.
    pub fn unlabelled(variant: &str, backend: &str, size: f64, ms: f64, agreement: (f64, f64)) -> Record {
        let plain = record("m", backend, 1, Some(ms));
        let case = Case { variant: variant.into(), ..plain.case() };
        Record {
            case_id: case.to_string(),
            variant: variant.into(),
            model_size_mb: Some(size),
            throughput_ips: Some(1e3 / ms),
            memory_mb: Some(100.0 + size),
            memory_kind: Some("own-process-peak-rss".into()),
            parameters: Some(1_000_000),
            nonzero_parameters: Some(1_000_000),
            verified: Some(true),
            data_source: Some("synthetic".into()),
            agreement: Some(agreement.0),
            output_cosine: Some(agreement.1),
            agreement_samples: Some(64),
            ..plain
        }
    }

    pub const SAME: (f64, f64, f64) = (0.0, -0.6, 0.6);

    /// With this batch size.
    pub fn at(batch_size: usize, record: Record) -> Record {
        let case = Case { batch_size, ..record.case() };
        Record { case_id: case.to_string(), batch_size, ..record }
    }

    pub fn with(records: Vec<Record>, change: impl Fn(&mut Options)) -> VariantTable {
        // Processes differ so little that times of more than 5 % apart are not equal.
        let mut options = Options { deviation: 0.0176, ..Options::new("m") };
        change(&mut options);
        let mut variants = compare(&records, &options).unwrap();
        assert_eq!(variants.tables.len(), 1);
        variants.tables.remove(0)
    }

    pub fn table_of(records: Vec<Record>) -> VariantTable {
        with(records, |_| ())
    }

    /// One of each kind of row.
    pub fn example() -> Vec<Record> {
        let mut failed = measured("distilled", "tch", 1.0, 1.0, SAME);
        (failed.status, failed.message) = (Status::Failed, Some("no operator <Gelu> | a\nb".into()));
        let mut pruned = measured("pruned", "ort", 10.0, 1.9, (-3.0, -4.0, -2.0));
        pruned.nonzero_parameters = Some(410_000);
        vec![
            measured("original", "tch", 10.2, 3.0, SAME),
            measured("original", "ort", 10.2, 2.0, SAME),
            measured("int8-static", "ort", 3.0, 1.25, SAME),
            pruned,
            failed,
        ]
    }

    #[test]
    fn more_runs_show_smaller_differences() {
        assert!((smallest_difference(0.0176, 1) - 0.05).abs() < 1e-3);
        assert!((smallest_difference(0.05, 1) - 0.149).abs() < 1e-3);
        assert!((smallest_difference(0.05, 4) - 0.0718).abs() < 1e-3);
    }

    #[test]
    fn a_model_that_the_records_lack_is_an_error_with_those_that_they_have() {
        let error = compare(&[record("b", "ort", 1, None), record("a", "ort", 1, None)], &Options::new("m"));
        assert_eq!(error.unwrap_err(), "no record is of the model \"m\"; there are a, b");
    }

    #[test]
    fn an_original_alone_has_nothing_to_be_compared_with() {
        let error = compare(&[record("m", "ort", 1, Some(1.0))], &Options::new("m")).unwrap_err();
        assert!(error.contains("`inferbench run --model m --variant all`"), "{error}");
    }

    #[test]
    fn the_original_comes_first_and_what_was_not_measured_last() {
        let table = table_of(example());
        let order: Vec<(&str, &str)> =
            table.rows.iter().map(|row| (row.record.variant.as_str(), row.record.backend.as_str())).collect();
        let expected =
            [("original", "ort"), ("original", "tch"), ("int8-static", "ort"), ("pruned", "ort"), ("distilled", "tch")];
        assert_eq!(order, expected);
        let last = &table.rows[4];
        assert!(!last.is_measured() && last.differences.is_none() && !last.is_on_front && !last.is_recommended);
    }

    #[test]
    fn differences_are_to_the_original_on_the_same_backend() {
        let mut records = example();
        records.push(measured("int8-static", "tch", 5.1, 1.5, SAME));
        let table = table_of(records);
        let row = table.rows.iter().find(|row| row.record.case_id == "m-int8-static/tch-cpu-f32/1").unwrap();
        let differences = row.differences.as_ref().unwrap();
        assert_eq!(differences.original, "m/tch-cpu-f32/1");
        assert_eq!((differences.latency_p50, differences.model_size), (Some(0.5), Some(0.5)));
        assert_eq!(differences.throughput, Some(2.0));
    }

    #[test]
    fn without_an_original_there_the_fastest_is_compared_with_and_a_note_says_so() {
        let mut records = example();
        records.push(measured("int8-torch", "candle", 5.1, 1.5, SAME));
        let table = table_of(records);
        let row = table.rows.iter().find(|row| row.record.backend == "candle").unwrap();
        assert_eq!(row.differences.as_ref().unwrap().original, "m/ort-cpu-f32/1");
        let expected =
            "int8-torch on candle: no original was measured there; its differences are to the original on ort";
        assert!(table.notes.iter().any(|note| note == expected), "{:?}", table.notes);
    }
}

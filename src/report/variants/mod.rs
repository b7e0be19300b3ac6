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
mod notes;
mod picture;
mod quality;
mod recommendation;
mod repetition;
mod selection;
mod sentence;
mod table;
mod wording;

pub use difference::Differences;
pub use html::render as page;
pub use json::schema;
pub use quality::{LEAST_AGREEMENT, LEAST_COSINE, Measure, Quality};
pub use recommendation::Recommendation;

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use self::repetition::repeated;
use self::selection::{of_model, tables};
use super::Format;
use crate::compare::ASSUMED_DEVIATION;
use crate::definition::{Boundary, Phase, Status};
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
    /// A variant must be shown to lose at most this part of the samples; [`ACCURACY_LOSS`] if nothing was asked for.
    pub accuracy_loss: Option<f64>,
    /// The standard deviation of the logarithm of a latency from one process to the next.
    pub deviation: f64,
}

/// What may be lost: one percentage point.
pub const ACCURACY_LOSS: f64 = 0.01;

impl Options {
    /// The fastest, with at most one point less of accuracy, on a machine of whose noise nothing is known.
    pub fn new(model: impl Into<String>) -> Self {
        Options { model: model.into(), goal: Goal::default(), accuracy_loss: None, deviation: ASSUMED_DEVIATION }
    }

    fn loss(&self) -> f64 {
        self.accuracy_loss.unwrap_or(ACCURACY_LOSS)
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
    /// Times that differ by at most this part are taken as equal: of equal code 95 % of the pairs do.
    pub floor: f64,
    /// Times that are better than the baseline's by more than this part are shown to be: in 95 % of tables of equal code no
    /// row is.
    pub least_gain: f64,
    /// Runs that each row's times are the geometric mean of, at least.
    pub runs: usize,
    /// By what the answers are judged.
    pub measure: Measure,
    /// The samples that they are judged by.
    pub data_source: Option<String>,
    pub recommendation: Recommendation,
    /// Those that were measured, the original first; then those that were not.
    pub rows: Vec<Row>,
    /// What would be recommended at the other batch sizes.
    pub other_batch_sizes: Vec<OtherBatchSize>,
    /// How the figures are to be read.
    pub notes: Vec<String>,
}

/// A variant on a backend and device, in a dtype: all columns of its newest record, and how they compare.
///
/// Of several runs `latency_p50_ms`, `latency_min_ms`, `throughput_ips` and `tokens_per_second` are geometric means, and
/// the columns of quality are those of the newest run that judged the answers by the samples of the table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    #[serde(flatten)]
    pub record: Record,
    /// The runs that its times are of.
    pub run_ids: Vec<String>,
    pub quality: Quality,
    /// 95 % interval of `agreement`.
    pub agreement_lower: Option<f64>,
    pub agreement_upper: Option<f64>,
    pub differences: Option<Differences>,
    /// Whether it is what the recommendation compares with: the fastest original.
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

/// What is asked for, and what the figures of one batch size can show.
struct Terms<'a> {
    options: &'a Options,
    floor: f64,
    least_gain: f64,
    /// Runs of each row, at least.
    runs: usize,
    /// Rows beside the baseline, of which the best is looked for.
    candidates: usize,
}

impl<'a> Terms<'a> {
    fn new(options: &'a Options, runs: usize, candidates: usize) -> Self {
        let smallest = |candidates| smallest_difference(options.deviation, runs, candidates);
        Terms { options, floor: smallest(1), least_gain: smallest(candidates), runs, candidates }
    }
}

/// The part by which, in one of twenty tables of equal code, some candidate differs from the baseline, each of which is the
/// geometric mean of so many runs: `exp(z · s · √(2 / n)) - 1` for a standard deviation `s` of logarithms.
///
/// The best of `k` is looked for, so that `z` is the quantile at `1 - 0.05 / (2 k)` (Bonferroni).
fn smallest_difference(deviation: f64, runs: usize, candidates: usize) -> f64 {
    let z = Normal::standard().inverse_cdf(1.0 - 0.05 / (2.0 * candidates.max(1) as f64));
    (z * deviation * (2.0 / runs.max(1) as f64).sqrt()).exp_m1()
}

/// Compares the variants of a model. Of several runs of one program, a case's times are their geometric means.
///
/// # Errors
/// The records have no such model, or nothing but its original; the message says what there is, or how to measure more.
pub fn compare(records: &[Record], options: &Options) -> Result<Variants, String> {
    let of_model = of_model(records, &options.model)?;
    Ok(Variants { tables: tables(repeated(&of_model), options) })
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

/// The peak of a process that has measured nothing else: only such peaks can be compared.
fn own_memory(record: &Record) -> Option<f64> {
    record.memory_mb.filter(|_| record.memory_kind.as_deref() == Some("own-process-peak-rss"))
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

    /// Of a tree without changes: runs of it are of one program.
    pub fn at_commit(commit: &str, record: Record) -> Record {
        Record { git_commit: Some(commit.into()), git_dirty: Some(false), ..record }
    }

    /// The same in a run of that month.
    pub fn in_run(month: u32, record: Record) -> Record {
        Record {
            run_id: format!("run{month}"),
            timestamp: format!("2027-{month:02}-01T00:00:00Z").parse().unwrap(),
            ..record
        }
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
        assert!((smallest_difference(0.0176, 1, 1) - 0.05).abs() < 1e-3);
        assert!((smallest_difference(0.05, 1, 1) - 0.149).abs() < 1e-3);
        assert!((smallest_difference(0.05, 4, 1) - 0.0718).abs() < 1e-3);
    }

    #[test]
    fn of_more_candidates_the_best_seems_better_by_chance() {
        // The quantile of 1 - 0.05 / 20 is 2.8070.
        assert!((smallest_difference(0.05, 1, 10) - (2.8070_f64 * 0.05 * 2.0_f64.sqrt()).exp_m1()).abs() < 1e-4);
        let gain = |records| table_of(records).least_gain;
        assert!(gain(example()) > gain(example()[1..3].to_vec()));
        assert_eq!(table_of(example()).floor, table_of(example()[1..3].to_vec()).floor);
    }

    #[test]
    fn equal_code_is_taken_for_faster_in_one_of_twenty_tables_at_most() {
        use crate::fixture::seeded::Stream;
        const TABLES: u64 = 1000;
        // About normal, by the sum of twelve.
        let normal = |stream: &Stream, from: u64| -> f64 {
            (0..12).map(|index| (stream.at(from + index) >> 11) as f64 / (1_u64 << 53) as f64).sum::<f64>() - 6.0
        };
        let is_kept = |table: &u64| {
            let stream = Stream::new(*table, "equal code");
            let mut records = Vec::new();
            for (case, variant) in ["original", "a", "b", "c", "d"].iter().enumerate() {
                for run in 0..3 {
                    let ms = (0.05 * normal(&stream, 12 * (3 * case as u64 + run))).exp();
                    records.push(in_run(1 + run as u32, at_commit("c", measured(variant, "ort", 10.0, ms, SAME))));
                }
            }
            let table = with(records, |options| options.deviation = 0.05);
            table.rows.iter().any(|row| row.is_baseline && row.is_recommended)
        };
        let kept = (0..TABLES).filter(is_kept).count();
        assert!(kept as u64 * 20 >= TABLES * 19, "{kept} of {TABLES}");
    }

    #[test]
    fn a_model_that_the_records_lack_is_an_error_with_those_that_they_have() {
        let error = compare(&[record("b", "ort", 1, None), record("a", "ort", 1, None)], &Options::new("m"));
        assert_eq!(error.unwrap_err(), "none of the records that were asked for is of the model \"m\"; there are a, b");
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
            "int8-torch on candle: no original in f32 was measured there; its differences are to the original on ort";
        assert!(table.notes.iter().any(|note| note == expected), "{:?}", table.notes);
    }
}

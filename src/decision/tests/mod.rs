//! Variants of a model `m`: which rows there are, and which one is recommended.

mod filters;
mod runs;
mod shown;

use proptest::prelude::*;

use super::*;
use crate::compare::Source;
use crate::definition::Case;
use crate::fixture::seeded::{Fill, values};
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

/// The same record from a tree without changes, so that all its runs are of one program.
pub fn at_commit(commit: &str, record: Record) -> Record {
    Record { git_commit: Some(commit.into()), git_dirty: Some(false), ..record }
}

/// The same record in a run of that month.
pub fn in_run(month: u32, record: Record) -> Record {
    Record {
        run_id: format!("run{month}"),
        timestamp: format!("2027-{month:02}-01T00:00:00Z").parse().unwrap(),
        ..record
    }
}

/// So little noise that times more than 5 % apart can be told apart.
const QUIET: Noise = Noise { deviation: 0.0176, freedom: None, runs: 0, source: Source::Assumed, usual_step: 0.0 };

fn with(records: Vec<Record>, change: impl Fn(&mut Options)) -> VariantTable {
    let mut options = Options { noise: QUIET, ..Options::new("m") };
    change(&mut options);
    let mut variants = compare(&records, &[], &options).unwrap();
    assert_eq!(variants.tables.len(), 1);
    variants.tables.remove(0)
}

fn table_of(records: Vec<Record>) -> VariantTable {
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

fn original() -> Record {
    measured("original", "ort", 10.0, 2.0, SAME)
}

/// The variant that is recommended beside an original of 10 MB and 2 ms on ort.
#[track_caller]
fn chosen(goal: Goal, others: Vec<Record>) -> String {
    let table = with([vec![original()], others].concat(), |options| options.goal = goal);
    let row = table.rows.into_iter().find(|row| row.is_recommended);
    row.unwrap_or_else(|| panic!("{}", table.recommendation.sentence)).record.variant
}

#[test]
fn each_goal_has_its_best() {
    let made = |variant, size, ms, rate, memory| Record {
        memory_mb: Some(memory),
        throughput_ips: Some(rate),
        ..measured(variant, "ort", size, ms, SAME)
    };
    let others = || {
        vec![
            made("fast", 8.0, 1.0, 800.0, 90.0),
            made("parallel", 8.0, 1.5, 900.0, 90.0),
            made("small", 2.0, 1.8, 500.0, 90.0),
            made("lean", 8.0, 1.8, 500.0, 30.0),
        ]
    };
    let found = [Goal::Latency, Goal::Throughput, Goal::Size, Goal::Memory].map(|goal| chosen(goal, others()));
    assert_eq!(found, ["fast", "parallel", "small", "lean"]);
}

#[test]
fn a_tie_is_decided_by_size_and_then_by_the_answers() {
    let two = |size, ms, change| vec![measured("one", "ort", 2.0, 1.0, SAME), measured("two", "ort", size, ms, change)];
    assert_eq!(chosen(Goal::Latency, two(1.0, 1.04, SAME)), "two");
    assert_eq!(chosen(Goal::Latency, two(1.0, 1.08, SAME)), "one");
    assert_eq!(chosen(Goal::Latency, two(2.01, 1.03, (0.6, 0.0, 1.2))), "two");
    // One more right answer of 450 is not a difference.
    assert_eq!(chosen(Goal::Latency, two(2.01, 1.03, (0.22, -0.3, 0.7))), "one");
}

#[test]
fn the_original_stays_unless_a_row_is_better_or_as_fast_and_smaller() {
    let other = |size, ms| vec![measured("int8", "ort", size, ms, SAME)];
    for (size, ms, expected) in [
        (10.0, 1.95, "original"),
        (9.8, 1.95, "original"),
        (20.0, 1.5, "int8"),
        (5.0, 2.05, "int8"),
        (5.0, 2.2, "original"),
    ] {
        assert_eq!(chosen(Goal::Latency, other(size, ms)), expected, "{size} MB, {ms} ms");
    }
}

#[test]
fn of_rows_that_are_about_as_fast_as_the_original_the_smallest_is_chosen() {
    let two = vec![measured("one", "ort", 5.0, 1.92, SAME), measured("two", "ort", 2.0, 2.08, SAME)];
    assert_eq!(chosen(Goal::Latency, two), "two");
}

#[test]
fn a_runner_up_that_is_not_found_among_many_rows_is_not_called_faster() {
    let alike = (0..20).map(|place| measured(&format!("v{place}"), "ort", 10.0, 2.0, SAME));
    let records: Vec<Record> = alike.chain([original(), measured("fast", "ort", 10.0, 1.86, SAME)]).collect();
    let found = advise(&records, &[], &Options { noise: QUIET, ..Options::new("m") }).unwrap().remove(0);
    let second = found.runner_up.as_ref().unwrap();
    assert_eq!((found.case_id.as_deref(), second.name.as_str()), (Some("m/ort-cpu-f32/1"), "fast on ort"));
    assert!(found.is_undecided && second.why.starts_with("cannot be told apart"), "{second:?}");
}

#[test]
fn only_rows_of_kept_quality_are_recommended() {
    let fast = |change| vec![measured("fast", "ort", 1.0, 0.5, change)];
    assert_eq!(chosen(Goal::Latency, fast((-0.4, -1.6, 0.8))), "original");
    assert_eq!(chosen(Goal::Latency, fast((-3.0, -4.0, -2.0))), "original");
    let unknown = Record { accuracy_change: None, ..fast(SAME).remove(0) };
    assert_eq!(chosen(Goal::Latency, vec![unknown]), "original");
    let wrong = Record { verified: Some(false), ..fast(SAME).remove(0) };
    assert_eq!(chosen(Goal::Latency, vec![wrong]), "original");
    let suspicious = Record { status: Status::Suspicious, verified: None, ..fast(SAME).remove(0) };
    let table = table_of(vec![original(), suspicious]);
    let row = table.rows.iter().find(|row| row.record.variant == "fast").unwrap();
    assert!(!row.is_recommended && !row.is_on_front && row.change.is_none() && row.differences.is_none());
    let open = [vec![original()], fast((-0.4, -1.6, 0.8))].concat();
    let allowed = with(open, |options| options.accuracy_loss = 0.02);
    assert_eq!(allowed.recommendation.case_id.as_deref(), Some("m-fast/ort-cpu-f32/1"));
}

#[test]
fn memory_of_a_process_that_others_have_used_is_no_cost() {
    let kind = |kind: &str, memory, record: Record| Record {
        memory_kind: Some(kind.into()),
        memory_mb: Some(memory),
        ..record
    };
    let (own, shared) = ("own-process-peak-rss", "shared-process-peak-rss");
    let chosen = |original_kind, other_kind| {
        let records = vec![
            kind(original_kind, 100.0, original()),
            kind(other_kind, 50.0, measured("int8", "ort", 10.0, 2.0, SAME)),
        ];
        with(records, |options| options.goal = Goal::Memory).recommendation
    };
    // macOS and Windows tell no peak of a process.
    for own in [own, "own-process-seen-rss"] {
        assert_eq!(chosen(own, own).case_id.as_deref(), Some("m-int8/ort-cpu-f32/1"));
    }
    assert_eq!(chosen(own, shared).case_id.as_deref(), Some("m/ort-cpu-f32/1"));
    let unknown = chosen(shared, shared);
    assert_eq!(unknown.case_id, None);
    assert_eq!(unknown.sentence, "Nothing is recommended: the memory of the original is not known.");
    let slower = kind(own, 100.0, measured("original", "tch", 10.0, 3.0, SAME));
    let int8 = kind(shared, 50.0, measured("int8", "ort", 10.0, 2.0, SAME));
    let table = with(vec![kind(shared, 90.0, original()), slower, int8], |options| options.goal = Goal::Memory);
    assert_eq!(table.recommendation.case_id.as_deref(), Some("m/tch-cpu-f32/1"));
}

#[test]
fn the_memory_of_a_case_is_that_of_its_device_if_this_has_its_own() {
    let on_cuda = |device_memory_mb: Option<f64>, host: f64, record: Record| {
        let (device, device_type) = ("cuda".to_owned(), Some("gpu".to_owned()));
        let record = Record { device, device_type, device_memory_mb, memory_mb: Some(host), ..record };
        Record { case_id: record.case().to_string(), ..record }
    };
    let int8 = || measured("int8", "ort", 10.0, 2.0, SAME);
    let table = |int8: Record, change: &dyn Fn(&mut Options)| {
        with(vec![on_cuda(Some(14_000.0), 900.0, original()), int8], change)
    };
    let memory = |table: &VariantTable| {
        let row = table.rows.iter().find(|row| row.record.variant == "int8").unwrap();
        row.differences.as_ref().unwrap().memory
    };
    let least_memory = |int8: Record| table(int8, &|options: &mut Options| options.goal = Goal::Memory);
    let found = least_memory(on_cuda(Some(7_000.0), 950.0, int8()));
    assert_eq!(found.recommendation.case_id.as_deref(), Some("m-int8/ort-cuda-f32/1"));
    assert_eq!(memory(&found), Some(0.5));
    let unknown = least_memory(on_cuda(None, 500.0, int8()));
    assert_eq!(unknown.recommendation.case_id.as_deref(), Some("m/ort-cuda-f32/1"));
    let limited = |options: &mut Options| options.limits.max_memory_mb = Some(8_000.0);
    let limited = table(on_cuda(Some(7_000.0), 950.0, int8()), &limited);
    let excluded = limited.rows[0].excluded.as_ref().map(|it| it.why.as_str());
    assert_eq!(excluded, Some("memory 14000 MB is above 8000 MB"));
    // The memory of a GPU and that of a process have no ratio.
    assert_eq!(memory(&table(int8(), &|_: &mut Options| ())), None);
}

#[test]
fn without_a_right_original_nothing_is_recommended() {
    let wrong = Record { verified: Some(false), ..original() };
    for records in [vec![measured("int8", "ort", 1.0, 1.0, SAME)], vec![wrong, measured("int8", "ort", 1.0, 1.0, SAME)]]
    {
        let table = table_of(records);
        let expected = "Nothing is recommended: no original was measured with right outputs.";
        assert_eq!((table.recommendation.sentence.as_str(), table.recommendation.case_id), (expected, None));
    }
}

#[test]
fn a_row_counts_if_its_outputs_were_compared_with_anything() {
    let unverified = |variant: &str, ms: f64| Record { verified: None, ..measured(variant, "ort", 10.0, ms, SAME) };
    let alone = |record: Record| Record { accuracy: None, accuracy_change: None, ..record };
    let with_original = |record: Record| Record { compared_with: Some("m/ort-cpu-f32/1".into()), ..alone(record) };
    let chosen = |records: [Record; 2]| {
        let found = advise(&records, &[], &Options { noise: QUIET, ..Options::new("m") }).unwrap().remove(0);
        let table = table_of(records.to_vec());
        assert_eq!(found.case_id, table.recommendation.case_id, "both commands choose from the same rows");
        (table.recommendation.case_id, table.recommendation.sentence, table.notes.join("; "))
    };
    let int8 = Some("m-int8/ort-cpu-f32/1".to_owned());
    // By labels, and by agreement, which compares the outputs of both.
    assert_eq!(chosen([original(), unverified("int8", 1.0)]).0, int8);
    assert_eq!(chosen([alone(original()), with_original(unverified("int8", 1.0))]).0, int8);
    let differing = Record { output_cosine: Some(0.9), ..with_original(unverified("int8", 1.0)) };
    assert_eq!(chosen([alone(unverified("original", 2.0)), differing]).0.as_deref(), Some("m/ort-cpu-f32/1"));
    let agreeing = with_original(unverified("int8", 3.0));
    assert_eq!(chosen([alone(unverified("original", 2.0)), agreeing]).0.as_deref(), Some("m/ort-cpu-f32/1"));
    let (case_id, sentence, notes) = chosen(["original", "int8"].map(|variant| alone(unverified(variant, 1.0))));
    assert!(case_id.is_none() && sentence.contains("were compared with anything; `--reference FILE`"), "{sentence}");
    assert!(notes.contains("compared with nothing: the original on ort, int8 on ort"), "{notes}");
}

/// The share of tables of equal code, four variants beside an original, in which a row is called faster or slower.
fn false_alarms(runs: usize, deviation: f64, noise: impl Fn(&[f64]) -> Noise) -> f64 {
    const TABLES: u64 = 500;
    let has_alarm = |table: &u64| {
        let z: Vec<f64> = values(*table, "equal code", Fill::Normal(1.0), 0, 5 * runs + 3).map(f64::from).collect();
        let mut records = Vec::new();
        for (index, variant) in ["original", "a", "b", "c", "d"].iter().enumerate() {
            for run in 0..runs {
                let ms = 2.0 * (deviation * z[index * runs + run]).exp();
                records.push(in_run(1 + run as u32, at_commit("c", measured(variant, "ort", 10.0, ms, SAME))));
            }
        }
        let processes: Vec<f64> = z[5 * runs..].iter().map(|z| deviation * z).collect();
        let table = with(records, |options| options.noise = noise(&processes));
        table.rows.iter().any(|row| row.verdict.is_some_and(Verdict::is_change))
    };
    (0..TABLES).filter(has_alarm).count() as f64 / TABLES as f64
}

/// Quantiles of the normal distribution would give an alarm in 19 % of the tables.
#[test]
fn three_processes_that_say_the_deviation_raise_no_more_alarms_than_promised() {
    let selftest =
        |processes: &[f64]| Noise::of_selftest(crate::statistics::variance(processes).sqrt(), processes.len());
    let share = false_alarms(1, 0.08, selftest);
    assert!(share <= 0.05 + 0.03, "{share}");
}

#[test]
fn the_rows_own_scatter_counts_where_there_are_several_runs() {
    let share = false_alarms(3, 0.2, |_| Noise::assumed());
    assert!(share <= 0.05 + 0.03, "{share}");
}

proptest! {
    /// A row is on the front exactly if no other row is as good in all three quantities and better in one.
    #[test]
    fn the_front_is_its_definition(figures in prop::collection::vec((1u8..6, 1u8..6, 0u8..6), 1..25)) {
        let row = |(index, (ms, size, change)): (usize, &(u8, u8, u8))| {
            let change = -f64::from(*change);
            measured(&format!("v{index}"), "ort", f64::from(*size), f64::from(*ms), (change, change, change))
        };
        let table = table_of(figures.iter().enumerate().map(row).collect());
        for own in &table.rows {
            let better = |other: &Row| {
                let (one, two) = (&other.record, &own.record);
                let all = one.latency_p50_ms <= two.latency_p50_ms
                    && one.model_size_mb <= two.model_size_mb
                    && one.accuracy >= two.accuracy;
                let any = one.latency_p50_ms < two.latency_p50_ms
                    || one.model_size_mb < two.model_size_mb
                    || one.accuracy > two.accuracy;
                all && any
            };
            prop_assert_eq!(own.is_on_front, !table.rows.iter().any(better));
        }
    }
}

#[test]
fn a_missing_quantity_does_not_count_on_the_front() {
    let on_front = |records: Vec<Record>| -> Vec<String> {
        table_of(records).rows.into_iter().filter(|row| row.is_on_front).map(|row| row.record.variant).collect()
    };
    let without_size = |record: Record| Record { model_size_mb: None, ..record };
    let rows = || vec![measured("original", "ort", 4.0, 2.0, SAME), measured("int8", "ort", 1.0, 3.0, SAME)];
    assert_eq!(on_front(rows()).len(), 2);
    assert_eq!(on_front(rows().into_iter().map(without_size).collect()), ["original"]);
}

#[test]
fn a_row_is_compared_with_the_original_on_its_own_backend() {
    let int8 = measured("int8-static", "tch", 5.1, 1.5, SAME);
    let of = |records: Vec<Record>| {
        let row = table_of(records).rows.into_iter().find(|row| row.record.case_id == "m-int8-static/tch-cpu-f32/1");
        row.unwrap().differences.unwrap().original
    };
    assert_eq!(of([example(), vec![int8.clone()]].concat()), "m/tch-cpu-f32/1");
    assert_eq!(of(vec![original(), int8]), "m/ort-cpu-f32/1");
}

#[test]
fn each_batch_size_has_a_table_of_its_own() {
    let both = |batch: usize, scale: f64, int8: f64| {
        let scaled = |variant, ms: f64| at(batch, measured(variant, "ort", 4.0, ms * scale, SAME));
        vec![scaled("original", 2.0), scaled("int8", int8)]
    };
    let records = [both(8, 4.0, 1.0), both(2, 1.5, 3.0)].concat();
    let tables = compare(&records, &[], &Options { noise: QUIET, ..Options::new("m") }).unwrap().tables;
    let found: Vec<_> =
        tables.iter().map(|it| (it.batch_size, it.recommendation.case_id.as_deref().unwrap())).collect();
    assert_eq!(found, [(2, "m/ort-cpu-f32/2"), (8, "m-int8/ort-cpu-f32/8")]);
}

#[test]
fn machines_and_sequence_lengths_are_compared_apart() {
    let mut records = example();
    records.extend(example().into_iter().map(|record| Record { host_id: "other".into(), ..record }));
    records.extend(example().into_iter().map(|record| Record { sequence_length: Some(128), ..record }));
    let variants = compare(&records, &[], &Options::new("m")).unwrap();
    let works: Vec<_> =
        variants.tables.iter().map(|it| (it.host_id.as_str(), it.phase, it.sequence_length, it.rows.len())).collect();
    let expected =
        [("h", Phase::Forward, None, 5), ("h", Phase::Forward, Some(128), 5), ("other", Phase::Forward, None, 5)];
    assert_eq!(works, expected);
}

#[test]
fn records_without_the_model_or_with_its_original_only_are_refused() {
    let error = |records: &[Record]| compare(records, &[], &Options::new("m")).unwrap_err().to_string();
    let others = [record("b", "ort", 1, None), record("a", "ort", 1, None)];
    assert_eq!(error(&others), "none of the chosen records is of the model \"m\"; there are a, b");
    assert!(error(&[record("m", "ort", 1, Some(1.0))]).contains("`inferbench run --model m --variant all`"));
}

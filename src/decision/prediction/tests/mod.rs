//! What a history teaches: rows of different work stay apart, peaks are raised by what was shown twice, near-copies are one family.

mod coverage_simulation;
mod figures;

use std::collections::BTreeMap;

use super::example::{Example, Lessons, Site};
use super::fitted::{LeftOut, Quantity, Rows};
use super::predictor::{Basis, Predictor};
use crate::catalogue::OPERATORS;
use crate::compare::CaseFilter;
use crate::decision::{Goal, Limits, Options, add_predictions, advise};
use crate::definition::{Phase, Status};
use crate::report::tests::record;
use crate::run_data::{Peaks, Record};

const GFLOPS: f64 = 100.0;

/// A row of a network with a square input of this size, whose operations grow with the input.
fn row(model: &str, size: u64, day: u32, ms: f64) -> Record {
    let flops = 1000 * size * size;
    Record {
        run_id: format!("run{day}"),
        timestamp: format!("2026-01-{day:02}T00:00:00Z").parse().unwrap(),
        family: model.into(),
        threads: Some(1),
        input_shape: Some(format!("1x3x{size}x{size}")),
        model_sha256: Some(format!("hash of {model}")),
        flops: Some(flops),
        convolution_flops: Some(flops),
        graph_nodes: Some(10),
        node_bytes: Some(100 * size * size),
        matrix_products: Some(0),
        operators: Some("Conv Relu Gemm".into()),
        verified: Some(true),
        ..record(model, "ort", 1, Some(ms))
    }
}

fn of(records: &[Record]) -> Lessons {
    let peaks = Peaks { threads: 1, product_gflops_per_second: GFLOPS, copy_gb_per_second: 10.0, ..Peaks::default() };
    Lessons::of(records, &[(site(), peaks)], |model| !model.starts_with("own"))
}

fn site() -> Site {
    Site { host_id: "h".into(), threads: Some(1) }
}

#[test]
fn rows_of_several_sizes_and_files_are_not_averaged() {
    let other = Record { model_sha256: Some("another".into()), ..row("net", 32, 4, 47.7) };
    let records = [row("net", 32, 1, 0.035), row("net", 256, 2, 6.4), row("net", 32, 3, 0.035), other];
    let lessons = of(&records);
    let mut times: Vec<(u64, f64)> = lessons.examples.iter().map(|it| (it.subject.cost.flops, it.ms)).collect();
    times.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let near = |found: (u64, f64), flops: u64, ms: f64| found.0 == flops && (found.1 / ms - 1.0).abs() < 1e-9;
    let expected = [(1_024_000, 0.035), (1_024_000, 47.7), (65_536_000, 6.4)];
    assert!(
        times.len() == 3 && times.iter().zip(expected).all(|(found, (flops, ms))| near(*found, flops, ms)),
        "{times:?}"
    );
    assert!(
        lessons.raised.is_empty(),
        "0.035 ms for 1.0 million operations are 29 GFLOP/s, and so is 10.2 for the other"
    );
}

#[test]
fn a_peak_is_raised_by_what_was_shown_twice() {
    // 65.5 million operations: 131 and 164 GFLOP/s, and one row that is wrong.
    let (slower, faster, wrong) = (row("a", 256, 1, 0.5), row("b", 256, 2, 0.4), row("c", 256, 3, 0.02));
    let peak = |records: &[Record]| of(records).peaks[&site()].product_gflops_per_second;
    assert_eq!(peak(std::slice::from_ref(&wrong)), GFLOPS);
    assert!((peak(&[slower.clone(), wrong.clone()]) - 131.072).abs() < 1e-6);
    let lessons = of(&[slower, faster, wrong]);
    assert_eq!(lessons.raised.len(), 1);
    assert!((lessons.raised[0].2 - 163.84).abs() < 1e-6, "{:?}", lessons.raised);
}

#[test]
fn a_case_is_measured_only_if_its_file_and_shape_are_those_of_the_row() {
    let lessons = of(&[row("net", 32, 1, 0.035), row("net", 256, 2, 6.4)]);
    let asked = |record: Record| {
        let subject = of(&[record]).examples.remove(0).subject;
        Predictor::new(&lessons).predict(&subject, &site()).ok().map(|it| (it.basis, it.latency_ms.value))
    };
    assert_eq!(asked(row("net", 32, 9, 1.0)), Some((Basis::Measured, 0.035)));
    assert_eq!(asked(row("net", 256, 9, 1.0)), Some((Basis::Measured, 6.4)));
    assert_eq!(asked(row("net", 64, 9, 1.0)), None);
    for unknown in [Some("another".to_owned()), None] {
        assert_eq!(asked(Record { model_sha256: unknown, ..row("net", 32, 9, 1.0) }), None);
    }
}

#[test]
fn the_command_that_measures_a_variant_names_it() {
    let row = Record { variant: "int8".into(), ..row("net", 32, 1, 1.0) };
    let subject = of(&[row]).examples.remove(0).subject;
    let command = super::command(&subject.runtime, &subject.work, 4);
    assert!(command.starts_with("inferbench run --model net --variant int8 --backend ort "), "{command}");
}

#[test]
fn rows_with_another_number_of_threads_are_rows_of_another_place() {
    let alone = Record { threads: Some(2), ..row("net", 32, 2, 0.02) };
    let lessons = of(&[row("net", 32, 1, 0.035), alone]);
    let mut found: Vec<(Option<usize>, f64)> = lessons.examples.iter().map(|it| (it.site.threads, it.ms)).collect();
    found.sort_by_key(|(threads, _)| *threads);
    let near = |ms: f64, expected: f64| (ms / expected - 1.0).abs() < 1e-9;
    let is_expected = matches!(found[..], [(Some(1), one), (Some(2), two)] if near(one, 0.035) && near(two, 0.02));
    assert!(is_expected, "{found:?}");
}

#[test]
fn a_row_of_a_slow_run_counts_less_and_only_where_no_other_run_has_it() {
    let of_run = |day: u32, factor: f64, sizes: &[u64]| {
        sizes.iter().map(|size| row("net", *size, day, factor * *size as f64)).collect::<Vec<Record>>()
    };
    let usual = [of_run(1, 1.0, &[32, 64, 128]), of_run(2, 1.0, &[32, 64, 128])].concat();
    let lessons = of(&[usual, of_run(3, 1.5, &[32, 64, 128, 256])].concat());
    let mut rows: Vec<(u64, f64, f64)> =
        lessons.examples.iter().map(|it| (it.subject.cost.flops, it.ms.round(), it.weight)).collect();
    rows.sort_by_key(|row| row.0);
    let expected = [(32.0, 1.0), (64.0, 1.0), (128.0, 1.0), (384.0, 0.25)];
    assert_eq!(rows.iter().map(|row| (row.1, row.2)).collect::<Vec<_>>(), expected);
    assert_eq!(lessons.drifted.len(), 1);
}

#[test]
fn near_copies_are_one_family_whatever_they_are_called() {
    let families = |records: &[Record]| {
        let mut names: Vec<String> = of(records).examples.into_iter().map(|it| it.subject.family).collect();
        names.dedup();
        names
    };
    let [first, second] = [row("net-v1", 32, 1, 1.0), Record { graph_nodes: Some(11), ..row("net-v2", 32, 2, 1.0) }];
    assert_eq!(families(&[second.clone(), first.clone()]), ["net-v1"]);
    let with_operators = |operators: &str| Record { operators: Some(operators.into()), ..second.clone() };
    let longer = Record { graph_nodes: Some(30), ..second.clone() };
    for other in [with_operators("MatMul Softmax"), longer, row("net-v2", 64, 2, 1.0)] {
        assert_eq!(families(&[first.clone(), other]).len(), 2);
    }
}

#[test]
fn rows_miss_together_with_their_family_or_with_their_machine() {
    let of_host = |host: &str| {
        let nodes = |place: u64| 10 + 10 * place;
        let row = |place: u64| Record {
            host_id: host.into(),
            graph_nodes: Some(nodes(place)),
            ..row(&format!("net{place}"), 32 + 16 * place, 1, 0.1 + 0.1 * place as f64)
        };
        (0..10).map(row).collect::<Vec<_>>()
    };
    let lessons = of(&[of_host("h"), of_host("i")].concat());
    let all: Vec<&Example> = lessons.examples.iter().collect();
    let rows = Rows { own: all.clone(), all };
    let units = |misses: Vec<super::fitted::Miss>| {
        misses.into_iter().map(|miss| miss.unit).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(units(LeftOut::Family.misses(&rows, Quantity::Time, &lessons.peaks)), 10);
    assert_eq!(units(LeftOut::Machine.misses(&rows, Quantity::Time, &lessons.peaks)), 2);
    let of_both = LeftOut::MachineAndFamily.misses(&rows, Quantity::Time, &lessons.peaks);
    assert_eq!((of_both.len(), units(of_both)), (20, 2));
}

#[test]
fn a_machine_is_left_out_with_all_its_numbers_of_threads() {
    let with = |threads: usize| {
        let rows = networks(4).into_iter().map(|row| Record { threads: Some(threads), ..row });
        of(&rows.collect::<Vec<Record>>()).examples
    };
    let examples = [with(1), with(2)].concat();
    let all: Vec<&Example> = examples.iter().collect();
    let rows = Rows { own: all.clone(), all };
    assert!(LeftOut::Machine.misses(&rows, Quantity::Time, &of(&[]).peaks).is_empty());
}

/// Five families, whose bytes grow with their operations, with this many rows each.
fn networks(rows: u64) -> Vec<Record> {
    let of_size = |family: u64, size: u64| {
        let (flops, bytes) = (1000 * size * size, 2000 * size * size);
        let noise = 1.0 + 0.02 * ((family * 7 + size) as f64).sin();
        let row = row(&format!("net{family}"), size, 1, noise * law(flops, bytes));
        // Otherwise they would be near-copies.
        Record { node_bytes: Some(bytes), graph_nodes: Some(10 + 3 * family), ..row }
    };
    (0..5).flat_map(|family| (0..rows).map(move |place| of_size(family, 100 + 40 * family + 60 * place))).collect()
}

#[test]
fn no_batch_size_is_left_out_where_nothing_has_two() {
    let misses = |records: &[Record]| {
        let lessons = of(records);
        let all: Vec<&Example> = lessons.examples.iter().collect();
        LeftOut::Batch.misses(&Rows { own: all.clone(), all }, Quantity::Time, &lessons.peaks).len()
    };
    let mut records = networks(4);
    assert_eq!(misses(&records), 0);
    let larger = Record { batch_size: 2, input_shape: Some("2x3x100x100".into()), ..records[0].clone() };
    records.push(larger);
    assert_eq!(misses(&records), 2);
}

/// Eight times the time of the operations at the peak, plus a tenth of the time of the bytes.
fn law(flops: u64, bytes: u64) -> f64 {
    8.0 * flops as f64 / 1e6 / GFLOPS + 0.1 * bytes as f64 / 1e7
}

/// Chains of single operators; half of them only compute, and the others only move bytes.
fn chains() -> Vec<Record> {
    let chain = |place: u64| {
        let (flops, bytes) = if place.is_multiple_of(2) { (place * 4_000_000, 1000) } else { (0, place * 9_000_000) };
        Record {
            family: OPERATORS.into(),
            flops: Some(flops),
            convolution_flops: Some(flops),
            node_bytes: Some(bytes),
            operators: Some(if flops > 0 { "Conv LSTM" } else { "Relu" }.into()),
            ..row(&format!("op{place}"), 32, 1, law(flops, bytes))
        }
    };
    (1..21).map(chain).collect()
}

/// A network of few operations and many bytes.
fn asked(operators: &str) -> super::Subject {
    let (flops, bytes) = (10_000_000, 200_000_000);
    let record = Record {
        flops: Some(flops),
        convolution_flops: Some(flops),
        node_bytes: Some(bytes),
        operators: Some(operators.into()),
        ..row("asked", 100, 1, 1.0)
    };
    of(&[record]).examples.remove(0).subject
}

#[test]
fn chains_of_operators_tell_apart_what_networks_leave_open() {
    let predicted = |records: &[Record]| {
        let lessons = of(records);
        Predictor::new(&lessons).predict(&asked("Conv Relu"), &site()).unwrap().latency_ms.value
    };
    let truth = law(10_000_000, 200_000_000);
    let [without, with] = [networks(4), [networks(4), chains()].concat()].map(|it| (predicted(&it) / truth).ln().abs());
    assert!(with < without / 3.0, "off by {with} with chains, and {without} without");
}

#[test]
fn intervals_for_networks_of_others_are_wider_until_such_networks_show_how_far_predictions_of_them_are_off() {
    let half = |records: &[Record], asked: super::Subject| {
        let lessons = of(records);
        let found = Predictor::new(&lessons).predict(&asked, &site()).unwrap().latency_ms;
        (found.upper / found.value).ln()
    };
    let subject = |is_packaged: bool| super::Subject { is_packaged, ..asked("Conv Relu") };
    let packaged = networks(4);
    let [own, others] = [true, false].map(|is_packaged| half(&packaged, subject(is_packaged)));
    assert!((others / own - 2.4).abs() < 1e-9, "{others} is not 2.4 times {own}");
    // Third-party networks follow the law as closely as the packaged ones do.
    let renamed =
        |it: Record| Record { model: format!("own-{}", it.model), family: format!("own-{}", it.family), ..it };
    let nodes = |it: Record| Record { graph_nodes: it.graph_nodes.map(|nodes| 10 * nodes), ..it };
    let both: Vec<Record> = networks(4).into_iter().map(renamed).map(nodes).chain(packaged).collect();
    let [own, others] = [true, false].map(|is_packaged| half(&both, subject(is_packaged)));
    assert!(others < 1.5 * own, "{others} is not near {own}");
}

#[test]
fn the_peaks_of_a_processor_say_nothing_of_a_gpu_elsewhere() {
    let elsewhere = Site { host_id: "other".into(), threads: Some(1) };
    let predicted = |device: &str, is_packaged: bool| {
        let on = |it: Record| {
            let record = Record { device: device.into(), ..it };
            Record { case_id: record.case().to_string(), ..record }
        };
        let mut lessons = of(&networks(4).into_iter().map(on).collect::<Vec<_>>());
        let peaks = Peaks { product_gflops_per_second: GFLOPS / 4.0, ..lessons.peaks[&site()].clone() };
        lessons.peaks.insert(elsewhere.clone(), peaks);
        let mut asked = super::Subject { is_packaged, ..asked("Conv Relu") };
        asked.runtime.device = device.into();
        asked.work.case.device = device.into();
        Predictor::new(&lessons).predict(&asked, &elsewhere).ok().map(|it| (it.basis, it.latency_ms))
    };
    let (basis, latency) = predicted("cpu", true).unwrap();
    let (_, of_others) = predicted("cpu", false).unwrap();
    assert_eq!(basis, Basis::OtherMachines);
    assert!(of_others.upper > 1.5 * latency.upper, "the interval of a network of others is {of_others:?}");
    assert!(predicted("cuda", true).is_none());
}

/// A prompt of 32 tokens.
fn prefill(backend: &str, record: Record) -> Record {
    let rate = 1e3 / record.latency_p50_ms.unwrap();
    let read = Record {
        backend: backend.into(),
        phase: Phase::Prefill,
        sequence_length: Some(32),
        throughput_ips: Some(rate),
        tokens_per_second: Some(32.0 * rate),
        ..record
    };
    Record { case_id: read.case().to_string(), ..read }
}

/// A network that took ten times as long as others of its costs.
fn slow() -> Record {
    Record {
        node_bytes: Some(2000 * 200 * 200),
        graph_nodes: Some(40),
        ..row("asked", 200, 1, 10.0 * law(40_000_000, 80_000_000))
    }
}

#[test]
fn the_rate_that_is_predicted_of_a_prompt_is_of_tokens_as_the_measured_one_is() {
    let fast = networks(4).into_iter().map(|record| prefill("ort", record));
    let records: Vec<Record> = fast.chain([prefill("tch", slow())]).collect();
    let lessons = of(&records);
    for min_rate in [None, Some(2000.0)] {
        let limits = Limits { min_rate, ..Limits::default() };
        let options = Options { goal: Goal::Throughput, limits, ..Options::new("asked") };
        let mut found = advise(&records, &[], &options).unwrap();
        let mut named = |filter: CaseFilter| {
            let options = Options { filter, ..options.clone() };
            add_predictions(&mut found, &records, &lessons, &BTreeMap::new(), &options);
            found[0].predicted.iter().map(|it| it.case_id.clone()).collect::<Vec<String>>()
        };
        let all = named(CaseFilter::default());
        assert!(matches!(&all[..], [id] if id.ends_with("/ort-cpu-f32/1")), "{min_rate:?}: {all:?}");
        // Cases that the user's filter leaves out are not predicted.
        assert!(named(CaseFilter { backend: vec!["tch".into()], ..CaseFilter::default() }).is_empty());
    }
    let options = Options::new("asked");
    let mut found = advise(&records, &[], &options).unwrap();
    add_predictions(&mut found, &records, &lessons, &BTreeMap::new(), &options);
    let predicted = &found[0].predicted[0];
    assert_eq!(predicted.tokens_per_second, Some(32.0 * predicted.throughput_ips.value));
    assert!(predicted.text().contains(" tokens/s, which "), "{}", predicted.text());
}

#[test]
fn a_prediction_is_better_in_its_whole_interval_only_if_this_is_within_the_limits() {
    let with_memory = |it: Record| {
        let bytes = it.node_bytes.unwrap() as f64;
        Record { memory_mb: Some((40.0 + 1e-6 * bytes) * (1.0 + 0.02 * bytes.sin())), ..it }
    };
    let of_tch =
        Record { backend: "tch".into(), memory_mb: Some(1.0), latency_p99_ms: slow().latency_p50_ms, ..slow() };
    let of_tch = Record { case_id: of_tch.case().to_string(), ..of_tch };
    let of_own_process = |it: Record| Record { memory_kind: Some("own-process-peak-rss".into()), ..it };
    let records = networks(4).into_iter().map(with_memory).chain([of_tch]).map(of_own_process);
    let records: Vec<Record> = records.collect();
    let lessons = of(&records);
    let first = |limits: Limits| {
        let options = Options { limits, ..Options::new("asked") };
        let mut found = advise(&records, &[], &options).unwrap();
        add_predictions(&mut found, &records, &lessons, &BTreeMap::new(), &options);
        assert_eq!(found[0].case_id.as_deref(), Some("asked/tch-cpu-f32/1"));
        found[0].predicted.first().cloned()
    };
    let is_beyond = |limits: Limits| first(limits).map(|it| it.is_beyond);
    assert_eq!(is_beyond(Limits::default()), Some(true));
    // No p99 is predicted.
    assert_eq!(is_beyond(Limits { max_p99_ms: Some(1e6), ..Limits::default() }), Some(false));
    let memory = first(Limits::default()).unwrap().memory_mb.unwrap();
    let limits = [0.99 * memory.value, f64::midpoint(memory.value, memory.upper), memory.upper];
    let found = limits.map(|most| is_beyond(Limits { max_memory_mb: Some(most), ..Limits::default() }));
    assert_eq!(found, [None, Some(false), Some(true)], "{memory:?}");
}

#[test]
fn a_prediction_beside_a_measured_case_is_for_as_many_threads() {
    // With two threads, all takes a tenth of the time.
    let with_two =
        |it: Record| Record { threads: Some(2), latency_p50_ms: it.latency_p50_ms.map(|ms| ms / 10.0), ..it };
    let of_tch = |it: Record| {
        let record = Record { backend: "tch".into(), ..it };
        Record { case_id: record.case().to_string(), ..record }
    };
    let newer = Record { run_id: "run2".into(), timestamp: "2026-01-02T00:00:00Z".parse().unwrap(), ..slow() };
    let own = [with_two(slow()), newer].map(of_tch);
    let records = [networks(4), networks(4).into_iter().map(with_two).collect(), own.to_vec()].concat();
    let options = Options::new("asked");
    let mut found = advise(&records, &[], &options).unwrap();
    add_predictions(&mut found, &records, &of(&records), &BTreeMap::new(), &options);
    let times: Vec<f64> = found[0].predicted.iter().map(|it| it.latency_ms.value).collect();
    let expected = law(40_000_000, 80_000_000);
    assert!(matches!(times[..], [ms] if (ms / expected).ln().abs() < 0.5), "{times:?} are not {expected}");
}

#[test]
fn a_case_whose_backend_was_absent_is_predicted() {
    let on = |backend: &str, status: Status, latency_p50_ms: Option<f64>| {
        let record = Record { backend: backend.into(), status, latency_p50_ms, ..slow() };
        Record { case_id: record.case().to_string(), ..record }
    };
    let predicted = |status: Status| {
        let own = [on("tch", Status::Ok, slow().latency_p50_ms), on("ort", status, None)];
        let records = [networks(4), own.to_vec()].concat();
        let options = Options::new("asked");
        let mut found = advise(&records, &[], &options).unwrap();
        add_predictions(&mut found, &records, &of(&records), &BTreeMap::new(), &options);
        found[0].predicted.len()
    };
    assert_eq!([Status::Unavailable, Status::Failed].map(predicted), [1, 0]);
}

#[test]
fn a_case_that_was_measured_is_not_said_to_be_predicted() {
    let own = |batch_size: usize, ms: f64| {
        let input_shape = Some(format!("{batch_size}x3x200x200"));
        let record = Record { batch_size, input_shape, ..row("asked", 200, 1, ms) };
        Record { case_id: record.case().to_string(), ..record }
    };
    // The history has a faster case that the records lack.
    let records = [own(4, 20.0)];
    let lessons = of(&[networks(4), vec![own(1, 1.0)], records.to_vec()].concat());
    let options = Options::new("asked");
    let mut found = advise(&records, &[], &options).unwrap();
    assert_eq!(found[0].case_id.as_ref(), Some(&records[0].case_id));
    add_predictions(&mut found, &records, &lessons, &BTreeMap::new(), &options);
    assert!(found[0].predicted.is_empty(), "{:?}", found[0].predicted);
}

#[test]
fn chains_are_no_family_and_their_operators_count_as_seen() {
    let predict = |records: &[Record], operators: &str| {
        let lessons = of(records);
        Predictor::new(&lessons).predict(&asked(operators), &site()).map_err(|refusal| refusal.reason)
    };
    let few = predict(&[networks(2), chains()].concat(), "Conv Relu").unwrap_err();
    assert!(few.starts_with("10 rows of 5 families are measured"), "{few}");
    let unseen = predict(&networks(4), "Conv LSTM").unwrap_err();
    assert!(unseen.starts_with("no model with LSTM was measured"), "{unseen}");
    let all = [networks(4), chains()].concat();
    let found = predict(&all, "Conv LSTM").unwrap();
    assert_eq!((found.rows, found.families), (20, 5));
    // The misses are those of networks.
    let lessons = of(&all);
    let rows: Vec<&Example> = lessons.examples.iter().collect();
    let rows = super::predictor::rows_of_phase(&rows, crate::definition::Phase::Forward);
    assert!(LeftOut::Family.misses(&rows, Quantity::Time, &lessons.peaks).iter().all(|miss| miss.family != OPERATORS));
}

//! From Criterion's tree to `results.csv`: what is converted, what is refused and why, and what the figures are.

use std::fs;

use inferbench::convert::convert;
use inferbench::criterion_dir::{LATENCY_LOG, LatencyLog, read_entry};
use inferbench::definition::{Boundary, Status};
use inferbench::history::{read_records, write_records};
use inferbench::run_data::{Record, SCHEMA_VERSION};
use proptest::prelude::*;

use crate::support::{Run, Workplace, copy_folder, data_folder, has_onnxruntime, put_calls};

const ONE: &str = "digits/candle-cpu-f32/1";
const EIGHT: &str = "digits/candle-cpu-f32/8";

/// Names that scripts of users rely on, in their order; others may join them.
const COLUMNS: &str = "run_id,timestamp,git_commit,git_dirty,schema_version,host_id,suite,framework,backend,model,variant,\
    family,modality,phase,device,device_type,effective_device,providers,dtype,effective_dtype,batch_size,sequence_length,\
    input_shape,threads,boundary,status,message,verified,max_abs_error,max_rel_error,latency_p50_ms,latency_p90_ms,\
    latency_p95_ms,latency_p99_ms,latency_mean_ms,latency_std_ms,latency_min_ms,latency_max_ms,iterations,\
    warmup_iterations,criterion_mean_ms,criterion_median_ms,criterion_slope_ms,criterion_std_dev_ms,sample_count,\
    change_vs_baseline,baseline,throughput_ips,tokens_per_second,first_token_ms,load_time_ms,compilation_time_ms,\
    first_inference_ms,h2d_ms,compute_ms,d2h_ms,memory_mb,memory_avg_mb,memory_kind,device_memory_mb,parameters,\
    model_size_mb,flops,gflops_per_second,roofline_percent,accuracy,accuracy_samples,artifact_sha256,\
    energy_j_per_sample,power_w,energy_kind,backend_version,library_version,rustc_version";

/// digits at batch sizes 1 and 8, measured once.
fn measured() -> Workplace {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1, 8]);
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(0);
    workplace
}

/// Converts after batch size 1 was tampered with: it is refused for `reason`, and batch size 8 is converted.
#[track_caller]
fn refuses_the_first(workplace: &Workplace, reason: &str) {
    let converted = workplace.inferbench(&["convert", "--replace"]).finish().with_code(0);
    converted.saying(&[&format!("not converted: {ONE}: {reason}")]);
    let refused = workplace.record(ONE);
    assert_eq!((refused.status, refused.latency_p50_ms, refused.criterion_mean_ms), (Status::Failed, None, None));
    assert!(refused.message.unwrap().contains(reason));
    assert_eq!(workplace.record(EIGHT).status, Status::Ok);
}

#[test]
fn every_case_has_a_row_also_one_that_could_not_run() {
    let workplace = Workplace::new(&["digits"], &["glow", "candle"], &[1, 8]);
    workplace.write("models/exported/notes.onnx", "no model");
    workplace.inferbench(&["run", "--noplot"]).finish().with_code(5);
    let reports = workplace.path("target-reports").join(workplace.latest_run().read_manifest().unwrap().run_id);
    let results = fs::read_to_string(reports.join("results.csv")).unwrap();
    let header: Vec<&str> = results.lines().next().unwrap().split(',').collect();
    let fixed: Vec<&str> = COLUMNS.split(',').collect();
    let found: Vec<&str> = header.into_iter().filter(|name| fixed.contains(name)).collect();
    assert_eq!(found, fixed);
    let throughput = fs::read_to_string(reports.join("throughput.csv")).unwrap();
    let columns = "model,variant,phase,dims,sequence_length,backend,device,dtype,batch_size,boundary,timed_on,latency_p50_ms,latency_p99_ms,throughput_ips,tokens_per_second,memory_mb,status";
    assert_eq!(throughput.lines().next().unwrap(), columns);

    let records = workplace.records();
    let statuses: Vec<(String, Status)> =
        records.iter().map(|record| (record.case().to_string(), record.status)).collect();
    let expected = [
        ("digits/glow-cpu-f32/1", Status::Unavailable),
        (ONE, Status::Ok),
        ("digits/glow-cpu-f32/8", Status::Unavailable),
        (EIGHT, Status::Ok),
        ("notes/glow-cpu-f32/1", Status::Failed),
        ("notes/candle-cpu-f32/1", Status::Failed),
        ("notes/glow-cpu-f32/8", Status::Failed),
        ("notes/candle-cpu-f32/8", Status::Failed),
    ];
    assert_eq!(statuses, expected.map(|(id, status)| (id.to_owned(), status)));
    assert_eq!(throughput.lines().count(), 1 + records.len());
    for (row, record) in throughput.lines().skip(1).zip(&records) {
        assert!(row.starts_with(&format!("{},original,forward,,,{},cpu,f32,", record.model, record.backend)), "{row}");
        assert!(row.ends_with(record.status.name()), "{row}");
    }

    let right = workplace.record(EIGHT);
    assert_eq!((right.schema_version, right.suite.as_str()), (SCHEMA_VERSION, "quick"));
    assert_eq!((right.framework.as_str(), right.family.as_str(), right.modality.as_str()), ("candle", "cnn", "image"));
    assert_eq!((right.input_shape.as_deref(), right.threads, right.sample_count), (Some("8x1x8x8"), Some(1), Some(20)));
    assert!(right.iterations.unwrap() >= 20);
    assert_eq!((right.processes, right.latency_p50_interval_lower_ms), (Some(1), None));
    assert_eq!((right.verified, right.parameters), (Some(true), Some(13_706)));
    assert_eq!((right.nonzero_parameters, right.flops), (Some(13_706), Some(8 * workplace.record(ONE).flops.unwrap())));
    let speed = right.flops.unwrap() as f64 / right.criterion_mean_ms.unwrap() / 1e6;
    assert!((right.gflops_per_second.unwrap() / speed - 1.0).abs() < 1e-9);
    assert!(right.roofline_percent.unwrap() > 0.0 && right.arithmetic_intensity.unwrap() > 0.0);
    assert_eq!((right.effective_device.as_deref(), right.boundary), (Some("cpu"), Boundary::Compute));
}

#[test]
fn a_large_product_comes_near_the_roofline() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&[], &["ort"], &[1, 2]);
    workplace.add_model("product.onnx", "models/exported/product.onnx");
    let percents = |attempt: usize| {
        // Peaks of this moment: those that all tests share may be of one with more or less beside.
        let peaks = workplace.path(&format!("peaks-{attempt}.json"));
        let mut run = workplace.inferbench(&["run", "--noplot", "--benchmark-only", "--iterations", "40"]);
        run.env("INFERBENCH_PEAKS", peaks).finish().with_code(0);
        [1, 2].map(|batch| {
            let record = workplace.record(&format!("product/ort-cpu-f32/{batch}"));
            assert_eq!(record.flops, Some(batch * 2 * 1024_u64.pow(3)));
            // Of the fastest call, since other tests run beside.
            let slower = record.criterion_mean_ms.unwrap() / record.latency_min_ms.unwrap();
            record.roofline_percent.unwrap() * slower
        })
    };
    // The peaks themselves may be measured while others have the processors: then once more.
    let is_near = |both: &[f64; 2]| both.iter().all(|percent| (40.0..250.0).contains(percent));
    let mut found = Vec::new();
    while found.len() < 3 && !found.last().is_some_and(is_near) {
        found.push(percents(found.len()));
    }
    assert!(found.last().is_some_and(is_near), "{found:?} %");
}

#[test]
fn peaks_that_cannot_be_kept_are_those_of_their_run() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    // No file can be made below a file.
    workplace.write("file", "");
    let mut run = workplace.inferbench(&["run", "--noplot"]);
    run.env("INFERBENCH_PEAKS", workplace.path("file/peaks.json")).finish().with_code(0).saying(&["are not kept"]);
    assert!(workplace.record("digits/candle-cpu-f32/1").roofline_percent.is_some());
}

#[test]
fn a_case_that_a_later_run_measured_is_stale() {
    let workplace = measured();
    let first = workplace.latest_run().read_manifest().unwrap().run_id;
    workplace.inferbench(&["run", "--noplot", "/1$"]).finish().with_code(0);
    let second = workplace.latest_run().read_manifest().unwrap().run_id;
    workplace.inferbench(&["convert"]).finish().with_code(0);
    assert_eq!(workplace.records().len(), 1);

    let arguments = ["convert", "--run", &first, "--output-dir", "old"];
    let reason = format!("not converted: {ONE}: stale: run {second} has measured it since");
    workplace.inferbench(&arguments).finish().with_code(0).saying(&[&reason]);
    let old = fs::File::open(workplace.path("old").join(&first).join("results.csv")).unwrap();
    let statuses: Vec<Status> = read_records(old).unwrap().iter().map(|record| record.status).collect();
    assert_eq!(statuses, [Status::Failed, Status::Ok]);
}

#[test]
fn files_of_different_measurements_are_not_put_together() {
    let workplace = measured();
    let entry = workplace.entry(ONE, "new");
    for (name, reason) in [
        (LATENCY_LOG, "mixed: the latency log and sample.json"),
        ("estimates.json", "mixed: estimates.json and sample.json"),
        ("sample.json", "mixed: the latency log and sample.json"),
    ] {
        let own = fs::read(entry.join(name)).unwrap();
        fs::copy(workplace.entry(EIGHT, "new").join(name), entry.join(name)).unwrap();
        refuses_the_first(&workplace, reason);
        fs::write(entry.join(name), own).unwrap();
    }
    workplace.inferbench(&["convert"]).finish().with_code(0);
    assert_eq!(workplace.record(ONE).status, Status::Ok);
}

#[test]
fn what_another_program_measured_is_foreign() {
    let workplace = measured();
    fs::remove_file(workplace.entry(ONE, "new").join(LATENCY_LOG)).unwrap();
    let other = workplace.criterion().join("sorting/quick/1000/new");
    copy_folder(&workplace.entry(ONE, "new"), &other);
    refuses_the_first(&workplace, "foreign: it was not measured by inferbench");
    workplace.inferbench(&["convert"]).finish().with_code(0);
    assert_eq!(workplace.records().len(), 2);
}

#[test]
fn a_quick_measurement_is_refused() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    workplace.bench(&["--noplot", "--quick"]).finish().with_code(0);
    assert_eq!(workplace.measured(), [ONE]);
    let refused = workplace.inferbench(&["convert"]).finish().with_code(3);
    refused.saying(&[&format!("not converted: {ONE}: quick: `--quick` makes up a sample")]);
    assert_eq!(workplace.record(ONE).status, Status::Failed);
}

#[test]
fn a_damaged_file_costs_its_own_entry_only() {
    let workplace = measured();
    let entry = workplace.entry(ONE, "new");
    for name in ["benchmark.json", "sample.json", "estimates.json", LATENCY_LOG] {
        let whole = fs::read(entry.join(name)).unwrap();
        fs::write(entry.join(name), &whole[..whole.len() / 2]).unwrap();
        refuses_the_first(&workplace, &format!("unreadable: {name}: "));
        fs::write(entry.join(name), whole).unwrap();
    }
    fs::remove_dir_all(&entry).unwrap();
    refuses_the_first(&workplace, "unreadable: benchmark.json: ");
}

#[test]
fn no_entry_that_is_cut_short_anywhere_is_read() {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&data_folder().join("criterion").join(EIGHT).join("new"), folder.path());
    for name in ["benchmark.json", "sample.json", "estimates.json", LATENCY_LOG] {
        let whole = fs::read(folder.path().join(name)).unwrap();
        for length in 0..whole.len() {
            fs::write(folder.path().join(name), &whole[..length]).unwrap();
            assert!(read_entry(folder.path()).is_err(), "{name} is read though it ends after {length} bytes");
        }
        fs::write(folder.path().join(name), whole).unwrap();
    }
    assert!(read_entry(folder.path()).is_ok());
}

#[test]
fn converting_twice_gives_the_same_bytes() {
    let workplace = measured();
    for output in ["first", "second"] {
        workplace.inferbench(&["convert", "--output-dir", output]).finish().with_code(0);
    }
    let run_id = workplace.latest_run().read_manifest().unwrap().run_id;
    for file in ["results.csv", "throughput.csv", "manifest.json", "distributions.json", "report.html"] {
        let [first, second] =
            ["first", "second"].map(|output| fs::read(workplace.path(output).join(&run_id).join(file)));
        assert_eq!(first.unwrap(), second.unwrap(), "{file}");
    }
}

#[test]
fn results_that_cannot_be_understood_are_refused_with_the_reason() {
    let workplace = measured();
    workplace.inferbench(&["convert"]).finish().with_code(0);
    let run_id = workplace.latest_run().read_manifest().unwrap().run_id;
    let results = fs::read_to_string(workplace.path("target-reports").join(&run_id).join("results.csv")).unwrap();
    let report = |content: &str, code: u8, reason: &str| {
        workplace.write("given.csv", content);
        workplace.inferbench(&["report", "given.csv"]).finish().with_code(code).saying(&[reason]);
    };
    report(&results, 0, "");
    report("name,mean\nsort,1.5\n", 2, "given.csv: not a results.csv of inferbench: it has no column schema_version");
    let host = &workplace.record(ONE).host_id;
    let newer = results.replace(&format!(",{SCHEMA_VERSION},{host},"), &format!(",99,{host},"));
    report(&newer, 2, "line 2: schema version 99 is newer");
    report(&results.replace(",status,", ",state,"), 2, "line 2: ");
    report(&results[..results.len() - 80], 2, "given.csv: ");
    fs::create_dir(workplace.path("empty")).unwrap();
    workplace.write("empty/results.csv", &results[..=results.find('\n').unwrap()]);
    let report = |runs: &[&str]| workplace.inferbench(&[&["report"][..], runs].concat()).finish();
    report(&[run_id.as_str(), "empty"]).with_code(0).saying(&["left out: empty/results.csv has no row"]);
    report(&["empty"]).with_code(2).saying(&["empty/results.csv has no row"]);
    // With the manifest, it is a run that was stopped in its first case.
    let kept = workplace.path("target-reports").join(&run_id).join("manifest.json");
    fs::copy(kept, workplace.path("empty/manifest.json")).unwrap();
    for (format, said) in
        [("table", "2 cases were not reached"), ("junit", "<skipped message=\"undecided: not reached")]
    {
        let text = report(&["empty", "--format", format]).with_code(0).stdout;
        assert!(text.contains(said), "no {said:?} in\n{text}");
    }

    let manifest = workplace.latest_run().path().join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"format\": 1", "\"format\": 9")).unwrap();
    workplace.inferbench(&["convert"]).finish().with_code(2).saying(&["manifest.json: format 9 is newer"]);
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    workplace.inferbench(&["convert"]).finish().with_code(2).saying(&["manifest.json: "]);
    workplace.inferbench(&["convert", "--run", "20200101T000000Z"]).finish().with_code(2).saying(&["no run"]);
}

#[test]
fn figures_are_those_of_the_calls() {
    let workplace = measured();
    let run = workplace.latest_run();
    let samples = prop::collection::vec(prop::collection::vec(1_u64..2_000_000_000, 1..12), 10..100);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(64));
    let result = runner.run(&samples, |samples| {
        put_calls(&workplace.entry(ONE, "new"), &samples);
        let conversion = convert(&run, &workplace.criterion(), "new", |_, _| Ok(())).unwrap();
        prop_assert!(conversion.refused.is_empty(), "{:?}", conversion.refused);
        let record = conversion.records.iter().find(|record| record.batch_size == 1).unwrap();
        check_figures(record, &samples.concat())
    });
    result.unwrap();
}

/// Holds a record's figures against their definitions.
fn check_figures(record: &Record, calls: &[u64]) -> Result<(), TestCaseError> {
    let milliseconds = |call: u64| call as f64 / 1e6;
    prop_assert_eq!(record.iterations, Some(calls.len()));
    prop_assert_eq!(record.latency_min_ms, calls.iter().min().map(|&call| milliseconds(call)));
    prop_assert_eq!(record.latency_max_ms, calls.iter().max().map(|&call| milliseconds(call)));
    let percentiles = [
        (50, record.latency_p50_ms, record.latency_p50_upper_ms, 7),
        (90, record.latency_p90_ms, record.latency_p90_upper_ms, 64),
        (95, record.latency_p95_ms, record.latency_p95_upper_ms, 130),
        (99, record.latency_p99_ms, record.latency_p99_upper_ms, 662),
    ];
    for (percent, value, upper, least_calls) in percentiles {
        let value = value.unwrap();
        let not_above = calls.iter().filter(|&&call| milliseconds(call) <= value).count();
        let below = calls.iter().filter(|&&call| milliseconds(call) < value).count();
        prop_assert!(100 * not_above >= percent * calls.len() && 100 * below < percent * calls.len(), "p{}", percent);
        prop_assert!(upper.is_none_or(|upper| upper >= value && upper <= record.latency_max_ms.unwrap()));
        if percent > 50 {
            // Calls that depend on one another count as fewer.
            prop_assert!(upper.is_none() || calls.len() >= least_calls, "p{} of {}", percent, calls.len());
        }
    }
    let mean = record.latency_mean_ms.unwrap();
    let exact = calls.iter().sum::<u64>() as f64 / calls.len() as f64 / 1e6;
    prop_assert!((mean - exact).abs() <= 1e-9 * exact);
    prop_assert!(record.autocorrelation.is_none_or(|correlation| correlation.abs() <= 1.0));
    let throughput = 1e3 * record.batch_size as f64 / record.criterion_mean_ms.unwrap();
    prop_assert!((record.throughput_ips.unwrap() - throughput).abs() <= 1e-9 * throughput);
    Ok(())
}

#[test]
fn records_come_back_from_a_csv_as_they_were() {
    let workplace = measured();
    workplace.inferbench(&["convert"]).finish().with_code(0);
    let record = workplace.record(ONE);
    proptest!(ProptestConfig::with_cases(256), |(
        message in "\\PC{1,40}|[\",;\n\r\t'= -]{1,10}",
        number in proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL,
    )| {
        let changed = Record {
            message: Some(message),
            latency_p50_ms: Some(number),
            git_dirty: None,
            sequence_length: None,
            ..record.clone()
        };
        let mut bytes = Vec::new();
        write_records(&[changed.clone(), record.clone()], &mut bytes).unwrap();
        prop_assert_eq!(read_records(bytes.as_slice()).unwrap(), [changed, record.clone()]);
    });
}

#[test]
fn a_latency_log_without_a_warm_up_is_read() {
    let text = r#"{"run_id":"20260101T000000Z","samples_ns":[[1,2],[3]]}"#;
    let log: LatencyLog = serde_json::from_str(text).unwrap();
    assert_eq!(log.samples_ns, [vec![1, 2], vec![3]]);
}

//! Rows of several runs: which of them count, and which are pooled.

use super::*;

fn int8(month: u32, ms: f64) -> Record {
    at_commit("c0ffee", in_run(month, measured("int8", "ort", 3.0, ms, SAME)))
}

/// The row of `int8` beside an original.
fn pooled(mut records: Vec<Record>) -> Row {
    records.push(at_commit("c0ffee", in_run(1, original())));
    table_of(records).rows.into_iter().find(|row| row.record.variant == "int8").unwrap()
}

#[test]
fn the_time_of_several_runs_is_their_geometric_mean() {
    let row = pooled(vec![int8(2, 4.0), int8(1, 1.0), int8(3, 2.0), int8(3, 2.0)]);
    assert!((row.record.latency_p50_ms.unwrap() - 2.0).abs() < 1e-12);
    assert_eq!((row.run_ids.len(), row.record.run_id.as_str()), (3, "run3"));
}

#[test]
fn limits_are_of_all_runs_of_a_case_and_memory_of_the_one_that_took_most() {
    let run = |month, p99: f64, memory: f64| Record {
        latency_p99_ms: Some(p99),
        latency_p99_upper_ms: Some(2.0 * p99),
        memory_mb: Some(memory),
        ..int8(month, 1.0)
    };
    let record = pooled(vec![run(1, 2.0, 70.0), run(2, 8.0, 50.0)]).record;
    let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-12;
    assert!(near(record.latency_p99_ms, 4.0) && near(record.latency_p99_upper_ms, 8.0), "{record:?}");
    assert_eq!(record.memory_mb, Some(70.0));
    // A run without a bound counts with its p99. A run whose memory was not measured does not change the memory.
    let unbounded = Record { latency_p99_upper_ms: None, memory_kind: None, ..run(3, 40.0, 900.0) };
    let record = pooled(vec![run(1, 2.0, 70.0), unbounded]).record;
    assert!(near(record.latency_p99_upper_ms, (4.0 * 40.0_f64).sqrt()) && record.memory_mb == Some(70.0), "{record:?}");
    let on_gpu = |month, device: f64, host: f64| Record { device_memory_mb: Some(device), ..run(month, 2.0, host) };
    assert_eq!(pooled(vec![on_gpu(1, 70.0, 1.0), on_gpu(2, 50.0, 2.0)]).record.device_memory_mb, Some(70.0));
}

#[test]
fn a_program_that_lacks_the_backend_hides_no_measurement() {
    let without = |month, status| Record { status, latency_p50_ms: None, ..int8(month, 2.0) };
    let absent = |month| without(month, Status::Unavailable);
    assert_eq!(pooled(vec![int8(1, 2.0), int8(2, 2.0), absent(3)]).run_ids, ["run1", "run2"]);
    assert_eq!(pooled(vec![absent(2), absent(3)]).record.status, Status::Unavailable);
    assert!(!pooled(vec![int8(1, 2.0), without(2, Status::Failed), absent(3)]).is_measured());
}

#[test]
fn rows_with_another_number_of_threads_are_counted_and_numbers_that_differ_are_named() {
    let row = |backend: &str, month, threads, ms| Record {
        threads: Some(threads),
        ..at_commit("c0ffee", in_run(month, measured("original", backend, 10.0, ms, SAME)))
    };
    let of =
        |records: &[Record]| advise(records, &[], &Options { noise: QUIET, ..Options::new("m") }).unwrap().remove(0);
    let records = [row("ort", 1, 8, 1.0), row("tch", 1, 8, 2.0), row("ort", 2, 1, 4.0)];
    let found = of(&records);
    assert!(found.sentence.starts_with("For latency, deploy the original on tch, 8 threads: p50 2.00 ms"), "{found:?}");
    assert_eq!(found.runner_up.unwrap().name, "the original on ort, 1 thread");
    assert_eq!(found.excluded, ["1 row has another number of threads than the newest run of the same case"]);
    let found = of(&records[..2]);
    assert!(found.sentence.starts_with("For latency, deploy the original on ort: "), "{found:?}");
    assert!(found.excluded.is_empty(), "{found:?}");
}

#[test]
fn a_later_run_that_compares_nothing_leaves_a_case_verified() {
    let row = |month| Record { program: Some("p".into()), ..in_run(month, measured("int8", "ort", 3.0, 1.0, SAME)) };
    let checked = Record { verified_by: Some("candle".into()), ..row(1) };
    let later = Record { verified: None, verified_by: None, ..row(2) };
    let rows = table_of(vec![in_run(1, original()), checked, later]).rows;
    let record = rows.into_iter().find(|row| row.record.variant == "int8").unwrap().record;
    assert_eq!((record.verified, record.verified_by.as_deref()), (Some(true), Some("candle")));
}

#[test]
fn only_runs_of_the_newest_program_count() {
    for other in [
        at_commit("other", int8(1, 1.0)),
        Record { git_dirty: Some(true), ..int8(1, 1.0) },
        Record { library_version: Some("2".into()), ..int8(1, 1.0) },
        Record { artifact_sha256: Some("ab".into()), ..int8(1, 1.0) },
        Record { threads: Some(7), ..int8(1, 1.0) },
        Record { status: Status::Failed, ..int8(1, 1.0) },
    ] {
        assert_eq!(pooled(vec![other, int8(5, 2.0)]).run_ids, ["run5"]);
    }
}

#[test]
fn runs_of_one_executable_count_together_without_a_commit() {
    let row = |month, ms| in_run(month, measured("int8", "ort", 3.0, ms, SAME));
    let runs = |of_programs: [&str; 3], third: Record| {
        let of_program = |(record, program): (Record, &str)| Record {
            program: (!program.is_empty()).then(|| program.to_owned()),
            ..record
        };
        let rows = [row(1, 1.0), row(2, 2.0), third].into_iter().zip(of_programs).map(of_program);
        let table = table_of([in_run(1, original())].into_iter().chain(rows).collect());
        table.rows.into_iter().find(|row| row.record.variant == "int8").unwrap().run_ids
    };
    assert_eq!(runs(["a", "a", "a"], row(3, 4.0)), ["run1", "run2", "run3"]);
    assert_eq!(runs(["b", "a", "a"], row(3, 4.0)), ["run2", "run3"]);
    assert_eq!(runs(["", "", ""], row(3, 4.0)), ["run3"]);
    for other in [
        Record { library_version: Some("2".into()), ..row(3, 4.0) },
        Record { artifact_sha256: Some("ab".into()), ..row(3, 4.0) },
    ] {
        assert_eq!(runs(["a", "a", "a"], other), ["run3"]);
    }
}

#[test]
fn the_answers_are_the_newest_over_labelled_samples() {
    let other = |month| at_commit("c0ffee", in_run(month, unlabelled("int8", "ort", 3.0, 1.0, (0.9, 0.999))));
    for (labelled, unlabelled) in [(1, 2), (2, 1)] {
        let row = pooled(vec![int8(labelled, 2.0), other(unlabelled)]);
        assert_eq!((row.record.accuracy, row.record.data_source.as_deref()), (Some(0.982), Some("digits")));
        assert_eq!(row.run_ids.len(), 2);
    }
    let alone = Record { accuracy_change: None, ..int8(3, 2.0) };
    assert_eq!(pooled(vec![int8(1, 2.0), alone]).record.accuracy_change, Some(0.0));
}

#[test]
fn answers_that_only_metrics_compare_are_those_of_a_run_with_the_original() {
    let text = |month, variant: &str, compared_with: Option<&str>| {
        let plain = at_commit("c0ffee", in_run(month, unlabelled(variant, "ort", 3.0, 1.0, (1.0, 1.0))));
        Record { agreement: None, output_cosine: None, compared_with: compared_with.map(str::to_owned), ..plain }
    };
    let records = vec![text(1, "original", None), text(1, "int8", Some("m/ort-cpu-f32/1")), text(2, "int8", None)];
    let table = table_of(records);
    let row = table.rows.iter().find(|row| row.record.variant == "int8").unwrap();
    assert_eq!((row.record.run_id.as_str(), row.run_ids.len()), ("run1", 2));
}

#[test]
fn rows_of_different_code_are_said_to_be_that() {
    let of = |commit: &'static str, month| at_commit(commit, in_run(month, measured("int8", "ort", 3.0, 1.0, SAME)));
    let notes = |other: Record| table_of(vec![at_commit("c0ffee", in_run(1, original())), other]).notes.join("\n");
    assert!(!notes(of("c0ffee", 2)).contains("same code") && notes(of("decaf", 2)).contains("same code"));
    let newer = Record { library_version: Some("2".into()), ..of("c0ffee", 2) };
    assert!(notes(newer).contains("same code, libraries"));
}

/// A row of `m` in a run of that month, with these inputs and this file.
fn with_file(backend: &str, month: u32, ms: f64, shape: &str, model: &str) -> Record {
    let known = at_commit("c0ffee", in_run(month, measured("original", backend, 10.0, ms, SAME)));
    Record { input_shape: Some(shape.into()), model_sha256: Some(model.into()), ..known }
}

#[test]
fn each_size_has_a_recommendation_of_its_own_and_rows_of_a_replaced_file_are_left_out() {
    let records = [
        with_file("ort", 1, 2.0, "1x3x32x32", "a"),
        with_file("tch", 1, 1.0, "1x3x32x32", "a"),
        with_file("ort", 2, 90.0, "1x3x256x256", "a"),
        with_file("tch", 2, 200.0, "1x3x256x256", "a"),
    ];
    let options = Options { noise: QUIET, ..Options::new("m") };
    let found = advise(&records, &[], &options).unwrap();
    let best: Vec<_> = found.iter().map(|it| (it.input_shape.as_deref(), it.case_id.as_deref())).collect();
    let expected = [(Some("Nx3x256x256"), Some("m/ort-cpu-f32/1")), (Some("Nx3x32x32"), Some("m/tch-cpu-f32/1"))];
    assert_eq!(best, expected);
    let int8 = in_run(2, at(1, measured("int8", "ort", 3.0, 1.0, SAME)));
    let variants = compare(&[&records[..], &[int8]].concat(), &[], &options).unwrap();
    let titles: Vec<String> = variants.tables.iter().map(|it| variants_output::title(it, &variants)).collect();
    assert_eq!(titles, ["m · inputs Nx3x256x256 · batch 1", "m · inputs Nx3x32x32 · batch 1"]);
    // tch was measured with the older file only.
    let replaced = [&records[..2], &[with_file("ort", 3, 3.0, "1x3x32x32", "b")]].concat();
    let found = advise(&replaced, &[], &options).unwrap();
    assert_eq!((found.len(), found[0].case_id.as_deref()), (1, Some("m/ort-cpu-f32/1")));
    assert_eq!(found[0].excluded, ["2 rows are from an older file of the same name"]);
    let other = with_file("ort", 3, 30.0, "1x3x256x256", "b");
    let found = advise(&[&replaced[..], &[other]].concat(), &[], &options).unwrap();
    let excluded: Vec<usize> = found.iter().map(|it| it.excluded.len()).collect();
    assert_eq!(excluded, [0, 1], "the larger size was not measured with the older file: {found:?}");
    let best = side_by_side(&replaced, &[], &options, Per::Backend);
    assert_eq!(best.iter().map(|it| it.best_of.as_str()).collect::<Vec<_>>(), ["ort"]);
}

#[test]
fn a_work_has_one_title_and_one_best_row_side_by_side() {
    // Only tch was measured at the larger size.
    let records = [
        with_file("ort", 1, 2.0, "1x3x32x32", "a"),
        with_file("tch", 1, 1.0, "1x3x32x32", "a"),
        with_file("tch", 2, 9.0, "1x3x64x64", "a"),
    ];
    let best = side_by_side(&records, &[], &Options { noise: QUIET, ..Options::new("m") }, Per::Backend);
    let works: Vec<_> = best.iter().map(|it| (it.best_of.as_str(), it.work.as_str())).collect();
    let [small, large] = ["m · inputs Nx3x32x32", "m · inputs Nx3x64x64"];
    assert_eq!(works, [("tch", small), ("ort", small), ("tch", large)]);
}

#[test]
fn a_run_that_was_slower_than_usual_is_named_and_not_pooled_with_others() {
    let row = |month, ms| with_file("ort", month, ms, "1x8", "a");
    let drifted = vec![Drift { run_id: "run3".into(), host_id: "h".into(), factor: 1.5, cases: 4 }];
    let options = Options { noise: QUIET, drifted, ..Options::new("m") };
    let records = [row(1, 2.0), row(2, 2.0), row(3, 3.0)];
    let found = advise(&records, &[], &options).unwrap();
    assert!(found[0].sentence.contains("p50 2.00 ms"), "{}", found[0].sentence);
    assert!(
        found[0].excluded[0].starts_with("run run3 on host h was 50 % slower than usual"),
        "{:?}",
        found[0].excluded
    );
    let best = side_by_side(&records, &[], &options, Per::Backend);
    assert!((best[0].quantity.unwrap() - 2.0).abs() < 1e-9, "{best:?}");
}

#[test]
fn a_prompt_is_judged_by_the_decoding_of_its_own_runs() {
    let row = |variant: &str, ms: f64| {
        let known = in_run(2, unlabelled(variant, "ort", 10.0, ms, (1.0, 1.0)));
        Record { phase: Phase::Prefill, sequence_length: Some(32), ..known }
    };
    let case_id = Case { phase: Phase::Decode, ..row("int8", 1.0).case() }.to_string();
    let metric = |run_id: &str, value: f64| Metric {
        run_id: run_id.into(),
        case_id: case_id.clone(),
        metric: "kl_divergence".into(),
        value,
        upper: Some(value),
        compared_with: Some(Case { phase: Phase::Decode, ..row("original", 1.0).case() }.to_string()),
        ..Metric::default()
    };
    let limits = Limits { max_kl: Some(0.02), ..Limits::default() };
    let options = Options { noise: QUIET, limits, ..Options::new("m") };
    let chosen = |metrics: &[Metric], verified, [of_original, of_int8]: [f64; 2]| {
        let rows = [row("original", of_original), row("int8", of_int8)].map(|row| Record { verified, ..row });
        let found = advise(&rows, metrics, &options).unwrap();
        found[0].case_id.clone().unwrap()
    };
    assert_eq!(chosen(&[metric("run1", 0.001)], Some(true), [2.0, 1.0]), "m/ort-cpu-f32/1");
    // The answers of the decoding were compared, those of both forms.
    let metrics = [metric("run1", 0.5), metric("run2", 0.001)];
    assert_eq!(chosen(&metrics, None, [2.0, 1.0]), "m-int8/ort-cpu-f32/1");
    assert_eq!(chosen(&metrics, None, [1.0, 2.0]), "m/ort-cpu-f32/1");
}

#[test]
fn energy_is_a_mean_over_the_runs_and_is_no_time() {
    let row = |variant: &str, month: u32, joules: f64| Record {
        energy_j_per_sample: Some(joules),
        ..at_commit("c0ffee", in_run(month, measured(variant, "ort", 10.0, 2.0, SAME)))
    };
    let records = vec![row("original", 1, 2.0), row("original", 2, 2.0), row("int8", 1, 0.5), row("int8", 2, 0.52)];
    let table = with(records, |options| options.goal = Goal::Energy);
    let int8 = table.rows.iter().find(|row| row.is_recommended).unwrap();
    assert!((int8.record.energy_j_per_sample.unwrap() / 0.26_f64.sqrt() - 1.0).abs() < 1e-9);
    assert!(table.recommendation.sentence.contains(") × the energy"), "{}", table.recommendation.sentence);
}

#[test]
fn a_slow_run_that_alone_has_answers_does_not_give_its_time_to_a_row_of_another_run() {
    let unevaluated = Record {
        data_source: None,
        accuracy: None,
        accuracy_change: None,
        agreement: None,
        output_cosine: None,
        ..with_file("ort", 1, 2.0, "1x8", "a")
    };
    let drifted = vec![Drift { run_id: "run3".into(), host_id: "h".into(), factor: 1.5, cases: 4 }];
    let options = Options { noise: QUIET, drifted, ..Options::new("m") };
    let found = advise(&[unevaluated, with_file("ort", 3, 3.0, "1x8", "a"), int8(3, 2.9)], &[], &options).unwrap();
    let sentence = &found[0].sentence;
    assert!(sentence.starts_with("For latency, deploy the original on ort: p50 2.00 ms"), "{sentence}");
}

#[test]
fn the_times_of_two_sizes_are_not_pooled() {
    let records = [with_file("ort", 1, 2.0, "1x8", "a"), with_file("ort", 2, 32.0, "1x64", "a")];
    let found = advise(&records, &[], &Options { noise: QUIET, ..Options::new("m") }).unwrap();
    let sentences: Vec<&str> = found.iter().map(|it| it.sentence.as_str()).collect();
    assert!(sentences[0].contains("p50 32.0 ms") && sentences[1].contains("p50 2.00 ms"), "{sentences:?}");
}

#[test]
fn runs_of_several_processes_decide_beside_others_of_one() {
    let several = |record: Record, ms: f64| Record {
        processes: Some(5),
        latency_p50_interval_lower_ms: Some(0.999 * ms),
        latency_p50_interval_upper_ms: Some(1.001 * ms),
        confidence_level: Some(0.95),
        ..at_commit("c0ffee", in_run(2, record))
    };
    let once = |record: Record| at_commit("c0ffee", in_run(1, record));
    let other = || measured("original", "tch", 10.0, 2.2, SAME);
    let slow = once(measured("original", "candle", 10.0, 9.0, SAME));
    let open = |records: Vec<Record>| advise(&records, &[], &Options::new("m")).unwrap().remove(0).is_undecided;
    assert!(open(vec![once(original()), once(other()), slow.clone()]));
    let twice = vec![once(original()), once(other()), slow, several(original(), 2.0), several(other(), 2.2)];
    assert!(!open(twice));
}

#[test]
fn processes_whose_times_agree_say_nothing_of_the_noise_of_energy() {
    let row = |variant: &str, ms: f64, joules: f64| Record {
        energy_j_per_sample: Some(joules),
        processes: Some(5),
        latency_p50_interval_lower_ms: Some(0.999 * ms),
        latency_p50_interval_upper_ms: Some(1.001 * ms),
        confidence_level: Some(0.95),
        ..measured(variant, "ort", 10.0, ms, SAME)
    };
    let verdict = |goal: Goal, ms: f64, joules: f64| {
        let table = with(vec![row("original", 2.0, 1.0), row("int8", ms, joules)], |options| {
            (options.goal, options.noise) = (goal, Noise::assumed());
        });
        table.rows.iter().find(|row| row.record.variant == "int8").unwrap().verdict
    };
    assert_eq!(verdict(Goal::Latency, 1.8, 1.0), Some(Verdict::Faster));
    assert_ne!(verdict(Goal::Energy, 2.0, 0.9), Some(Verdict::Faster));
    assert_eq!(verdict(Goal::Energy, 2.0, 0.5), Some(Verdict::Faster));
}

#[test]
fn a_case_of_one_run_that_may_be_better_is_the_runner_up_beside_one_that_is_surely_slower() {
    let runs = |backend: &str, ms: f64| {
        let run = |month: u32| {
            let ms = ms * if month.is_multiple_of(2) { 1.005 } else { 0.995 };
            at_commit("c0ffee", in_run(month, measured("original", backend, 10.0, ms, SAME)))
        };
        (1..9).map(run).collect::<Vec<Record>>()
    };
    let found = |records: &[Record]| {
        let found = advise(records, &[], &Options::new("m")).unwrap().remove(0);
        (found.is_undecided, found.runner_up.unwrap().name, found.confidence.unwrap()[..4].to_owned())
    };
    let mut records = [runs("ort", 2.0), runs("tch", 2.16)].concat();
    let tch = (false, "the original on tch".to_owned(), "95 %".to_owned());
    assert_eq!(found(&records), tch);
    // Surely slower, too.
    records.push(in_run(1, measured("original", "tract", 10.0, 4.0, SAME)));
    assert_eq!(found(&records), tch);
    records.push(in_run(1, measured("original", "candle", 10.0, 2.18, SAME)));
    assert_eq!(found(&records), (true, "the original on candle".to_owned(), "none".to_owned()));
}

#[test]
fn a_case_without_a_search_under_load_may_serve_more_than_was_measured() {
    let trial = |backend: &str, rate: f64, is_highest: bool| LoadResult {
        case_id: format!("m/{backend}-cpu-f32/1"),
        host_id: "h".into(),
        status: Status::Ok,
        verdict: Some(crate::run_data::Verdict::Passed),
        is_highest,
        samples_per_s: rate,
        ..LoadResult::default()
    };
    let found = |loads: Vec<LoadResult>| {
        let options = Options { goal: Goal::Throughput, noise: QUIET, loads, ..Options::new("m") };
        let records = [original(), measured("original", "tch", 10.0, 2.2, SAME)];
        let found = advise(&records, &[], &options).unwrap().remove(0);
        let why = found.runner_up.unwrap().why;
        (found.case_id.unwrap(), found.is_undecided, found.confidence.unwrap(), why)
    };
    let (ort, tch) = (trial("ort", 1500.0, true), trial("tch", 500.0, false));
    for loads in [vec![ort.clone()], vec![ort.clone(), tch.clone()]] {
        let (case_id, is_undecided, confidence, why) = found(loads);
        assert!(is_undecided && case_id == "m/ort-cpu-f32/1", "{case_id}");
        assert_eq!(confidence, "none: the highest rate of the runner-up under load is not known");
        assert!(
            why.starts_with("takes at most 3.") && why.ends_with(": its highest rate under load is not known"),
            "{why}"
        );
    }
    let (_, is_undecided, confidence, why) = found(vec![ort, LoadResult { is_highest: true, ..tch }]);
    assert!(!is_undecided && confidence.starts_with("95 %") && why.starts_with("takes 3.00 ("), "{confidence} {why}");
}

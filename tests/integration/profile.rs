//! Profiles on the real runtimes, from the command to the history.
#![cfg(feature = "candle")]

use inferbench::run_data::{OUTSIDE, Profile, ProfileRow};

use crate::support::{Run, Workplace, backends_of_networks, has_openvino};

/// The backends that are in this build and here.
fn backends() -> Vec<&'static str> {
    // These take longer, and have tests of their own.
    let can_be_profiled = |name: &&str| !["jax", "torch-compile", "torch-aot"].contains(name);
    backends_of_networks().into_iter().filter(can_be_profiled).collect()
}

fn profile(workplace: &Workplace, arguments: &[&str]) -> Profile {
    let arguments: Vec<&str> = ["profile", "--format", "json"].iter().chain(arguments).copied().collect();
    let run = workplace.inferbench(&arguments).finish().with_code(0);
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn every_backend_says_which_modules_of_digits_take_how_long() {
    let backends = backends();
    let workplace = Workplace::new(&["digits"], &backends, &[8]);
    let profile = profile(&workplace, &[]);
    assert_eq!(profile.failures, []);
    assert_eq!(profile.cases.len(), backends.len());
    for case in &profile.cases {
        let id = &case.case_id;
        assert!(case.calls >= 30 && case.plain_us > 0.0 && case.profiled_us > 0.0, "{id}");
        let (last, operators) = case.rows.split_last().unwrap();
        assert_eq!(last.operator, OUTSIDE, "{id}");
        let has =
            |module: &str| operators.iter().any(|row| row.module.as_deref().is_some_and(|own| own.ends_with(module)));
        // OpenVINO computes both linear layers at once.
        for module in ["conv1", "conv2", "fc2"] {
            assert!(has(module), "{id}: {module} in {operators:#?}");
        }
        // The operators and the rest of the call are a plain call, unless more than the profiler's cost is too much.
        let sum: f64 = case.rows.iter().map(|row| row.corrected_us).sum();
        assert!(sum >= case.plain_us * 0.999, "{id}: {sum} of {}", case.plain_us);
        let starts: Vec<f64> = operators.iter().filter_map(|row| row.start_us).collect();
        assert!(starts.is_sorted() && starts.is_empty() != case.has_timeline, "{id}: {starts:?}");
    }
}

#[test]
fn two_cases_are_compared_by_module_and_kind_of_operator() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[8]);
    let profiled = |batch_sizes: &str, format: &str| {
        let arguments = ["profile", "--backend", "candle", "--batch-sizes", batch_sizes, "--format", format];
        workplace.inferbench(&arguments).finish().with_code(0)
    };
    let both = profiled("1,64", "csv");
    assert!(both.stdout.contains("digits/candle-cpu-f32/1,") && both.stdout.contains("digits/candle-cpu-f32/64,"));
    for batch_size in ["1", "64"] {
        profiled(batch_size, "table");
    }
    let folders = std::fs::read_dir(workplace.path("target-reports/profiles")).unwrap();
    let mut names: Vec<String> = folders.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let run = workplace.inferbench(&["profile", &names[1], &names[2], "--format", "csv"]).finish().with_code(0);
    let (header, rows) = run.stdout.split_once('\n').unwrap();
    assert!(header.starts_with("module,kind,"), "{header}");
    // Whatever a batch of 64 takes longest for, a batch of 1 is faster there.
    assert!(!rows.lines().next().unwrap().rsplit_once(',').unwrap().1.starts_with('-'), "{}", run.stdout);
    assert!(rows.contains("conv2,convolution,Conv,Conv,"), "{}", run.stdout);
}

#[test]
fn what_was_profiled_is_kept_shown_again_and_written_for_other_programs() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let run = workplace.inferbench(&["profile"]).finish().with_code(0);
    assert!(run.stdout.contains("outside operators") && run.stdout.contains("conv2"), "{}", run.stdout);
    let folder = std::fs::read_dir(workplace.path("target-reports/profiles")).unwrap().next().unwrap().unwrap().path();
    let name = folder.file_name().unwrap().to_str().unwrap();
    for file in ["profile.html", "profile.json", "profiles.parquet"] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    let again = workplace.inferbench(&["profile", name]).finish().with_code(0);
    assert_eq!(again.stdout, run.stdout);
    let sampled = workplace.inferbench(&["profile", name, "--cpu"]).finish().with_code(2);
    sampled.saying(&["not of an earlier profile"]);
    let by_module = workplace.inferbench(&["profile", name, "--module-depth", "1"]).finish().with_code(0);
    assert!(by_module.stdout.contains("outside operators"), "{}", by_module.stdout);
    let folded = workplace.inferbench(&["profile", name, "--format", "folded"]).finish().with_code(0);
    let (stack, count) = folded.stdout.lines().next().unwrap().rsplit_once(' ').unwrap();
    assert!(stack.starts_with("digits/candle-cpu-f32/1;") && count.parse::<u64>().is_ok(), "{}", folded.stdout);
    let trace = workplace.inferbench(&["profile", name, "--format", "trace"]).finish().with_code(0);
    let trace: serde_json::Value = serde_json::from_str(&trace.stdout).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["ph"] == "X"));
    let rows = workplace.inferbench(&["profile", name, "--format", "csv"]).finish().with_code(0);
    let rows: Vec<ProfileRow> =
        csv::Reader::from_reader(rows.stdout.as_bytes()).deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.last().unwrap().operator, OUTSIDE);
}

#[test]
fn openvino_tells_its_operators_by_the_nanosecond() {
    if !has_openvino() || !cfg!(target_os = "linux") {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["openvino"], &[1]);
    let profile = profile(&workplace, &[]);
    let case = &profile.cases[0];
    let of = |operator: &str| case.rows.iter().filter(|row| row.operator == operator).collect::<Vec<_>>();
    assert!(case.has_timeline && of("Convolution").len() == 2, "{:#?}", case.rows);
    assert!(of("Convolution").iter().all(|row| row.kernel.is_some() && row.raw_us.fract() != 0.0), "{:#?}", case.rows);
}

#[test]
fn a_language_model_takes_as_long_as_its_cache_is_long() {
    let workplace = Workplace::new(&["llama-small"], &["candle"], &[1]);
    let profile = profile(&workplace, &["--phase", "decode", "--cpu"]);
    let [case] = profile.cases.as_slice() else { panic!("{:?}", profile.failures) };
    let cached: Vec<usize> = case.positions.iter().map(|row| row.cached_tokens).collect();
    assert!(cached.len() > 1 && cached.windows(2).all(|pair| pair[1] == pair[0] + 1), "{cached:?}");
    for row in &case.positions {
        assert!(row.plain_us > 0.0 && row.attention_us > 0.0 && row.matmul_us > 0.0, "{row:?}");
    }
    let stacks = case.stacks.as_ref().filter(|stacks| stacks.samples() > 0);
    assert_eq!(stacks.is_some(), cfg!(feature = "cpu-stacks"));
    let name = profile.run_id.as_str();
    let folded = workplace.inferbench(&["profile", name, "--format", "stacks"]).finish();
    assert_eq!(folded.stdout.lines().count(), stacks.map_or(0, |stacks| stacks.stacks.len()), "{}", folded.stderr);
}

#[test]
fn what_has_no_operators_says_so_and_leaves_the_others() {
    let workplace = Workplace::new(&["digits"], &["null", "candle"], &[1]);
    let run = workplace.inferbench(&["profile", "--backend", "null"]).finish().with_code(3);
    assert!(run.stderr.contains("does not say which operators"), "{}", run.stderr);
    let both = profile(&workplace, &["--backend", "null,candle"]);
    assert_eq!((both.cases.len(), both.failures.len()), (1, 1));
}

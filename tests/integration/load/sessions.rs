//! What sessions compute whose requests have other lengths, that share weights, or that make tokens.

use super::*;
use crate::support::has_onnxruntime;

/// A backend that is here, and not in a process outside: the protocol of these has no prompts of other lengths.
fn answers_requests((name, is_here): &(&str, bool)) -> bool {
    *is_here && !["jax", "torch", "torch-compile", "torch-aot"].contains(name)
}

/// Prompts that are longer and shorter than those that a session was loaded for.
#[test]
fn a_session_answers_prompts_of_any_length() {
    let checked = std::cell::Cell::new(0);
    let models = [("llama-small", 32, [20, 45]), ("t5-tiny", 16, [9, 21])];
    for (model, loaded_for, prompts) in models {
        let workplace = Workplace::new(&[model], &["ort"], &[1]);
        let catalogue = read_catalogue(&workplace.path("models")).unwrap();
        let model = catalogue.into_iter().find(|entry| entry.name == model).unwrap().model.unwrap();
        let held = prepare_and_hold(&model, &workplace.path("target/prepared"), Dtype::F32).unwrap();
        for (backend, _) in real_backends().into_iter().filter(answers_requests) {
            let load = |length: usize| {
                let sizes = Sizes { batch: 1, sequence: Some(length) };
                let inputs = batch(&model, None, 0, sizes).unwrap();
                let (artifacts, phase) = (&held.artifacts, Phase::Decode);
                let request = on_one_thread(&model, artifacts, phase, sizes);
                let session = backend::find(backend).unwrap().load(&request);
                session.map(|session| (session, inputs))
            };
            let (mut session, _) = match load(loaded_for) {
                Ok(loaded) => loaded,
                Err(failure) => {
                    // These two decode both networks, and others may lack a file or an operator.
                    assert!(!["ort", "candle"].contains(&backend), "{backend}, {}: {failure}", model.name);
                    continue;
                }
            };
            for length in prompts {
                let (mut own, inputs) = load(length).unwrap();
                own.bind(&inputs).unwrap();
                let TensorData::I64(expected) = own.outputs(0).unwrap().remove(0).data else { panic!() };
                let mut made: Vec<i64> = Vec::new();
                let add = &mut |token: &HostTensor| match &token.data {
                    TensorData::I64(token) => made.extend(token),
                    other => panic!("{other:?}"),
                };
                session.generate(&inputs, 6, add).unwrap();
                // The first token is that of the prompt itself; a decode case tells those after it.
                assert_eq!(made[1..], expected[..5], "{backend}, {} with a prompt of {length}", model.name);
                checked.set(checked.get() + 1);
            }
        }
    }
    let is_sure = |(name, _): &(&str, bool)| ["ort", "candle"].contains(name);
    let sure = real_backends().into_iter().filter(answers_requests).filter(is_sure).count();
    assert!(sure > 0 && checked.get() >= sure * models.len() * 2, "{} prompts on {sure} backends", checked.get());
}

#[test]
fn sessions_that_share_weights_or_are_one_compute_what_one_does_alone() {
    let workplace = Workplace::new(&["bert-small"], &["ort"], &[1]);
    let catalogue = read_catalogue(&workplace.path("models")).unwrap();
    let model = catalogue.into_iter().find(|entry| entry.name == "bert-small").unwrap().model.unwrap();
    let held = prepare_and_hold(&model, &workplace.path("target/prepared"), Dtype::F32).unwrap();
    let sizes = Sizes { batch: 1, sequence: Some(16) };
    let inputs = batch(&model, None, 0, sizes).unwrap();
    let mut checked = 0;
    for backend in backends_of_networks().into_iter().filter(|name| answers_requests(&(name, true))) {
        let outputs = |instances: usize, callers: usize| {
            let (artifacts, phase) = (&held.artifacts, Phase::Forward);
            let (device, dtype, threads) = ("cpu", Dtype::F32, 1);
            let request =
                LoadRequest { model: &model, artifacts, phase, sizes, device, dtype, threads, instances, callers };
            let mut session = backend::find(backend).unwrap().load(&request).unwrap();
            let binding = session.bind(&inputs).unwrap();
            for _ in 0..50 {
                session.run(binding).unwrap();
                session.sync().unwrap();
            }
            let TensorData::F32(values) = session.outputs(binding).unwrap().remove(0).data else { panic!() };
            values
        };
        let alone = outputs(1, 1);
        let several = |instances, callers| -> Vec<Vec<f32>> {
            std::thread::scope(|scope| {
                let all = (0..instances * callers).map(|_| scope.spawn(|| outputs(instances, callers)));
                let all: Vec<_> = all.collect();
                all.into_iter().map(|session| session.join().unwrap()).collect()
            })
        };
        let mut together = several(2, 1);
        if backend::find(backend).unwrap().serves_callers("cpu") {
            together.extend(several(1, 3));
        }
        for values in together {
            let error = values.iter().zip(&alone).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
            assert!(values.len() == alone.len() && error < 1e-4, "{backend}: {error}");
        }
        checked += 1;
    }
    assert!(checked >= 2);
}

/// The trace of a dtype other than f32 comes before the sessions that callers share.
#[test]
fn a_session_of_several_callers_is_traced_by_one_of_its_own() {
    if !has_onnxruntime() {
        return;
    }
    let workplace = Workplace::new(&["digits"], &["ort"], &[1]);
    let catalogue = read_catalogue(&workplace.path("models")).unwrap();
    let model = catalogue.into_iter().find(|entry| entry.name == "digits").unwrap().model.unwrap();
    let held = prepare_and_hold(&model, &workplace.path("target/prepared"), Dtype::F16).unwrap();
    let sizes = Sizes { batch: 1, sequence: None };
    let inputs = batch(&model, None, 0, sizes).unwrap();
    let alone = on_one_thread(&model, &held.artifacts, Phase::Forward, sizes);
    let request = LoadRequest { dtype: Dtype::F16, callers: 2, ..alone };
    let trace = backend::find("ort").unwrap().trace(&request, &inputs).unwrap().unwrap();
    assert_eq!(trace.share(), 1.0, "{trace:?}");
}

#[test]
fn language_models_are_served_with_their_own_figures() {
    let backends: Vec<_> = real_backends().into_iter().filter(answers_requests).map(|(name, _)| name).collect();
    let workplace = Workplace::new(&["digits", "llama-small"], &backends, &[1]);
    let own = ["--model", "llama-small", "--prompt-tokens", "16", "--output-tokens", "5"];
    let bounds = ["--ttft", "20s", "--tpot", "20s", "--rate", "20/s", "--queries", "20"];
    let results = load(&workplace, &[&own[..], &bounds[..]].concat());
    assert_eq!(results.len(), backends.len());
    for row in results {
        let id = &row.case_id;
        assert_eq!(row.status.to_string(), "ok", "{id}: {:?}", row.message);
        assert_eq!((row.queries, row.prompt_tokens, row.output_tokens), (20, Some(320), Some(100)), "{id}");
        let ms = |value: Option<f64>| value.unwrap_or_else(|| panic!("{id}: {row:?}"));
        // An answer is its first token and the four after it.
        let whole = ms(row.ttft_mean_ms) + 4.0 * ms(row.tpot_mean_ms);
        assert!((row.latency_mean_ms / whole - 1.0).abs() < 1e-6, "{id}: {row:?}");
        assert!((ms(row.itl_mean_ms) / ms(row.tpot_mean_ms) - 1.0).abs() < 1e-6, "{id}: {row:?}");
        assert!((row.output_tokens_per_s.unwrap() / (100.0 / row.seconds) - 1.0).abs() < 1e-9, "{id}");
        assert_eq!(row.goodput_per_s, Some(row.completed_per_s), "{id}");
        assert_eq!((row.over_bound, row.unanswered), (Some(0), 0), "{id}");
    }
    // The definitions are with the figures that are shown, in the terminal and on the page.
    let users = ["load", "--concurrency", "2", "--queries", "10", "--model", "llama-small", "--backend", backends[0]];
    let lengths = ["--prompt-tokens", "lognormal:12,0.3", "--output-tokens", "lognormal:4,0.5"];
    let finished = workplace.inferbench(&[&users[..], &lengths[..]].concat()).finish().with_code(0);
    let shown = finished.stdout;
    for text in ["concurrent", "TTFT p99", "TPOT: time per output token of a request", "per user"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    // Without a bound there is no goodput.
    assert!(!shown.contains("\"DistServe\""), "{shown}");
    let kept = finished.stderr.lines().find_map(|line| line.strip_prefix("load test   ")).unwrap();
    let narrow = workplace.inferbench(&["load", kept]).env("COLUMNS", "100").finish().with_code(0).stdout;
    let headers = narrow.lines().next().unwrap();
    assert!(headers.contains("TTFT p99") && headers.contains("TPOT p99") && !narrow.contains("ITL"), "{narrow}");
    let run = ["run", "--model", "llama-small", "--backend", "candle", "--phase", "decode", "--noplot"];
    workplace.inferbench(&run).finish().with_code(0);
    workplace.inferbench(&["report", "--charts", "figures"]).finish().with_code(0);
    let chart = std::fs::read_to_string(workplace.path("figures/tokens.svg")).unwrap();
    assert!(chart.contains("output tokens per second") && !chart.contains("NaN"), "{chart}");
}

#[test]
fn requests_have_the_lengths_of_a_file_and_what_a_backend_cannot_take_is_refused() {
    let workplace = Workplace::new(&["digits", "llama-small", "whisper-mini"], &["candle"], &[1]);
    std::fs::write(workplace.path("lengths.tsv"), "# prompt\tanswer\n8\t2\n20\t6\n").unwrap();
    let one = |arguments: &[&str]| load(&workplace, arguments).remove(0);
    let listed = one(&[
        "--model",
        "llama-small",
        "--lengths",
        "lengths.tsv",
        "--scenario",
        "single",
        "--queries",
        "5",
        "--duration",
        "1ns",
    ]);
    assert_eq!((listed.queries, listed.prompt_tokens, listed.output_tokens), (5, Some(64), Some(18)), "{listed:?}");
    let null = ["--model", "llama-small", "--backend", "null", "--service-time", "5ms", "--output-tokens", "4"];
    let row = one(&[&null[..], &["--scenario", "single", "--queries", "10"]].concat());
    // Each token takes 5 ms, and no less: what a thread that wakes late adds to one, it takes from the next.
    assert!(row.latency_p50_ms >= 19.9 && row.ttft_p50_ms.unwrap() >= 4.99, "{row:?}");
    assert!(row.tpot_p50_ms > Some(1.0), "{row:?}");
    let digits = one(&["--model", "digits", "--rate", "5", "--output-tokens", "3", "--phase", "forward"]);
    assert!(digits.message.as_ref().unwrap().contains("only the phase `decode`"), "{digits:?}");
    #[cfg(feature = "tract")]
    {
        let drawn = ["--model", "llama-small", "--backend", "tract", "--prompt-tokens", "lognormal:60,0.8"];
        let row = one(&[&drawn[..], &["--scenario", "single", "--queries", "5"]].concat());
        assert_eq!(row.status.to_string(), "unsupported");
        assert!(row.message.as_ref().unwrap().contains("compiles for each length of a prompt"), "{row:?}");
    }
    let whisper = ["--model", "whisper-mini", "--backend", "ort", "--prompt-tokens", "9", "--rate", "5"];
    if cfg!(feature = "ort") {
        let row = one(&whisper);
        assert!(row.message.as_ref().unwrap().contains("and no others"), "{row:?}");
    }
}

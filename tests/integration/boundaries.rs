//! Where the time of a call begins and ends, and what comes before the first one.
#![cfg(feature = "candle")]

use crate::support::{Run, Workplace};
use inferbench::definition::Boundary;

#[test]
fn the_two_boundaries_are_never_mixed() {
    let workplace = Workplace::new(&["digits"], &["candle"], &[1]);
    let run = workplace.inferbench(&["run", "--boundary", "compute,end-to-end", "--noplot"]).finish().with_code(0);
    assert!(run.stdout.contains("\ndigits-end-to-end\n") && run.stdout.contains("\ndigits\n"), "{}", run.stdout);
    let compute = workplace.record("digits/candle-cpu-f32/1");
    assert_eq!((compute.boundary, compute.h2d_ms, compute.d2h_ms), (Boundary::Compute, None, None));
    let whole = workplace.record("digits-end-to-end/candle-cpu-f32/1");
    assert_eq!((whole.boundary, whole.verified), (Boundary::EndToEnd, Some(true)));
    let parts = [whole.h2d_ms, whole.compute_ms, whole.d2h_ms].map(Option::unwrap);
    assert!(parts.iter().sum::<f64>() <= whole.latency_max_ms.unwrap(), "{parts:?}");
    assert!(parts.iter().all(|&ms| ms > 0.0), "{parts:?}");
}

#[test]
fn a_step_of_decode_has_no_end_to_end() {
    let workplace = Workplace::new(&["llama-small"], &["candle"], &[1]);
    let arguments = ["run", "--boundary", "end-to-end", "--noplot", "--model", "llama-small"];
    workplace.inferbench(&arguments).finish().with_code(0);
    let status = |id| workplace.record(id).status.name();
    assert_eq!(status("llama-small-seq32-prefill-end-to-end/candle-cpu-f32/1"), "ok");
    assert_eq!(status("llama-small-seq32-decode-end-to-end/candle-cpu-f32/1"), "unsupported");
}

#[test]
fn cold_starts_are_sampled_by_process_and_kept_apart_from_the_measurements() {
    let backends = if cfg!(feature = "tract") { vec!["candle", "tract"] } else { vec!["candle"] };
    let workplace = Workplace::new(&["digits"], &backends, &[1]);
    let run = workplace.load_bench(&["--noplot", "--sample-size", "10"]).finish().with_code(0);
    let mut lines = run.stdout.lines().skip_while(|line| !line.starts_with("case\t"));
    assert_eq!(lines.next(), Some("case\tload_time_ms\ttrace_time_ms\tcompilation_time_ms\tfirst_inference_ms"));
    for backend in &backends {
        let line = lines.next().unwrap_or_else(|| panic!("no line of {backend} in\n{}", run.stdout));
        let cells: Vec<&str> = line.split('\t').collect();
        assert_eq!(cells[0], format!("digits/{backend}-cpu-f32/1"));
        let is_time = |cell: &str| cell.parse::<f64>().is_ok_and(|ms| ms > 0.0);
        assert!(is_time(cells[1]) && cells[2].is_empty() && is_time(cells[4]), "{line}");
        // Only tract compiles apart from loading.
        assert_eq!(is_time(cells[3]), *backend == "tract", "{line}");
    }
    let sample = workplace.path("target/criterion-load/digits/candle-cpu-f32/1/new/sample.json");
    let sample: serde_json::Value = serde_json::from_slice(&std::fs::read(sample).unwrap()).unwrap();
    assert_eq!(sample["iters"].as_array().unwrap().len(), 10);
    assert!(workplace.measured().is_empty());
}

use std::path::Path;

use super::*;
use crate::backend::outside::clock::LEAST;
use crate::backend::outside::frame::write_frame;
use crate::catalogue::read_catalogue;
use crate::definition::{Dtype, Sizes};
use crate::fixture::Artifacts;

#[test]
fn calls_before_the_timed_ones_leave_a_row_where_it_is() {
    let lead = |is_first, bindings, row, together, call_ns| {
        let turns = lead_in(Turn { binding: 2, is_first }, bindings, row, together, call_ns);
        turns.iter().map(|turn| (turn.binding, turn.is_first)).collect::<Vec<_>>()
    };
    assert_eq!(lead(true, 4, 3, 1, Some(150_000)), [(2, true), (2, false), (2, false), (2, true)]);
    // In the middle of a row, the calls use another binding.
    assert_eq!(lead(false, 4, 3, 1, Some(400_000)), [(3, true), (3, false)]);
    assert_eq!(lead(false, 3, 128, 1, Some(400_000)), [(0, true), (0, false)]);
    assert_eq!(lead(true, 4, 1, 4, Some(100_000)).len(), 8);
    let none = [
        (true, 4, 1, 1, None),
        // Within one step of a coarse clock.
        (true, 4, 1, 1, Some(0)),
        (true, 4, 1, 32, Some(1)),
        (true, 4, 1, 1, Some(5_000_000)),
        (true, 4, 3, 2, Some(100_000)),
        (false, 1, 3, 1, Some(100_000)),
    ];
    assert!(none.into_iter().all(|(is_first, of, row, together, ns)| lead(is_first, of, row, together, ns).is_empty()));
}

/// Calls `use_it` with a request for the model `digits` at batch size 1.
fn with_request<T>(use_it: impl FnOnce(&LoadRequest<'_>) -> T) -> T {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let digits = read_catalogue(&models).unwrap().into_iter().find(|entry| entry.name == "digits");
    let model = digits.unwrap().model.unwrap();
    use_it(&LoadRequest {
        model: &model,
        artifacts: &Artifacts::default(),
        phase: Phase::Forward,
        sizes: Sizes { batch: 1, sequence: None },
        device: "cpu",
        dtype: Dtype::F32,
        threads: 1,
        instances: 1,
        callers: 1,
    })
}

#[test]
fn a_worker_does_not_time_any_number_of_calls_together() {
    let loaded = |together: u64| {
        let mut frames = Vec::new();
        write_frame(&mut frames, &json!({ "device": "cpu", "together": together }), &[]).unwrap();
        (0..5).for_each(|ns| write_frame(&mut frames, &json!({ "ns": ns }), &[]).unwrap());
        let process = OutsideProcess::of_frames(frames).unwrap();
        with_request(|request| OutsideSession::load(process, request).map(drop))
    };
    assert!(loaded(MOST_TOGETHER).is_ok());
    assert!(loaded(u64::MAX).unwrap_err().message.contains("at most 100000"));
}

#[test]
fn a_clock_of_another_speed_is_found_before_timed_calls() {
    type Call = fn(&mut OutsideSession) -> Result<(), CaseFailure>;
    let calls: [Call; 2] = [
        |session| session.run_timed(&mut [Turn { binding: 0, is_first: true }].into_iter()).unwrap().map(drop),
        |session| {
            session.allow_lead_in();
            session.call_from_host(0, &[]).map(drop)
        },
    ];
    for call in calls {
        let mut frames = Vec::new();
        write_frame(&mut frames, &json!({ "device": "cpu" }), &[]).unwrap();
        // A clock of processor time, while the process waits.
        (0..10).for_each(|_| write_frame(&mut frames, &json!({ "ns": 5 }), &[]).unwrap());
        let process = OutsideProcess::of_frames(frames).unwrap();
        let mut session = with_request(|request| OutsideSession::load(process, request)).unwrap();
        std::thread::sleep(LEAST);
        let message = call(&mut session).unwrap_err().message;
        assert!(message.starts_with("the clock of the program says 0.000 s where "), "{message}");
    }
}

#[test]
fn the_first_call_has_neither_tracing_nor_compiling_in_it() {
    let mut frames = Vec::new();
    write_frame(&mut frames, &json!({ "device": "cpu", "trace_ms": 700.0 }), &[]).unwrap();
    (0..5).for_each(|ns| write_frame(&mut frames, &json!({ "ns": ns }), &[]).unwrap());
    write_frame(&mut frames, &json!({}), &[]).unwrap();
    let times = HostTensor { shape: vec![1], data: TensorData::I64(vec![90_000]) };
    let run = json!({ "trace_ms": 700.05, "compile_ms": 0.03 });
    write_frame(&mut frames, &run, &[("times".into(), times)]).unwrap();
    let process = OutsideProcess::of_frames(frames).unwrap();
    let mut session = with_request(|request| OutsideSession::load(process, request)).unwrap();
    let binding = session.bind(&[]).unwrap();
    session.run(binding).unwrap();
    let first = session.first_call().unwrap();
    assert!((9_900..=10_100).contains(&first.as_nanos()), "{first:?}");
}

#[test]
fn the_stages_of_a_call_are_no_longer_than_its_answer_took() {
    let mut frames = Vec::new();
    write_frame(&mut frames, &json!({ "device": "cpu" }), &[]).unwrap();
    (0..5).for_each(|ns| write_frame(&mut frames, &json!({ "ns": ns }), &[]).unwrap());
    let stages = json!({ "to_device_ns": 0, "compute_ns": 3_600_000_000_000_u64, "to_host_ns": 0 });
    write_frame(&mut frames, &stages, &[]).unwrap();
    let process = OutsideProcess::of_frames(frames).unwrap();
    let called = with_request(|request| OutsideSession::load(process, request)?.call_from_host(0, &[]));
    let message = called.unwrap_err().message;
    assert!(message.contains("to `call` has stages of 3600000.000 ms, but took only "), "{message}");
}

#[test]
fn times_of_several_calls_are_spread_and_keep_their_sum() {
    let calls = single_calls(&[1000, 1001, 7], 7, 3);
    assert_eq!(calls, [334, 333, 333, 334, 334, 333, 7]);
    assert_eq!(single_calls(&[5, 6], 2, 1), [5, 6]);
}

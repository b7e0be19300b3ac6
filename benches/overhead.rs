//! The harness's own cost: a call of the null backend, and the two clock reads that it consists of.
//!
//! `cargo bench --bench overhead` prints both figures and their ratio; the aim is 1.2 or less. The two are measured in
//! turn, many times, and the ratio is the median of the pairs, so that a change of the processor's speed hits both.

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Parser;
use criterion::Criterion;
use inferbench::backend::{Backend, LoadRequest, Null};
use inferbench::definition::{Dtype, Model, ORIGINAL, Origin, Phase, Tolerance};
use inferbench::fixture::{Artifacts, HostTensor, TensorData};
use inferbench::harness::{CriterionArguments, Mode};
use inferbench::measurement::{CallTimes, LoggedWallTime, SampleLog, TimedSession};

const CALLS: u64 = 100_000;
const PAIRS: usize = 51;
const NULL_CALL: &str = "overhead/null-call";

fn main() {
    let log = SampleLog::default();
    let mut criterion =
        Criterion::default().with_measurement(LoggedWallTime::new(log)).warm_up_time(Duration::from_millis(300));
    criterion = criterion.measurement_time(Duration::from_secs(1)).configure_from_args();
    let mut session = null_session();
    let mut group = criterion.benchmark_group("overhead");
    group.bench_function("clock-reads", |bencher| bencher.iter_custom(clock_reads));
    group.bench_function("null-call", |bencher| bencher.iter_custom(|calls| null_calls(&mut session, calls)));
    group.finish();
    criterion.final_summary();
    let arguments = CriterionArguments::parse_from(std::env::args().skip(1));
    if arguments.mode() == Mode::Measure && arguments.id_filter().is_ok_and(|filter| filter.matches(NULL_CALL)) {
        print_ratio(&mut session);
    }
}

fn print_ratio(session: &mut TimedSession) {
    let per_call = |start: Instant| start.elapsed().as_secs_f64() * 1e9 / CALLS as f64;
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let start = Instant::now();
        black_box(clock_reads(CALLS));
        let clock = per_call(start);
        let start = Instant::now();
        black_box(null_calls(session, CALLS));
        pairs.push((clock, per_call(start)));
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let clock = median(pairs.iter().map(|(clock, _)| *clock).collect());
    let call = median(pairs.iter().map(|(_, call)| *call).collect());
    let ratio = median(pairs.iter().map(|(clock, call)| call / clock).collect());
    println!(
        "two clock reads {clock:.1} ns, a call of the null backend {call:.1} ns: ratio {ratio:.2} (aim: at most 1.20)"
    );
}

/// The timed region with nothing in it, stored like a call.
fn clock_reads(calls: u64) -> CallTimes {
    let mut times = CallTimes::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        times.push(start.elapsed());
    }
    times
}

fn null_calls(session: &mut TimedSession, calls: u64) -> CallTimes {
    session.call(calls).expect("the null backend cannot fail")
}

fn null_session() -> TimedSession {
    let model = Model {
        name: "null".into(),
        variant: ORIGINAL.into(),
        family: "null".into(),
        modality: "none".into(),
        parameters: None,
        inputs: Vec::new(),
        parts: Vec::new(),
        phases: Vec::new(),
        generation: None,
        sequence_lengths: Vec::new(),
        tolerance: Tolerance::default(),
        origin: Origin::Files { onnx: None, torchscript: None },
    };
    let artifacts = Artifacts::default();
    let request = LoadRequest {
        model: &model,
        artifacts: &artifacts,
        phase: Phase::Forward,
        sequence_length: None,
        device: "cpu",
        dtype: Dtype::F32,
        threads: 1,
    };
    let mut session = Null.load(&request).expect("the null backend loads anything");
    let input = HostTensor { shape: vec![1], data: TensorData::F32(vec![0.0]) };
    for _ in 0..4 {
        session.bind(std::slice::from_ref(&input)).expect("the null backend binds anything");
    }
    TimedSession::new(session, 4)
}

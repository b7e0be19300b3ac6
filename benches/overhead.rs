//! The harness's own cost: a call of the null backend, and the two clock reads that it consists of.
//!
//! `cargo bench --bench overhead` prints both figures and their ratio; the aim is 1.2 or less. The two are measured
//! alternately, many times, and the ratio is the median of the pairs' ratios, so that a change of the processor's speed
//! affects both.

use std::time::Duration;

use clap::Parser;
use criterion::Criterion;
use inferbench::measurement::overhead::{clock_reads, measure, null_session};
use inferbench::measurement::{CallTimes, SampleLog, TimedSession};
use inferbench::run_data::{CriterionArguments, Mode};

const NULL_CALL: &str = "overhead/null-call";

fn main() {
    let mut criterion =
        Criterion::default().with_measurement(SampleLog::default()).warm_up_time(Duration::from_millis(300));
    criterion = criterion.measurement_time(Duration::from_secs(1)).configure_from_args();
    let mut session = null_session().expect("the null backend loads anything");
    let mut group = criterion.benchmark_group("overhead");
    group.bench_function("clock-reads", |bencher| bencher.iter_custom(clock_reads));
    group.bench_function("null-call", |bencher| bencher.iter_custom(|calls| null_calls(&mut session, calls)));
    group.finish();
    criterion.final_summary();
    let arguments = CriterionArguments::parse_from(std::env::args().skip(1));
    if arguments.mode() == Mode::Measure && arguments.id_filter().is_ok_and(|filter| filter.is_match(NULL_CALL)) {
        print_ratio();
    }
}

fn print_ratio() {
    let overhead = measure(Duration::from_secs(1)).expect("the null backend cannot fail");
    println!(
        "two clock reads {:.1} ns, a call of the null backend {:.1} ns: ratio {:.2} (aim: at most 1.20)",
        overhead.clock_reads_ns, overhead.null_call_ns, overhead.null_call_ratio
    );
}

fn null_calls(session: &mut TimedSession, calls: u64) -> CallTimes {
    session.call(calls).expect("the null backend cannot fail")
}

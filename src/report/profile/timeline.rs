//! The operators of one call in time, and as trace events.
//!
//! The Trace Event Format (Google, 2016) is read by Perfetto, speedscope and the Firefox Profiler: a complete event (`X`) has its beginning
//! and duration in microseconds, `pid` is the case and `tid` the thread.

use serde_json::{Value, json};

use crate::report;
use crate::run_data::{CaseProfile, OUTSIDE, ProfileRow};

/// When an operator ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The index of the operator's row in the case.
    pub row: usize,
    pub start_us: f64,
    pub duration_us: f64,
}

/// The operators of a call in time, including the profiler's cost. On one thread they do not overlap: an operator whose
/// median is longer than the time until the next one begins ends there. If the backend has no timeline, the operators
/// follow one another.
pub fn spans(case: &CaseProfile) -> Vec<Span> {
    let operators = case.rows.iter().enumerate().filter(|(_, row)| row.operator != OUTSIDE);
    if !case.has_timeline {
        let follow = |at: &mut f64, (row, operator): (usize, &ProfileRow)| {
            let start_us = *at;
            *at += operator.corrected_us;
            Some(Span { row, start_us, duration_us: operator.corrected_us })
        };
        return operators.scan(0.0, follow).collect();
    }
    let span = |(row, operator): (usize, &ProfileRow)| {
        // Less than one if only some calls execute it.
        let executions = if operator.executions > 0.0 { operator.executions } else { 1.0 };
        Some(Span { row, start_us: operator.start_us?, duration_us: operator.raw_us / executions })
    };
    let mut spans: Vec<Span> = operators.filter_map(span).collect();
    let thread = |span: &Span| case.rows[span.row].thread;
    spans.sort_by(|a, b| thread(a).cmp(&thread(b)).then(a.start_us.total_cmp(&b.start_us)));
    for index in 1..spans.len() {
        let next = spans[index];
        let one = &mut spans[index - 1];
        if case.rows[one.row].thread == case.rows[next.row].thread {
            one.duration_us = one.duration_us.min(next.start_us - one.start_us);
        }
    }
    spans
}

/// Trace events of all cases, each a process of the trace.
pub fn trace(cases: &[CaseProfile]) -> String {
    let events = cases.iter().enumerate().flat_map(|(index, case)| events(index + 1, case));
    report::json(&json!({ "displayTimeUnit": "ns", "traceEvents": events.collect::<Vec<Value>>() }))
}

fn events(pid: usize, case: &CaseProfile) -> Vec<Value> {
    let metadata = |name: &str, tid: u32, text: String| json!({ "ph": "M", "pid": pid, "tid": tid, "name": name, "args": { "name": text } });
    let spans = spans(case);
    let tid = |span: &Span| if case.has_timeline { case.rows[span.row].thread } else { 0 };
    let mut threads: Vec<u32> = spans.iter().map(tid).collect();
    threads.sort_unstable();
    threads.dedup();
    let named = |tid| match case.has_timeline {
        true => format!("thread {tid}"),
        false => format!("operators one after the other ({} has no timeline)", case.backend),
    };
    let mut events = vec![metadata("process_name", 0, case.case_id.clone())];
    events.extend(threads.into_iter().map(|tid| metadata("thread_name", tid, named(tid))));
    for span in &spans {
        let row = &case.rows[span.row];
        let times = json!({ "node": row.node, "module": row.module, "kernel": row.kernel, "raw_us": row.raw_us, "corrected_us": row.corrected_us });
        events.push(json!({
            "ph": "X", "pid": pid, "tid": tid(span), "ts": span.start_us, "dur": span.duration_us,
            "name": row.operator, "cat": row.module.as_deref().unwrap_or("operator"), "args": times,
        }));
        if let Some(bytes) = row.memory_bytes {
            let end = span.start_us + span.duration_us;
            events.push(json!({ "ph": "C", "pid": pid, "ts": end, "name": "memory", "args": { "bytes": bytes } }));
        }
    }
    events
}

//! The latency that a server adds to a model: its load tests beside those of the same model without a server.

use crate::definition::Status;
use crate::run_data::{LoadResult, LoadRun, Scenario, Verdict};

/// Rates count as equal up to this ratio.
const NEAR: f64 = 1.1;

/// Adds to the rows of a server's load test how its latency differs from the newest load test of the same model on this
/// machine, without a server and with the same terms. `wanted` is the model or the case to compare with, if it has
/// another name.
pub fn add_local(rows: &mut [LoadResult], loads: &[LoadRun], wanted: Option<&str>) {
    let is_of_server = |row: &&mut LoadResult| row.url.is_some() && has_its_load(row);
    for row in rows.iter_mut().filter(is_of_server) {
        let local = loads.iter().rev().find_map(|load| nearest(row, &load.results, wanted));
        let Some(local) = local else { continue };
        row.local_case = Some(local.case_id.clone());
        row.local_run = Some(local.run_id.clone());
        row.server_adds_p50_ms = Some(row.latency_p50_ms - local.latency_p50_ms);
        row.server_adds_p99_ms = Some(row.latency_p99_ms - local.latency_p99_ms);
    }
}

/// Whether a trial has figures, and its requests were sent at the intended rate.
fn has_its_load(row: &LoadResult) -> bool {
    row.status == Status::Ok && row.queries > 0 && row.verdict != Some(Verdict::Invalid)
}

/// The trial with the lowest median that did the same work under the same load.
fn nearest<'a>(row: &LoadResult, trials: &'a [LoadResult], wanted: Option<&str>) -> Option<&'a LoadResult> {
    let wanted = wanted.unwrap_or(&row.model);
    let is_equal_rate = |(one, other): (f64, f64)| (one / other).max(other / one) <= NEAR;
    let is_near = |local: &&LoadResult| {
        let is_meant = local.case_id == wanted || local.model == wanted;
        let is_measured = has_its_load(local) && local.url.is_none() && local.unanswered == 0;
        let is_equal_load = match row.scenario {
            Scenario::Server => row.rate.zip(local.rate).is_some_and(is_equal_rate),
            _ => row.users == local.users,
        };
        // If the user names the case, its shapes may differ.
        let is_same_work = local.case_id == wanted
            || shapes(row).zip(shapes(local)).is_none_or(|(of_server, of_local)| of_server == of_local);
        is_meant
            && is_same_work
            && is_measured
            && is_equal_load
            && (local.scenario, local.batch_size, &local.host_id) == (row.scenario, row.batch_size, &row.host_id)
            && local.lengths == row.lengths
    };
    trials.iter().filter(is_near).min_by(|one, other| one.latency_p50_ms.total_cmp(&other.latency_p50_ms))
}

/// The shapes of the inputs, sorted: a server may list its inputs in another order, and separate them by commas.
fn shapes(row: &LoadResult) -> Option<Vec<&str>> {
    let shapes = row.input_shape.as_deref()?.split([',', ' ']).filter(|shape| !shape.is_empty());
    let mut shapes: Vec<&str> = shapes.collect();
    shapes.sort_unstable();
    Some(shapes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(model: &str, backend: &str, rate: f64, p50: f64) -> LoadResult {
        LoadResult {
            case_id: format!("{model}/{backend}-cpu-f32/1"),
            model: model.into(),
            status: Status::Ok,
            rate: Some(rate),
            queries: 10,
            batch_size: 1,
            latency_p50_ms: p50,
            latency_p99_ms: 2.0 * p50,
            ..LoadResult::default()
        }
    }

    #[test]
    fn a_server_is_compared_with_the_newest_equal_load_without_one() {
        let run = |run_id: &str, results: Vec<LoadResult>| {
            let results = results.into_iter().map(|row| LoadResult { run_id: run_id.into(), ..row }).collect();
            LoadRun { run_id: run_id.into(), results, ..LoadRun::default() }
        };
        let loads = [
            run("old", vec![trial("digits", "ort", 300.0, 0.5)]),
            run("new", vec![trial("digits", "tract", 300.0, 2.0), trial("digits", "ort", 310.0, 1.0)]),
            run("other", vec![trial("digits", "ort", 900.0, 0.1), trial("bert", "ort", 300.0, 0.1)]),
        ];
        let served = || LoadResult { url: Some("http://127.0.0.1:1".into()), ..trial("digits", "http", 300.0, 3.0) };
        let of = |row: LoadResult, wanted: Option<&str>| {
            let mut rows = [row];
            add_local(&mut rows, &loads, wanted);
            let [row] = rows;
            row.local_run.zip(row.server_adds_p50_ms).zip(row.server_adds_p99_ms)
        };
        assert_eq!(of(served(), None), Some((("new".into(), 2.0), 4.0)));
        assert_eq!(of(served(), Some("digits/tract-cpu-f32/1")), Some((("new".into(), 1.0), 2.0)));
        assert_eq!(of(LoadResult { rate: Some(500.0), ..served() }, None), None);
        assert_eq!(of(LoadResult { model: "gpt2".into(), ..served() }, None), None);
        assert_eq!(of(LoadResult { status: Status::WrongOutput, ..served() }, None), None);
        // A case with shorter inputs did less work, unless the user names it.
        let with_shape = |shape: &str, row: LoadResult| LoadResult { input_shape: Some(shape.into()), ..row };
        let of_shape = |shape: &str, wanted| {
            let short = with_shape("1x8 1x1", trial("bert", "ort", 300.0, 1.0));
            let mut rows = [with_shape(shape, LoadResult { model: "bert".into(), ..served() })];
            add_local(&mut rows, &[run("shapes", vec![short])], wanted);
            rows[0].server_adds_p50_ms
        };
        assert_eq!([of_shape("1x1, 1x8", None), of_shape("1x1, 1x128", None)], [Some(2.0), None]);
        assert_eq!(of_shape("1x1, 1x128", Some("bert/ort-cpu-f32/1")), Some(2.0));
        assert_eq!(of(LoadResult { verdict: Some(Verdict::Invalid), ..served() }, None), None);
        let late = LoadResult { verdict: Some(Verdict::Invalid), ..trial("gpt2", "ort", 300.0, 0.1) };
        let mut rows = [LoadResult { model: "gpt2".into(), ..served() }];
        add_local(&mut rows, &[run("late", vec![late])], None);
        assert_eq!(rows[0].local_run, None);
        assert_eq!(of(LoadResult { users: Some(2), scenario: Scenario::Concurrent, ..served() }, None), None);
    }
}

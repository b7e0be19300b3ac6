//! What servers of a model were measured to do under load: a line each, beside the cases of this program.

use super::Options;
use super::under_load::shows_its_rate;
use crate::definition::{Case, Status};
use crate::report::numbers::{latency, three_digits};
use crate::run_data::{LoadResult, Scenario};

/// The best trial within the limits of each server that has the model, or else its quickest one, of its newest load test.
pub fn served(loads: &[LoadResult], case: &Case, options: &Options) -> Vec<String> {
    let is_meant = |row: &&LoadResult| {
        let is_same = (row.model.as_str(), row.phase) == (case.model.as_str(), case.phase);
        row.url.is_some()
            && is_same
            && row.scenario == Scenario::Server
            && row.status == Status::Ok
            && shows_its_rate(row)
    };
    let rows: Vec<&LoadResult> = loads.iter().filter(is_meant).collect();
    let mut servers: Vec<(&str, usize)> = rows.iter().map(|row| (row.case_id.as_str(), row.batch_size)).collect();
    servers.sort_unstable();
    servers.dedup();
    servers.into_iter().filter_map(|(id, _)| line(&rows, id, options)).collect()
}

fn line(rows: &[&LoadResult], case_id: &str, options: &Options) -> Option<String> {
    let own = || rows.iter().filter(|row| row.case_id == case_id);
    let newest = own().map(|row| (row.timestamp, &row.run_id)).max()?;
    let of_newest = || own().filter(|row| (row.timestamp, &row.run_id) == newest);
    let (most, least) = (options.limits.max_p99_ms, options.limits.min_rate);
    let within = of_newest().filter(|row| most.is_none_or(|most| row.latency_p99_ms <= most));
    let best = within.max_by(|one, other| one.samples_per_s.total_cmp(&other.samples_per_s));
    let row = best.or_else(|| of_newest().min_by(|one, other| one.latency_p99_ms.total_cmp(&other.latency_p99_ms)))?;
    let is_slow = most.is_some_and(|most| row.latency_p99_ms > most);
    let beyond = match least.filter(|least| row.samples_per_s < *least) {
        _ if is_slow => ", which is above the limit",
        Some(_) => ", which is below the rate that is asked for",
        None => "",
    };
    let server = row.server.as_deref().or(row.url.as_deref()).unwrap_or_default();
    Some(format!(
        "{case_id}: {server} answers {} samples/s with p99 {}{beyond} (load test {})",
        three_digits(row.samples_per_s),
        latency(row.latency_p99_ms),
        row.run_id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_data::Verdict;

    #[test]
    fn a_server_is_beside_the_cases_of_its_model() {
        let row = |rate: f64, p99: f64| LoadResult {
            run_id: "20260101T000000Z".into(),
            case_id: "digits/http-mlserver-f32/1".into(),
            model: "digits".into(),
            url: Some("http://127.0.0.1:1".into()),
            server: Some("mlserver 1.7.1".into()),
            status: Status::Ok,
            verdict: Some(Verdict::Measured),
            samples_per_s: rate,
            latency_p99_ms: p99,
            ..LoadResult::default()
        };
        let loads = [row(100.0, 5.0), row(300.0, 9.0), row(500.0, 80.0)];
        let of = |max_p99_ms, min_rate| {
            let mut options = Options::new("digits");
            (options.limits.max_p99_ms, options.limits.min_rate) = (max_p99_ms, min_rate);
            served(&loads, &Case::new("digits", "ort", 1), &options)
        };
        let within = "digits/http-mlserver-f32/1: mlserver 1.7.1 answers 300 samples/s with p99 9.00 ms";
        assert_eq!(of(Some(20.0), None), [format!("{within} (load test 20260101T000000Z)")]);
        assert!(of(Some(20.0), Some(400.0))[0].contains("below the rate"));
        assert!(of(Some(1.0), None)[0].contains("p99 5.00 ms, which is above the limit"));
        assert!(served(&loads, &Case::new("other", "ort", 1), &Options::new("other")).is_empty());
    }
}

//! The figures of a trial, by the definitions of MLPerf LoadGen, and whether it kept its bound.

use super::served::{Bounds, Served, Trial};
use super::soak::{windows, with_changes};
use super::tokens::with_tokens;
use crate::run_data::{LoadResult, LoadTerms, LoadWindow, Scenario, Verdict, with_note};
use crate::statistics::{FEWEST_FOR_DEPENDENCE, SortedCalls, dependence, mean, most_over, nearest_rank, queries_for};

/// A generator may be late by this part of the bound, or by [`LEAST_LAG_NS`] if that is more.
const LAG_OF_BOUND: f64 = 0.05;
const LEAST_LAG_NS: f64 = 50e3;

/// The row of a trial with `samples` samples per query, and its windows if it was watched. `row` has the case and the
/// terms, without figures. Returns `None` if no request was answered.
///
/// Rates, service times, utilisation and latencies are of the answered requests only. For the verdict and the upper
/// bound, a request without an answer took longer than any other.
pub fn figures(
    row: LoadResult,
    trial: &Trial,
    terms: &LoadTerms,
    samples: usize,
) -> Option<(LoadResult, Vec<LoadWindow>)> {
    let served = &trial.served;
    let first_begin = served.iter().map(|request| request.scheduled_ns).min()?;
    served.iter().find(|request| request.is_answered())?;
    // Requests that the server had begun or refused count. Requests that still waited for a session do not.
    let was_begun = |it: &&Served| it.is_answered() || !it.is_open && it.started_ns < it.ended_ns;
    // A pause that the server asked for counts, too, within the time of the trial.
    let asked_ns = (1e9 * terms.seconds) as u64;
    let end = |it: &Served| it.ended_ns.max(asked_ns.min(it.ended_ns + it.pause_ns));
    let last_end = served.iter().filter(was_begun).map(end).max()?;
    let seconds = (last_end.saturating_sub(first_begin)).max(1) as f64 / 1e9;
    let (queries, p) = (served.len(), terms.percentile);
    let answered: Vec<&Served> = served.iter().filter(|request| request.is_answered()).collect();
    let sorted = |of: fn(&Served) -> u64| SortedCalls::new(answered.iter().map(|request| of(request)).collect());
    let (latency, queue, service) =
        (sorted(Served::latency_ns)?, sorted(Served::queue_ns)?, sorted(Served::service_ns)?);
    let lag = SortedCalls::new(served.iter().map(Served::lag_ns).collect())?;
    let ms = |ns: u64| ns as f64 / 1e6;
    let mean_ms = |calls: &SortedCalls| mean(&calls.in_order().iter().map(|&ns| ms(ns)).collect::<Vec<_>>());
    // Each call of a session counts once, however many requests it answers.
    let calls: f64 = answered.iter().map(|request| 1.0 / request.batch as f64).sum();
    let busy_ns: f64 = answered.iter().map(|request| request.service_ns() as f64 / request.batch as f64).sum();
    let bounds = Bounds::of(terms);
    let over_bound = bounds.are_any().then(|| served.iter().filter(|it| bounds.are_broken_by(it)).count());
    let good = answered.iter().filter(|request| !bounds.are_broken_by(request)).count();
    let (dependence, latency_upper_ms) = certainty(served, bounds, p);
    let open = served.iter().filter(|request| request.is_open).count();
    let unanswered = queries - answered.len() - open;
    // A trial that was cut is shorter than the requested one.
    let loadgen_accepts = over_bound.filter(|_| !trial.is_cut).map(|over| {
        let is_allowed = most_over(p, queries as u64, 1.0).is_some_and(|most| over as u64 <= most);
        is_allowed && unanswered == 0 && !trial.ended_early
    });
    let is_server = terms.scenario == Scenario::Server;
    // LoadGen counts the gaps between arrivals and between completions.
    let gaps = queries.saturating_sub(1) as f64;
    let completed_per_s = answered.len().saturating_sub(usize::from(is_server)) as f64 / seconds;
    let last_arrival = served.iter().map(|request| request.scheduled_ns).max().unwrap_or(0) as f64 / 1e9;
    let (backlog_most, backlog_end) = is_server.then(|| trial.backlog()).unzip();
    let of_server = |value: f64| is_server.then_some(value);
    let has_queue = is_server || terms.scenario == Scenario::Concurrent;
    let mut result = LoadResult {
        rate: terms.rate.filter(|_| is_server),
        seed: terms.seed,
        queries,
        samples: queries * samples,
        seconds,
        scheduled_per_s: of_server(gaps / last_arrival).filter(|rate| rate.is_finite()),
        completed_per_s,
        samples_per_s: samples as f64 * completed_per_s,
        latency_mean_ms: mean_ms(&latency),
        latency_p50_ms: ms(latency.percentile(0.5)),
        latency_p90_ms: ms(latency.percentile(0.9)),
        latency_p95_ms: ms(latency.percentile(0.95)),
        latency_p99_ms: ms(latency.percentile(0.99)),
        latency_p999_ms: ms(latency.percentile(0.999)),
        latency_max_ms: ms(latency.max()),
        latency_ms: ms(latency.percentile(p)),
        latency_upper_ms,
        dependence,
        loadgen_accepts,
        queue_mean_ms: has_queue.then(|| mean_ms(&queue)),
        queue_p99_ms: has_queue.then(|| ms(queue.percentile(0.99))),
        service_mean_ms: mean_ms(&service),
        service_p50_ms: ms(service.percentile(0.5)),
        service_p99_ms: ms(service.percentile(0.99)),
        over_bound,
        // The share of the answers that keep the bounds.
        goodput_per_s: over_bound.map(|_| completed_per_s * good as f64 / answered.len() as f64),
        unanswered,
        issue_lag_p50_us: of_server(lag.percentile(0.5) as f64 / 1e3),
        issue_lag_p99_us: of_server(lag.percentile(0.99) as f64 / 1e3),
        generator_share: trial.generator.and_then(|generator| generator.processor_share),
        generator_real_time: trial.generator.map(|generator| generator.is_real_time),
        backlog_most,
        backlog_end,
        utilisation: busy_ns / (seconds * 1e9 * terms.served_at_once() as f64),
        mean_batch: answered.len() as f64 / calls.max(1.0),
        ended_early: trial.ended_early || trial.is_cut,
        energy_j_per_request: trial.energy_j.map(|joules| joules / answered.len() as f64),
        ..row
    };
    result = with_tokens(result, trial);
    let mut found = Vec::new();
    if terms.is_watched {
        found = windows(&result.case_id, trial);
        result = with_changes(result, trial, &found, (1e9 * terms.least_seconds()) as u64);
    }
    let noted = result.message.take();
    let (verdict, message) = match judge(&result, terms, trial.ended_early) {
        (Verdict::Passed | Verdict::Measured | Verdict::Undecided, message) if open > 0 => {
            let text = format!("{open} of {queries} queries had no answer yet when the trial was ended");
            (if bounds.are_any() { Verdict::Undecided } else { Verdict::Measured }, with_note(message, text))
        }
        judged => judged,
    };
    let unbegun = served.iter().filter(|it| !it.is_answered() && !it.is_open && it.started_ns == it.ended_ns).count();
    let waiting = (unbegun > 0 && !trial.ended_early)
        .then(|| format!("{unbegun} of them still waited for a session or connection when the trial was given up"));
    let message = [message, waiting, noted].into_iter().flatten().fold(None, with_note);
    Some((LoadResult { verdict: Some(verdict), message, ..result }, found))
}

/// The bounds in words: `p99 ≤ 20 ms`, or `TTFT ≤ 200 ms and TPOT ≤ 50 ms`. `time` formats milliseconds.
pub fn bounds_in_words(row: &LoadResult, time: impl Fn(f64) -> String) -> Option<String> {
    let name = percentile_name(row.percentile);
    let named = [(name.as_str(), row.bound_ms), ("TTFT", row.ttft_bound_ms), ("TPOT", row.tpot_bound_ms)];
    let words = named.into_iter().filter_map(|(name, bound)| Some(format!("{name} ≤ {}", time(bound?))));
    Some(words.collect::<Vec<_>>().join(" and ")).filter(|words| !words.is_empty())
}

/// The verdict on the bounds, and its reason. `is_hopeless`: the trial ended because it could no longer pass.
fn judge(result: &LoadResult, terms: &LoadTerms, is_hopeless: bool) -> (Verdict, Option<String>) {
    let name = percentile_name(terms.percentile);
    let lag_ns = result.issue_lag_p99_us.unwrap_or(0.0) * 1e3;
    let allowed_ns =
        (LAG_OF_BOUND * terms.ttft_bound_ms.or(terms.bound_ms).unwrap_or(result.latency_ms) * 1e6).max(LEAST_LAG_NS);
    if lag_ns > allowed_ns {
        let may_not = result.generator_real_time == Some(false);
        let real_time = if may_not { "; it may not run in the real-time class (CAP_SYS_NICE)" } else { "" };
        let reason = format!(
            "the generator was late: p99 of its lag is {:.0} µs, and {:.0} µs are allowed{real_time}",
            lag_ns / 1e3,
            allowed_ns / 1e3
        );
        return (Verdict::Invalid, Some(reason));
    }
    let ended = if result.ended_early { "; ended early" } else { "" };
    let grown = result.least_growth_mb_per_h.zip(terms.most_growth_mb_per_h).filter(|(least, most)| least > most);
    if let Some((least, most)) = grown {
        let growth = result.growth_mb_per_h.unwrap_or(least);
        let reason = format!(
            "memory grows by {growth:.1} MB/h, and by {least:.1} MB/h at least; {most:.1} MB/h are allowed{ended}"
        );
        return (Verdict::Failed, Some(reason));
    }
    let of = result.queries;
    let bounds = bounds_in_words(result, |ms| format!("{ms} ms")).zip(result.over_bound);
    let Some((bounds, over)) = bounds else {
        return match result.unanswered {
            0 => (Verdict::Measured, None),
            unanswered => (Verdict::Failed, Some(format!("{unanswered} of {of} queries had no right answer"))),
        };
    };
    // The percentile itself is over the bound.
    let are_too_many = over >= of - nearest_rank(terms.percentile, of);
    if is_hopeless || result.unanswered > 0 || are_too_many {
        let broken = match (terms.bound_ms, terms.ttft_bound_ms.or(terms.tpot_bound_ms)) {
            (Some(bound), None) => format!("were over {bound} ms"),
            _ => format!("did not keep {bounds}"),
        };
        let without_answer = match result.unanswered {
            0 => String::new(),
            unanswered => format!(", {unanswered} of them without a right answer"),
        };
        return (Verdict::Failed, Some(format!("{over} of {of} queries {broken}{without_answer}{ended}")));
    }
    let most = result.dependence.and_then(|dependence| most_over(terms.percentile, of as u64, dependence));
    if most.is_some_and(|most| over as u64 <= most) {
        return (Verdict::Passed, None);
    }
    let dependence = result.dependence.unwrap_or(1.0);
    let needed = queries_for(terms.percentile, over as u64, dependence).max(FEWEST_FOR_DEPENDENCE as u64);
    let (broken, kept) = match (terms.bound_ms, terms.ttft_bound_ms.or(terms.tpot_bound_ms)) {
        (Some(_), None) => ("over the bound", format!("{name} is within it")),
        _ => ("that broke a bound", format!("{} % of the requests keep {bounds}", name.trim_start_matches('p'))),
    };
    let reason = format!("with {over} {broken}, {needed} queries would show that {kept} with 99 % confidence");
    let worth = (of as f64 / dependence).floor();
    let depend = (worth < of as f64)
        .then(|| format!("; these {of} wait for one another, and are worth {worth} independent ones"));
    (Verdict::Undecided, Some(reason + &depend.unwrap_or_default()))
}

/// How certain the percentile of a trial is: the dependence of its requests, and the upper confidence bound of the
/// latency, in milliseconds. A trial passes with this bound and with no smaller one. A request without an answer takes
/// longer than any other.
fn certainty(served: &[Served], bounds: Bounds, p: f64) -> (Option<f64>, Option<f64>) {
    let latency = |it: &Served| if it.is_answered() { it.latency_ns() as f64 / 1e6 } else { f64::INFINITY };
    let mut latencies: Vec<f64> = served.iter().map(latency).collect();
    let mut of_bounds = None;
    if bounds.ttft_ms.or(bounds.tpot_ms).is_some() {
        let parts: Vec<f64> = served.iter().map(|it| bounds.part_taken_by(it)).collect();
        of_bounds = dependence(&parts, p);
    }
    let dependence = dependence(&latencies, p).map(|of_latency| of_latency.max(of_bounds.unwrap_or(1.0)));
    let most = dependence.and_then(|dependence| most_over(p, served.len() as u64, dependence));
    latencies.sort_by(f64::total_cmp);
    let upper = most.map(|most| latencies[latencies.len() - 1 - most as usize]);
    (dependence, upper.filter(|upper| upper.is_finite()))
}

/// `p99`, `p99.9`.
pub fn percentile_name(p: f64) -> String {
    format!("p{}", (1e6 * p).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::load::tests::simulation::queue;
    use crate::load::{Draws, Generator, poisson};
    use crate::run_data::ServiceTime;

    /// One session that serves requests at random times, one at a time.
    impl Default for LoadTerms {
        fn default() -> Self {
            LoadTerms {
                scenario: Scenario::Server,
                rate: None,
                percentile: 0.99,
                bound_ms: None,
                ttft_bound_ms: None,
                tpot_bound_ms: None,
                lengths: None,
                arrivals: None,
                users: 1,
                seed: 1,
                seconds: 10.0,
                queries: 1,
                instances: 1,
                callers: 1,
                most_batch: 1,
                most_delay_ms: 0.0,
                service: None,
                is_search: false,
                searches: 1,
                search: 0,
                first_rate: None,
                is_watched: false,
                most_growth_mb_per_h: None,
            }
        }
    }

    fn terms(rate: f64, bound_ms: Option<f64>) -> LoadTerms {
        LoadTerms { rate: Some(rate), bound_ms, ..LoadTerms::default() }
    }

    fn judged(trial: &Trial, terms: &LoadTerms, samples: usize) -> LoadResult {
        let row = LoadResult::about(&Case::new("m", "ort", 1), terms, 1);
        figures(row, trial, terms, samples).unwrap().0
    }

    #[test]
    fn a_server_that_answers_at_once_has_the_requested_rate() {
        for (rate, queries) in [(0.5, 5), (1.0, 10), (20.0, 200), (300.0, 3000)] {
            let trial = queue(&poisson(rate, 1, queries), &mut Draws::new(ServiceTime::Constant(0.0), 1));
            let row = judged(&trial, &terms(rate, None), 1);
            for found in [row.scheduled_per_s.unwrap(), row.completed_per_s] {
                assert!((found / rate - 1.0).abs() < 1e-6, "{found} instead of {rate}");
            }
        }
    }

    /// Pollaczek and Khinchine: the mean wait of M/G/1 is λ E[S²] / (2 (1 − ρ)); λ S² / (2 (1 − ρ)) for M/D/1 and ρ S / (1 − ρ)
    /// for M/M/1.
    #[test]
    fn waits_in_a_queue_are_those_of_theory() {
        for rho in [0.3, 0.6, 0.8] {
            let (service, rate) = (0.002, rho / 0.002);
            for (time, expected) in [
                (ServiceTime::Constant(service), rate * service * service / (2.0 * (1.0 - rho))),
                (ServiceTime::Exponential(service), rho * service / (1.0 - rho)),
            ] {
                let trial = queue(&poisson(rate, 11, 400_000), &mut Draws::new(time, 12));
                let result = judged(&trial, &terms(rate, None), 1);
                let found = result.queue_mean_ms.unwrap() / 1e3;
                assert!((found / expected - 1.0).abs() < 0.05, "{time:?} at {rho}: {found} s and not {expected} s");
                assert!((result.utilisation / rho - 1.0).abs() < 0.02, "{}", result.utilisation);
                assert!((result.scheduled_per_s.unwrap() / rate - 1.0).abs() < 0.01);
                assert_eq!(result.verdict, Some(Verdict::Measured));
            }
        }
    }

    /// Of M/M/1, the time in the system has an exponential distribution with the mean S / (1 − ρ). Of M/D/1 (Erlang 1909, "The theory of
    /// probabilities and telephone conversations"), P(wait ≤ t) = (1 − ρ) Σ (ρ (k − t / S))^k / k! · exp(ρ (t / S − k)) over all k ≤ t / S.
    #[test]
    fn percentiles_in_a_queue_are_those_of_theory() {
        let of_constant = |rho: f64, p: f64| {
            let probability = |t: f64| {
                let mut sum = 0.0;
                let mut factorial = 1.0;
                for k in 0..=t as i32 {
                    factorial *= f64::from(k.max(1));
                    let x = rho * (t - f64::from(k));
                    sum += (-x).powi(k) / factorial * x.exp();
                }
                (1.0 - rho) * sum
            };
            let (mut least, mut most) = (0.0, 30.0);
            for _ in 0..50 {
                let middle = (least + most) / 2.0;
                if probability(middle) < p { least = middle } else { most = middle }
            }
            1.0 + least
        };
        let service = 0.002;
        for (rho, queries) in [(0.3, 200_000), (0.6, 700_000), (0.9, 3_000_000)] {
            for time in [ServiceTime::Constant(service), ServiceTime::Exponential(service)] {
                let trial = queue(&poisson(rho / service, 11, queries), &mut Draws::new(time, 12));
                let latencies = SortedCalls::new(trial.served.iter().map(Served::latency_ns).collect()).unwrap();
                for p in [0.5, 0.99_f64] {
                    let of_theory = match time {
                        ServiceTime::Constant(_) => of_constant(rho, p),
                        _ => -(1.0 - p).ln() / (1.0 - rho),
                    };
                    let found = latencies.percentile(p) as f64 / 1e9 / service;
                    assert!((found / of_theory - 1.0).abs() < 0.02, "{time:?} at {rho}: p{p} {found}, not {of_theory}");
                }
            }
        }
    }

    /// Timed from its issue, one request is slow in a stall. Timed from the schedule, all requests that wait meanwhile
    /// are slow, too.
    #[test]
    fn a_stall_shows_in_the_latency_from_the_schedule() {
        let stalling = ServiceTime::Stalling { seconds: 0.0005, stall: 0.1, every: 1000 };
        let trial = queue(&poisson(500.0, 3, 20_000), &mut Draws::new(stalling, 1));
        let result = judged(&trial, &terms(500.0, None), 1);
        assert!(result.latency_p99_ms > 50.0 && result.service_p99_ms < 1.0, "{result:?}");
    }

    #[test]
    fn a_bound_is_kept_failed_or_not_decided() {
        let of = |latencies_ms: Vec<u64>, lag_us: u64| {
            let request =
                |ms: u64| Served { issued_ns: 1000 * lag_us, ended_ns: 1_000_000 * ms, batch: 1, ..Served::default() };
            let generator = Some(Generator::default());
            let trial =
                Trial { served: latencies_ms.into_iter().map(request).collect(), generator, ..Trial::default() };
            let result = judged(&trial, &terms(100.0, Some(20.0)), 1);
            (result.verdict.unwrap(), result.message.unwrap_or_default())
        };
        // Those over the bound are far from each other.
        let queries = |all: usize, over: usize| -> Vec<u64> {
            (0..all).map(|place| if place * over / all != (place + 1) * over / all { 30 } else { 5 }).collect()
        };
        assert_eq!(of(queries(1307, 5), 0).0, Verdict::Passed);
        let (verdict, message) = of(queries(500, 2), 0);
        assert_eq!(verdict, Verdict::Undecided);
        assert!(message.contains(" queries would show that p99 is within it"), "{message}");
        // The same number, next to each other: these waited for one another.
        let together: Vec<u64> = [vec![5; 700], vec![30; 5], vec![5; 602]].concat();
        let (verdict, message) = of(together, 0);
        assert_eq!(verdict, Verdict::Undecided);
        assert!(message.contains("these 1307 wait for one another, and are worth "), "{message}");
        let (verdict, message) = of(queries(1000, 100), 0);
        assert_eq!((verdict, message.as_str()), (Verdict::Failed, "100 of 1000 queries were over 20 ms"));
        let (verdict, message) = of(queries(2000, 0), 1200);
        assert_eq!(verdict, Verdict::Invalid);
        assert!(message.contains("lag is 1200 µs, and 1000 µs are allowed; it may not run"), "{message}");
    }

    /// Requests without an answer are in no rate, and their service time does not count as 0.
    #[test]
    fn what_had_no_answer_is_in_no_rate_and_in_no_time() {
        let ms = |ms: u64| 1_000_000 * ms;
        let answered = |place: u64| Served {
            scheduled_ns: ms(2 * place),
            issued_ns: ms(2 * place),
            started_ns: ms(2 * place),
            ended_ns: ms(2 * place + 2),
            batch: 1,
            ..Served::default()
        };
        let without = Served { scheduled_ns: ms(100), started_ns: ms(1000), ended_ns: ms(1000), ..Served::default() };
        let served = [(0..493).map(answered).collect(), vec![without; 174]].concat();
        let trial = Trial { served, ..Trial::default() };
        let row = judged(&trial, &terms(666.0, None), 2);
        // The last answer is there after 0.986 s.
        assert_eq!((row.queries, row.unanswered, row.seconds), (667, 174, 0.986));
        let per_second = 492.0 / 0.986;
        assert_eq!((row.completed_per_s, row.samples_per_s), (per_second, 2.0 * per_second));
        assert_eq!((row.service_mean_ms, row.latency_mean_ms, row.latency_p99_ms), (2.0, 2.0, 2.0));
        assert!((row.utilisation - 1.0).abs() < 1e-9, "{}", row.utilisation);
        assert_eq!((row.verdict, row.latency_upper_ms), (Some(Verdict::Failed), None));
        let waited = "174 of them still waited for a session or connection when the trial was given up";
        assert_eq!(row.message, with_note(Some("174 of 667 queries had no right answer".into()), waited.into()));
        let row = judged(&trial, &terms(666.0, Some(20.0)), 2);
        assert_eq!(
            (row.over_bound, row.goodput_per_s, row.loadgen_accepts),
            (Some(174), Some(per_second), Some(false))
        );
        assert_eq!(row.verdict, Some(Verdict::Failed));
        let message = row.message.unwrap();
        let expected = "174 of 667 queries were over 20 ms, 174 of them without a right answer";
        assert!(message.starts_with(expected), "{message}");
        // A user pauses from 1.1 s to 1.6 s, and the trial was to take 1.5 s.
        let paused = Served { started_ns: ms(1099), ended_ns: ms(1100), pause_ns: ms(500), ..without };
        let trial = Trial { served: [trial.served, vec![paused]].concat(), ..Trial::default() };
        let seconds = |seconds| judged(&trial, &LoadTerms { seconds, ..terms(666.0, None) }, 2).seconds;
        assert_eq!([0.0, 1.5, 10.0].map(seconds), [1.1, 1.5, 1.6]);
    }

    #[test]
    fn queries_that_are_too_few_to_show_their_dependence_are_not_said_to_be_enough() {
        let request = Served { ended_ns: 5_000_000, batch: 1, ..Served::default() };
        let terms = LoadTerms { percentile: 0.5, ..terms(100.0, Some(20.0)) };
        let of = |queries| judged(&Trial { served: vec![request; queries], ..Trial::default() }, &terms, 1);
        let few = of(39);
        let message = few.message.unwrap();
        assert_eq!(few.verdict, Some(Verdict::Undecided));
        assert!(message.starts_with("with 0 over the bound, 40 queries would show that p50 is within it"), "{message}");
        assert_eq!(of(40).verdict, Some(Verdict::Passed));
    }

    #[test]
    fn a_trial_that_a_limit_cut_is_not_one_that_failed() {
        let request = Served { ended_ns: 1_000_000, batch: 1, ..Served::default() };
        let of = |is_cut, ended_early| {
            let trial = Trial { served: vec![request; 50], is_cut, ended_early, ..Trial::default() };
            let row = judged(&trial, &terms(100.0, Some(20.0)), 1);
            (row.verdict.unwrap(), row.loadgen_accepts, row.ended_early)
        };
        assert_eq!(of(true, false), (Verdict::Undecided, None, true));
        assert_eq!(of(false, true), (Verdict::Failed, Some(false), true));
        // The requests that were open then might still have been answered in time.
        let open = Served { ended_ns: 500_000, is_open: true, ..Served::default() };
        let served = [vec![request; 1000], vec![open; 8]].concat();
        let row = judged(&Trial { served, is_cut: true, ..Trial::default() }, &terms(100.0, Some(20.0)), 1);
        assert_eq!((row.verdict, row.unanswered, row.over_bound), (Some(Verdict::Undecided), 0, Some(0)));
        assert_eq!(row.goodput_per_s, Some(row.completed_per_s));
        assert!(row.message.unwrap().ends_with("8 of 1008 queries had no answer yet when the trial was ended"));
    }

    #[test]
    fn requests_are_good_if_they_keep_all_bounds() {
        let ms = |ms: u64| 1_000_000 * ms;
        let request = |first: u64, last: u64| Served {
            first_token_ns: ms(first),
            ended_ns: ms(last),
            tokens: 11,
            batch: 1,
            ..Served::default()
        };
        // Good requests, one with a late first token, and one with slow tokens after it.
        let served = [vec![request(10, 60); 98], vec![request(30, 40), request(10, 300)]].concat();
        let terms = LoadTerms { ttft_bound_ms: Some(20.0), tpot_bound_ms: Some(6.0), ..terms(1.0, None) };
        let result = judged(&Trial { served, ..Trial::default() }, &terms, 1);
        assert_eq!((result.over_bound, result.verdict), (Some(2), Some(Verdict::Failed)));
        assert!((result.goodput_per_s.unwrap() - 0.98 * 99.0 / 0.3).abs() < 1e-9, "{result:?}");
        let message = result.message.unwrap();
        assert_eq!(message, "2 of 100 queries did not keep TTFT ≤ 20 ms and TPOT ≤ 6 ms");
        let served = [vec![request(10, 60); 498], vec![request(30, 40), request(10, 300)]].concat();
        let message = judged(&Trial { served, ..Trial::default() }, &terms, 1).message.unwrap();
        assert!(message.contains("show that 99 % of the requests keep TTFT ≤ 20 ms and TPOT ≤ 6 ms"), "{message}");
    }

    #[test]
    fn requests_of_one_call_are_one_call_of_the_session() {
        let request = Served { ended_ns: 10, batch: 4, ..Served::default() };
        let without = Served { ended_ns: 20, batch: 0, ..Served::default() };
        let trial = Trial { served: [vec![request; 4], vec![without]].concat(), ..Trial::default() };
        let terms = LoadTerms { scenario: Scenario::Offline, ..terms(1.0, None) };
        let result = judged(&trial, &terms, 1);
        assert_eq!((result.mean_batch, result.utilisation, result.unanswered), (4.0, 0.5, 1));
        assert_eq!(result.message.as_deref(), Some("1 of 5 queries had no right answer"));
    }
}

//! The highest rates of searches under load, side by side.
//!
//! The load test is the unit of replication: its searches meet the machine at one speed, and the searches of another
//! load test at another speed. If both sides together have enough load tests, their scatter shows how much rates of
//! equal code differ. Otherwise, the scatter of a load test's searches shows how exactly its rate is known, and the
//! difference in speed between load tests is assumed.

use indexmap::IndexMap;
use serde::Serialize;

use super::noise::{ASSUMED_DEVIATION, ENOUGH_FREEDOM};
use super::{Comparison, Conclusion};
use crate::run_data::{LoadResult, Verdict};
use crate::statistics::{StudentT, geometric_mean, mean, pooled_variance};

/// A rate changes by at least this multiple of the change in the calls' speed, since near the limit the wait grows with
/// the utilisation, too. The value is that of an M/M/1 queue with a bound of ten times the service.
const RATE_OVER_SPEED: f64 = 2.0;
/// The standard deviation of the logarithm of the rate that one search finds, if no load test has made several: that of
/// an M/M/1 queue with trials of the usual length.
const OF_A_SEARCH: f64 = 0.15;
/// The confidence with which a rate is called lower, and of each limit of the ratio.
const CONFIDENCE: f64 = 0.99;

/// A search that two sides have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateChange {
    pub case_id: String,
    pub instances: usize,
    pub threads: usize,
    /// Threads that call the session at the same time, if there are several.
    pub callers: Option<usize>,
    pub percentile: f64,
    pub bound_ms: Option<f64>,
    pub ttft_bound_ms: Option<f64>,
    pub tpot_bound_ms: Option<f64>,
    /// The geometric mean over the load tests of the side.
    pub base_rate: f64,
    /// Absent if no rate passes any more.
    pub new_rate: Option<f64>,
    /// Load tests of each side.
    pub base_tests: usize,
    pub new_tests: usize,
    /// The new rate over the base's. If no rate passes any more, the lowest rate that was tried stands for it.
    pub ratio: f64,
    /// Limits of the ratio, each with 99 % confidence.
    pub ratio_lower: f64,
    pub ratio_upper: f64,
    /// Whether the new rate is certainly below the base's, and by more than the tolerance.
    pub is_lower: bool,
}

/// The rates that a load test has found for a search, as logarithms.
#[derive(Default)]
struct Found {
    log_rates: Vec<f64>,
    /// Whether any rate passed.
    has_passed: bool,
}

/// The changes of the searches in `base` for which `new` has a search with the same case, machine, sessions, bounds,
/// lengths and seed. The load tests of a side are repetitions.
pub fn rate_changes(base: &[LoadResult], new: &[LoadResult], tolerance: f64) -> Vec<RateChange> {
    searches(base).into_iter().filter_map(|search| change(search, base, new, tolerance)).collect()
}

/// The searches of `base` that found a rate, and that `new` has made without an answer. A search that `new` has not
/// made was not asked for.
pub fn lost_searches<'a>(base: &'a [LoadResult], new: &[LoadResult]) -> Vec<&'a LoadResult> {
    let is_made = |search: &LoadResult| new.iter().any(|row| is_same_search(row, search));
    searches(base).into_iter().filter(|search| is_made(search) && found(new, search).is_empty()).collect()
}

/// A sentence that names the case of a lost search.
pub fn lost_in_words(LoadResult { case_id, instances, threads, .. }: &LoadResult) -> String {
    // The sessions of a server are not known.
    let sessions = if *instances == 0 { String::new() } else { format!(" on {instances} × {threads} threads") };
    format!("{case_id}{sessions} is open: only the base's search found a rate")
}

impl Comparison {
    /// Adds the load tests of both sides: a lower rate is a regression, and a lost search leaves the comparison open
    /// unless `is_allowed`.
    #[must_use]
    pub fn with_rates(mut self, [base, candidate]: &[Vec<LoadResult>; 2], is_allowed: bool) -> Self {
        let rates = rate_changes(base, candidate, self.tolerance);
        self.lost = lost_searches(base, candidate).into_iter().cloned().collect();
        self.notes.extend(self.lost.iter().map(lost_in_words));
        let is_open = !self.lost.is_empty() && !is_allowed;
        let conclusion = match self.conclusion {
            _ if rates.iter().any(|change| change.is_lower) => Conclusion::Regression,
            Conclusion::Well | Conclusion::NothingToCompare if is_open => Conclusion::CannotSay,
            Conclusion::NothingToCompare if !rates.is_empty() && self.is_left_out => Conclusion::CannotSay,
            Conclusion::NothingToCompare if !rates.is_empty() => Conclusion::Well,
            known => known,
        };
        Comparison { conclusion, exit_code: conclusion as u8, rates, ..self }
    }
}

/// One row for each search that found a rate.
fn searches(side: &[LoadResult]) -> Vec<&LoadResult> {
    let mut searches: Vec<&LoadResult> = Vec::new();
    for row in side.iter().filter(|row| row.is_highest) {
        if !searches.iter().any(|known| is_same_search(known, row)) {
            searches.push(row);
        }
    }
    searches
}

fn change(search: &LoadResult, base: &[LoadResult], new: &[LoadResult], tolerance: f64) -> Option<RateChange> {
    let sides = [found(base, search), found(new, search)];
    if sides.iter().any(Vec::is_empty) {
        return None;
    }
    let of_side = |side: &Vec<Found>| -> Vec<f64> { side.iter().map(|test| mean(&test.log_rates)).collect() };
    let groups = sides.each_ref().map(of_side);
    let reach = reach(&sides, &groups, rate_over_speed(search));
    let difference = mean(&groups[1]) - mean(&groups[0]);
    let (ratio, ratio_upper) = (difference.exp(), (difference + reach).exp());
    Some(RateChange {
        case_id: search.case_id.clone(),
        instances: search.instances,
        threads: search.threads,
        callers: search.callers,
        percentile: search.percentile,
        bound_ms: search.bound_ms,
        ttft_bound_ms: search.ttft_bound_ms,
        tpot_bound_ms: search.tpot_bound_ms,
        base_rate: geometric_mean(&groups[0]),
        new_rate: sides[1].iter().any(|found| found.has_passed).then(|| geometric_mean(&groups[1])),
        base_tests: sides[0].len(),
        new_tests: sides[1].len(),
        ratio,
        ratio_lower: (difference - reach).exp(),
        ratio_upper,
        is_lower: ratio_upper < 1.0 && ratio < 1.0 - tolerance,
    })
}

/// The half-width of the interval of the difference between the sides' means, with the confidence on each side.
///
/// With enough load tests this is Student's t with the pooled variance between them. Otherwise two parts add as
/// squares: the speed of the machine, by an assumed deviation that moves the rate `rate_over_speed` times as much, and
/// the searches, by Student's t with the pooled variance within load tests.
fn reach(sides: &[Vec<Found>; 2], groups: &[Vec<f64>; 2], rate_over_speed: f64) -> f64 {
    let quantile = |freedom: f64| StudentT::new(freedom).two_sided_quantile(2.0 * CONFIDENCE - 1.0);
    let in_parts = |counts: [usize; 2]| counts.map(|count| 1.0 / count as f64).iter().sum::<f64>();
    let of_tests = in_parts(groups.each_ref().map(Vec::len));
    let (variance, freedom) = pooled_variance(groups);
    if freedom >= ENOUGH_FREEDOM {
        return quantile(freedom) * (variance * of_tests).sqrt();
    }
    let searches: Vec<Vec<f64>> = sides.iter().flatten().map(|test| test.log_rates.clone()).collect();
    let of_searches = in_parts(sides.each_ref().map(|side| side.iter().map(|test| test.log_rates.len()).sum()));
    let within = match pooled_variance(&searches) {
        (_, 0.0) => quantile(f64::INFINITY).powi(2) * OF_A_SEARCH.powi(2),
        (variance, freedom) => quantile(freedom).powi(2) * variance,
    };
    let speed = (quantile(f64::INFINITY) * rate_over_speed * ASSUMED_DEVIATION).powi(2);
    (speed * of_tests + within * of_searches).sqrt()
}

/// How much more a rate changes than the speed of the calls, which depends on how near the bound `T` is to the time of
/// a call. For M/M/1, it is `T` over the part of `T` beyond the slowest calls. For calls of one length `s`, it is about
/// `1 + 1.5 s / (T - 2 s)`.
fn rate_over_speed(search: &LoadResult) -> f64 {
    const MOST: f64 = 14.0;
    // The answer times of a server include its own queue, so its service time is unknown.
    let is_known = search.service_p50_ms > 0.0 && search.url.is_none();
    let Some(bound) = search.bound_ms.filter(|_| is_known) else { return RATE_OVER_SPEED };
    // The service at the percentile of the bound, by an exponential tail through its median and its p99.
    let tail = (((1.0 - search.percentile) / 0.5).ln() / (0.01_f64 / 0.5).ln()).max(0.0);
    let slowest = search.service_p50_ms + tail * (search.service_p99_ms - search.service_p50_ms);
    let over = |part: f64, spare: f64| if spare > 0.0 { part / spare } else { f64::INFINITY };
    let of_scatter = over(bound, bound - slowest);
    let of_constant = 1.0 + over(1.5 * search.service_p50_ms, bound - 2.0 * search.service_p50_ms);
    RATE_OVER_SPEED.max(of_scatter).max(of_constant).min(MOST)
}

/// The rates that each load test of the side has found for this search. If no rate passes, the lowest rate that failed
/// stands for it, which is above the truth. A search that was broken off because the generator was late does not count.
fn found(side: &[LoadResult], search: &LoadResult) -> Vec<Found> {
    let mut searches: IndexMap<(&str, usize), Vec<&LoadResult>> = IndexMap::new();
    for row in side.iter().filter(|row| is_same_search(row, search)) {
        searches.entry((&row.run_id, row.search)).or_default().push(row);
    }
    let mut found: IndexMap<&str, Found> = IndexMap::new();
    for ((run_id, _), rows) in searches {
        let highest = rows.iter().find(|row| row.is_highest).and_then(|row| row.rate);
        let is_refused =
            |row: &&LoadResult| row.loadgen_accepts == Some(false) && row.verdict != Some(Verdict::Invalid);
        let is_judged = rows.iter().all(is_refused);
        let failing = || rows.iter().filter_map(|row| row.rate).min_by(f64::total_cmp).filter(|_| is_judged);
        if let Some(rate) = highest.or_else(failing).filter(|rate| *rate > 0.0) {
            let test = found.entry(run_id).or_default();
            test.log_rates.push(rate.ln());
            test.has_passed |= highest.is_some();
        }
    }
    found.into_values().collect()
}

/// Whether two rows are of searches with the same terms, of the same work on the same machine.
fn is_same_search(one: &LoadResult, other: &LoadResult) -> bool {
    let terms = |row: &LoadResult| {
        let bounds = (row.bound_ms, row.ttft_bound_ms, row.tpot_bound_ms, row.percentile);
        let sessions = (row.instances, row.threads, row.callers, row.connections, row.most_batch, row.most_delay_ms);
        let length = (row.asked_seconds, row.asked_queries, row.asked_seed, row.lengths.clone());
        (row.case_id.clone(), row.host_id.clone(), row.is_of_search, sessions, bounds, length)
    };
    let is_same_shape =
        one.input_shape.is_none() || other.input_shape.is_none() || one.input_shape == other.input_shape;
    terms(one) == terms(other) && is_same_shape
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::load::{Begin, Draws, SEEDS, poisson, search as search_rate};
    use crate::run_data::ServiceTime;
    use crate::statistics::{most_over, uniform};

    pub fn search(run_id: &str, highest: Option<f64>) -> LoadResult {
        LoadResult {
            run_id: run_id.into(),
            case_id: "m/ort-cpu-f32/1".into(),
            rate: highest.or(Some(9.0)),
            bound_ms: Some(20.0),
            is_of_search: true,
            is_highest: highest.is_some(),
            loadgen_accepts: Some(highest.is_some()),
            ..LoadResult::default()
        }
    }

    fn side(first: usize, rates: &[f64]) -> Vec<LoadResult> {
        rates.iter().enumerate().map(|(place, rate)| search(&(first + place).to_string(), Some(*rate))).collect()
    }

    #[test]
    fn a_rate_is_lower_if_it_is_so_certainly() {
        let of = |base: &[f64], new: &[f64]| rate_changes(&side(0, base), &side(10, new), 0.05).remove(0);
        // One load test each: what equal code may differ by is assumed.
        assert_eq!([105.0, 94.0, 60.0, 50.0].map(|new| of(&[100.0], &[new]).is_lower), [false, false, false, true]);
        // Several show it.
        let steady = of(&[100.0, 101.0, 99.0], &[91.0, 90.0, 92.0]);
        assert!(steady.is_lower && steady.ratio_upper < 1.0 && (steady.ratio - 0.91).abs() < 0.001, "{steady:?}");
        assert!(!of(&[100.0, 120.0, 85.0], &[91.0, 90.0, 92.0]).is_lower);
        // Searches that agree say how exactly each load test knows its rate.
        let of_three = |run_id: &str, rate: f64| -> Vec<LoadResult> {
            let search =
                |(number, part): (usize, f64)| LoadResult { search: number, ..search(run_id, Some(part * rate)) };
            [0.99, 1.0, 1.01].into_iter().enumerate().map(search).collect()
        };
        let agreeing = |new: f64| rate_changes(&of_three("1", 100.0), &of_three("2", new), 0.05).remove(0).is_lower;
        assert_eq!([75.0, 70.0].map(agreeing), [false, true]);
        // Certain, and within the tolerance.
        assert!(!of(&[100.0, 100.1, 99.9], &[97.0, 97.1, 96.9]).is_lower);
        let none = rate_changes(&side(0, &[100.0]), &[search("2", None)], 0.05).remove(0);
        assert_eq!((none.new_rate, none.is_lower), (None, true));
        assert_eq!(rate_changes(&[search("1", None)], &side(2, &[1.0]), 0.05), []);
    }

    #[test]
    fn other_terms_are_another_search_and_a_late_generator_says_nothing() {
        let (base, new) = (side(0, &[100.0]), search("2", Some(50.0)));
        let with = |change: fn(&mut LoadResult)| {
            let mut other = new.clone();
            change(&mut other);
            rate_changes(&base, &[other], 0.05).len()
        };
        assert_eq!(with(|_| ()), 1);
        assert_eq!(with(|row| row.bound_ms = Some(10.0)), 0);
        assert_eq!(with(|row| row.asked_seconds = 60.0), 0);
        assert_eq!(with(|row| row.asked_queries = 10), 0);
        assert_eq!(with(|row| row.asked_seed = 2), 0);
        assert_eq!(with(|row| row.host_id = "b".into()), 0);
        assert_eq!(with(|row| row.connections = Some(4)), 0);
        // A shape that one side lacks is not a difference.
        let with_shapes = |shapes: [Option<&str>; 2]| {
            let [one, other] = [&base[0], &new].map(|row| row.clone());
            let shaped =
                |row: LoadResult, shape: Option<&str>| LoadResult { input_shape: shape.map(str::to_owned), ..row };
            rate_changes(&[shaped(one, shapes[0])], &[shaped(other, shapes[1])], 0.05).len()
        };
        let found = [[Some("1x8"), Some("1x8")], [Some("1x8"), None], [None, Some("1x8")], [Some("1x8"), Some("1x16")]];
        assert_eq!(found.map(with_shapes), [1, 1, 1, 0]);
        // One trial at a rate is no search, and a search without a verdict has found nothing.
        assert_eq!(with(|row| (row.is_of_search, row.is_highest) = (false, false)), 0);
        assert_eq!(with(|row| (row.verdict, row.is_highest) = (Some(Verdict::Invalid), false)), 0);
        // The base's search is lost then, unlike one that no rate passes, or that was not made.
        assert!(lost_searches(&base, &[]).is_empty());
        let late = LoadResult { verdict: Some(Verdict::Invalid), is_highest: false, ..new.clone() };
        assert_eq!(lost_searches(&base, &[late]), [&base[0]]);
        assert!([Some(50.0), None].iter().all(|rate| lost_searches(&base, &[search("2", *rate)]).is_empty()));
    }

    #[test]
    fn the_searches_of_a_load_test_are_one_of_it() {
        let of_search = |number: usize, rate: f64| LoadResult { search: number, ..search("1", Some(rate)) };
        let base = [of_search(0, 90.0), of_search(1, 100.0), of_search(2, 1e4 / 90.0)];
        let found = rate_changes(&base, &side(5, &[100.0]), 0.05).remove(0);
        assert_eq!((found.base_tests, found.new_tests), (1, 1));
        assert!((found.base_rate - 100.0).abs() < 1e-9 && (found.ratio - 1.0).abs() < 1e-9, "{found:?}");
    }

    /// The rate that a search finds by LoadGen's rule on an M/M/1 queue with this service and a bound of 20 ms. With a
    /// service of 3 ms some find none.
    fn simulated(service: f64, seed: u64) -> Option<f64> {
        const QUERIES: usize = 1307;
        let most = most_over(0.99, QUERIES as u64, 1.0).unwrap();
        // The arrivals of each seed at one request per second, and its services.
        let drawn: Vec<(Vec<u64>, Vec<u64>)> = (0..SEEDS)
            .map(|number| {
                let services = Draws::of_session(ServiceTime::Exponential(service), seed + number, 0);
                let services = services.take(QUERIES).map(|time| time.as_nanos() as u64);
                (poisson(1.0, seed + number, QUERIES), services.collect())
            })
            .collect();
        let limits = search_rate::<()>(Begin::Guess(0.5 / service), f64::INFINITY, |rate, number| {
            let (arrivals, services) = &drawn[number as usize];
            let mut free = 0.0_f64;
            let waits = arrivals.iter().zip(services).map(|(arrival, service)| {
                let arrival = *arrival as f64 / rate;
                free = arrival.max(free) + *service as f64;
                free - arrival
            });
            Ok(Some(waits.filter(|wait| *wait > 20e6).count() as u64 <= most))
        });
        limits.unwrap().unwrap().highest_passing
    }

    /// A side of so many load tests with three searches each, on a machine whose speed differs from test to test by
    /// this deviation.
    fn simulated_side(tests: usize, deviation: f64, slower: f64, state: &mut u64) -> Vec<LoadResult> {
        let mut rows = Vec::new();
        for test in 0..tests {
            let normal = (-2.0 * uniform(state).ln()).sqrt() * (std::f64::consts::TAU * uniform(state)).cos();
            let service = 0.002 * slower * (deviation * normal).exp();
            for number in 0..3 {
                let seed = (uniform(state) * 1e15) as u64;
                let run_id = format!("{}-{test}", rows.len());
                let rate = simulated(service, seed);
                rows.push(LoadResult { run_id: run_id.clone(), search: number, ..search(&run_id, rate) });
                rows.last_mut().unwrap().run_id = format!("{test}");
            }
        }
        rows
    }

    /// The number of comparisons that find a lower rate.
    fn lower(comparisons: usize, tests: usize, deviation: f64, slower: f64) -> usize {
        let mut state = 17;
        let mut is_lower = |_: &usize| {
            let base = simulated_side(tests, deviation, 1.0, &mut state);
            let new = simulated_side(tests, deviation, slower, &mut state);
            rate_changes(&base, &new, 0.05)[0].is_lower
        };
        (0..comparisons).filter(|number| is_lower(number)).count()
    }

    #[test]
    fn a_bound_that_is_near_to_a_call_moves_the_rate_more() {
        let of = |bound_ms, service_p50_ms, service_p99_ms| LoadResult {
            bound_ms,
            service_p50_ms,
            service_p99_ms,
            percentile: 0.99,
            ..LoadResult::default()
        };
        let server = LoadResult { url: Some("http://host".into()), ..of(Some(20.0), 10.0, 19.0) };
        let median = LoadResult { percentile: 0.5, ..of(Some(20.0), 1.4, 19.0) };
        assert_eq!([rate_over_speed(&server), rate_over_speed(&median)], [2.0; 2]);
        let of =
            |bound_ms, service_p50_ms, service_p99_ms| rate_over_speed(&of(bound_ms, service_p50_ms, service_p99_ms));
        // Calls of one length: 1 + 15 / 10 at three times as much.
        assert_eq!([of(Some(30.0), 10.0, 10.0), of(Some(20.0), 10.0, 10.0)], [2.5, 14.0]);
        // M/M/1 with a mean of 2: its p99 is 9.2.
        assert_eq!([of(Some(20.0), 1.4, 9.2), of(None, 1.4, 9.2), of(Some(5.0), 0.0, 0.0)], [2.0; 3]);
        assert!((of(Some(12.0), 1.4, 9.2) - 12.0 / 2.8).abs() < 1e-9);
    }

    #[test]
    fn equal_code_is_seldom_lower() {
        for (tests, deviation) in [(1, 0.05), (3, 0.02), (3, 0.05)] {
            let found = lower(60, tests, deviation, 1.0);
            // Of 60 comparisons that each say so with 2 %, more than five do so once in 800 times.
            assert!(found <= 5, "{found} of 60 with {tests} tests and {deviation}");
        }
        assert!(lower(30, 5, 0.02, 1.25) >= 25);
    }

    #[test]
    #[ignore = "prints the table of the guide, which takes minutes"]
    fn print_how_often_a_rate_is_lower() {
        const COMPARISONS: usize = 1000;
        println!("| load tests per side | speed differs by | equal code | calls 10 % slower | 25 % | 50 % |");
        println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
        for tests in [1, 3, 5] {
            for deviation in [0.02, 0.05] {
                let shares = [1.0, 1.1, 1.25, 1.5].map(|slower| {
                    let found = lower(COMPARISONS, tests, deviation, slower);
                    format!("{:.1} %", 100.0 * found as f64 / COMPARISONS as f64)
                });
                println!("| {tests} | {:.0} % | {} |", 100.0 * deviation, shares.join(" | "));
            }
        }
    }

    #[test]
    fn a_late_trial_that_was_refused_says_nothing_and_both_searches_count() {
        let base = side(0, &[100.0]);
        let late = LoadResult { verdict: Some(Verdict::Invalid), ..search("2", None) };
        assert_eq!(rate_changes(&base, std::slice::from_ref(&late), 0.05), []);
        assert_eq!(lost_searches(&base, &[late]), [&base[0]]);
        let twice = [0, 1].map(|number| LoadResult { search: number, ..search("2", Some(50.0)) });
        assert_eq!(rate_changes(&base, &twice, 0.05)[0].new_rate.map(f64::round), Some(50.0));
    }
}

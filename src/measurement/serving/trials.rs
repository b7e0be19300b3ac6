//! The trials of a load test: one, or those of a search for the highest rate.

use std::time::{Duration, Instant};

use super::{Expected, Hope, Instances, MOST_BY_TIME, Stream, Users, Watch};
use crate::definition::{CaseFailure, Status};
use crate::load::{self, Begin, Bounds, ENDED_HERE, Limits, SEEDS, Trial, figures, poisson};
use crate::measurement::EnergyMeter;
use crate::run_data::{LoadAnswer, LoadResult, LoadTerms, LoadWindow, Scenario, Verdict, with_note};
use crate::statistics::most_over;

/// How long a session is timed alone, for a rough idea of its speed.
const PILOT: Duration = Duration::from_millis(200);
/// The same for a server, which several users ask.
const PILOT_OF_USERS: Duration = Duration::from_millis(500);
const USERS_OF_A_PILOT: usize = 16;
/// How often a trial is made at most. It is repeated if its generator was late.
const MOST_ATTEMPTS: usize = 3;
/// A search begins with this fraction of what the sessions could serve if no request had to wait.
const FIRST_OF_CAPACITY: f64 = 0.5;
/// Points of the curve below the highest rate, and the seconds that each takes at most.
const PARTS_OF_THE_CURVE: [f64; 4] = [0.25, 0.5, 0.75, 0.9];
const SECONDS_OF_A_POINT: f64 = 10.0;
/// RAPL's counters have 32 bits of 15 µJ or more, and wrap after 65 kJ: a package of 1 kW takes 65 s for that.
const LONGEST_METERED: Duration = Duration::from_secs(60);
/// The distance between the seeds of the arrivals.
const SEED_STEP: u64 = 1_000_003;

/// The trials of a case.
pub struct Trials<'a> {
    pub instances: &'a Instances<'a>,
    pub terms: &'a LoadTerms,
    /// What is known about the case.
    pub row: LoadResult,
    pub meter: Option<EnergyMeter>,
    /// For sessions that note more than times, such as those that ask a server.
    pub observer: Option<&'a dyn Observer>,
    /// The tokens of an answer whose length is not given.
    pub usual_tokens: usize,
}

/// Follows trials whose answers come from a server.
pub trait Observer {
    /// A trial begins: earlier notes are forgotten.
    fn begin(&self);
    /// The row with what was noted in the trial.
    fn finish(&self, row: LoadResult) -> LoadResult;
    /// Why no further trial of this many queries may begin. Returns `None` if it may.
    fn why_over(&self, queries: usize) -> Option<String>;
    /// Requests that may still be sent.
    fn requests_left(&self) -> usize;
    /// The highest rate that a trial may have.
    fn most_rate(&self) -> f64;
}

impl Trials<'_> {
    /// One trial, or those of a search.
    ///
    /// # Errors
    /// A call fails, or no request was answered.
    pub fn all(&self) -> Result<LoadAnswer, CaseFailure> {
        if self.terms.is_search { self.search() } else { self.one() }
    }

    /// The only trial, as it was asked for.
    fn one(&self) -> Result<LoadAnswer, CaseFailure> {
        let LoadTerms { scenario, most_growth_mb_per_h: most_growth, .. } = *self.terms;
        let expected = self.expected()?;
        let samples = scenario.samples_of_query();
        let length = Duration::try_from_secs_f64(self.terms.least_seconds()).unwrap_or(Duration::MAX);
        let mut trial = match self.terms.is_watched {
            true => self.instances.watched(Watch { length, most_growth }, |_| self.make(samples, expected))?,
            false => self.make(samples, expected)?,
        };
        if self.observer.is_some() {
            // The memory of this process is not that of the server.
            trial.moments.clear();
        }
        let (result, windows) = self.figures(&trial, self.terms, samples * self.row.batch_size)?;
        Ok(LoadAnswer { results: vec![result], windows })
    }

    fn figures(
        &self,
        trial: &Trial,
        terms: &LoadTerms,
        samples: usize,
    ) -> Result<(LoadResult, Vec<LoadWindow>), CaseFailure> {
        let noted = |row: LoadResult| match self.observer {
            Some(observer) => observer.finish(row),
            None => row,
        };
        match figures(self.row.clone(), trial, terms, samples) {
            Some((mut row, windows)) => {
                if trial.is_cut && self.observer.is_none() {
                    let why = format!("ended after {MOST_BY_TIME} requests, the most that are kept");
                    row.message = with_note(row.message.take(), why);
                }
                Ok((noted(row), windows))
            }
            None if self.observer.is_some() && !trial.served.is_empty() => {
                let unanswered = LoadResult {
                    status: Status::Failed,
                    rate: terms.rate,
                    seed: terms.seed,
                    unanswered: trial.served.len(),
                    loadgen_accepts: Bounds::of(terms).are_any().then_some(false),
                    ..self.row.clone()
                };
                let row = noted(unanswered);
                let message = row.message.clone().or_else(|| Some("no request was answered".to_owned()));
                Ok((LoadResult { message, ..row }, Vec::new()))
            }
            None => Err(without_queries()),
        }
    }

    /// How much a watched trial is expected to log; zero for other trials.
    fn expected(&self) -> Result<Expected, CaseFailure> {
        const RESERVE: f64 = 1.3;
        let LoadTerms { scenario, seconds, seed, .. } = *self.terms;
        if !self.terms.is_watched {
            return Ok(Expected::default());
        }
        let requests = match self.terms.rate.filter(|_| scenario == Scenario::Server) {
            Some(rate) => self.queries_at(rate),
            None => {
                let requests = RESERVE * seconds * self.capacity()?;
                if requests > MOST_BY_TIME as f64 && self.observer.is_none() {
                    return Err(CaseFailure::failed(format!(
                        "about {requests:.0} requests would be logged, and at most {MOST_BY_TIME} can be: shorten `--duration`, or pass `--rate`"
                    )));
                }
                (requests as usize).min(MOST_BY_TIME)
            }
        };
        let usual = [1, self.usual_tokens];
        let tokens = |number| self.terms.lengths.as_ref().map_or(0, |it| load::lengths_of(it, seed, number, usual)[1]);
        Ok(Expected { requests, tokens: (0..requests).map(tokens).sum() })
    }

    fn make(&self, samples: usize, expected: Expected) -> Result<Trial, CaseFailure> {
        let LoadTerms { scenario, queries, seconds, seed, .. } = *self.terms;
        match scenario {
            Scenario::Single | Scenario::Multi => {
                let least_time = Duration::from_secs_f64(seconds);
                self.metered(|| self.instances.stream(Stream { samples, least_queries: queries, least_time, expected }))
            }
            Scenario::Concurrent => {
                let least_time = Duration::from_secs_f64(seconds);
                let users = Users { users: self.terms.users, least_requests: queries, least_time, expected };
                self.metered(|| self.instances.concurrent(users))
            }
            Scenario::Offline => {
                let in_time = seconds * self.capacity()?;
                let left = self.observer.map_or(usize::MAX, Observer::requests_left);
                let requests = queries.max((in_time as usize).min(MOST_BY_TIME)).min(left.max(1));
                self.metered(|| self.instances.offline(requests))
            }
            Scenario::Server => {
                let schedule = match (&self.terms.arrivals, self.terms.rate) {
                    (Some(arrivals), _) => {
                        return self.metered(|| self.instances.replay(arrivals, expected.tokens));
                    }
                    (None, Some(rate)) => poisson(rate, seed, self.queries_at(rate)),
                    (None, None) => return Err(CaseFailure::failed("the server scenario needs a rate")),
                };
                self.metered(|| self.instances.server(&schedule, expected.tokens, None))
            }
        }
    }

    /// Searches for the highest rate that LoadGen's rule accepts, and completes the curve below it if this is the first search.
    fn search(&self) -> Result<LoadAnswer, CaseFailure> {
        let mut results: Vec<LoadResult> = Vec::new();
        let begin = match self.terms.first_rate {
            Some(rate) => Begin::Found(rate),
            None => Begin::Guess(FIRST_OF_CAPACITY * self.capacity()?),
        };
        let first_seed = SEEDS * self.terms.search as u64;
        let most = self.observer.map_or(f64::INFINITY, Observer::most_rate);
        let limits = load::search(begin, most, |rate, number| {
            // A trial whose generator was late shows nothing.
            for _ in 0..MOST_ATTEMPTS {
                let result = self.trial(rate, first_seed + number, self.queries_at(rate), true)?;
                let answer = result.loadgen_accepts.filter(|_| result.verdict != Some(Verdict::Invalid));
                results.push(result);
                if answer.is_some() {
                    return Ok(answer);
                }
            }
            Ok::<_, CaseFailure>(None)
        });
        let limits = match limits {
            Err(failure) if self.is_over() && !results.is_empty() => {
                let why = self.observer.and_then(|observer| observer.why_over(0)).unwrap_or(failure.message);
                if let Some(last) = results.last_mut() {
                    // A trial that the limit has cut names it already.
                    let own = last.message.take().unwrap_or_default();
                    let own = own.strip_suffix(why.as_str()).unwrap_or(&own).trim_end_matches("; ");
                    let own = Some(own.to_owned()).filter(|own| !own.is_empty());
                    last.message = with_note(own, format!("{ENDED_HERE}{why}"));
                }
                None
            }
            other => other?,
        };
        let Limits { highest_passing, lowest_failing } = limits.unwrap_or_default();
        let of_curve = highest_passing.filter(|_| self.terms.search == 0);
        for rate in of_curve.iter().flat_map(|highest| PARTS_OF_THE_CURVE.map(|part| part * highest)) {
            let queries = self.queries_at(rate).min((rate * SECONDS_OF_A_POINT).ceil() as usize);
            if self.observer.is_some_and(|observer| observer.why_over(queries).is_some()) {
                break;
            }
            match self.trial(rate, 0, queries, false) {
                // It was ended before its first request.
                Err(_) if self.is_over() => break,
                trial => results.push(trial?),
            }
        }
        mark(&mut results, highest_passing, lowest_failing);
        Ok(LoadAnswer { results, windows: Vec::new() })
    }

    fn trial(&self, rate: f64, number: u64, queries: usize, may_end_early: bool) -> Result<LoadResult, CaseFailure> {
        if let Some(why) = self.observer.and_then(|observer| observer.why_over(queries)) {
            return Err(CaseFailure::failed(why));
        }
        let seed = self.terms.seed.wrapping_add(SEED_STEP * number);
        let terms = LoadTerms { rate: Some(rate), seed, ..self.terms.clone() };
        let bounds = Bounds::of(&terms);
        let hope = (may_end_early && bounds.are_any()).then(|| Hope {
            bounds,
            most_over: most_over(terms.percentile, queries as u64, 1.0).unwrap_or(0) as usize,
        });
        let schedule = poisson(rate, seed, queries);
        let trial = self.metered(|| self.instances.server(&schedule, 0, hope))?;
        let (result, _) = self.figures(&trial, &terms, self.row.batch_size)?;
        let verdict = match (result.verdict, result.loadgen_accepts) {
            (Some(Verdict::Invalid), _) => "invalid",
            (_, Some(true)) => "accepted",
            _ if trial.is_cut => "interrupted",
            _ => "not accepted",
        };
        let tokens = result.ttft_p99_ms.zip(result.tpot_p99_ms);
        let tokens = tokens.map(|(first, each)| format!(", p99 of TTFT {first:.3} ms and TPOT {each:.3} ms"));
        let (percentile, tokens) = (100.0 * terms.percentile, tokens.unwrap_or_default());
        let why = result.message.as_ref().filter(|_| verdict == "not accepted");
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        eprintln!("  {rate:.1}/s: p{percentile} {:.3} ms{tokens}, {verdict}{why}", result.latency_ms);
        Ok(result)
    }

    fn is_over(&self) -> bool {
        self.observer.is_some_and(|observer| observer.why_over(0).is_some())
    }

    /// The trial with its energy, if that is known and the trial is not too long for the counters.
    fn metered(&self, trial: impl FnOnce() -> Result<Trial, CaseFailure>) -> Result<Trial, CaseFailure> {
        if let Some(observer) = self.observer {
            observer.begin();
        }
        let begin = self.meter.as_ref().and_then(|meter| Some((meter, meter.read().ok()?)));
        let start = Instant::now();
        let trial = trial()?;
        let energy_j = begin.and_then(|(meter, begin)| meter.joules_since(&begin).ok());
        Ok(Trial { energy_j: energy_j.filter(|_| start.elapsed() <= LONGEST_METERED), ..trial })
    }

    fn queries_at(&self, rate: f64) -> usize {
        self.terms.queries.max(((rate * self.terms.seconds).ceil() as usize).min(MOST_BY_TIME))
    }

    /// Requests per second of all sessions, if each takes one after the other.
    fn capacity(&self) -> Result<f64, CaseFailure> {
        if let Some(observer) = self.observer {
            return self.capacity_of_users(observer);
        }
        let (least_time, expected) = (PILOT, Expected::default());
        let pilot = self.instances.stream(Stream { samples: 1, least_queries: 5, least_time, expected })?;
        let last = pilot.served.last().ok_or_else(without_queries)?;
        Ok(self.terms.served_at_once() as f64 * pilot.served.len() as f64 / (last.ended_ns.max(1) as f64 / 1e9))
    }

    /// Requests per second that a server answers to some users: how many it answers at the same time is not known.
    fn capacity_of_users(&self, observer: &dyn Observer) -> Result<f64, CaseFailure> {
        let users = self.terms.served_at_once().min(USERS_OF_A_PILOT);
        let (least_time, expected) = (PILOT_OF_USERS, Expected::default());
        observer.begin();
        let pilot = self.instances.concurrent(Users { users, least_requests: users, least_time, expected })?;
        let last_ns = pilot.served.iter().map(|request| request.ended_ns).max().unwrap_or(0);
        match answered(&pilot) {
            0 => {
                let (row, _) = self.figures(&pilot, self.terms, 1)?;
                Err(CaseFailure::new(row.status, row.message.unwrap_or_default()))
            }
            answered => Ok(answered as f64 / (last_ns.max(1) as f64 / 1e9)),
        }
    }
}

fn answered(trial: &Trial) -> usize {
    trial.served.iter().filter(|request| request.is_answered()).count()
}

fn without_queries() -> CaseFailure {
    CaseFailure::failed("no query was answered")
}

/// Sorts the trials by rate. Marks the trial of the highest passing rate, and the knee of the curve up to the lowest
/// failing rate.
fn mark(results: &mut [LoadResult], highest: Option<f64>, lowest_failing: Option<f64>) {
    results.sort_by(|one, other| one.rate.unwrap_or(0.0).total_cmp(&other.rate.unwrap_or(0.0)));
    // A trial whose generator was late was repeated at the same rate.
    let is_judged = |result: &LoadResult| result.verdict != Some(Verdict::Invalid);
    let of = |result: &LoadResult| result.loadgen_accepts == Some(true) && is_judged(result) && result.rate == highest;
    if let Some(best) = results.iter_mut().find(|result| of(result)) {
        best.is_highest = true;
        best.lowest_failing_rate = lowest_failing;
    }
    let is_on_curve = |result: &LoadResult| {
        let rate = result.rate.unwrap_or(0.0);
        result.unanswered == 0
            && !result.ended_early
            && is_judged(result)
            && lowest_failing.is_none_or(|most| rate <= most)
    };
    let mut curve: Vec<usize> = (0..results.len()).filter(|&place| is_on_curve(&results[place])).collect();
    let rate = |place: usize| results[place].rate.unwrap_or(0.0);
    curve.dedup_by(|one, other| rate(*one) == rate(*other));
    let points: Vec<(f64, f64)> = curve.iter().map(|&place| (rate(place), results[place].latency_ms)).collect();
    if let Some(knee) = load::knee(&points) {
        results[curve[knee]].is_knee = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;

    use super::*;
    use crate::definition::Case;
    use crate::measurement::serving::{Answer, Batching, Serve, with_instances};

    struct AtOnce;

    impl Serve for AtOnce {
        fn serve(&mut self, _: usize, _: usize) -> Result<Answer, CaseFailure> {
            Ok(Answer::default())
        }
    }

    const RATE: f64 = 2000.0;

    /// Counts the trials. The user interrupts the third one.
    #[derive(Default)]
    struct Interrupting(AtomicUsize);

    impl Interrupting {
        fn is_over(&self) -> bool {
            self.0.load(Ordering::SeqCst) > 2
        }
    }

    impl Observer for Interrupting {
        fn begin(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn finish(&self, row: LoadResult) -> LoadResult {
            LoadResult { ended_early: self.is_over(), message: self.why_over(0), ..row }
        }

        fn why_over(&self, _: usize) -> Option<String> {
            self.is_over().then(|| "interrupted".to_owned())
        }

        fn requests_left(&self) -> usize {
            usize::MAX
        }

        fn most_rate(&self) -> f64 {
            RATE
        }
    }

    fn terms_of_search() -> LoadTerms {
        LoadTerms {
            percentile: 0.5,
            bound_ms: Some(60e3),
            seconds: 0.0,
            queries: 20,
            is_search: true,
            first_rate: Some(RATE),
            ..LoadTerms::default()
        }
    }

    #[test]
    fn a_search_that_is_ended_says_why_in_its_last_trial() {
        // The first trial is the third of all.
        let (observer, terms) = (Interrupting(AtomicUsize::new(2)), terms_of_search());
        let run = |instances: &Instances<'_>| {
            let row = LoadResult::about(&Case::new("m", "null", 1), &terms, 1);
            Trials { instances, terms: &terms, row, meter: None, observer: Some(&observer), usual_tokens: 1 }.all()
        };
        let batching = Batching { most: 1, delay: Duration::ZERO };
        let found = with_instances(1, batching, |_| Ok(AtOnce), run).unwrap();
        assert_eq!(found.results[0].message.as_deref(), Some("the search ended here: interrupted"));
    }

    /// Two seeds accept the highest rate that is allowed. The third trial is the first of the curve.
    #[test]
    fn a_search_that_is_interrupted_in_the_curve_keeps_the_highest_rate() {
        let (observer, terms) = (Interrupting::default(), terms_of_search());
        let run = |instances: &Instances<'_>| {
            let row = LoadResult::about(&Case::new("m", "null", 1), &terms, 1);
            let (observer, terms) = (&observer, &terms);
            let trials = Trials { instances, terms, row, meter: None, observer: Some(observer), usual_tokens: 1 };
            thread::scope(|scope| {
                let (ended, has_ended) = mpsc::channel::<()>();
                scope.spawn(move || {
                    while has_ended.recv_timeout(Duration::from_micros(100)) == Err(RecvTimeoutError::Timeout) {
                        if observer.is_over() {
                            instances.cut();
                        }
                    }
                });
                let found = trials.all();
                drop(ended);
                found
            })
        };
        let batching = Batching { most: 1, delay: Duration::ZERO };
        let found = with_instances(1, batching, |_| Ok(AtOnce), run).unwrap();
        assert_eq!(found.results.iter().filter(|row| row.is_highest).count(), 1, "{:?}", found.results);
    }

    #[test]
    fn the_highest_rate_is_that_of_a_trial_whose_generator_was_in_time() {
        let trial = |verdict| LoadResult {
            rate: Some(100.0),
            verdict: Some(verdict),
            loadgen_accepts: Some(true),
            ..LoadResult::default()
        };
        let mut results = [trial(Verdict::Invalid), trial(Verdict::Undecided), trial(Verdict::Passed)];
        mark(&mut results, Some(100.0), Some(102.0));
        assert_eq!(results.each_ref().map(|row| row.is_highest), [false, true, false]);
        assert_eq!(results[1].lowest_failing_rate, Some(102.0));
    }
}

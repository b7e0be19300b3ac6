//! Serves a case: sessions answer requests that arrive by the terms of a load test.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::case_outcome::unwinding;
use super::loaded_case::Worker;
use super::{call_server, token_server};
use crate::backend;
use crate::definition::{Case, CaseFailure};
use crate::harness::protocol::WorkItem;
use crate::load::{self, Begin, Bounds, Limits, SEEDS, Trial, figures, poisson};
use crate::measurement::serving::{Batching, Expected, Hope, Instances, Serve, Stream, Users, Watch, with_instances};
use crate::measurement::{EnergyMeter, memory};
use crate::run_data::{LoadAnswer, LoadResult, LoadTerms, Outcome, Scenario, Verdict};
use crate::statistics::most_over;

/// Samples of a query of the multi-stream scenario, as in MLPerf LoadGen.
const SAMPLES_OF_MULTI: usize = 8;
/// Queries of a trial at most, unless more are asked for: what takes no time would fill the memory.
const MOST_BY_TIME: usize = 10_000_000;
/// How long a session is timed alone, for an idea of how fast it is.
const PILOT: Duration = Duration::from_millis(200);
/// A trial is made again if the machine was too busy, so often at most.
const MOST_ATTEMPTS: usize = 3;
/// A search begins with this part of what the sessions could serve if no request had to wait.
const FIRST_OF_CAPACITY: f64 = 0.5;
/// Points of the curve below the highest rate, and the seconds that each takes at most.
const PARTS_OF_THE_CURVE: [f64; 4] = [0.25, 0.5, 0.75, 0.9];
const SECONDS_OF_A_POINT: f64 = 10.0;
/// RAPL's counters have 32 bits of 15 µJ or more, and begin again after 65 kJ: a package of 1 kW takes 65 s for that.
const LONGEST_METERED: Duration = Duration::from_secs(60);
/// Seeds of the arrivals are so far apart.
const SEED_STEP: u64 = 1_000_003;

impl Worker<'_> {
    /// Answers the rows of the trials of the only item.
    pub fn serve(&mut self) -> Result<()> {
        let item = self.job.work.first().context("there is nothing to serve")?;
        let terms = self.job.load.as_ref().context("a load test has terms")?;
        let answer = unwinding(|| self.trials(item, terms));
        Ok(fs_err::write(self.job.answer_path(), serde_json::to_vec(&answer)?)?)
    }

    /// Another session's outputs are compared before, as in every measurement.
    fn trials(&mut self, item: &WorkItem, terms: &LoadTerms) -> Result<LoadAnswer, CaseFailure> {
        let job = self.job;
        let Case { backend: name, device, .. } = &item.case;
        if terms.callers > 1 && !backend::find(name)?.serves_callers(device) {
            let why =
                format!("a session of {name} on {device} takes one call at a time: take `--instances` for `--callers`");
            return Err(CaseFailure::unsupported(why));
        }
        let mut outcome = Outcome::new(item.row.clone());
        drop(self.load(item, &mut outcome)?);
        // The peak is that of the sessions that serve.
        let _ = memory::reset_peak();
        let batching = Batching { most: terms.most_batch, delay: Duration::from_secs_f64(terms.most_delay_ms / 1e3) };
        let open = |number| -> Result<Box<dyn Serve>, CaseFailure> {
            match &terms.lengths {
                Some(lengths) => Ok(Box::new(token_server::open(job, item, terms, lengths, number)?)),
                None => Ok(Box::new(call_server::open(job, item, terms, number)?)),
            }
        };
        let meter = EnergyMeter::of(&item.case.device, outcome.row.device_type.as_deref());
        let energy_kind = match &meter {
            Ok(meter) => meter.kind.to_owned(),
            Err(reason) => format!("none: {reason:#}"),
        };
        let row = LoadResult::about(&item.case, terms, job.effort.effective_threads());
        let (input_shape, library_version) = (outcome.row.input_shape.take(), outcome.row.library_version.take());
        let artifact_sha256 = outcome.row.artifact_sha256.take();
        let row = LoadResult { energy_kind: Some(energy_kind), input_shape, library_version, artifact_sha256, ..row };
        let mut answer = with_instances(terms.served_at_once(), batching, open, |instances| {
            let trials = Trials { instances, terms, row, meter: meter.ok() };
            if terms.is_search { trials.search() } else { trials.one() }
        })?;
        let memory_mb = memory::peak_bytes().map(memory::megabytes);
        answer.results.iter_mut().for_each(|result| result.memory_mb = memory_mb);
        Ok(answer)
    }
}

/// The trials of a case.
struct Trials<'a> {
    instances: &'a Instances<'a>,
    terms: &'a LoadTerms,
    row: LoadResult,
    meter: Option<EnergyMeter>,
}

impl Trials<'_> {
    /// The only trial, as it was asked for.
    fn one(&self) -> Result<LoadAnswer, CaseFailure> {
        let LoadTerms { scenario, seconds, most_growth_mb_per_h: most_growth, .. } = *self.terms;
        let expected = self.expected()?;
        let samples = if scenario == Scenario::Multi { SAMPLES_OF_MULTI } else { 1 };
        let length = Duration::from_secs_f64(seconds);
        let trial = match self.terms.is_watched {
            true => self.instances.watched(Watch { length, most_growth }, |_| self.make(samples, expected))?,
            false => self.make(samples, expected)?,
        };
        let samples = samples * self.row.batch_size;
        let found = figures(self.row.clone(), &trial, self.terms, samples).ok_or_else(without_queries)?;
        Ok(LoadAnswer { results: vec![found.0], windows: found.1 })
    }

    /// What a watched trial will note; nothing is known of others.
    fn expected(&self) -> Result<Expected, CaseFailure> {
        const RESERVE: f64 = 1.3;
        let LoadTerms { scenario, seconds, seed, .. } = *self.terms;
        if !self.terms.is_watched {
            return Ok(Expected::default());
        }
        let requests = match self.terms.rate.filter(|_| scenario == Scenario::Server) {
            Some(rate) => self.queries_at(rate),
            None => ((RESERVE * seconds * self.capacity()?) as usize).min(MOST_BY_TIME),
        };
        let tokens = |number| self.terms.lengths.as_ref().map_or(0, |it| load::lengths_of(it, seed, number, [1, 1])[1]);
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
                self.metered(|| self.instances.offline(queries.max((in_time as usize).min(MOST_BY_TIME))))
            }
            Scenario::Server => {
                let rate = self.terms.rate.ok_or_else(|| CaseFailure::failed("the server scenario needs a rate"))?;
                let schedule = poisson(rate, seed, self.queries_at(rate));
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
        let limits = load::search(begin, |rate, number| {
            // A trial whose generator was late says nothing.
            for _ in 0..MOST_ATTEMPTS {
                let result = self.trial(rate, first_seed + number, self.queries_at(rate), true)?;
                let answer = result.loadgen_accepts.filter(|_| result.verdict != Some(Verdict::Invalid));
                results.push(result);
                if answer.is_some() {
                    return Ok(answer);
                }
            }
            Ok::<_, CaseFailure>(None)
        })?;
        let Limits { highest_passing, lowest_failing } = limits.unwrap_or_default();
        let of_curve = highest_passing.filter(|_| self.terms.search == 0);
        for rate in of_curve.iter().flat_map(|highest| PARTS_OF_THE_CURVE.map(|part| part * highest)) {
            let queries = self.queries_at(rate).min((rate * SECONDS_OF_A_POINT).ceil() as usize);
            results.push(self.trial(rate, 0, queries, false)?);
        }
        mark(&mut results, highest_passing, lowest_failing);
        Ok(LoadAnswer { results, windows: Vec::new() })
    }

    fn trial(&self, rate: f64, number: u64, queries: usize, may_end_early: bool) -> Result<LoadResult, CaseFailure> {
        let seed = self.terms.seed.wrapping_add(SEED_STEP * number);
        let terms = LoadTerms { rate: Some(rate), seed, ..self.terms.clone() };
        let bounds = Bounds::of(&terms);
        let hope = (may_end_early && bounds.are_any()).then(|| Hope {
            bounds,
            most_over: most_over(terms.percentile, queries as u64, 1.0).unwrap_or(0) as usize,
        });
        let schedule = poisson(rate, seed, queries);
        let trial = self.metered(|| self.instances.server(&schedule, 0, hope))?;
        let (result, _) = figures(self.row.clone(), &trial, &terms, self.row.batch_size).ok_or_else(without_queries)?;
        let verdict = match (result.verdict, result.loadgen_accepts) {
            (Some(Verdict::Invalid), _) => "invalid",
            (_, Some(true)) => "accepted",
            _ => "not accepted",
        };
        let tokens = result.ttft_p99_ms.zip(result.tpot_p99_ms);
        let tokens = tokens.map(|(first, each)| format!(", p99 of TTFT {first:.3} ms and TPOT {each:.3} ms"));
        let (percentile, tokens) = (100.0 * terms.percentile, tokens.unwrap_or_default());
        eprintln!("  {rate:.1}/s: p{percentile} {:.3} ms{tokens}, {verdict}", result.latency_ms);
        Ok(result)
    }

    /// The trial with its energy, if that is known and the trial is not too long for the counters.
    fn metered(&self, trial: impl FnOnce() -> Result<Trial, CaseFailure>) -> Result<Trial, CaseFailure> {
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
        let pilot = self.instances.stream(Stream {
            samples: 1,
            least_queries: 5,
            least_time: PILOT,
            expected: Expected::default(),
        })?;
        let last = pilot.served.last().ok_or_else(without_queries)?;
        Ok(self.terms.served_at_once() as f64 * pilot.served.len() as f64 / (last.ended_ns.max(1) as f64 / 1e9))
    }
}

fn without_queries() -> CaseFailure {
    CaseFailure::failed("no query was answered")
}

/// Sorts the trials by their rates, and marks that of the highest rate that passes and the knee of the curve up to the lowest rate that fails.
fn mark(results: &mut [LoadResult], highest: Option<f64>, lowest_failing: Option<f64>) {
    results.sort_by(|one, other| one.rate.unwrap_or(0.0).total_cmp(&other.rate.unwrap_or(0.0)));
    let of = |result: &LoadResult| result.loadgen_accepts == Some(true) && result.rate == highest;
    if let Some(best) = results.iter_mut().find(|result| of(result)) {
        best.is_highest = true;
        best.lowest_failing_rate = lowest_failing;
    }
    let is_on_curve = |result: &LoadResult| {
        let rate = result.rate.unwrap_or(0.0);
        result.unanswered == 0
            && !result.ended_early
            && result.verdict != Some(Verdict::Invalid)
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

//! One recommendation over backends, devices, dtypes, variants, batch sizes and machines, with what speaks against it.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use schemars::JsonSchema;
use serde::Serialize;

use super::prediction::in_words;
use super::repeated::{Repeated, numbered, of_newest_files, repeated};
use super::rows::{Candidates, candidates};
use super::under_load::served;
use super::variants_output::{listed, name, quality_text, ratio};
use super::{Drift, Excluded, Goal, Options, PredictedCase, Quality, Row, UnderLoad, of_model, own_memory};
use crate::compare::{RatioInterval, Verdict};
use crate::definition::{Boundary, Case, Phase, TimedOn};
use crate::report::numbers::{joules, latency, megabytes, percent, plural, three_digits, three_digits_of_any};
use crate::run_data::{Metric, Record, Work};

/// What to deploy for one kind of work of a model: a phase with inputs of one shape, from one boundary to the other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    pub model: String,
    pub phase: Phase,
    pub sequence_length: Option<usize>,
    /// The shapes of a sample, if the model was measured with several.
    pub input_shape: Option<String>,
    pub boundary: Boundary,
    pub timed_on: TimedOn,
    pub goal: Goal,
    /// The recommendation in one sentence.
    pub sentence: String,
    /// The case to deploy; absent if nothing can be recommended.
    pub case_id: Option<String>,
    pub host_id: Option<String>,
    /// The same case with its figures.
    pub deploy: Option<Deployed>,
    /// The case's figures in load tests, and with how many instances.
    pub under_load: Option<UnderLoad>,
    /// The best case of those that may be better than the recommended one, or else the second-best case; and why it is
    /// not recommended.
    pub runner_up: Option<RunnerUp>,
    /// The confidence that the first is better than the runner-up.
    pub confidence: Option<String>,
    /// How many cases could be recommended.
    pub considered: usize,
    /// What was left out, a line for each reason.
    pub excluded: Vec<String>,
    /// The figures of the model's servers in load tests, one per line. They are shown for comparison and never
    /// recommended, since a server is not a case.
    pub served: Vec<String>,
    /// Changes of a limit or a measurement that would lead to another recommendation, one per line.
    pub would_change: Vec<String>,
    /// What larger batches of this case bring; absent if only one batch size was measured.
    pub batch_sizes: Option<String>,
    /// The largest batch that is predicted to fit into the memory, in words.
    pub largest_batch: Option<String>,
    /// Cases that were not measured and may be better, the best first.
    pub predicted: Vec<PredictedCase>,
    /// True if the first and the runner-up cannot be told apart without more measurements.
    pub is_undecided: bool,
    /// What all of its cases have in common.
    #[serde(skip)]
    pub work: Work,
    /// The record of the case to deploy with the times of all runs that count.
    #[serde(skip)]
    pub(super) pooled: Option<Record>,
}

/// A case to deploy, and its figures as far as they are known.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Deployed {
    /// As in the sentence: `int8-static on ort, batch 4`.
    pub name: String,
    pub latency_p50_ms: Option<f64>,
    pub samples_per_second: Option<f64>,
    pub tokens_per_second: Option<f64>,
    pub memory_mb: Option<f64>,
}

/// The case that the recommended one is compared with.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunnerUp {
    pub case_id: String,
    pub host_id: String,
    pub name: String,
    /// Its quantity over that of the recommended case, with an interval if it follows from times.
    pub ratio: Option<f64>,
    pub interval: Option<RatioInterval>,
    pub verdict: Option<Verdict>,
    pub why: String,
    /// Its load test, if one decides about its rate or p99.
    pub under_load: Option<UnderLoad>,
}

impl Advice {
    /// Whether a record of the model is of this kind of work.
    pub fn is_about(&self, record: &Record) -> bool {
        record.model == self.model && kind(Work::of(record)).is_same(&self.work)
    }

    /// The newest record of the case to deploy.
    pub fn chosen<'a>(&self, records: &'a [Record]) -> Option<&'a Record> {
        self.newest(records, self.case_id.as_ref()?, self.host_id.as_ref()?)
    }

    /// The newest record of a case of this kind.
    pub fn newest<'a>(&self, records: &'a [Record], case_id: &str, host_id: &str) -> Option<&'a Record> {
        let is_meant = |record: &&Record| record.case_id == case_id && record.host_id == host_id;
        records.iter().filter(is_meant).filter(|record| self.is_about(record)).max_by_key(|record| record.timestamp)
    }
}

/// The work without its batch size, variant and runtime.
pub fn kind(work: Work) -> Work {
    work.of_any_batch().of_any_variant().on_any_runtime()
}

/// Cases by their kind of work, in the order of inputs, boundary, phase, sequence length and shape.
pub fn by_kind(cases: Vec<Repeated<'_>>) -> Vec<(Work, Vec<Repeated<'_>>)> {
    let newest: Vec<&Record> = cases.iter().map(|case| case.newest).collect();
    let (kinds, numbers) = numbered(&newest, |record| kind(Work::of(record)));
    let mut found: Vec<(Work, Vec<Repeated<'_>>)> = kinds.all().iter().map(|kind| (kind.clone(), Vec::new())).collect();
    numbers.into_iter().zip(cases).for_each(|(number, case)| found[number].1.push(case));
    let order = |it: &Work| {
        let Case { timed_on, boundary, phase, sequence_length, .. } = it.case;
        (timed_on, boundary, phase, it.case.dims.clone(), sequence_length, it.input_shape.clone())
    };
    found.sort_by_key(|(work, _)| order(work));
    found
}

/// Recommends a case for each kind of work of a model. The times of a case are the geometric means over the runs of one program. Of
/// several files with one name, the newest counts.
///
/// # Errors
/// The records have no such model, and the message says which models there are; or no case of it passes the filters.
pub fn advise(records: &[Record], metrics: &[Metric], options: &Options) -> Result<Vec<Advice>> {
    let of_model = of_model(records, &options.model)?;
    let current = of_newest_files(&of_model);
    let may_choose = |records: &[&Record]| records.iter().filter(|record| options.may_choose(record)).count();
    ensure!(may_choose(&of_model) > 0, "no case of {} passes the filters", options.model);
    let is_there = |drift: &&Drift| current.iter().any(|record| drift.is_of(record));
    let slow: Vec<String> = options.drifted.iter().filter(is_there).map(Drift::text).collect();
    let mut kinds = by_kind(repeated(&current, options));
    // Those that the filters leave out count, too: a work has the same title in all rows of `--per`.
    let cases: Vec<Case> = kinds.iter().map(|(work, _)| work.case.clone()).collect();
    kinds.retain(|(_, cases)| cases.iter().any(|case| options.may_choose(case.newest)));
    let of_kind = |(work, of_kind): (Work, Vec<Repeated<'_>>)| {
        let has_shapes = cases.iter().filter(|case| **case == work.case).count() > 1;
        let chosen = of_kind.iter().filter(|case| options.may_choose(case.newest));
        let of_other_threads: usize = chosen.map(|case| case.of_other_threads).sum();
        let mut advice = advice(work, &of_kind, metrics, options);
        let Work { input_shape, new_tokens, .. } = &advice.work;
        let parts = [input_shape.clone(), new_tokens.map(|count| format!("{count} new tokens"))];
        advice.input_shape = has_shapes.then(|| listed(parts)).filter(|text| !text.is_empty());
        advice.excluded.extend(slow.iter().cloned());
        let is_meant = |record: &&&Record| options.may_choose(record) && advice.is_about(record);
        let [all, left] = [&of_model, &current].map(|records| records.iter().filter(is_meant).count());
        let replaced = all - left;
        if replaced > 0 {
            let rows = plural(replaced, "row is", "rows are");
            advice.excluded.push(format!("{rows} from an older file of the same name"));
        }
        if of_other_threads > 0 {
            let rows = plural(of_other_threads, "row has", "rows have");
            advice.excluded.push(format!("{rows} another number of threads than the newest run of the same case"));
        }
        advice
    };
    Ok(kinds.into_iter().map(of_kind).collect())
}

fn advice(work: Work, cases: &[Repeated<'_>], metrics: &[Metric], options: &Options) -> Advice {
    let Case { timed_on, boundary, phase, sequence_length, .. } = work.case;
    let found = candidates(cases, metrics, options);
    let names = Names::of(&found.rows);
    let chosen = found.chosen.as_ref().ok().copied();
    let (runner_up, confidence) = compare(&found, &names, options).unzip();
    // A runner-up that is not slower may be faster.
    let is_open = |it: &RunnerUp| matches!(it.verdict, Some(Verdict::CannotSay | Verdict::NotSlower));
    Advice {
        model: options.model.clone(),
        phase,
        sequence_length,
        input_shape: None,
        boundary,
        timed_on,
        goal: options.goal,
        sentence: match &found.chosen {
            Ok(index) => sentence(&found, *index, &names, options),
            Err(why) => format!("Nothing is recommended: {why}."),
        },
        case_id: chosen.map(|index| found.rows[index].record.case_id.clone()),
        host_id: chosen.map(|index| found.rows[index].record.host_id.clone()),
        deploy: chosen.map(|index| deployed(&found.rows[index], &names)),
        under_load: chosen.and_then(|index| found.rows[index].under_load.clone()),
        batch_sizes: chosen.and_then(|index| batch_sizes(&found.rows, index)),
        largest_batch: None,
        predicted: Vec::new(),
        is_undecided: runner_up.as_ref().is_some_and(is_open),
        runner_up,
        confidence,
        considered: found.rows.iter().filter(|row| row.is_acceptable()).count(),
        excluded: excluded(&found.rows, &names, options),
        served: served(&options.loads, &work.case, options),
        would_change: would_change(&found.rows, chosen, &names, options),
        work,
        pooled: chosen.map(|index| found.rows[index].record.clone()),
    }
}

/// Names rows. A name has the batch size or the machine only if there are several, and the number of threads only if a
/// machine has rows with several.
struct Names {
    has_batch_sizes: bool,
    has_machines: bool,
    has_threads: bool,
}

impl Names {
    fn of(rows: &[Row]) -> Self {
        let rows = || rows.iter().filter(|row| limit(row) != Some(Excluded::FILTER)).map(|row| &row.record);
        let batch_sizes: BTreeSet<usize> = rows().map(|record| record.batch_size).collect();
        let machines: BTreeSet<&str> = rows().map(|record| record.host_id.as_str()).collect();
        let threads = rows().filter_map(|record| Some((record.host_id.as_str(), record.threads?)));
        let threads: BTreeSet<(&str, usize)> = threads.collect();
        let with_threads: BTreeSet<&str> = threads.iter().map(|(host_id, _)| *host_id).collect();
        Names {
            has_batch_sizes: batch_sizes.len() > 1,
            has_machines: machines.len() > 1,
            has_threads: threads.len() > with_threads.len(),
        }
    }

    /// `int8-static on ort, batch 4, 2 threads, host 1a2b`.
    fn name(&self, row: &Row) -> String {
        let Record { batch_size, host_id, threads, .. } = &row.record;
        let batch = self.has_batch_sizes.then(|| format!("batch {batch_size}"));
        let threads = threads.filter(|_| self.has_threads).map(|threads| plural(threads, "thread", "threads"));
        let host = self.has_machines.then(|| format!("host {host_id}"));
        listed([Some(name(row)), batch, threads, host])
    }
}

/// Describes how the latency grows with the batch size, from the rows that differ from this one in nothing else.
fn batch_sizes(rows: &[Row], index: usize) -> Option<String> {
    let all_but_batch = |row: &Row| Case { batch_size: 0, ..row.record.case() };
    let own = &rows[index];
    let is_meant = |row: &&Row| row.is_measured() && limit(row) != Some(Excluded::FILTER);
    let alike = rows.iter().filter(is_meant).filter(|row| row.record.host_id == own.record.host_id);
    let alike = alike.filter(|row| all_but_batch(row) == all_but_batch(own));
    in_words(&Vec::from_iter(alike.filter_map(|row| Some((row.record.batch_size, row.record.latency_p50_ms?)))))
}

/// The best of the rows for which `is_meant` is true, with its quantity.
fn best(rows: &[Row], options: &Options, is_meant: impl Fn(&Row) -> bool) -> Option<(usize, f64)> {
    let meant = rows.iter().enumerate().filter(|(_, row)| is_meant(row));
    let known = meant.filter_map(|(index, row)| Some((index, quantity(row, options)?)));
    known.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

fn quantity(row: &Row, options: &Options) -> Option<f64> {
    options.quantity(options.goal, &row.record)
}

/// The runner-up, and the confidence that the first is better. Returns `None` without a second case that may be
/// recommended.
fn compare(found: &Candidates<'_>, names: &Names, options: &Options) -> Option<(RunnerUp, String)> {
    let (first, goal) = (*found.chosen.as_ref().ok()?, options.goal);
    let is_by_load = |index: usize| options.gain(goal, &found.rows[index].record) > 1.0;
    let is_first_by_load = is_by_load(first);
    // Beside a rate under load, sequential calls show only that a case serves at least their rate, and so does a load
    // test that was not a search.
    let is_at_least = |index: usize| {
        let is_searched = found.rows[index].under_load.as_ref().is_some_and(|it| it.is_highest);
        !is_searched && (is_first_by_load || is_by_load(index))
    };
    let beside_first = |index: usize| found.spread.ratio(first, index).filter(|_| goal.is_of_times());
    // Otherwise a case with few runs would be passed over for one that is nearer to the first and surely slower.
    let may_be_better = |index: usize| {
        let is_open = |(interval, verdict): (RatioInterval, Verdict)| {
            let is_shown = verdict == Verdict::Same || verdict == Verdict::Faster && !found.rows[first].is_baseline;
            is_at_least(index) || interval.lower < 1.0 && !is_shown
        };
        beside_first(index).is_some_and(is_open)
    };
    let others = (0..found.rows.len()).filter(|&index| index != first && found.rows[index].is_acceptable());
    let known = others.filter_map(|index| Some((!may_be_better(index), quantity(&found.rows[index], options)?, index)));
    let (.., second) = known.min_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
    let (row, tested) = (&found.rows[second], beside_first(second));
    let quantities = quantity(row, options).zip(quantity(&found.rows[first], options));
    let plain = quantities.map(|(own, best)| own / best);
    let what = goal.measured_in();
    let times = match (&tested, plain) {
        (Some((interval, _)), _) => format!("{} × {what}", ratio(interval)),
        (None, Some(plain)) => format!("{} × {what}", three_digits(plain)),
        (None, None) => "its figure is not known".to_owned(),
    };
    let is_slower_so_far = is_at_least(second) && tested.is_some_and(|(_, verdict)| verdict == Verdict::Slower);
    // The test of all rows did not find it faster than the baseline, so the test of these two alone does not count.
    let is_open = |it: Verdict| is_slower_so_far || it == Verdict::Faster && found.rows[first].is_baseline;
    let verdict = tested.map(|(_, it)| if is_open(it) { Verdict::CannotSay } else { it });
    let runs = plural(found.spread.runs, "run", "runs");
    let floor = found.spread.floor_of(first, second).unwrap_or(found.spread.floor);
    let noise = format!("times of identical code differ by up to {} here", percent(floor));
    let sure = format!("95 %, by at least {runs} of each; {noise}");
    let (why, confidence) = match verdict {
        None if goal == Goal::Size => (format!("takes {times}"), "the sizes are exact".to_owned()),
        None => (format!("takes {times}"), format!("the scatter of the {goal} from run to run is not known")),
        Some(_) if is_slower_so_far => {
            let why = format!("takes at most {times}: its highest rate under load is not known");
            (why, "none: the highest rate of the runner-up under load is not known".to_owned())
        }
        Some(Verdict::CannotSay | Verdict::NotSlower) => {
            let why = format!("cannot be told apart by these runs: {times}");
            (why, format!("none: by at least {runs} of each, {noise}"))
        }
        Some(Verdict::Same) => (format!("is as good within 5 %: {times}"), sure),
        Some(Verdict::Faster) => (format!("is larger or answers worse, at {times}"), sure),
        Some(Verdict::Slower) => (format!("takes {times}"), sure),
    };
    let kinds = [first, second].map(|index| found.rows[index].record.energy_kind.clone().unwrap_or_default());
    let confidence = match goal == Goal::Energy && kinds[0] != kinds[1] {
        true => format!("{confidence}; but the energy counters cover different parts: {} and {}", kinds[0], kinds[1]),
        false => confidence,
    };
    let runner_up = RunnerUp {
        case_id: row.record.case_id.clone(),
        host_id: row.record.host_id.clone(),
        name: names.name(row),
        under_load: row.under_load.clone(),
        ratio: tested.as_ref().map(|(interval, _)| interval.ratio).or(plain),
        interval: tested.map(|(interval, _)| interval),
        verdict,
        why,
    };
    Some((runner_up, confidence))
}

fn deployed(row: &Row, names: &Names) -> Deployed {
    let record = &row.record;
    Deployed {
        name: names.name(row),
        latency_p50_ms: record.latency_p50_ms,
        samples_per_second: record.throughput_ips.filter(|_| record.tokens_per_second.is_none()),
        tokens_per_second: record.tokens_per_second,
        memory_mb: own_memory(record),
    }
}

fn sentence(found: &Candidates<'_>, index: usize, names: &Names, options: &Options) -> String {
    let row = &found.rows[index];
    let record = &row.record;
    let of_goal = match options.goal {
        Goal::Energy | Goal::Cost => quantity(row, options).map(|value| shown(value, options)),
        _ => None,
    };
    let figures = listed([
        of_goal,
        record.latency_p50_ms.map(|ms| format!("p50 {}", latency(ms))),
        rate_text(record.tokens_per_second, record.throughput_ips),
        own_memory(record).map(|memory| format!("memory {}", megabytes(memory))),
        record.model_size_mb.map(|size| format!("size {}", megabytes(size))),
        quality_text(row, found.measure),
        row.under_load.as_ref().map(UnderLoad::text),
    ]);
    format!("For {}, deploy {}: {figures}.", options.goal, names.name(row))
}

/// `6634 tokens/s`, or `500 samples/s` where tokens are not counted.
pub fn rate_text(tokens_per_second: Option<f64>, samples_per_second: Option<f64>) -> Option<String> {
    let text = |rate: f64, unit: &str| format!("{} {unit}", three_digits_of_any(rate));
    let of_tokens = tokens_per_second.map(|rate| text(rate, "tokens/s"));
    of_tokens.or_else(|| samples_per_second.map(|rate| text(rate, "samples/s")))
}

/// The quantity of a goal with its unit.
fn shown(value: f64, options: &Options) -> String {
    match options.goal {
        Goal::Latency => format!("p50 {}", latency(value)),
        Goal::Throughput => format!("{} per second", three_digits_of_any(1.0 / value)),
        Goal::Energy => format!("{} per sample", joules(value)),
        Goal::Cost => {
            let unit = format!("{} {}", three_digits_of_any(value), options.prices.currency);
            format!("{} per million", unit.trim_end())
        }
        Goal::Size | Goal::Memory => megabytes(value),
    }
}

/// What was left out: by limit, by quality, or because there are no figures.
fn excluded(rows: &[Row], names: &Names, options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    // How many rows are meant, and the best of them, or the first one if no quantity is known.
    let example = |is_meant: &dyn Fn(&Row) -> bool| {
        let first = rows.iter().position(is_meant)?;
        let index = best(rows, options, is_meant).map_or(first, |(index, _)| index);
        Some((rows.iter().filter(|row| is_meant(row)).count(), &rows[index]))
    };
    let limits: BTreeSet<&str> = rows.iter().filter_map(limit).filter(|it| *it != Excluded::FILTER).collect();
    for own in limits {
        if let Some((count, row)) = example(&|row: &Row| limit(row) == Some(own)) {
            let why = row.excluded.as_ref().map(|it| it.why.as_str()).unwrap_or_default();
            lines.push(format!("{count} by {own}, such as {}: {why}", names.name(row)));
        }
    }
    for (quality, what) in [
        (Quality::Lost, "loses too much of the answers' quality"),
        (Quality::Open, "is not shown to keep the answers' quality"),
        (Quality::Unknown, "has answers whose quality was not measured"),
        (Quality::Wrong, "gives wrong outputs"),
    ] {
        let is_meant = |row: &Row| row.is_measured() && row.excluded.is_none() && row.quality == quality;
        if let Some((count, row)) = example(&is_meant) {
            lines.push(format!("{count}, such as {}, which {what}", names.name(row)));
        }
    }
    let failed = rows.iter().filter(|row| !row.is_measured() && options.may_choose(&row.record));
    let failed: Vec<String> = failed.map(|row| row.record.status.to_string()).collect();
    if !failed.is_empty() {
        let kinds: BTreeSet<&str> = failed.iter().map(String::as_str).collect();
        lines.push(format!("{} without figures: {}", failed.len(), Vec::from_iter(kinds).join(", ")));
    }
    lines
}

/// The name of the limit that a row breaks.
fn limit(row: &Row) -> Option<&'static str> {
    Some(row.excluded.as_ref()?.limit)
}

/// The changes that would allow a better case: for each limit, a wider one; load tests; and measurements of outputs or
/// quality.
fn would_change(rows: &[Row], chosen: Option<usize>, names: &Names, options: &Options) -> Vec<String> {
    let least = chosen.and_then(|index| quantity(&rows[index], options)).unwrap_or(f64::INFINITY);
    // A row that breaks two limits stays excluded if only one of them is changed.
    let is_near = |row: &Row| row.is_measured() && row.excluded.as_ref().is_none_or(|excluded| excluded.is_only);
    let better = |is_meant: &dyn Fn(&Row) -> bool| {
        let (index, own) = best(rows, options, |row| is_near(row) && is_meant(row))?;
        (own < 0.95 * least).then(|| (own, &rows[index]))
    };
    let mut lines = Vec::new();
    for given in ["max-p99", "max-memory", "min-rate", "max-kl", "max-perplexity"] {
        // A case that loses more than these limits allow may be within wider ones.
        let is_of_loss = given == "max-kl" || given == "max-perplexity";
        let is_meant = |row: &Row| {
            let is_within = row.quality.is_acceptable() || is_of_loss && row.quality == Quality::Lost;
            is_within && limit(row) == Some(given)
        };
        if let Some((own, row)) = better(&is_meant)
            && let Some(flag) = row.excluded.as_ref().and_then(|excluded| excluded.would_take.as_ref())
        {
            lines.push(format!("{flag} would allow {}: {}", names.name(row), shown(own, options)));
        }
    }
    let gain = |row: &Row| options.gain(options.goal, &row.record);
    let is_untested = |row: &Row| {
        row.is_acceptable() && !row.is_recommended && row.under_load.as_ref().is_none_or(|it| !it.is_highest)
    };
    if chosen.is_some_and(|index| gain(&rows[index]) > 1.0)
        && let Some((index, own)) = best(rows, options, is_untested)
    {
        let (name, own) = (names.name(&rows[index]), shown(own, options));
        let how = if gain(&rows[index]) > 1.0 { "in a load test that was not a search" } else { "by sequential calls" };
        lines.push(format!("a load test (`inferbench load search`) of {name}, which has {own} {how}"));
    }
    let is_unverified = |row: &Row| limit(row) == Some(Excluded::UNCOMPARED) && row.quality.is_acceptable();
    if let Some((own, row)) = better(&is_unverified) {
        lines.push(format!("outputs to compare with would allow {}: {}", names.name(row), shown(own, options)));
    }
    let is_open = |row: &Row| row.excluded.is_none() && matches!(row.quality, Quality::Open | Quality::Unknown);
    if let Some((own, row)) = better(&is_open) {
        let how = match options.limits.max_kl.or(options.limits.max_perplexity) {
            Some(_) => "more samples that show how little it loses (`--text`) would allow",
            None if row.quality == Quality::Open => "more labelled samples (`--data-source`) would allow",
            None => "labelled samples that show its accuracy (`--data-source`) would allow",
        };
        lines.push(format!("{how} {}: {}", names.name(row), shown(own, options)));
    }
    lines
}

//! The records of a case on a machine, from one run or several, and their pooled figures.
//!
//! Times are pooled over the runs of the program that made the newest record. The answers are those of one run: a difference
//! between two models is over the same samples only within a run.

use std::cmp::Ordering::Equal;

use indexmap::IndexMap;
use jiff::Timestamp;

use super::drift::retain_usual;
use super::{Goal, Options, own_memory};
use crate::compare::is_repetition;
use crate::definition::{Case, Status};
use crate::run_data::{Record, Work, Works, is_no_difference};
use crate::statistics::geometric_mean;

/// All records of a case on a machine.
pub struct Repeated<'a> {
    /// The newest record; of those that lacked the backend or device only if there is no other.
    pub newest: &'a Record,
    /// The measurements by the program of the newest record, one per run, the oldest first; empty if the newest was not
    /// measured.
    pub like: Vec<&'a Record>,
    /// How many measurements have another number of threads than the newest record.
    pub of_other_threads: usize,
}

/// The records by work and machine, in the order of the records.
pub fn repeated<'a>(records: &[&'a Record], options: &Options) -> Vec<Repeated<'a>> {
    by_work_and_machine(records).into_iter().filter_map(|group| Repeated::new(group, options)).collect()
}

/// Groups of records, in the order of the records.
pub fn by_work_and_machine<'a>(records: &[&'a Record]) -> Vec<Vec<&'a Record>> {
    let (_, numbers) = numbered(records, Work::of);
    let mut groups: IndexMap<(usize, &str), Vec<&Record>> = IndexMap::new();
    for (&record, number) in records.iter().zip(numbers) {
        groups.entry((number, record.host_id.as_str())).or_default().push(record);
    }
    groups.into_values().collect()
}

/// The number of each record's work. Numbers are assigned in the order of time: a record with too few known fields
/// belongs to the last matching work before it.
pub fn numbered(records: &[&Record], work: impl Fn(&Record) -> Work) -> (Works, Vec<usize>) {
    let (mut works, mut numbers) = (Works::default(), vec![0; records.len()]);
    let mut in_time: Vec<usize> = (0..records.len()).collect();
    in_time.sort_by_key(|&place| records[place].timestamp);
    in_time.into_iter().for_each(|place| numbers[place] = works.number(work(records[place])));
    (works, numbers)
}

/// The records of a model, without those of files that a newer file of the same variant has replaced.
pub fn of_newest_files<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let mut newest_first: Vec<usize> = (0..records.len()).collect();
    newest_first.sort_by_key(|place| std::cmp::Reverse(records[*place].timestamp));
    // The newest networks of each variant.
    let mut current: Vec<Work> = Vec::new();
    let mut is_replaced = |record: &Record| {
        let work = Work::of(record);
        let work = Work { case: Case { batch_size: 0, ..work.case }, input_shape: None, ..work };
        let mut of_variant = current.iter().filter(|it| it.case.variant == work.case.variant);
        let is_replaced = of_variant.any(|it| !it.has_same_network(&work));
        if !is_replaced && !current.contains(&work) {
            current.push(work);
        }
        is_replaced
    };
    newest_first.retain(|place| !is_replaced(records[*place]));
    newest_first.sort_unstable();
    newest_first.into_iter().map(|place| records[place]).collect()
}

impl<'a> Repeated<'a> {
    fn new(mut group: Vec<&'a Record>, options: &Options) -> Option<Self> {
        group.sort_by(|one, other| (one.timestamp, &one.run_id).cmp(&(other.timestamp, &other.run_id)));
        // A run that is named twice is one run.
        group.dedup_by(|one, other| one.run_id == other.run_id);
        // A program or machine that lacks the backend says nothing about the case.
        let is_there = |record: &&Record| record.status != Status::Unavailable;
        if group.iter().any(is_there) {
            group.retain(is_there);
        }
        let newest = *group.last()?;
        let is_ok = |record: &Record| record.status == Status::Ok;
        let has_other_threads =
            |record: &&&Record| is_ok(record) && !is_no_difference(&record.threads, &newest.threads);
        let of_other_threads = group.iter().filter(has_other_threads).count();
        group.retain(|record| is_ok(newest) && is_ok(record) && is_repetition(record, newest));
        if group.is_empty() && is_ok(newest) {
            group.push(newest);
        }
        retain_usual(&mut group, &options.drifted);
        Some(Repeated { newest, like: group, of_other_threads })
    }

    /// The record that says most about the answers to these samples. Its times are geometric means over all runs, since
    /// the times of processes differ by factors. Its memory is the largest of all runs.
    pub fn pooled(&self, samples: Option<&str>) -> Record {
        let evaluated = self.like.iter().filter(|record| record.data_source.as_deref() == samples);
        let mut record = match evaluated.max_by_key(|record| knowledge(record)) {
            Some(evaluated) => (*evaluated).clone(),
            // Answers to other samples cannot be compared, so they are removed. The other figures are from a run that
            // counts.
            None => Record {
                data_source: None,
                accuracy: None,
                accuracy_top5: None,
                accuracy_change: None,
                agreement: None,
                output_cosine: None,
                ..self.like.last().copied().unwrap_or(self.newest).clone()
            },
        };
        if self.like.len() > 1 {
            let timed = self.timed();
            let mean_of = |rows: &[&Record], column: fn(&Record) -> Option<f64>| {
                let logarithms = logarithms(rows, column);
                (!logarithms.is_empty()).then(|| geometric_mean(&logarithms))
            };
            let mean = |column| mean_of(&timed, column);
            record.latency_p50_ms = mean(|record| record.latency_p50_ms);
            record.latency_p99_ms = mean(|record| record.latency_p99_ms);
            // A run without a bound counts with its p99: its bound would not be lower.
            let is_bounded = timed.iter().any(|record| record.latency_p99_upper_ms.is_some());
            let bound = mean(|record| record.latency_p99_upper_ms.or(record.latency_p99_ms));
            record.latency_p99_upper_ms = bound.filter(|_| is_bounded);
            record.throughput_ips = mean(|record| record.throughput_ips);
            record.tokens_per_second = mean(|record| record.tokens_per_second);
            record.energy_j_per_sample = mean_of(&self.like, |record| record.energy_j_per_sample);
            let own = self.like.iter().filter(|other| own_memory(other).is_some()).copied();
            let order = |one: &&Record, other: &&Record| own_memory(one).partial_cmp(&own_memory(other));
            if let Some(most) = own.max_by(|one, other| order(one, other).unwrap_or(Equal)) {
                (record.memory_mb, record.memory_kind) = (most.memory_mb, most.memory_kind.clone());
                record.device_memory_mb = most.device_memory_mb;
            }
            // A run on one backend compares nothing; a run of the same program has compared the same outputs.
            if record.verified.is_none()
                && let Some(checked) = self.like.iter().rev().find(|it| it.verified == Some(true))
            {
                record.verified = checked.verified;
                record.verified_by = checked.verified_by.clone();
                (record.max_abs_error, record.max_rel_error) = (checked.max_abs_error, checked.max_rel_error);
            }
        }
        record
    }

    /// The measurements that its times come from: only those with several processes if there are any, since these show
    /// how far processes differ.
    pub fn timed(&self) -> Vec<&'a Record> {
        let several: Vec<&Record> =
            self.like.iter().copied().filter(|it| it.latency_p50_interval_lower_ms.is_some()).collect();
        if several.is_empty() { self.like.clone() } else { several }
    }

    /// The measurements that count for a goal: each run measures the energy once, whatever the number of its processes.
    pub fn counted(&self, goal: Goal) -> Vec<&'a Record> {
        if goal == Goal::Energy { self.like.clone() } else { self.timed() }
    }

    pub fn run_ids(&self) -> Vec<String> {
        match self.timed().as_slice() {
            [] => vec![self.newest.run_id.clone()],
            timed => timed.iter().map(|record| record.run_id.clone()).collect(),
        }
    }
}

/// The logarithms of a column's positive figures.
pub fn logarithms(records: &[&Record], column: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
    let figures = records.iter().filter_map(|record| column(record));
    figures.filter(|figure| *figure > 0.0 && figure.is_finite()).map(f64::ln).collect()
}

/// The samples by which all rows are evaluated, since answers to different samples cannot be compared: those of the
/// record that says most. Returns `None` if they have no name, or nothing was evaluated.
pub fn samples_of<'a>(cases: &[Repeated<'a>]) -> Option<&'a str> {
    let records = cases.iter().flat_map(|case| &case.like);
    records.max_by_key(|record| knowledge(record)).and_then(|record| record.data_source.as_deref())
}

/// How much a record says about its answers, the most important first: the change of accuracy, the accuracy, a
/// comparison with the original, the name of the samples. Of two records that say the same, the newer one counts.
fn knowledge(record: &Record) -> (bool, bool, bool, bool, Timestamp) {
    (
        record.accuracy_change.is_some(),
        record.accuracy.is_some(),
        record.output_cosine.is_some() || record.agreement.is_some() || record.compared_with.is_some(),
        record.data_source.is_some(),
        record.timestamp,
    )
}

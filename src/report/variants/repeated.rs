//! The records of a case on a machine, from one run or several, and what they say together.
//!
//! Times are pooled over the runs of the program that made the newest record. The answers are those of one run: a difference
//! between two models is over the same samples only within a run.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use super::quality::{copy_quality, knowledge};
use crate::compare::is_repetition;
use crate::definition::{Case, Status};
use crate::run_data::Record;
use crate::statistics::geometric_mean;

/// All records of a case on a machine.
pub struct Repeated<'a> {
    pub newest: &'a Record,
    /// The measurements by the program of the newest record, one per run, the oldest first; empty if the newest was not
    /// measured.
    pub like: Vec<&'a Record>,
    /// Whether there are measurements by other programs, which do not count.
    pub has_others: bool,
}

/// By case and machine, in the order of the records.
pub fn repeated<'a>(records: &[&'a Record]) -> Vec<Repeated<'a>> {
    let mut groups: IndexMap<(Case, &str), Vec<&Record>> = IndexMap::new();
    for record in records {
        groups.entry((record.case(), &record.host_id)).or_default().push(record);
    }
    groups.into_values().filter_map(Repeated::new).collect()
}

impl<'a> Repeated<'a> {
    fn new(mut group: Vec<&'a Record>) -> Option<Self> {
        group.sort_by(|one, other| (one.timestamp, &one.run_id).cmp(&(other.timestamp, &other.run_id)));
        // A run that is named twice is one run.
        group.dedup_by(|one, other| one.run_id == other.run_id);
        let newest = *group.last()?;
        let measured: Vec<&Record> = group.into_iter().filter(|record| record.status == Status::Ok).collect();
        let count = measured.len();
        let is_like = |record: &&Record| {
            newest.status == Status::Ok && (std::ptr::eq(*record, newest) || is_repetition(record, newest))
        };
        let like: Vec<&Record> = measured.into_iter().filter(is_like).collect();
        Some(Repeated { newest, has_others: like.len() < count, like })
    }

    /// The newest record with the times of all runs, as geometric means since those of processes differ by factors, and with
    /// the answers that were evaluated with these samples.
    pub fn pooled(&self, samples: Option<&str>) -> Record {
        // Files of earlier versions have no ids.
        let mut record = Record { case_id: self.newest.case().to_string(), ..self.newest.clone() };
        if self.like.is_empty() {
            return record;
        }
        let mean = |column: fn(&Record) -> Option<f64>| {
            let logarithms = logarithms(&self.like, column);
            (!logarithms.is_empty()).then(|| geometric_mean(&logarithms))
        };
        if self.like.len() > 1 {
            record.latency_p50_ms = mean(|record| record.latency_p50_ms);
            record.throughput_ips = mean(|record| record.throughput_ips);
            record.tokens_per_second = mean(|record| record.tokens_per_second);
        }
        let evaluated = self.like.iter().filter(|record| record.data_source.as_deref() == samples);
        copy_quality(evaluated.max_by_key(|record| knowledge(record)).copied(), &mut record);
        record
    }

    pub fn run_ids(&self) -> Vec<String> {
        match self.like.as_slice() {
            [] => vec![self.newest.run_id.clone()],
            like => like.iter().map(|record| record.run_id.clone()).collect(),
        }
    }
}

/// The logarithms of a column's positive figures.
pub fn logarithms(records: &[&Record], column: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
    let figures = records.iter().filter_map(|record| column(record));
    figures.filter(|figure| *figure > 0.0 && figure.is_finite()).map(f64::ln).collect()
}

/// The samples that the rows are evaluated with, since answers to others cannot be compared: those of the newest record with
/// labels, or else of the newest. Returns `None` if they have no name, or nothing was evaluated.
pub fn samples_of<'a>(cases: &[Repeated<'a>]) -> Option<&'a str> {
    let records = cases.iter().flat_map(|case| &case.like);
    let newest = records.max_by_key(|record| {
        let knowledge = knowledge(record);
        let is_evaluated = knowledge.has_accuracy || knowledge.is_compared;
        (knowledge.has_accuracy, is_evaluated, record.data_source.is_some(), record.timestamp)
    });
    newest.and_then(|record| record.data_source.as_deref())
}

/// Other samples that cases were evaluated with.
pub fn other_samples<'a>(cases: &[Repeated<'a>], samples: Option<&str>) -> BTreeSet<&'a str> {
    let sources = cases.iter().flat_map(|case| &case.like).filter_map(|record| record.data_source.as_deref());
    sources.filter(|source| Some(*source) != samples).collect()
}

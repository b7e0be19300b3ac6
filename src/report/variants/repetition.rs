//! The records of a case on a machine, of one run or several, and what they say together.
//!
//! Times are pooled over the runs of the program that the newest record is of. What is known of the answers is that of one
//! of them: a difference between two models is of the same samples only within a run.

use std::collections::{BTreeSet, HashMap};

use super::quality::{copy_quality, knowledge};
use crate::compare::is_repetition;
use crate::definition::{Case, Status};
use crate::record::Record;

/// All that was asked for of a case on a machine.
pub struct Repeated<'a> {
    newest: &'a Record,
    /// Of the program of the newest, each run once, the oldest first; none if the newest was not measured.
    like: Vec<&'a Record>,
    /// Whether there are measurements of other programs, which do not count.
    pub has_others: bool,
}

/// What is known of a case: a row's record, and the runs that its times are of.
pub struct Pooled {
    pub record: Record,
    pub run_ids: Vec<String>,
}

/// By case and machine, in the order of the records.
pub fn repeated<'a>(records: &[&'a Record]) -> Vec<Repeated<'a>> {
    let mut places: HashMap<(Case, &str), usize> = HashMap::new();
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let place = *places.entry((record.case(), record.host_id.as_str())).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(record);
    }
    groups.into_iter().filter_map(Repeated::new).collect()
}

impl<'a> Repeated<'a> {
    fn new(mut group: Vec<&'a Record>) -> Option<Self> {
        group.sort_by(|one, other| (one.timestamp, &one.run_id).cmp(&(other.timestamp, &other.run_id)));
        // A run that is named twice is one run.
        group.dedup_by(|one, other| one.run_id == other.run_id);
        let newest = *group.last()?;
        let measured: Vec<&Record> = group.into_iter().filter(|record| record.status == Status::Ok).collect();
        let count = measured.len();
        let is_of_newest = |record: &Record| std::ptr::eq(record, newest) || is_repetition(record, newest);
        let like: Vec<&Record> = match newest.status {
            Status::Ok => measured.into_iter().filter(|record| is_of_newest(record)).collect(),
            _ => Vec::new(),
        };
        Some(Repeated { newest, has_others: like.len() < count, like })
    }

    pub fn record(&self) -> &'a Record {
        self.newest
    }

    /// Times are geometric means over the runs, since those of processes differ by factors. The answers are those that
    /// were judged by these samples; all else is the newest's.
    pub fn pooled(&self, samples: Option<&str>) -> Pooled {
        // Files of earlier versions have no ids.
        let mut record = Record { case_id: self.newest.case().to_string(), ..self.newest.clone() };
        if self.like.is_empty() {
            return Pooled { run_ids: vec![record.run_id.clone()], record };
        }
        let mean = |column: fn(&Record) -> Option<f64>| geometric_mean(self.like.iter().filter_map(|one| column(one)));
        record.latency_p50_ms = mean(|record| record.latency_p50_ms);
        record.latency_min_ms = mean(|record| record.latency_min_ms);
        record.throughput_ips = mean(|record| record.throughput_ips);
        record.tokens_per_second = mean(|record| record.tokens_per_second);
        let judged = self.like.iter().filter(|record| record.data_source.as_deref() == samples);
        copy_quality(judged.max_by_key(|record| knowledge(record)).copied(), &mut record);
        Pooled { record, run_ids: self.like.iter().map(|record| record.run_id.clone()).collect() }
    }
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).collect();
    match values.as_slice() {
        [] => None,
        [one] => Some(*one),
        several => Some((several.iter().map(|value| value.ln()).sum::<f64>() / several.len() as f64).exp()),
    }
}

/// The samples that cases are judged by, since answers to others cannot be compared: the newest with labels, or else the
/// newest. None where they have no name, or nothing was judged.
pub fn samples_of<'a>(cases: &[Repeated<'a>]) -> Option<&'a str> {
    let records = cases.iter().flat_map(|case| &case.like);
    let newest = records.max_by_key(|record| {
        let knowledge = knowledge(record);
        let is_judged = knowledge.has_accuracy || knowledge.is_compared;
        (knowledge.has_accuracy, is_judged, record.data_source.is_some(), record.timestamp)
    });
    newest.and_then(|record| record.data_source.as_deref())
}

/// Other samples by which cases were judged.
pub fn other_samples<'a>(cases: &[Repeated<'a>], samples: Option<&str>) -> BTreeSet<&'a str> {
    let sources = cases.iter().flat_map(|case| &case.like).filter_map(|record| record.data_source.as_deref());
    sources.filter(|source| Some(*source) != samples).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAME, at_commit, in_run, measured, unlabelled};
    use super::*;

    fn int8(month: u32, ms: f64) -> Record {
        at_commit("c0ffee", in_run(month, measured("int8", "ort", 3.0, ms, SAME)))
    }

    fn pooled(records: &[Record]) -> Pooled {
        let records: Vec<&Record> = records.iter().collect();
        let cases = repeated(&records);
        assert_eq!(cases.len(), 1);
        cases[0].pooled(samples_of(&cases))
    }

    #[test]
    fn the_time_of_several_runs_is_their_geometric_mean() {
        let found = pooled(&[int8(2, 4.0), int8(1, 1.0), int8(3, 2.0)]);
        assert!((found.record.latency_p50_ms.unwrap() - 2.0).abs() < 1e-12);
        assert!((found.record.throughput_ips.unwrap() - 500.0).abs() < 1e-9);
        assert_eq!((found.run_ids.len(), found.record.run_id.as_str()), (3, "run3"));
        assert_eq!(geometric_mean([1.25].into_iter()), Some(1.25));
        assert_eq!(geometric_mean([0.0, f64::NAN].into_iter()), None);
    }

    #[test]
    fn a_run_that_is_named_twice_is_one() {
        assert_eq!(pooled(&[int8(1, 1.0), int8(1, 1.0)]).run_ids, ["run1"]);
    }

    #[test]
    fn only_runs_of_the_newest_ones_program_count() {
        let newest = || int8(5, 2.0);
        let others = [
            at_commit("other", int8(1, 1.0)),
            Record { git_dirty: Some(true), ..int8(1, 1.0) },
            Record { library_version: Some("2".into()), ..int8(1, 1.0) },
            Record { backend_version: Some("2".into()), ..int8(1, 1.0) },
            Record { artifact_sha256: Some("ab".into()), ..int8(1, 1.0) },
            Record { threads: Some(7), ..int8(1, 1.0) },
            Record { status: Status::Failed, ..int8(1, 1.0) },
        ];
        for other in others {
            assert_eq!(pooled(&[other, newest()]).run_ids, ["run5"]);
        }
        // Of a tree with changes nobody knows whether the code was equal.
        let dirty = |month| Record { git_dirty: Some(true), ..int8(month, 2.0) };
        assert_eq!(pooled(&[dirty(1), dirty(2)]).run_ids, ["run2"]);
        let failed = Record { status: Status::Failed, ..int8(6, 2.0) };
        assert_eq!(pooled(&[newest(), failed]).run_ids, ["run6"]);
    }

    #[test]
    fn the_answers_are_the_newest_by_labelled_samples_whichever_run_was_fast() {
        let of = |month, ms, agreement| {
            at_commit("c0ffee", in_run(month, unlabelled("int8", "ort", 3.0, ms, (agreement, 0.999))))
        };
        for (labelled, other) in [(1, 2), (2, 1)] {
            let found = pooled(&[int8(labelled, 2.0), of(other, 1.0, 0.9)]);
            assert_eq!(found.record.accuracy, Some(0.982));
            assert_eq!((found.record.agreement, found.record.data_source.as_deref()), (Some(1.0), Some("digits")));
            assert_eq!(found.run_ids.len(), 2);
        }
        assert_eq!(pooled(&[of(2, 2.0, 0.9), of(1, 1.0, 0.8)]).record.agreement, Some(0.9));
        // A run with the original says more than a newer one without it.
        let alone = Record { accuracy_change: None, agreement: None, output_cosine: None, ..int8(3, 2.0) };
        assert_eq!(pooled(&[int8(1, 2.0), alone]).record.accuracy_change, Some(0.0));
    }

    #[test]
    fn answers_to_other_samples_are_left_out() {
        let original = at_commit("c0ffee", in_run(1, measured("original", "ort", 3.0, 2.0, SAME)));
        let pictures = Record { data_source: Some("pictures".into()), ..int8(2, 1.0) };
        let records = [&original, &pictures];
        let cases = repeated(&records);
        assert_eq!(samples_of(&cases), Some("pictures"));
        assert_eq!(other_samples(&cases, Some("pictures")), BTreeSet::from(["digits"]));
        let without = cases[0].pooled(Some("pictures")).record;
        assert_eq!((without.accuracy, without.data_source, without.latency_p50_ms), (None, None, Some(2.0)));
    }
}

//! What cases have answered → accuracy, and agreement with the original in f32.

use std::collections::BTreeMap;

use crate::definition::{Case, Dtype, ORIGINAL};
use crate::harness::{Evaluation, Manifest, RunFolder};
use crate::measurement::proportion::{paired_difference_interval, proportion_interval};
use crate::record::Record;

/// The answers of a run's cases.
pub struct Answers {
    of: BTreeMap<String, (Case, Evaluation)>,
}

impl Answers {
    /// Those of all cases that were judged. One whose file cannot be read was not.
    pub fn read(folder: &RunFolder, manifest: &Manifest) -> Self {
        let answers = manifest.cases.iter().filter_map(|planned| {
            let evaluation = Evaluation::read(folder.path(), &planned.case.benchmark_id()).ok()??;
            Some((planned.case.to_string(), (planned.case.clone(), evaluation)))
        });
        Answers { of: answers.collect() }
    }

    /// Puts what is known of the record's case into its columns.
    pub fn put_into(&self, record: &mut Record) {
        let Some((case, evaluation)) = self.of.get(&record.case().to_string()) else { return };
        record.data_source = Some(evaluation.data_source.clone());
        put_accuracy(record, evaluation);
        if let Some(original) = self.original_of(case) {
            put_agreement(record, evaluation, original);
        }
        if let Some(first) = evaluation.unreadable.first() {
            let note = match evaluation.unreadable.len() {
                1 => format!("a sample could not be read: {first}"),
                count => format!("{count} samples could not be read, the first: {first}"),
            };
            record.message = Some(record.message.take().map_or(note.clone(), |message| format!("{message}; {note}")));
        }
    }

    /// The answers of the original in f32: of the same backend, device and batch size if there are such.
    fn original_of(&self, case: &Case) -> Option<&Evaluation> {
        let is_original = |other: &&(Case, Evaluation)| {
            let (other, _) = other;
            let is_same_work = (&other.model, other.phase, other.sequence_length, other.boundary)
                == (&case.model, case.phase, case.sequence_length, case.boundary);
            is_same_work && other.variant == ORIGINAL && other.dtype == Dtype::F32 && other != case
        };
        let distance = |other: &Case| {
            let other_place = (&other.backend, &other.device) != (&case.backend, &case.device);
            (other_place, other.batch_size != case.batch_size)
        };
        let is_itself = case.variant == ORIGINAL && case.dtype == Dtype::F32;
        let candidates = self.of.values().filter(is_original).filter(|_| !is_itself);
        candidates.min_by_key(|(other, _)| distance(other)).map(|(_, evaluation)| evaluation)
    }
}

fn put_accuracy(record: &mut Record, evaluation: &Evaluation) {
    let Some(right) = evaluation.right() else { return };
    let (samples, right) = (right.len(), right.iter().filter(|is_right| **is_right).count());
    let part = |count: usize| count as f64 / samples as f64;
    record.accuracy = Some(part(right));
    record.accuracy_samples = Some(samples as u64);
    if let Some((lower, upper)) = proportion_interval(right as u64, samples as u64, CONFIDENCE) {
        record.accuracy_lower = Some(lower);
        record.accuracy_upper = Some(upper);
    }
    // Of five classes or fewer one of the five largest is always right.
    if let (Some(labels), Some(largest)) = (&evaluation.labels, &evaluation.largest)
        && evaluation.outputs.first().is_some_and(|row| row.len() > 5)
    {
        let among = labels.iter().zip(largest).filter(|(label, places)| places.contains(label)).count();
        record.accuracy_top5 = Some(part(among));
    }
}

/// The confidence of the intervals.
const CONFIDENCE: f64 = 0.95;

fn put_agreement(record: &mut Record, evaluation: &Evaluation, original: &Evaluation) {
    // Others were read, or could be: what is paired has to be of the same samples.
    let is_same = (&evaluation.data_source, &evaluation.labels, evaluation.samples, &evaluation.unreadable)
        == (&original.data_source, &original.labels, original.samples, &original.unreadable);
    if !is_same || evaluation.samples == 0 {
        return;
    }
    let cosines: Vec<f64> =
        evaluation.outputs.iter().zip(&original.outputs).filter_map(|(one, other)| cosine(one, other)).collect();
    if !cosines.is_empty() {
        record.output_cosine = Some(cosines.iter().sum::<f64>() / cosines.len() as f64);
        record.agreement_samples = Some(cosines.len() as u64);
    }
    if let (Some(own), Some(of_original)) = (&evaluation.largest, &original.largest) {
        let agree = own.iter().zip(of_original).filter(|(one, other)| one.first() == other.first()).count();
        record.agreement = Some(agree as f64 / own.len() as f64);
        record.agreement_samples = Some(own.len() as u64);
    }
    if let (Some(right), Some(was_right)) = (evaluation.right(), original.right()) {
        let count = |now: bool, before: bool| {
            right.iter().zip(&was_right).filter(|(one, other)| (**one, **other) == (now, before)).count() as u64
        };
        let (gained, lost, samples) = (count(true, false), count(false, true), right.len() as u64);
        record.accuracy_change = Some((gained as f64 - lost as f64) / samples as f64);
        if let Some((lower, upper)) = paired_difference_interval(gained, lost, samples, CONFIDENCE) {
            record.accuracy_change_lower = Some(lower);
            record.accuracy_change_upper = Some(upper);
        }
    }
}

/// The cosine of the angle between two outputs of one size; none where one is 0 throughout or has another size.
fn cosine(one: &[f32], other: &[f32]) -> Option<f64> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let norms = (dot(one, one) * dot(other, other)).sqrt();
    (one.len() == other.len() && norms > 0.0 && norms.is_finite()).then(|| dot(one, other) / norms)
}

impl Evaluation {
    /// For each labelled sample whether the largest output is at its label.
    fn right(&self) -> Option<Vec<bool>> {
        let (labels, largest) = (self.labels.as_ref()?, self.largest.as_ref()?);
        let is_right = |(label, places): (&i64, &Vec<i64>)| places.first() == Some(label);
        (!labels.is_empty() && labels.len() == largest.len())
            .then(|| labels.iter().zip(largest).map(is_right).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Status;
    use crate::record::RunIdentity;

    fn evaluation(first_places: &[i64]) -> Evaluation {
        Evaluation {
            data_source: "held-out".into(),
            samples: first_places.len(),
            labels: Some(vec![0, 1, 2, 3]),
            largest: Some(first_places.iter().map(|&place| vec![place, 3, 4, 5, 6]).collect()),
            outputs: first_places.iter().map(|&place| vec![place as f32, 1.0, 0.0, 0.0, 0.0, 0.0]).collect(),
            unreadable: Vec::new(),
        }
    }

    fn record_of(answers: &Answers, case: &Case) -> Record {
        let run = RunIdentity {
            run_id: "r".into(),
            timestamp: "2026-01-01T00:00:00Z".parse().unwrap(),
            git_commit: None,
            git_dirty: None,
            host_id: "h".into(),
            suite: "s".into(),
            rustc_version: "1".into(),
        };
        let mut record = Record::new(&run, case, Status::Ok, None);
        answers.put_into(&mut record);
        record
    }

    #[test]
    fn accuracy_counts_labels_and_the_change_counts_samples_that_differ() {
        let original = Case::new("m", "ort", 1);
        let pruned = Case { variant: "pruned".into(), ..original.clone() };
        let elsewhere = Case { variant: "pruned".into(), ..Case::new("m", "tch", 8) };
        let of = [(&original, [0, 1, 2, 0]), (&pruned, [0, 1, 0, 3]), (&elsewhere, [0, 1, 2, 3])];
        let of = of.map(|(case, places)| (case.to_string(), (case.clone(), evaluation(&places))));
        let answers = Answers { of: of.into() };
        let record = record_of(&answers, &original);
        assert_eq!((record.accuracy, record.accuracy_samples, record.agreement), (Some(0.75), Some(4), None));
        assert_eq!(record.accuracy_top5, Some(1.0));
        let record = record_of(&answers, &pruned);
        assert_eq!((record.accuracy, record.accuracy_change, record.agreement), (Some(0.75), Some(0.0), Some(0.5)));
        assert!(record.accuracy_change_lower < Some(0.0) && record.accuracy_change_upper > Some(0.0));
        // No original on its backend: that of another.
        let record = record_of(&answers, &elsewhere);
        assert_eq!((record.accuracy, record.accuracy_change, record.agreement), (Some(1.0), Some(0.25), Some(0.75)));
        assert!(record_of(&answers, &Case::new("other", "ort", 1)).data_source.is_none());
    }

    #[test]
    fn what_was_judged_by_other_samples_is_not_compared() {
        let original = Case::new("m", "ort", 1);
        let pruned = Case { variant: "pruned".into(), ..original.clone() };
        let other = Evaluation { unreadable: vec!["a.jpg".into()], ..evaluation(&[0, 1, 2, 3]) };
        let of = [
            (original.to_string(), (original, evaluation(&[0, 1, 2, 3]))),
            (pruned.to_string(), (pruned.clone(), other)),
        ];
        let record = record_of(&Answers { of: of.into() }, &pruned);
        assert_eq!((record.accuracy, record.agreement, record.accuracy_change), (Some(1.0), None, None));
        assert_eq!(record.message.as_deref(), Some("a sample could not be read: a.jpg"));
    }

    #[test]
    fn the_cosine_is_of_directions() {
        assert_eq!(cosine(&[1.0, 0.0], &[5.0, 0.0]), Some(1.0));
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, -2.0]), Some(0.0));
        assert_eq!(cosine(&[0.0], &[1.0]), None);
        assert_eq!(cosine(&[1.0], &[1.0, 2.0]), None);
    }
}

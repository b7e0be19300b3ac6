//! Computes accuracy, agreement with the original in f32, and the metrics of the model's kind, from the answers of
//! evaluated cases.

use std::collections::BTreeMap;

use super::judges::{Figure, figures};
use crate::definition::{Case, Dtype, ORIGINAL};
use crate::run_data::{Evaluation, Judged, Manifest, ManifestCase, MaskForm, Metric, Record, RunFolder, with_note};

/// The answers of a run's cases, by their ids.
pub struct Answers(BTreeMap<String, (Case, Evaluation)>);

impl Answers {
    /// Reads the answers of all cases that were evaluated. Those that cannot be read are reported and left out.
    pub fn read(folder: &RunFolder, manifest: &Manifest) -> Self {
        let answers = manifest.cases.iter().filter_map(|ManifestCase { case, .. }| {
            let read = Evaluation::read(folder.path(), &case.benchmark_id());
            let read = read.inspect_err(|why| eprintln!("{case}: its answers were not evaluated: {why:#}"));
            Some((case.to_string(), (case.clone(), read.ok()??)))
        });
        Answers(answers.collect())
    }

    /// Fills the record's columns with what the answers of its case show.
    pub fn put_into(&self, record: &mut Record) {
        let Some((case, evaluation)) = self.0.get(&record.case_id) else { return };
        record.data_source = Some(evaluation.data_source.clone());
        put_accuracy(record, evaluation);
        if let Some((original, answers)) = self.original_of(case) {
            put_agreement(record, evaluation, original, answers);
        }
        if let Some(first) = evaluation.unreadable.first() {
            add_note(
                record,
                match evaluation.unreadable.len() {
                    1 => format!("a sample could not be read: {first}"),
                    count => format!("{count} samples could not be read, the first: {first}"),
                },
            );
        }
        if evaluation.not_finite > 0 {
            let (count, samples) = (evaluation.not_finite, evaluation.samples);
            add_note(record, format!("the outputs of {count} of {samples} samples are not finite, and count as wrong"));
        }
    }

    /// The metrics of a record whose answers were evaluated, by the judge of its model's kind.
    pub fn metrics_of(&self, record: &Record) -> Vec<Metric> {
        let evaluated = self.0.get(&record.case_id).filter(|_| record.data_source.is_some());
        let Some((case, evaluation)) = evaluated else { return Vec::new() };
        let original = self.original_of(case).filter(|(_, answers)| has_same_samples(evaluation, answers));
        let metric = |figure: Figure| {
            let (lower, upper) = figure.interval.unzip();
            Metric {
                run_id: record.run_id.clone(),
                case_id: record.case_id.clone(),
                metric: figure.name,
                value: figure.value,
                lower,
                upper,
                unit: figure.unit,
                samples: figure.samples as u64,
                compared_with: original.filter(|_| figure.is_compared).map(|(case, _)| case.to_string()),
                better: figure.better,
                host_id: Some(record.host_id.clone()),
            }
        };
        figures(evaluation, original.map(|(_, answers)| answers)).into_iter().map(metric).collect()
    }

    /// The answers of the original: in f32, or in its own dtype if the run has none in f32. The same backend, device
    /// and batch size are preferred, in this order; otherwise the first by name counts.
    fn original_of(&self, case: &Case) -> Option<&(Case, Evaluation)> {
        let is_original = |other: &Case| {
            let is_same_work = (&other.model, other.phase, other.sequence_length, other.boundary)
                == (&case.model, case.phase, case.sequence_length, case.boundary);
            is_same_work && other.dims == case.dims && other.variant == ORIGINAL
        };
        let originals: Vec<_> = self.0.values().filter(|(other, _)| is_original(other)).collect();
        let has_f32 = originals.iter().any(|(other, _)| other.dtype == Dtype::F32);
        if case.variant == ORIGINAL && (case.dtype == Dtype::F32 || !has_f32) {
            return None;
        }
        let distance = |other: &Case| {
            let other_dtype = other.dtype != Dtype::F32;
            let other_place = (other.backend != case.backend, other.device != case.device);
            (other_dtype, other_place, other.batch_size != case.batch_size)
        };
        originals.into_iter().min_by_key(|(other, _)| distance(other))
    }
}

pub(super) fn add_note(record: &mut Record, note: String) {
    record.message = with_note(record.message.take(), note);
}

fn put_accuracy(record: &mut Record, evaluation: &Evaluation) {
    let Some(right) = evaluation.right() else { return };
    if let Some(accuracy) = Figure::of_proportion("accuracy", &right) {
        record.accuracy = Some(accuracy.value);
        record.accuracy_samples = Some(accuracy.samples as u64);
        (record.accuracy_lower, record.accuracy_upper) = accuracy.interval.unzip();
    }
    // With five classes or fewer, one of the five largest is always right.
    if let (Some(labels), Some(largest)) = (&evaluation.labels, &evaluation.largest)
        && evaluation.outputs.first().is_some_and(|row| row.len() > 5)
    {
        let among = labels.iter().zip(largest).filter(|(label, places)| places.contains(label)).count();
        record.accuracy_top5 = Some(among as f64 / right.len() as f64);
    }
}

/// Whether both are answers to the same samples, so that they can be paired.
fn has_same_samples(evaluation: &Evaluation, answers: &Evaluation) -> bool {
    let is_same = (&evaluation.data_source, &evaluation.labels, evaluation.samples, &evaluation.unreadable)
        == (&answers.data_source, &answers.labels, answers.samples, &answers.unreadable);
    is_same && evaluation.samples > 0
}

fn put_agreement(record: &mut Record, evaluation: &Evaluation, original: &Case, answers: &Evaluation) {
    if !has_same_samples(evaluation, answers) {
        return;
    }
    // Only metrics compare texts, transcripts and what a package judges by itself.
    if evaluation.outputs.is_empty() {
        record.compared_with = Some(original.to_string());
        return;
    }
    let width = |evaluation: &Evaluation| evaluation.outputs.first().map_or(0, Vec::len);
    if width(evaluation) != width(answers) {
        let (width, of_original) = (width(evaluation), width(answers));
        add_note(record, format!("{width} outputs per sample cannot be compared with {of_original} of {original}"));
        return;
    }
    if width(evaluation) < 2 && evaluation.judged.is_none() {
        add_note(record, "one output per sample has no direction to be compared with the original's".into());
        return;
    }
    record.compared_with = Some(original.to_string());
    // The classes of pixels have no direction, as a single number has none.
    if width(evaluation) < 2 || matches!(evaluation.judged, Some(Judged::Masks { form: MaskForm::Class, .. })) {
        return;
    }
    let cosines: Vec<f64> =
        evaluation.outputs.iter().zip(&answers.outputs).map(|(one, other)| cosine(one, other)).collect();
    record.output_cosine = Some(cosines.iter().sum::<f64>() / cosines.len() as f64);
    record.output_cosine_samples = Some(cosines.len() as u64);
    if let (Some(own), Some(of_original)) = (&evaluation.largest, &answers.largest) {
        let is_same = |(one, other): &(&Vec<i64>, &Vec<i64>)| !one.is_empty() && one.first() == other.first();
        let agree = own.iter().zip(of_original).filter(is_same).count();
        record.agreement = Some(agree as f64 / own.len() as f64);
        record.agreement_samples = Some(own.len() as u64);
    }
    let both = evaluation.right().zip(answers.right());
    if let Some(change) = both.and_then(|(right, was)| Figure::of_difference("accuracy", &right, &was)) {
        record.accuracy_change = Some(change.value);
        (record.accuracy_change_lower, record.accuracy_change_upper) = change.interval.unzip();
    }
}

/// The cosine of the angle between two outputs of one size; 0 where one of them has no direction, since it is 0
/// throughout or not finite, and 1 where both are 0 throughout.
fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let (of_one, of_other) = (dot(one, one), dot(other, other));
    if of_one == 0.0 && of_other == 0.0 {
        return 1.0;
    }
    let cosine = dot(one, other) / (of_one.sqrt() * of_other.sqrt());
    if cosine.is_finite() { cosine } else { 0.0 }
}

impl Evaluation {
    /// For each labelled sample, whether the largest output is at its label.
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

    fn evaluation(first_places: &[i64]) -> Evaluation {
        Evaluation {
            data_source: "held-out".into(),
            samples: first_places.len(),
            labels: Some(vec![0, 1, 2, 3]),
            largest: Some(first_places.iter().map(|&place| vec![place, 3, 4, 5, 6]).collect()),
            outputs: first_places.iter().map(|&place| vec![place as f32, 1.0, 0.0, 0.0, 0.0, 0.0]).collect(),
            ..Evaluation::default()
        }
    }

    fn answers<const N: usize>(of: [(&Case, Evaluation); N]) -> Answers {
        let of = of.map(|(case, evaluation)| (case.to_string(), (case.clone(), evaluation)));
        Answers(of.into())
    }

    fn record_of(answers: &Answers, case: &Case) -> Record {
        let mut record = Record::default().about(case);
        answers.put_into(&mut record);
        record
    }

    #[test]
    fn accuracy_counts_labels_and_the_change_counts_samples_that_differ() {
        let original = Case::new("m", "ort", 1);
        let pruned = Case { variant: "pruned".into(), ..original.clone() };
        let elsewhere = Case { variant: "pruned".into(), ..Case::new("m", "tch", 8) };
        let of = [(&original, [0, 1, 2, 0]), (&pruned, [0, 1, 0, 3]), (&elsewhere, [0, 1, 2, 3])];
        let answers = answers(of.map(|(case, places)| (case, evaluation(&places))));
        let record = record_of(&answers, &original);
        assert_eq!((record.accuracy, record.accuracy_samples, record.agreement), (Some(0.75), Some(4), None));
        assert_eq!(record.accuracy_top5, Some(1.0));
        let record = record_of(&answers, &pruned);
        assert_eq!((record.accuracy, record.accuracy_change, record.agreement), (Some(0.75), Some(0.0), Some(0.5)));
        assert!(record.accuracy_change_lower < Some(0.0) && record.accuracy_change_upper > Some(0.0));
        assert_eq!((record.compared_with, record.output_cosine_samples), (Some(original.to_string()), Some(4)));
        // Its backend has no original, so another backend's counts.
        let record = record_of(&answers, &elsewhere);
        assert_eq!((record.accuracy, record.accuracy_change, record.agreement), (Some(1.0), Some(0.25), Some(0.75)));
        assert!(record_of(&answers, &Case::new("other", "ort", 1)).data_source.is_none());
    }

    #[test]
    fn what_was_judged_by_other_samples_is_not_compared() {
        let original = Case::new("m", "ort", 1);
        let pruned = Case { variant: "pruned".into(), ..original.clone() };
        let other = Evaluation { unreadable: vec!["a.jpg".into()], ..evaluation(&[0, 1, 2, 3]) };
        let record = record_of(&answers([(&original, evaluation(&[0, 1, 2, 3])), (&pruned, other)]), &pruned);
        assert_eq!((record.accuracy, record.agreement, record.accuracy_change), (Some(1.0), None, None));
        assert_eq!(record.message.as_deref(), Some("a sample could not be read: a.jpg"));
    }

    #[test]
    fn a_single_output_and_one_of_another_size_are_compared_with_nothing() {
        let original = Case::new("m", "ort", 1);
        let pruned = Case { variant: "pruned".into(), ..original.clone() };
        let of_width = |width: usize| Evaluation {
            labels: None,
            largest: None,
            outputs: vec![vec![3.0; width]; 4],
            ..evaluation(&[0, 1, 2, 3])
        };
        for (width, other, note) in [(1, 1, "one output per sample"), (3, 2, "2 outputs per sample")] {
            let record = record_of(&answers([(&original, of_width(width)), (&pruned, of_width(other))]), &pruned);
            assert_eq!((record.output_cosine, record.compared_with), (None, None));
            assert!(record.message.as_ref().is_some_and(|message| message.contains(note)), "{:?}", record.message);
        }
    }

    #[test]
    fn answers_without_outputs_name_the_original_that_their_metrics_compare_them_with() {
        let original = Case::new("m", "ort", 1);
        let int8 = Case { variant: "int8".into(), ..original.clone() };
        let text = || Evaluation {
            data_source: "held-out".into(),
            samples: 4,
            judged: Some(Judged::Texts { read: Vec::new(), is_recorded: true }),
            ..Evaluation::default()
        };
        let both = answers([(&original, text()), (&int8, text())]);
        assert_eq!(record_of(&both, &int8).compared_with, Some(original.to_string()));
        assert_eq!(record_of(&answers([(&int8, text())]), &int8).compared_with, None);
    }

    #[test]
    fn what_is_not_finite_agrees_with_nothing() {
        let original = Case::new("m", "ort", 1);
        let f16 = Case { dtype: Dtype::F16, ..original.clone() };
        let mut broken = evaluation(&[0, 1, 2, 3]);
        broken.not_finite = 1;
        broken.largest.as_mut().unwrap()[0] = Vec::new();
        broken.outputs[0] = vec![f32::NAN; 6];
        let record = record_of(&answers([(&original, evaluation(&[0, 1, 2, 3])), (&f16, broken)]), &f16);
        assert_eq!((record.accuracy, record.agreement), (Some(0.75), Some(0.75)));
        assert!((record.output_cosine.unwrap() - 0.75).abs() < 1e-12, "{:?}", record.output_cosine);
        assert!(record.message.unwrap().contains("1 of 4 samples are not finite"));
        // If no output is finite, 0 of 4 are right, and not 0 of 0.
        let none = Evaluation { not_finite: 4, largest: Some(vec![Vec::new(); 4]), ..evaluation(&[0, 1, 2, 3]) };
        let folder = tempfile::tempdir().unwrap();
        none.write(folder.path(), &f16.benchmark_id()).unwrap();
        let none = Evaluation::read(folder.path(), &f16.benchmark_id()).unwrap().unwrap();
        let record = record_of(&answers([(&f16, none)]), &f16);
        assert_eq!((record.accuracy, record.accuracy_samples), (Some(0.0), Some(4)));
        assert_eq!(record.accuracy_lower, Some(0.0));
    }

    #[test]
    fn an_original_that_is_not_f32_is_compared_with_in_its_own_dtype() {
        let original = Case { dtype: Dtype::F16, ..Case::new("m", "ort", 1) };
        let int8 = Case { variant: "int8".into(), dtype: Dtype::I8, ..original.clone() };
        let both = answers([(&original, evaluation(&[0, 1, 2, 3])), (&int8, evaluation(&[0, 1, 2, 0]))]);
        assert_eq!(record_of(&both, &int8).compared_with, Some(original.to_string()));
        assert_eq!(record_of(&both, &original).compared_with, None);
        let f32 = Case { dtype: Dtype::F32, ..Case::new("m", "tch", 1) };
        let all = answers([&original, &int8, &f32].map(|case| (case, evaluation(&[0, 1, 2, 3]))));
        assert_eq!(record_of(&all, &int8).compared_with, Some(f32.to_string()));
        assert_eq!(record_of(&all, &original).compared_with, Some(f32.to_string()));
    }

    #[test]
    fn the_cosine_is_of_directions() {
        assert_eq!(cosine(&[1.0, 0.0], &[5.0, 0.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, -2.0]), 0.0);
        assert_eq!(cosine(&[0.0, 0.0], &[1.0, 0.0]), 0.0);
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 0.0]), 1.0);
        assert_eq!(cosine(&[f32::NAN, 1.0], &[1.0, 1.0]), 0.0);
        assert_eq!(cosine(&[f32::INFINITY, 1.0], &[1.0, 1.0]), 0.0);
        assert_eq!(cosine(&[f32::MAX; 2], &[f32::MAX; 2]), 1.0);
    }
}

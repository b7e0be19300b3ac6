//! The evaluation of a case's answers: its session runs over all samples after it was measured.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::answers;
use super::following::{self, Following, stacked};
use super::maps::{self, MaskLabels};
use super::scores;
use super::vocabulary::Vocabulary;
use crate::backend::Session;
use crate::definition::{Case, CaseFailure, Dimension, Judge, Model, Phase, Status, TensorSpec, is_scores};
use crate::fixture::{HostTensor, Label, Sample, Samples, TensorData};
use crate::harness::protocol::WorkItem;
use crate::report::numbers::plural;
use crate::run_data::{Evaluation, Event, Judged, RunFolder, places_of_largest};

/// Outputs are kept whole for as many samples as have this many numbers together, and for at least this many samples.
const KEPT_NUMBERS: usize = 4 << 20;
const KEPT_AT_LEAST: usize = 64;
/// The most numbers that are kept, unless two samples have more: 128 MiB of f32.
const MOST_NUMBERS: usize = 32 << 20;
/// The most samples of a calibration.
const MOST_CALIBRATING: usize = 100;
/// How often a worker reports progress: to the user, and to the supervisor, which would end it after the timeout.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Whether a case can be evaluated by samples: its inputs have a row per sample, and its calls are forward passes, or
/// decoding steps of a generative model.
pub fn can_be_evaluated(case: &Case, model: &Model) -> bool {
    let is_of_batch =
        |input: &TensorSpec| input.is_batched() || input.shape.first() == Some(&Dimension::Fixed(case.batch_size));
    let phase = if model.generation.is_some() { Phase::Decode } else { Phase::Forward };
    case.phase == phase && model.inputs.iter().all(is_of_batch)
}

/// Runs the session of a case over the model's samples, in batches of the case's size, and keeps its answers in the
/// run's folder. This replaces the inputs of binding 0.
///
/// # Errors
/// A call fails, no sample can be read, the outputs are not what the labels are about, or the folder cannot be written.
pub fn answer_samples(session: &mut dyn Session, item: &WorkItem, folder: &RunFolder) -> Result<(), CaseFailure> {
    let WorkItem { case, model, .. } = item;
    let samples = Samples::open(model, case.sequence_length)?;
    let count = following::count(model, &samples);
    eprintln!("  evaluating {} of {}", plural(count, "sample", "samples"), model.data_source.name());
    let judging = Judging {
        model,
        judge: model.judged_by(),
        batch_size: case.batch_size,
        names: model.output_names(case.phase),
        vocabulary: Vocabulary::beside(model),
        samples: &samples,
    };
    let following = model.generation.as_ref().map(|_| Following::new(session, item, &samples)).transpose()?;
    let has_groups = judging.is_of_kept() && samples.has_labels();
    let mut evaluation = Evaluation {
        data_source: model.data_source.name(),
        labels: (judging.has_class_labels() || has_groups).then(Vec::new),
        ..Evaluation::default()
    };
    let mut masks = MaskLabels::default();
    let mut said = Instant::now();
    let mut batch = Vec::with_capacity(case.batch_size);
    for place in 0..count {
        match samples.sample(place) {
            Ok(sample) => batch.push(sample),
            Err(why) => evaluation.unreadable.push(format!("{why:#}")),
        }
        let is_last = place + 1 == count;
        if batch.len() == case.batch_size || is_last && !batch.is_empty() {
            match &following {
                Some(following) => following.add(session, &batch, &judging.vocabulary, &mut evaluation)?,
                None => {
                    let (_, outputs) = run_batch(session, case.batch_size, &batch)?;
                    scores::add(&mut evaluation, &model.name, case.batch_size, &batch, &outputs)?;
                    let known = evaluation.samples;
                    match judging.add(&outputs, &batch, count, &mut evaluation) {
                        // Answers that no judge here knows still have the scores of a package's own metrics.
                        Err(why) if scores::are_scored() && why.status == Status::Unsupported => {
                            (evaluation.labels, evaluation.judged) = (None, None);
                            evaluation.samples = known + batch.len();
                        }
                        judged => judged?,
                    }
                }
            }
            if judging.judge == Judge::Segmentation {
                masks.add(&batch);
            }
            batch.clear();
        }
        if said.elapsed() >= PROGRESS_EVERY {
            said = Instant::now();
            eprintln!("  {} of {count} samples", place + 1);
            folder.append(&Event::Evaluating { id: item.id() })?;
        }
    }
    for why in &evaluation.unreadable {
        eprintln!("  left out: {why}");
    }
    if evaluation.samples == 0 {
        let first = evaluation.unreadable.first().cloned().unwrap_or_default();
        return Err(CaseFailure::failed(format!("no sample of {} can be read: {first}", evaluation.data_source)));
    }
    masks.check(evaluation.judged.as_ref())?;
    Ok(evaluation.write(folder.path(), &case.benchmark_id())?)
}

/// What the answers of a model are judged by.
struct Judging<'a> {
    model: &'a Model,
    judge: Judge,
    batch_size: usize,
    names: Vec<String>,
    vocabulary: Vocabulary,
    samples: &'a Samples,
}

impl Judging<'_> {
    fn has_class_labels(&self) -> bool {
        self.judge == Judge::Classes && self.samples.has_labels()
    }

    /// Whether labels are kept for the same samples as outputs.
    fn is_of_kept(&self) -> bool {
        matches!(self.judge, Judge::Embedding | Judge::Recommendation)
    }

    fn is_of_samples(&self, output: &HostTensor) -> bool {
        !output.is_integer() && output.shape.first() == Some(&self.batch_size) && !output.shape.contains(&0)
    }

    /// Adds the outputs of a batch; there may be fewer samples than the batch size.
    fn add(
        &self,
        outputs: &[HostTensor],
        batch: &[Sample],
        samples_in_all: usize,
        evaluation: &mut Evaluation,
    ) -> Result<(), CaseFailure> {
        answers::add(&mut evaluation.judged, (self.judge, self.model, &self.vocabulary), outputs, batch)?;
        let is_embedding = self.judge == Judge::Embedding;
        let is_vector = |it: &HostTensor| is_embedding && self.is_of_samples(it) && it.has_list_per_sample();
        let vectors = answers::vectors(&self.names, outputs, is_vector);
        let kept_from = evaluation.samples;
        let map = maps::place(self.judge, &self.names, self.batch_size, outputs);
        let output = self.output(outputs, vectors.first().copied().or(map))?;
        add(evaluation, &output, batch, samples_in_all);
        match (map, maps::wanted(self.judge)) {
            (Some(place), _) => {
                let name = self.names.get(place).map_or("", String::as_str);
                maps::add(&mut evaluation.judged, self.judge, name, &outputs[place], batch)?;
            }
            (None, Some(wanted)) => answers::misfit(self.model, self.samples.has_labels(), wanted, outputs)?,
            (None, None) => {}
        }
        if !is_embedding {
            return Ok(());
        }
        if vectors.is_empty() {
            return answers::misfit(self.model, self.samples.has_labels(), "vector per sample", outputs);
        }
        let name = |place: usize| self.names.get(place).cloned().unwrap_or_else(|| format!("output_{place}"));
        let others = vectors[1..].iter().map(|&place| (name(place), Vec::new())).collect();
        let new = Judged::Embeddings { first: name(vectors[0]), others };
        if let Judged::Embeddings { others, .. } = evaluation.judged.get_or_insert(new) {
            for ((_, rows), &place) in others.iter_mut().zip(&vectors[1..]) {
                let values = outputs[place].to_f64();
                let every = kept_every(output.width, samples_in_all);
                let kept = values.chunks_exact(values.len() / self.batch_size).take(batch.len()).enumerate();
                let kept = kept.filter(|(row, _)| (kept_from + row).is_multiple_of(every));
                rows.extend(kept.map(|(_, row)| row.iter().map(|&value| value as f32).collect::<Vec<f32>>()));
            }
        }
        Ok(())
    }

    /// The output that is compared with the original's: the one at `place`, or else the first whose name stands for
    /// scores per class, or else the first with numbers per sample.
    fn output(&self, outputs: &[HostTensor], place: Option<usize>) -> Result<Output, CaseFailure> {
        let has_labels = self.has_class_labels();
        let is_evaluated =
            |output: &HostTensor| self.is_of_samples(output) && (!has_labels || output.has_list_per_sample());
        let is_of_scores = |&place: &usize| {
            self.names.get(place).is_some_and(|name| is_scores(name)) && outputs[place].has_list_per_sample()
        };
        let of_scores = || (0..outputs.len()).filter(is_of_scores).find(|&place| is_evaluated(&outputs[place]));
        let first = || outputs.iter().position(is_evaluated);
        let Some(place) = place.or_else(of_scores).or_else(first) else {
            let what = if has_labels { "a score per class" } else { "floating-point numbers" };
            let shapes = answers::shapes(outputs);
            return Err(CaseFailure::unsupported(format!("no output has {what} per sample; there are {shapes}")));
        };
        let values = outputs[place].to_f64();
        let width = values.len() / self.batch_size;
        if has_labels {
            self.samples.check_width(width)?;
        }
        let is_named_so = self.names.get(place).is_some_and(|name| is_scores(name));
        let are_scores = is_named_so && self.judge != Judge::Recommendation && outputs[place].has_list_per_sample();
        let is_classes = has_labels || are_scores;
        Ok(Output { values, width, is_classes, has_groups: self.is_of_kept() })
    }
}

/// The output of a batch that is evaluated.
struct Output {
    /// The values of all samples, one sample after the other.
    values: Vec<f64>,
    /// Values per sample.
    width: usize,
    is_classes: bool,
    /// Whether labels are groups of samples.
    has_groups: bool,
}

/// Runs the session over a batch of samples, and returns its inputs and outputs.
fn run_batch(
    session: &mut dyn Session,
    batch_size: usize,
    batch: &[Sample],
) -> Result<(Vec<HostTensor>, Vec<HostTensor>), CaseFailure> {
    let inputs = stacked(batch, batch_size)?;
    session.rebind(0, &inputs)?;
    let outputs = session.outputs(0)?;
    Ok((inputs, outputs))
}

/// The smallest and the largest number of each f32 input and output of a session, by name, over up to 100 of the
/// model's samples, evenly spread. A value that is ever infinite, such as a sum with an attention mask, has no range.
///
/// # Errors
/// A call fails, no sample can be read, or a number is NaN.
pub fn ranges_over_samples(
    session: &mut dyn Session,
    WorkItem { case, model, .. }: &WorkItem,
) -> Result<BTreeMap<String, [f32; 2]>, CaseFailure> {
    let samples = Samples::open_for_calibration(model, case.sequence_length)?;
    let count = samples.len().min(MOST_CALIBRATING);
    let input_names = model.inputs.iter().map(|input| input.name.clone());
    let names: Vec<String> = input_names.chain(model.output_names(case.phase)).collect();
    let mut ranges: BTreeMap<String, [f32; 2]> = BTreeMap::new();
    let mut unreadable = None;
    for number in 0..count {
        let sample = match samples.sample(number * samples.len() / count) {
            Ok(sample) => sample,
            Err(why) => {
                unreadable = Some(why);
                continue;
            }
        };
        let (inputs, outputs) = run_batch(session, case.batch_size, &[sample])?;
        for (name, tensor) in names.iter().zip(inputs.iter().chain(&outputs)) {
            let TensorData::F32(numbers) = &tensor.data else { continue };
            if numbers.iter().any(|number| number.is_nan()) {
                return Err(CaseFailure::failed(format!("value {name:?} of the graph is NaN for sample {number}")));
            }
            let range = ranges.entry(name.clone()).or_insert([f32::INFINITY, f32::NEG_INFINITY]);
            *range = numbers.iter().fold(*range, |[least, most], &it| [least.min(it), most.max(it)]);
        }
    }
    // A value without numbers still has infinite ends.
    ranges.retain(|_, range| range.iter().all(|end| end.is_finite()));
    match unreadable.filter(|_| ranges.is_empty()) {
        Some(why) => {
            Err(CaseFailure::failed(format!("no sample of {} can be read: {why:#}", model.data_source.name())))
        }
        None => Ok(ranges),
    }
}

/// The step between samples whose outputs are kept.
fn kept_every(width: usize, samples_in_all: usize) -> usize {
    let width = width.max(1);
    let at_least = KEPT_AT_LEAST.min((MOST_NUMBERS / width).max(2));
    samples_in_all.div_ceil((KEPT_NUMBERS / width).max(at_least))
}

fn add(evaluation: &mut Evaluation, output: &Output, batch: &[Sample], samples_in_all: usize) {
    let every = kept_every(output.width, samples_in_all);
    for (row, sample) in output.values.chunks_exact(output.width.max(1)).zip(batch) {
        let is_finite = row.iter().all(|value| value.is_finite());
        evaluation.not_finite += usize::from(!is_finite);
        if output.is_classes {
            let largest = if is_finite { places_of_largest(row) } else { Vec::new() };
            evaluation.largest.get_or_insert_default().push(largest.into_iter().map(|place| place as i64).collect());
        }
        let is_kept = evaluation.samples.is_multiple_of(every);
        if let Some(labels) = evaluation.labels.as_mut().filter(|_| is_kept || !output.has_groups) {
            labels.push(if let Some(Label::Class(class)) = sample.label { class } else { -1 });
        }
        if is_kept {
            evaluation.outputs.push(row.iter().map(|&value| value as f32).collect());
        }
        evaluation.samples += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Artifacts;

    /// A session that always has this output.
    struct Known([f32; 2]);

    impl Session for Known {
        fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
            Ok(0)
        }
        fn rebind(&mut self, _: usize, _: &[HostTensor]) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn outputs(&mut self, _: usize) -> Result<Vec<HostTensor>, CaseFailure> {
            Ok(vec![HostTensor { shape: vec![1, 2], data: TensorData::F32(self.0.to_vec()) }])
        }
    }

    #[test]
    fn an_infinite_value_has_no_range_and_one_of_nan_is_an_error() {
        let [input, output] = ["x:f32[batch,2]=1", "sum:f32[batch,2]"].map(|text| text.parse().unwrap());
        let model = Model::of_tensors("m", vec![input], vec![output]);
        let item = WorkItem::new(Case::new("m", "ort", 1), model, Artifacts::default());
        let ranges = |sum| ranges_over_samples(&mut Known(sum), &item);
        assert_eq!(ranges([f32::NEG_INFINITY, 2.0]).unwrap(), BTreeMap::from([("x".to_owned(), [1.0; 2])]));
        assert_eq!(ranges([-3.0, 2.0]).unwrap()["sum"], [-3.0, 2.0]);
        assert!(ranges([f32::NAN, 2.0]).unwrap_err().message.contains("\"sum\" of the graph is NaN"));
    }

    #[test]
    fn wide_outputs_are_kept_of_fewer_samples() {
        let kept = |width: usize| 450_usize.div_ceil(kept_every(width, 450));
        assert_eq!([10, 65_536, 128 * 50_257, 1 << 30].map(kept), [450, 57, 5, 2]);
    }

    #[test]
    fn outputs_that_are_not_finite_have_no_class_and_outputs_are_kept_evenly() {
        let sample = Sample { inputs: Vec::new(), label: Some(Label::Class(0)) };
        let width = KEPT_NUMBERS / KEPT_AT_LEAST;
        let mut values = vec![0.0; width];
        let mut evaluation = Evaluation { labels: Some(Vec::new()), ..Evaluation::default() };
        for place in 0..2 * KEPT_AT_LEAST {
            values[0] = if place == 3 { f64::NAN } else { place as f64 + 1.0 };
            let output = Output { values: values.clone(), width, is_classes: true, has_groups: false };
            add(&mut evaluation, &output, std::slice::from_ref(&sample), 2 * KEPT_AT_LEAST);
        }
        assert_eq!((evaluation.samples, evaluation.not_finite), (2 * KEPT_AT_LEAST, 1));
        let largest = evaluation.largest.unwrap();
        assert_eq!((largest[2][0], largest[3].len()), (0, 0));
        let first: Vec<f32> = evaluation.outputs.iter().map(|row| row[0]).collect();
        assert_eq!((first.len(), &first[..3]), (KEPT_AT_LEAST, &[1.0, 3.0, 5.0][..]));
    }
}

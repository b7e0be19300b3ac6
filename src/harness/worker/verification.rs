//! The verification that a session computes its model: its outputs are compared with the reference, or with another
//! backend's, for every batch that is timed and for another batch size.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::backend::{self, Continuation, Session};
use crate::definition::{Case, CaseFailure, Dtype, Model, Phase, Sizes, Status, TensorSpec, TimedOn};
use crate::fixture::{self, Deviation, HostTensor, Reference, TensorData};
use crate::harness::protocol::{Job, Purpose};
use crate::run_data::files::{read_cbor, write_cbor};
use crate::run_data::{BY_REFERENCE as REFERENCE, Record};

/// Outputs with their names, in the order in which a session gives them.
type NamedTensors = Vec<(String, HostTensor)>;

/// The outputs of one backend, with which those of the others are compared if a model has no reference. They lie in the run's
/// folder, so they are never older than the run.
#[derive(Serialize, Deserialize)]
struct OtherOutputs {
    backend: String,
    dtype: Dtype,
    /// By binding.
    bindings: Vec<NamedTensors>,
}

impl OtherOutputs {
    fn path(run_folder: &Path, case: &Case, dtype: Dtype) -> PathBuf {
        let id = case.benchmark_id();
        run_folder.join("other-outputs").join(format!("{}-{dtype}-batch{}.cbor", id.group, id.value))
    }

    /// Reads what a case is to be compared with: outputs in f32, or else in its own dtype. Returns `None` if no other backend
    /// has left any.
    fn read(run_folder: &Path, case: &Case) -> anyhow::Result<Option<Self>> {
        let in_f32 = read_cbor(&Self::path(run_folder, case, Dtype::F32))?;
        if in_f32.is_some() { Ok(in_f32) } else { read_cbor(&Self::path(run_folder, case, case.dtype)) }
    }

    /// Leaves a case's outputs for the backends that come after it.
    fn write(run_folder: &Path, case: &Case, bindings: &[NamedTensors]) -> anyhow::Result<()> {
        let outputs = OtherOutputs { backend: case.backend.clone(), dtype: case.dtype, bindings: bindings.to_vec() };
        write_cbor(&Self::path(run_folder, case, case.dtype), &outputs)
    }
}

/// What a session is verified by.
pub struct Verification<'a> {
    pub case: &'a Case,
    pub model: &'a Model,
    pub reference: Option<&'a Reference>,
    pub job: &'a Job,
}

/// The expected outputs of each binding, which are compared once more after the measurement.
#[derive(Default)]
pub struct Expectation {
    /// Names and values of the outputs, by binding.
    bindings: Vec<NamedTensors>,
    closeness: Closeness,
}

/// How near two outputs have to be.
#[derive(Clone, Copy, Default)]
struct Closeness {
    /// The largest difference, relative to the largest expected value.
    largest: f64,
    /// Or else the root of the mean square of the differences, relative to that of the expected values, with a larger
    /// difference at single places; 0 if that is not enough.
    mean: f64,
    /// The fraction of integers that may differ.
    may_flip: f64,
}

impl Closeness {
    /// To a reference: no difference may be larger.
    fn to_reference(largest: f64) -> Self {
        Closeness { largest, mean: 0.0, may_flip: 0.0 }
    }

    /// To another runtime, which is not right either. Over many steps of a recurrent network, correct runtimes drift apart by
    /// several thousandths of the largest value at single places; what computes another function is apart by tenths.
    fn to_peer(largest: f64) -> Self {
        Closeness { largest, mean: if largest < 0.01 { 10.0 * largest } else { 0.0 }, may_flip: 0.01 }
    }

    fn check(self, Deviation { max_rel_error, rms_rel_error, .. }: Deviation) -> anyhow::Result<()> {
        let is_near_on_average = rms_rel_error <= self.mean && max_rel_error <= 10.0 * self.mean;
        ensure!(
            max_rel_error <= self.largest || is_near_on_average,
            "an error of {max_rel_error:.1e} of the largest value, where {:.0e} is allowed",
            self.largest
        );
        Ok(())
    }

    fn compare(self, outputs: &[HostTensor], expected: &NamedTensors) -> anyhow::Result<()> {
        self.check(fixture::deviation(outputs, expected, self.may_flip)?)
    }
}

/// Between two calls of one session.
const TOLERANCE_WITH_ITSELF: f64 = 1e-3;

impl Expectation {
    /// Compares the outputs once more, after the measurement.
    ///
    /// # Errors
    /// `wrong-output`: they changed.
    pub fn verify_again(&self, session: &mut dyn Session) -> Result<(), CaseFailure> {
        for (binding, expected) in self.bindings.iter().enumerate() {
            let outputs = session.outputs(binding)?;
            let near = self.closeness.compare(&outputs, expected);
            near.map_err(|why| wrong(format!("after the measurement: {why}")))?;
        }
        Ok(())
    }
}

impl Verification<'_> {
    /// Compares the outputs of a session to which `ring` is bound, and returns what they have to be afterwards.
    ///
    /// The reference alone decides what is right. Without one, the outputs of another backend do. Without either, outputs
    /// that no model should have make the case suspicious, and nothing is compared with them.
    ///
    /// # Errors
    /// `wrong-output`, with what is wrong; or why there are no outputs.
    pub fn verify(
        &self,
        session: &mut dyn Session,
        ring: &[Vec<HostTensor>],
        row: &mut Record,
    ) -> Result<Expectation, CaseFailure> {
        let outputs = (0..ring.len()).map(|binding| session.outputs(binding)).collect::<Result<Vec<_>, _>>()?;
        let itself = |outputs: &[Vec<HostTensor>]| Expectation {
            bindings: outputs.iter().map(|outputs| self.named(outputs)).collect(),
            closeness: Closeness::to_reference(TOLERANCE_WITH_ITSELF),
        };
        let has_outputs = outputs.iter().any(|outputs| !outputs.is_empty()) && self.case.backend != backend::NULL;
        if !has_outputs || self.job.purpose == Purpose::MeasureUnverified {
            return Ok(itself(&outputs));
        }
        let expectation = self.expectation(ring.len())?.filter(|(expectation, _)| {
            !self.may_lengths_differ()
                || expectation.bindings.iter().zip(&outputs).all(|it| have_same_shapes(it.0, it.1))
        });
        let Some((expectation, by)) = expectation else {
            let own = itself(&outputs);
            match suspicion(&outputs, ring) {
                // A backend that computes well must not be wrong because another one does not.
                Some(why) => {
                    let message = format!("{why}, and there is nothing to compare them with");
                    row.fail(CaseFailure::new(Status::Suspicious, message));
                }
                None => OtherOutputs::write(self.job.folder.path(), self.case, &own.bindings)?,
            }
            let closeness = Closeness::to_peer(self.model.tolerance.of(self.case.dtype));
            self.verify_other_batch(session, &outputs[0], closeness)?;
            return Ok(own);
        };
        let whose = match by.as_str() {
            REFERENCE => "the reference".to_owned(),
            other if other.contains(" in ") => format!("the outputs of {other}"),
            other => format!("the outputs of {other} in {}", self.case.dtype),
        };
        row.verified = Some(false);
        row.verified_by = Some(by);
        let larger = |before: Option<f64>, error: f64| Some(before.map_or(error, |before| before.max(error)));
        let mut has_ties = false;
        for (binding, (outputs, expected)) in outputs.iter().zip(&expectation.bindings).enumerate() {
            // The errors are noted where they are too large, too.
            let known = match fixture::deviation(outputs, expected, expectation.closeness.may_flip) {
                Ok(known) => known,
                Err(why) => {
                    match self.gap_of_tokens(session, &ring[binding], (binding, self.case.batch_size), expected)? {
                        Some(gap) if gap <= 2.0 * expectation.closeness.largest => {
                            has_ties = true;
                            row.max_rel_error = larger(row.max_rel_error, gap / 2.0);
                            continue;
                        }
                        Some(gap) => {
                            let gap =
                                format!("the logit of a token of {whose} is below the largest by {gap:.1e} of it");
                            return Err(wrong(format!("{why:#} ({whose}); {gap}")));
                        }
                        None => return Err(wrong(format!("{why:#} ({whose})"))),
                    }
                }
            };
            row.max_abs_error = larger(row.max_abs_error, known.max_abs_error);
            row.max_rel_error = larger(row.max_rel_error, known.max_rel_error);
            let near = expectation.closeness.check(known);
            near.map_err(|why| wrong(format!("the outputs differ from {whose}: {why}")))?;
        }
        self.verify_other_batch(session, &outputs[0], expectation.closeness)?;
        row.verified = Some(true);
        if has_ties {
            let note = format!("some tokens are others than those of {whose}, where two are nearly as likely");
            row.message = Some(row.message.take().map_or(note.clone(), |message| format!("{message}; {note}")));
            return Ok(itself(&outputs));
        }
        Ok(expectation)
    }

    /// How far the logits of the expected tokens are below the largest ones at most, each after the expected tokens before it, as a
    /// fraction of the largest logit. Of two tokens that are nearly as likely, a lower precision may take the other one, and all
    /// tokens after it are others then. Returns `None` in f32, where no tokens are made one after the other, and where the first
    /// token, which the prefill makes, is not known.
    fn gap_of_tokens(
        &self,
        session: &mut dyn Session,
        inputs: &[HostTensor],
        (binding, batch_size): (usize, usize),
        expected: &NamedTensors,
    ) -> Result<Option<f64>, CaseFailure> {
        if self.case.phase != Phase::Decode || self.case.dtype == Dtype::F32 {
            return Ok(None);
        }
        let samples = fixture::sample_indices(binding, batch_size);
        let length = self.case.sequence_length;
        let first = self.reference.and_then(|reference| reference.output(Phase::Prefill, "token", length));
        let first = first.map(|first| first.rows(&samples).data);
        let further = expected.iter().map(|(_, tensor)| &tensor.data).find(|data| matches!(data, TensorData::I64(_)));
        let (Some(TensorData::I64(first)), Some(TensorData::I64(further))) = (first, further) else { return Ok(None) };
        let steps = further.len() / first.len().max(1);
        let rows = first.iter().zip(further.chunks_exact(steps.max(1)));
        let tokens: Vec<i64> =
            rows.flat_map(|(first, further)| std::iter::once(first).chain(further)).copied().collect();
        let tokens = HostTensor { shape: vec![first.len(), steps + 1], data: TensorData::I64(tokens) };
        let next = session.follow(inputs, Continuation::Given(&tokens))?;
        Ok(next.iter().flat_map(|next| &next.gaps).copied().reduce(f64::max))
    }

    /// Whether backends that are compiled for one shape fill up the texts of the case, and others do not: then they are compared
    /// only if the outputs do not have the length of the text.
    fn may_lengths_differ(&self) -> bool {
        let Case { timed_on, sequence_length, batch_size, .. } = self.case;
        *timed_on == TimedOn::Samples && sequence_length.is_some() && *batch_size == 1
    }

    /// What the outputs of each binding are compared with, and whose outputs these are. Returns `None` if there is neither
    /// a reference nor another backend's outputs.
    fn expectation(&self, bindings: usize) -> Result<Option<(Expectation, String)>, CaseFailure> {
        let tolerance = self.model.tolerance.of(self.case.dtype);
        let reference = (0..bindings)
            .map(|binding| self.reference_outputs(binding, self.case.batch_size))
            .collect::<Result<Option<Vec<_>>, _>>()?;
        if let Some(bindings) = reference {
            let closeness = Closeness::to_reference(tolerance);
            return Ok(Some((Expectation { bindings, closeness }, REFERENCE.into())));
        }
        let Some(other) = OtherOutputs::read(self.job.folder.path(), self.case)? else { return Ok(None) };
        let OtherOutputs { backend, dtype, bindings } = other;
        let closeness = Closeness::to_peer(tolerance.max(self.model.tolerance.of(dtype)));
        let by = if dtype == self.case.dtype { backend } else { format!("{backend} in {dtype}") };
        Ok(Some((Expectation { bindings, closeness }, by)))
    }

    fn named(&self, outputs: &[HostTensor]) -> NamedTensors {
        let names = self.model.output_names(self.case.phase);
        let name = |index: usize| names.get(index).cloned().unwrap_or_else(|| index.to_string());
        outputs.iter().enumerate().map(|(index, output)| (name(index), output.clone())).collect()
    }

    /// The reference for a batch of the ring: all outputs. Returns `None` if it was not made for this length.
    fn reference_outputs(&self, binding: usize, batch_size: usize) -> Result<Option<NamedTensors>, CaseFailure> {
        let Some(reference) = self.reference else { return Ok(None) };
        if let Some(set) = reference.set(binding) {
            return Ok(Some(set.outputs.clone()));
        }
        let samples = fixture::sample_indices(binding, batch_size);
        let length = self.case.sequence_length;
        let rows = |name: &str| Some(reference.output(self.case.phase, name, length)?.rows(&samples));
        let names = self.model.output_names(self.case.phase).into_iter();
        let outputs: Option<NamedTensors> = names.map(|name| rows(&name).map(|rows| (name, rows))).collect();
        let is_promised = length.is_none_or(|length| self.model.sequence_lengths.contains(&length));
        if outputs.is_none() && is_promised {
            return Err(CaseFailure::failed("the reference lacks an output of the model"));
        }
        Ok(outputs)
    }

    /// Runs the first batch's samples in a batch of another size, when the purpose is to verify: a model that ignores its
    /// inputs, or has a size built in, fails here.
    fn verify_other_batch(
        &self,
        session: &mut dyn Session,
        outputs: &[HostTensor],
        closeness: Closeness,
    ) -> Result<(), CaseFailure> {
        let takes_other_batches =
            self.model.inputs.iter().all(TensorSpec::is_batched) && !session.placement().has_fixed_sizes;
        if self.job.purpose != Purpose::Verify || !takes_other_batches {
            return Ok(());
        }
        let batch_size = self.case.batch_size;
        let other = if batch_size == 1 { 2 } else { 1 };
        let sizes = Sizes { batch: other, ..self.case.sizes() };
        let inputs = fixture::batch(self.model, self.reference, 0, sizes)?;
        let in_batch = |why: anyhow::Error| wrong(format!("at batch size {other}: {why:#}"));
        let binding = session.bind(&inputs).map_err(|failure| {
            CaseFailure::new(failure.status, format!("at batch size {other}: {}", failure.message))
        })?;
        let others = session.outputs(binding)?;
        let elements = |output: &HostTensor| output.shape.iter().product::<usize>();
        for (output, of_other) in outputs.iter().zip(&others) {
            // A graph that removes dimensions of 1 removes that of a batch of one, too.
            let grows = elements(of_other) * batch_size == elements(output) * other;
            if output.shape.first() == Some(&batch_size) && of_other.shape.first() != Some(&other) && !grows {
                return Err(in_batch(anyhow!("an output has shape {:?}", of_other.shape)));
            }
        }
        match self.reference_outputs(0, other)? {
            Some(expected) => closeness.compare(&others, &expected).or_else(|why| {
                match self.gap_of_tokens(session, &inputs, (0, other), &expected)? {
                    Some(gap) if gap <= 2.0 * closeness.largest => Ok(()),
                    _ => Err(in_batch(why)),
                }
            }),
            None => Ok(()),
        }
    }
}

fn have_same_shapes(expected: &NamedTensors, outputs: &[HostTensor]) -> bool {
    expected.iter().map(|(_, tensor)| &tensor.shape).eq(outputs.iter().map(|tensor| &tensor.shape))
}

/// Why outputs are suspicious that nothing can be compared with: they are not finite, one value throughout, or the same for
/// different inputs.
fn suspicion(outputs: &[Vec<HostTensor>], ring: &[Vec<HostTensor>]) -> Option<String> {
    // Small integer inputs can be the same by chance.
    let other = (1..ring.len()).find(|&index| ring[index] != ring[0]);
    fixture::check_plausible(&outputs[0], other.map(|index| outputs[index].as_slice()))
        .err()
        .map(|why| format!("{why:#}"))
}

fn wrong(why: String) -> CaseFailure {
    CaseFailure::new(Status::WrongOutput, why)
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;
    use crate::backend::{LoadRequest, Placement, Stages};
    use crate::definition::{
        DataSource, Dimension, Effort, ElementType, Origin, Part, Phase, PhasePlan, Tolerance, WHOLE,
    };
    use crate::fixture::{RING, TensorData};
    use crate::run_data::RunFolder;

    /// A session whose outputs are these, by binding.
    struct Known(Vec<Vec<f32>>);

    impl Session for Known {
        fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
            Ok(0)
        }
        fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn sync(&mut self) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
            Ok(vec![row(&self.0[binding])])
        }
        fn call_from_host(&mut self, _: usize, _: &[HostTensor]) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
            Err(CaseFailure::unsupported("it has no such calls"))
        }
        fn reset(&mut self, _: &LoadRequest<'_>) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn placement(&self) -> Placement {
            Placement::default()
        }
    }

    fn row(values: &[f32]) -> HostTensor {
        HostTensor { shape: vec![1, values.len()], data: TensorData::F32(values.to_vec()) }
    }

    /// The ring's inputs, all different.
    fn ring() -> Vec<Vec<HostTensor>> {
        (0..RING).map(|index| vec![row(&[index as f32])]).collect()
    }

    /// Outputs of each binding that differ from one another.
    fn outputs() -> Vec<Vec<f32>> {
        (0..RING).map(|index| vec![index as f32, 1.0]).collect()
    }

    fn model() -> Model {
        let spec = |name: &str, width| {
            let shape = vec![Dimension::Symbol("batch".into()), Dimension::Fixed(width)];
            TensorSpec::new(name, ElementType::F32, shape)
        };
        let (inputs, outputs) = (vec![spec("x", 1)], vec![spec("y", 2)]);
        Model {
            name: "m".into(),
            variant: "original".into(),
            family: String::new(),
            modality: String::new(),
            parameters: None,
            inputs: inputs.clone(),
            parts: vec![Part { name: WHOLE.into(), inputs, outputs: outputs.clone() }],
            phases: vec![PhasePlan { phase: Phase::Forward, parts: vec![WHOLE.into()], outputs }],
            generation: None,
            sequence_lengths: Vec::new(),
            tolerance: Tolerance::default(),
            dtype: Dtype::F32,
            data_source: DataSource::Synthetic,
            judge: None,
            origin: Origin::Files { onnx: None, torchscript: None, reference: None, quantization: None },
        }
    }

    fn job(run_folder: &Path) -> Job {
        Job::new(Purpose::Measure, &RunFolder::new(run_folder.to_owned()), Path::new(""), &Effort::default())
    }

    /// Verifies a session of a backend with these outputs; returns what is expected afterwards, and what was seen.
    fn verify(
        folder: &Path,
        (backend, dtype): (&str, Dtype),
        reference: Option<&Reference>,
        outputs: &[Vec<f32>],
    ) -> (Result<Expectation, CaseFailure>, Record) {
        let case = Case { dtype, ..Case::new("m", backend, 1) };
        let (model, job) = (model(), job(folder));
        let mut row = Record { status: Status::Ok, ..Record::default() };
        let verification = Verification { case: &case, model: &model, reference, job: &job };
        let result = verification.verify(&mut Known(outputs.to_vec()), &ring(), &mut row);
        (result, row)
    }

    /// A reference with one row per binding of the ring, for batches of one.
    fn reference(folder: &Path, rows: &[Vec<f32>]) -> Reference {
        let mut pool = [[0.0_f32; 2]; fixture::POOL];
        for (binding, row) in rows.iter().enumerate() {
            pool[fixture::sample_indices(binding, 1)[0]].copy_from_slice(row);
        }
        let bytes: Vec<u8> = pool.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(safetensors::Dtype::F32, vec![fixture::POOL, 2], &bytes).unwrap();
        let path = folder.join("reference.safetensors");
        fs_err::write(&path, safetensors::serialize([("output.y", view)], None).unwrap()).unwrap();
        fixture::read_reference_of(&model(), &path).unwrap()
    }

    #[test]
    fn every_binding_is_compared_before_and_after_the_measurement() {
        let folder = tempfile::tempdir().unwrap();
        let reference = reference(folder.path(), &outputs());
        for reference in [Some(&reference), None] {
            let verified = |outputs: &[Vec<f32>]| verify(folder.path(), ("ort", Dtype::F32), reference, outputs);
            let expectation = verified(&outputs()).0.unwrap();
            for binding in 0..RING {
                let mut other = outputs();
                other[binding][1] = 2.0;
                // Without a reference, the first outputs of the loop above are those that others are compared with.
                assert_eq!(verified(&other).0.err().map(|failure| failure.status), Some(Status::WrongOutput));
                let failure = expectation.verify_again(&mut Known(other)).unwrap_err();
                assert_eq!(failure.status, Status::WrongOutput);
                assert!(failure.message.starts_with("after the measurement: "), "{failure}");
            }
            expectation.verify_again(&mut Known(outputs())).unwrap();
        }
    }

    #[test]
    fn outputs_of_one_value_are_right_if_the_reference_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let constant = vec![vec![0.0, 0.0]; RING];
        let zero = reference(folder.path(), &constant);
        let (result, row) = verify(folder.path(), ("ort", Dtype::F32), Some(&zero), &constant);
        assert!(result.is_ok());
        assert_eq!((row.verified, row.status), (Some(true), Status::Ok));
    }

    #[test]
    fn suspicious_outputs_make_no_other_backend_wrong() {
        let folder = tempfile::tempdir().unwrap();
        for suspicious in [vec![vec![0.0, 0.0]; RING], vec![vec![f32::NAN, 1.0]; RING]] {
            let (result, row) = verify(folder.path(), ("ort", Dtype::F32), None, &suspicious);
            assert!(result.is_ok() && row.status == Status::Suspicious && row.verified.is_none());
        }
        let (result, row) = verify(folder.path(), ("tch", Dtype::F32), None, &outputs());
        assert!(result.is_ok());
        assert_eq!((row.verified, row.status), (None, Status::Ok));
        let (result, _) = verify(folder.path(), ("candle", Dtype::F32), None, &vec![vec![0.0, 0.0]; RING]);
        assert!(result.is_err_and(|failure| failure.message.contains("the outputs of tch in f32")));
    }

    #[test]
    fn f32_is_never_compared_with_a_narrower_dtype_and_the_larger_tolerance_counts() {
        let folder = tempfile::tempdir().unwrap();
        let shifted = |by: f32| outputs().iter().map(|row| vec![row[0], row[1] + by]).collect::<Vec<_>>();
        let verified = |backend, dtype, by| {
            let (result, row) = verify(folder.path(), (backend, dtype), None, &shifted(by));
            (result.is_ok(), row.verified)
        };
        assert_eq!(verified("ort", Dtype::Bf16, 0.03), (true, None));
        assert_eq!(verified("ort", Dtype::F32, 0.0), (true, None));
        assert_eq!(verified("tch", Dtype::Bf16, 0.03), (true, Some(true)));
        assert_eq!(verified("tch", Dtype::F32, 0.03), (false, Some(false)));
    }

    fn left(value: f64) -> Vec<NamedTensors> {
        let tensor = |data, shape: &[usize]| HostTensor { shape: shape.to_vec(), data };
        vec![
            vec![
                ("logits".into(), tensor(TensorData::F64(vec![value, -1.0]), &[1, 2])),
                ("token".into(), tensor(TensorData::I64(vec![7]), &[1])),
            ],
            vec![("logits".into(), tensor(TensorData::F64(vec![0.0, value]), &[1, 2]))],
        ]
    }

    #[test]
    fn a_case_is_compared_with_f32_or_with_its_own_dtype() {
        let folder = tempfile::tempdir().unwrap();
        let case = |backend, dtype| Case { dtype, ..Case::new("m", backend, 1) };
        let read = |dtype| OtherOutputs::read(folder.path(), &case("tch", dtype)).unwrap();
        assert!(read(Dtype::F32).is_none());
        OtherOutputs::write(folder.path(), &case("ort", Dtype::Bf16), &left(1.0)).unwrap();
        assert!(read(Dtype::F32).is_none());
        let same = read(Dtype::Bf16).unwrap();
        assert_eq!((same.backend.as_str(), same.dtype, same.bindings), ("ort", Dtype::Bf16, left(1.0)));
        OtherOutputs::write(folder.path(), &case("candle", Dtype::F32), &left(2.0)).unwrap();
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let other = read(dtype).unwrap();
            assert_eq!((other.backend.as_str(), other.dtype, other.bindings), ("candle", Dtype::F32, left(2.0)));
        }
    }
}

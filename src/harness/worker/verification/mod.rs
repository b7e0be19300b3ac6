//! Verifies that a session computes its model. The outputs of the ring's batches (of samples: of the first four
//! batches) are compared with a reference or with another backend's outputs. [`Purpose::Verify`] also compares another
//! batch size and the rest of the reference.

mod expected;
mod tokens;

use anyhow::anyhow;

use self::expected::Source;
use self::tokens::most_gap;
use super::closeness::Closeness;
use super::peer_outputs::PeerOutputs;
use crate::backend::{self, LoadRequest, Session};
use crate::definition::{Case, CaseFailure, Dtype, Phase, Sizes, Status, TensorSpec, TimedOn};
use crate::fixture::{self, Errors, HostTensor, NamedTensors, Reference, Spread};
use crate::harness::protocol::{Job, Purpose};
use crate::run_data::{BY_REFERENCE as REFERENCE, Record, with_note};

pub use expected::Expectation;

/// A case to verify, and what it is compared with.
pub struct Verification<'a> {
    pub case: &'a Case,
    pub reference: Option<&'a Reference>,
    pub job: &'a Job,
    /// The request with which the session was loaded.
    pub request: LoadRequest<'a>,
}

/// What the comparison of all bindings has found.
#[derive(Default)]
struct Compared {
    errors: Errors,
    /// Whether `errors` has those of at least one binding.
    has_errors: bool,
    /// How far the logits of expected tokens are below the largest, at most, if tokens differ.
    gap_of_tokens: Option<f64>,
}

impl Verification<'_> {
    /// Compares the outputs of a session to which `ring` is bound, and returns what they have to be afterwards.
    ///
    /// The reference decides what is right; without one, the same weights in f32; without both, another backend's
    /// outputs. Without any of these, implausible outputs make the case suspicious.
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
        let own: Vec<NamedTensors> = outputs.iter().map(|outputs| self.named(outputs)).collect();
        let rounded_to = self.rounded_to(session);
        // The session's own outputs as the expectation: after the measurement they have to be the same.
        let itself = |bindings: Vec<NamedTensors>| Expectation {
            spread: Spread::of(&bindings, self.case.batch_size).unwrap_or_default(),
            bindings,
            closeness: Closeness::to_reference(rounded_to, self.request.model.tolerance.of(rounded_to)),
            first_tokens: Vec::new(),
        };
        let has_outputs = self.case.backend != backend::NULL
            && (self.reference.is_some() || outputs.iter().any(|outputs| !outputs.is_empty()));
        if !has_outputs || self.job.purpose == Purpose::MeasureUnverified {
            return Ok(itself(own));
        }
        self.verify_determinism(session, &itself(own.clone()))?;
        let expectation = self.expectation(ring, rounded_to)?.filter(|(expectation, _)| {
            !self.may_lengths_differ()
                || expectation.bindings.iter().zip(&outputs).all(|it| have_same_shapes(it.0, it.1))
        });
        let Some((mut expectation, Source { by, whose })) = expectation else {
            let own = itself(own);
            match suspicion(&outputs, ring) {
                // Suspicious outputs are not kept for other backends, which would look wrong beside them.
                Some(why) => {
                    let message = format!("{why}, and there is nothing to compare them with");
                    row.fail(CaseFailure::new(Status::Suspicious, message));
                }
                None => {
                    let first_tokens = self.first_tokens(session, ring.len())?;
                    PeerOutputs::write(self.job.folder.path(), self.case, &own.bindings, first_tokens)?;
                }
            }
            self.verify_other_batch(session, &outputs[0], &own)?;
            return Ok(own);
        };
        // A reference may lack outputs only if the model names those that it has.
        let is_unnamed = by == REFERENCE && self.request.model.output_names(self.case.phase).is_empty();
        let numbers = outputs.iter().zip(&expectation.bindings).map(|(own, wanted)| (own.len(), wanted.len()));
        if let Some((own, wanted)) = numbers.into_iter().find(|(own, wanted)| is_unnamed && own != wanted) {
            return Err(wrong(format!("there are {own} outputs, and the reference has {wanted}")));
        }
        row.verified = Some(false);
        row.verified_by = Some(by);
        let Compared { errors, has_errors, gap_of_tokens } =
            self.compare_bindings(session, ring, &outputs, &expectation, &whose)?;
        // The errors are noted even if they are too large.
        row.max_abs_error = has_errors.then_some(errors.max_abs);
        // Two logits change places if each is off by half of the gap: the error is at least that.
        row.max_rel_error = Some(gap_of_tokens.map_or(errors.max_rel, |gap| errors.max_rel.max(gap / 2.0)));
        let (spread, closeness) = (&expectation.spread, &mut expectation.closeness);
        if closeness.needs_rounding(spread, &errors) {
            closeness.measure_rounding(session, (spread, &own), ring, |unit| self.rounded_session(unit))?;
        }
        let checked = closeness.check(spread, &errors);
        if let Ok(Some(worst)) = &checked {
            (row.error_to_spread, row.error_to_rounding) = (Some(worst.of_spread), worst.of_rounding);
        }
        checked.map_err(|why| wrong(format!("the outputs differ from {whose}: {why}")))?;
        self.verify_other_batch(session, &outputs[0], &expectation)?;
        self.verify_rest_of_reference(session, &expectation)?;
        self.verify_dependence(session, ring, &outputs[0])?;
        row.verified = Some(true);
        if gap_of_tokens.is_some() {
            let note = format!("some tokens differ from those of {whose}, where two are almost equally likely");
            row.message = with_note(row.message.take(), note);
            return Ok(itself(own));
        }
        Ok(expectation)
    }

    /// Compares the outputs of each binding. Tokens may differ if two are nearly equally likely.
    fn compare_bindings(
        &self,
        session: &mut dyn Session,
        ring: &[Vec<HostTensor>],
        outputs: &[Vec<HostTensor>],
        expectation: &Expectation,
        whose: &str,
    ) -> Result<Compared, CaseFailure> {
        let mut found = Compared::default();
        for (binding, (outputs, expected)) in outputs.iter().zip(&expectation.bindings).enumerate() {
            let mut errors = Errors::default();
            if let Err(why) = errors.add(&expectation.spread, outputs, expected, &expectation.closeness.allowed) {
                let why = format!("{why:#} ({whose})");
                let is_other_token = |(output, (_, wanted)): (&HostTensor, &(String, HostTensor))| {
                    wanted.is_integer() && output.data != wanted.data
                };
                if !outputs.iter().zip(expected).any(is_other_token) {
                    return Err(wrong(why));
                }
                let place = (binding, self.case.batch_size);
                let first = expectation.first_tokens.get(binding).map(Vec::as_slice);
                let gap = self.gap_of_tokens(session, &ring[binding], (outputs, first), place, expected)?;
                let Some(gap) = gap else { return Err(wrong(why)) };
                if gap > most_gap(self.rounded_to(session)) {
                    return Err(wrong(format!(
                        "{why}; the logit of a token of {whose} is below the largest by {gap:.1e} of the largest absolute one"
                    )));
                }
                found.gap_of_tokens = Some(found.gap_of_tokens.map_or(gap, |before| before.max(gap)));
                // After a different token, the rest of the text differs.
                if self.case.phase != Phase::Prefill {
                    continue;
                }
            }
            found.has_errors = true;
            found.errors.merge(errors);
        }
        Ok(found)
    }

    /// The dtype whose rounding errors the outputs have: the case's, or a coarser one to which a function within the model
    /// is rounded.
    fn rounded_to(&self, session: &dyn Session) -> Dtype {
        session.placement().rounded_to.unwrap_or(self.case.dtype)
    }

    /// Whether the outputs may have different lengths, because backends that compile for one shape pad the case's texts
    /// and others do not. They are then compared only if their shapes are equal.
    fn may_lengths_differ(&self) -> bool {
        let Case { timed_on, sequence_length, batch_size, .. } = self.case;
        *timed_on == TimedOn::Samples && sequence_length.is_some() && *batch_size == 1
    }

    fn named(&self, outputs: &[HostTensor]) -> NamedTensors {
        let names = self.request.model.output_names(self.case.phase);
        let name = |index: usize| names.get(index).cloned().unwrap_or_else(|| index.to_string());
        outputs.iter().enumerate().map(|(index, output)| (name(index), output.clone())).collect()
    }

    /// Runs the first batch's samples in a batch of another size: a model that ignores its inputs, or has a built-in
    /// size, fails here. Only for [`Purpose::Verify`].
    fn verify_other_batch(
        &self,
        session: &mut dyn Session,
        outputs: &[HostTensor],
        expectation: &Expectation,
    ) -> Result<(), CaseFailure> {
        let takes_other_batches =
            self.request.model.inputs.iter().all(TensorSpec::is_batched) && !session.placement().has_fixed_sizes;
        if self.job.purpose != Purpose::Verify || !takes_other_batches {
            return Ok(());
        }
        let batch_size = self.case.batch_size;
        let other = if batch_size == 1 { 2 } else { 1 };
        let sizes = Sizes { batch: other, ..self.case.sizes() };
        let inputs = fixture::batch(self.request.model, self.reference, 0, sizes)?;
        let in_batch = |why: anyhow::Error| wrong(format!("at batch size {other}: {why:#}"));
        let binding = session.bind(&inputs).map_err(|failure| {
            CaseFailure::new(failure.status, format!("at batch size {other}: {}", failure.message))
        })?;
        let others = session.outputs(binding)?;
        let elements = |output: &HostTensor| output.shape.iter().product::<usize>();
        for (output, of_other) in outputs.iter().zip(&others) {
            // A graph that squeezes dimensions of 1 also squeezes the batch of one.
            let grows = elements(of_other) * batch_size == elements(output) * other;
            if output.shape.first() == Some(&batch_size) && of_other.shape.first() != Some(&other) && !grows {
                return Err(in_batch(anyhow!("an output has shape {:?}", of_other.shape)));
            }
        }
        match self.reference_outputs(0, other)? {
            Some(expected) => expectation.compare(&others, &expected).or_else(|why| {
                match self.gap_of_tokens(session, &inputs, (&others, None), (0, other), &expected)? {
                    Some(gap) if gap <= most_gap(self.rounded_to(session)) => Ok(()),
                    _ => Err(in_batch(why)),
                }
            }),
            None => Ok(()),
        }
    }

    /// Computes the first batch once more and expects the same outputs. Only for [`Purpose::Verify`].
    fn verify_determinism(&self, session: &mut dyn Session, own: &Expectation) -> Result<(), CaseFailure> {
        if self.job.purpose != Purpose::Verify || self.case.phase != Phase::Forward {
            return Ok(());
        }
        own.compare(&session.outputs(0)?, &own.bindings[0]).map_err(|why| {
            wrong(format!(
                "the outputs of the same inputs change from call to call: the model is random or keeps state: {why:#}"
            ))
        })
    }

    /// Computes another sample if all batches of the ring are equal, because the reference has only one sample.
    /// Otherwise a runtime that keeps its first inputs would pass.
    fn verify_dependence(
        &self,
        session: &mut dyn Session,
        ring: &[Vec<HostTensor>],
        outputs: &[HostTensor],
    ) -> Result<(), CaseFailure> {
        let has_seeded_rows = self.reference.is_some_and(|reference| reference.count() == 0);
        let is_one_sample = ring.len() > 1 && ring.iter().all(|inputs| *inputs == ring[0]);
        if self.case.phase != Phase::Forward || !has_seeded_rows || !is_one_sample {
            return Ok(());
        }
        let inputs = fixture::batch_of(self.request.model, None, &vec![1; self.case.batch_size], self.case.sizes())?;
        let binding = session.bind(&inputs)?;
        let others = session.outputs(binding)?;
        if inputs != ring[0] && others == outputs && outputs.iter().any(|output| !output.is_integer()) {
            return Err(wrong("the outputs of different inputs are the same".to_owned()));
        }
        Ok(())
    }

    /// Compares the samples or sets of the reference that no batch of the ring has. Only for [`Purpose::Verify`].
    fn verify_rest_of_reference(
        &self,
        session: &mut dyn Session,
        expectation: &Expectation,
    ) -> Result<(), CaseFailure> {
        if self.job.purpose != Purpose::Verify || self.case.phase != Phase::Forward {
            return Ok(());
        }
        let Some(reference) = self.reference else { return Ok(()) };
        let batch_size = self.case.batch_size;
        let rest: Vec<Vec<usize>> = if reference.set(0).is_some() {
            (fixture::RING..reference.count()).map(|number| vec![number]).collect()
        } else {
            let seen: Vec<usize> =
                (0..fixture::RING).flat_map(|binding| fixture::sample_indices(binding, batch_size)).collect();
            let unseen: Vec<usize> = (0..reference.count()).filter(|row| !seen.contains(row)).collect();
            unseen.chunks(batch_size).map(|rows| rows.iter().copied().cycle().take(batch_size).collect()).collect()
        };
        let mut bound = None;
        for numbers in rest {
            let (inputs, expected) = match reference.set(numbers[0]) {
                Some(set) => (
                    fixture::batch(self.request.model, self.reference, numbers[0], self.case.sizes())?,
                    Some(set.outputs.clone()),
                ),
                None => (
                    fixture::batch_of(self.request.model, self.reference, &numbers, self.case.sizes())?,
                    self.outputs_of_samples(reference, &numbers)?,
                ),
            };
            let Some(expected) = expected else { return Ok(()) };
            // Sets may have different shapes.
            let binding = match bound.filter(|&binding| session.rebind(binding, &inputs).is_ok()) {
                Some(binding) => binding,
                None => session.bind(&inputs)?,
            };
            bound = Some(binding);
            let of = if reference.set(0).is_some() { "set" } else { "rows from" };
            expectation.compare(&session.outputs(binding)?, &expected).map_err(|why| {
                wrong(format!("the outputs differ from the reference in its {of} {}: {why:#}", numbers[0]))
            })?;
        }
        Ok(())
    }
}

fn have_same_shapes(expected: &NamedTensors, outputs: &[HostTensor]) -> bool {
    expected.iter().map(|(_, tensor)| &tensor.shape).eq(outputs.iter().map(|tensor| &tensor.shape))
}

/// Why outputs are suspicious if there is nothing to compare them with: they are not finite, one value throughout, or
/// the same for different inputs.
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
    use std::path::Path;

    use safetensors::tensor::TensorView;

    use super::*;
    use crate::backend::{Continuation, LoadRequest, NextTokens, Placement, Stages};
    use crate::definition::{Dimension, Effort, ElementType, Model};
    use crate::fixture::{Artifacts, RING, TensorData};
    use crate::run_data::RunFolder;

    /// A session with these outputs, by binding.
    struct Known(Vec<Vec<f32>>);

    impl Session for Known {
        /// The binding with the nearest input: it has the same outputs for an input with a rounding error.
        fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure> {
            Ok(inputs[0].to_f64()[0].round() as usize)
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

    /// A decoding session whose prompts are followed by token 9 and then by these. The logit of an expected token is at
    /// most `gap` below the largest.
    struct Decoding {
        tokens: [i64; 4],
        gap: f64,
    }

    impl Session for Decoding {
        fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
            Err(CaseFailure::unsupported("it is bound already"))
        }
        fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure> {
            let tokens = HostTensor { shape: vec![1, 4], data: TensorData::I64(self.tokens.to_vec()) };
            Ok(vec![tokens, row(&[binding as f32, 1.0])])
        }
        fn first_tokens(&mut self, _: usize) -> Result<Option<Vec<i64>>, CaseFailure> {
            Ok(Some(vec![9]))
        }
        fn follow(&mut self, _: &[HostTensor], text: Continuation<'_>) -> Result<Vec<NextTokens>, CaseFailure> {
            let Continuation::Given { text, .. } = text else { return Err(CaseFailure::unsupported("no text")) };
            assert_eq!(text.data, TensorData::I64(vec![9, 1, 2, 3, 4]));
            let (likeliest, losses, gaps) = (vec![9], vec![0.0], vec![self.gap]);
            Ok(vec![NextTokens { likeliest, losses, gaps, log_probabilities: Vec::new() }])
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
        Model::of_tensors("m", vec![spec("x", 1)], vec![spec("y", 2)])
    }

    fn job(run_folder: &Path) -> Job {
        Job::new(Purpose::Measure, &RunFolder::new(run_folder.to_owned()), Path::new(""), &Effort::default())
    }

    fn request<'a>(case: &Case, model: &'a Model, artifacts: &'a Artifacts) -> LoadRequest<'a> {
        LoadRequest {
            model,
            artifacts,
            phase: case.phase,
            sizes: case.sizes(),
            device: "cpu",
            dtype: case.dtype,
            threads: 1,
            instances: 1,
            callers: 1,
        }
    }

    /// Verifies a session of a backend with these outputs; returns the expectation for later, and the record.
    fn verify(
        folder: &Path,
        (backend, dtype): (&str, Dtype),
        reference: Option<&Reference>,
        outputs: &[Vec<f32>],
    ) -> (Result<Expectation, CaseFailure>, Record) {
        let case = Case { dtype, ..Case::new("m", backend, 1) };
        let (model, job) = (model(), job(folder));
        let mut row = Record { status: Status::Ok, ..Record::default() };
        let artifacts = Artifacts::default();
        let request = request(&case, &model, &artifacts);
        let verification = Verification { case: &case, reference, job: &job, request };
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
            let verified =
                |backend, outputs: &[Vec<f32>]| verify(folder.path(), (backend, Dtype::F32), reference, outputs);
            let expectation = verified("candle", &outputs()).0.unwrap();
            for binding in 0..RING {
                let mut other = outputs();
                other[binding][1] = 2.0;
                // Without a reference, others are compared with candle's outputs.
                assert_eq!(verified("ort", &other).0.err().map(|failure| failure.status), Some(Status::WrongOutput));
                let failure = expectation.verify_again(&mut Known(other)).unwrap_err();
                assert_eq!(failure.status, Status::WrongOutput);
                assert!(failure.message.starts_with("after the measurement: "), "{failure}");
            }
            expectation.verify_again(&mut Known(outputs())).unwrap();
        }
    }

    #[test]
    fn a_reference_counts_where_the_model_has_no_names_of_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let reference = reference(folder.path(), &outputs());
        let (case, job) = (Case::new("m", "torch", 1), job(folder.path()));
        let model = Model::of_tensors("m", model().inputs, Vec::new());
        let artifacts = Artifacts::default();
        let request = request(&case, &model, &artifacts);
        let verification = Verification { case: &case, reference: Some(&reference), job: &job, request };
        let verified = |outputs: &[Vec<f32>]| {
            verification.verify(&mut Known(outputs.to_vec()), &ring(), &mut Record::default()).is_ok()
        };
        let mut other = outputs();
        other[1][1] = 2.0;
        assert_eq!([verified(&outputs()), verified(&other)], [true, false]);
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
    fn what_is_loaded_for_a_comparison_does_not_stay_with_the_sessions_that_serve() {
        let folder = tempfile::tempdir().unwrap();
        let (case, model, job) = (Case::new("m", "ort", 1), model(), job(folder.path()));
        let artifacts = Artifacts::default();
        let request = LoadRequest { threads: 2, instances: 3, callers: 4, ..request(&case, &model, &artifacts) };
        let verification = Verification { case: &case, reference: None, job: &job, request };
        let LoadRequest { threads, instances, callers, .. } = verification.alone();
        assert_eq!((threads, instances, callers), (2, 1, 1));
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
    fn of_two_nearly_equally_likely_tokens_either_is_right_beside_another_backend() {
        let folder = tempfile::tempdir().unwrap();
        let (model, job, artifacts) = (model(), job(folder.path()), Artifacts::default());
        let verified = |backend, tokens, gap| {
            let case = Case { phase: Phase::Decode, dtype: Dtype::Bf16, ..Case::new("m", backend, 1) };
            let request = request(&case, &model, &artifacts);
            let verification = Verification { case: &case, reference: None, job: &job, request };
            let mut row = Record { status: Status::Ok, ..Record::default() };
            verification.verify(&mut Decoding { tokens, gap }, &ring(), &mut row).map(|_| row.message)
        };
        assert_eq!(verified("llama-cpp", [1, 2, 3, 4], 0.0).unwrap(), None);
        let note = verified("candle", [1, 2, 5, 6], 0.1).unwrap().unwrap();
        assert!(note.contains("llama-cpp in bf16, where two are almost equally likely"), "{note}");
        assert_eq!(verified("candle", [1, 2, 5, 6], 0.3).unwrap_err().status, Status::WrongOutput);
    }

    #[test]
    fn f32_is_never_compared_with_a_narrower_dtype_and_the_coarser_rounding_counts() {
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
}

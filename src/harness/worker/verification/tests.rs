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
/// most `gap` below the largest. An external worker tells token 9 only in `follow`.
struct Decoding {
    tokens: [i64; 4],
    gap: f64,
    is_external: bool,
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
        Ok((!self.is_external).then(|| vec![9]))
    }
    fn follow(&mut self, _: &[HostTensor], text: Continuation<'_>) -> Result<Vec<NextTokens>, CaseFailure> {
        if let Continuation::Given { text, .. } = text {
            assert_eq!(text.data, TensorData::I64(vec![9, 1, 2, 3, 4]));
        }
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
        let verified = |backend, outputs: &[Vec<f32>]| verify(folder.path(), (backend, Dtype::F32), reference, outputs);
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
fn outputs_of_one_row_at_every_batch_size_are_wrong() {
    for (batch_size, message) in
        [(1, "at batch size 2: an output has shape [1, 2]"), (8, "an output has shape [1, 2] at batch sizes 8 and 1")]
    {
        let folder = tempfile::tempdir().unwrap();
        let (case, model) = (Case::new("m", "torch", batch_size), model());
        let job = Job { purpose: Purpose::Verify, ..job(folder.path()) };
        let artifacts = Artifacts::default();
        let request = request(&case, &model, &artifacts);
        let verification = Verification { case: &case, reference: None, job: &job, request };
        let result = verification.verify(&mut Known(outputs()), &ring(), &mut Record::default());
        let failure = result.err().unwrap();
        assert_eq!((failure.status, failure.message.as_str()), (Status::WrongOutput, message));
    }
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
    for is_external in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (model, job, artifacts) = (model(), job(folder.path()), Artifacts::default());
        let verified = |backend, tokens, gap| {
            let case = Case { phase: Phase::Decode, dtype: Dtype::Bf16, ..Case::new("m", backend, 1) };
            let request = request(&case, &model, &artifacts);
            let verification = Verification { case: &case, reference: None, job: &job, request };
            let mut row = Record { status: Status::Ok, ..Record::default() };
            let mut session = Decoding { tokens, gap, is_external };
            verification.verify(&mut session, &ring(), &mut row).map(|_| row.message)
        };
        assert_eq!(verified("first", [1, 2, 3, 4], 0.0).unwrap(), None);
        let note = verified("candle", [1, 2, 5, 6], 0.1).unwrap().unwrap();
        assert!(note.contains("first in bf16, where two are almost equally likely"), "{note}");
        assert_eq!(verified("candle", [1, 2, 5, 6], 0.3).unwrap_err().status, Status::WrongOutput);
    }
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

//! The verification that a session computes its model: its outputs are compared with the reference, or with another
//! backend's, for every batch that is timed and for another batch size.

use anyhow::{anyhow, ensure};

use super::other_outputs::{self, NamedTensors, OtherOutputs};
use crate::backend::{self, Session};
use crate::definition::{Case, CaseFailure, Model, Sizes, Status, TensorSpec};
use crate::fixture::{self, HostTensor, Reference};
use crate::harness::protocol::{Job, Purpose};
use crate::run_data::Observed;

/// What a session is verified by.
pub struct Verification<'a> {
    pub case: &'a Case,
    pub model: &'a Model,
    pub reference: Option<&'a Reference>,
    pub job: &'a Job,
}

/// The expected outputs of each binding, which are compared once more after the measurement.
pub struct Expectation {
    /// Names and values of the outputs, by binding.
    bindings: Vec<NamedTensors>,
    tolerance: f64,
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
            compare(&outputs, expected, self.tolerance)
                .map_err(|why| wrong(format!("after the measurement: {why}")))?;
        }
        Ok(())
    }
}

impl Verification<'_> {
    /// Compares the outputs of a session to which `ring` is bound, and returns what they have to be afterwards.
    ///
    /// The reference alone decides what is right. Without one, the outputs of another backend do. Without either, outputs
    /// that no model should have are noted as a suspicion.
    ///
    /// # Errors
    /// `wrong-output`, with what is wrong; or why there are no outputs.
    pub fn verify(
        &self,
        session: &mut dyn Session,
        ring: &[Vec<HostTensor>],
        observed: &mut Observed,
    ) -> Result<Expectation, CaseFailure> {
        let outputs = (0..ring.len()).map(|binding| session.outputs(binding)).collect::<Result<Vec<_>, _>>()?;
        let itself = |outputs: &[Vec<HostTensor>]| Expectation {
            bindings: outputs.iter().map(|outputs| self.named(outputs)).collect(),
            tolerance: TOLERANCE_WITH_ITSELF,
        };
        if self.case.backend == backend::NULL || self.job.purpose == Purpose::MeasureUnverified {
            return Ok(itself(&outputs));
        }
        let Some((expectation, whose)) = self.expectation(ring.len())? else {
            observed.suspicion = suspicion(&outputs, ring);
            let bindings: Vec<NamedTensors> = outputs.iter().map(|outputs| self.named(outputs)).collect();
            other_outputs::write(&self.job.run_folder, self.case, &bindings)?;
            self.verify_other_batch(session, &outputs[0], self.model.tolerance.of(self.case.dtype))?;
            return Ok(itself(&outputs));
        };
        observed.verified = Some(false);
        for (outputs, expected) in outputs.iter().zip(&expectation.bindings) {
            let deviation = fixture::deviation(outputs, expected).map_err(|why| wrong(format!("{why:#} ({whose})")))?;
            let larger = |known: Option<f64>, error: f64| Some(known.map_or(error, |known| known.max(error)));
            observed.max_abs_error = larger(observed.max_abs_error, deviation.max_abs_error);
            observed.max_rel_error = larger(observed.max_rel_error, deviation.max_rel_error);
            check_tolerance(deviation.max_rel_error, expectation.tolerance)
                .map_err(|why| wrong(format!("the outputs differ from {whose}: {why}")))?;
        }
        self.verify_other_batch(session, &outputs[0], expectation.tolerance)?;
        observed.verified = Some(true);
        Ok(expectation)
    }

    /// What the outputs of each binding are compared with, and whose outputs these are. Returns `None` if there is neither
    /// a reference nor another backend's outputs.
    fn expectation(&self, bindings: usize) -> Result<Option<(Expectation, String)>, CaseFailure> {
        let tolerance = self.model.tolerance.of(self.case.dtype);
        let reference = (0..bindings)
            .map(|binding| self.reference_outputs(binding, self.case.batch_size))
            .collect::<Result<Option<Vec<_>>, _>>()?;
        if let Some(bindings) = reference {
            return Ok(Some((Expectation { bindings, tolerance }, "the reference".into())));
        }
        let Some(other) = other_outputs::read(&self.job.run_folder, self.case)? else { return Ok(None) };
        let OtherOutputs { backend, dtype, bindings } = other;
        let tolerance = tolerance.max(self.model.tolerance.of(dtype));
        Ok(Some((Expectation { bindings, tolerance }, format!("the outputs of {backend} in {dtype}"))))
    }

    fn named(&self, outputs: &[HostTensor]) -> NamedTensors {
        let names = self.model.output_names(self.case.phase);
        let name = |index: usize| names.get(index).cloned().unwrap_or_else(|| index.to_string());
        outputs.iter().enumerate().map(|(index, output)| (name(index), output.clone())).collect()
    }

    /// The reference for a batch of the ring: all outputs. Returns `None` if it was not made for this length.
    fn reference_outputs(&self, binding: usize, batch_size: usize) -> Result<Option<NamedTensors>, CaseFailure> {
        let Some(reference) = self.reference else { return Ok(None) };
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
        tolerance: f64,
    ) -> Result<(), CaseFailure> {
        let takes_other_batches =
            self.model.inputs.iter().all(TensorSpec::is_batched) && !session.placement().has_fixed_sizes;
        if self.job.purpose != Purpose::Verify || !takes_other_batches {
            return Ok(());
        }
        let batch_size = self.case.batch_size;
        let other = if batch_size == 1 { 2 } else { 1 };
        let sizes = Sizes { batch: other, sequence: self.case.sequence_length };
        let inputs = fixture::batch(self.model, self.reference, 0, sizes)?;
        let in_batch = |why: anyhow::Error| wrong(format!("at batch size {other}: {why:#}"));
        let binding = session.bind(&inputs).map_err(|failure| {
            CaseFailure::new(failure.status, format!("at batch size {other}: {}", failure.message))
        })?;
        let others = session.outputs(binding)?;
        for (output, of_other) in outputs.iter().zip(&others) {
            if output.shape.first() == Some(&batch_size) && of_other.shape.first() != Some(&other) {
                return Err(in_batch(anyhow!("an output has shape {:?}", of_other.shape)));
            }
        }
        match self.reference_outputs(0, other)? {
            Some(expected) => compare(&others, &expected, tolerance).map_err(in_batch),
            None => Ok(()),
        }
    }
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

fn compare(outputs: &[HostTensor], expected: &NamedTensors, tolerance: f64) -> anyhow::Result<()> {
    check_tolerance(fixture::deviation(outputs, expected)?.max_rel_error, tolerance)
}

fn wrong(why: String) -> CaseFailure {
    CaseFailure::new(Status::WrongOutput, why)
}

fn check_tolerance(error: f64, tolerance: f64) -> anyhow::Result<()> {
    ensure!(error <= tolerance, "an error of {error:.1e} of the largest value, where {tolerance:.0e} is allowed");
    Ok(())
}

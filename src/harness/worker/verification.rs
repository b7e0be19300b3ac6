//! The proof that a session computes its model: its outputs against the reference or another backend's, for other inputs
//! and for another batch size.

use super::other_outputs;
use anyhow::{anyhow, ensure};

use crate::backend::{self, Session};
use crate::definition::{Case, CaseFailure, Model, Sizes, Status, TensorSpec};
use crate::fixture::{self, HostTensor, Reference};
use crate::harness::protocol::{Job, Purpose};
use crate::run_data::Observed;

/// What a session has to prove.
pub struct Verification<'a> {
    pub case: &'a Case,
    pub model: &'a Model,
    pub reference: Option<&'a Reference>,
    pub job: &'a Job,
}

/// What the outputs of the first batch are compared with.
pub enum Expectation {
    Reference {
        outputs: Vec<(String, HostTensor)>,
        tolerance: f64,
    },
    /// No reference: what the session itself gave before timing.
    Itself(Vec<HostTensor>),
}

impl Verification<'_> {
    /// Compares the outputs of a session to which `ring` is bound, and says what they have to be afterwards.
    ///
    /// # Errors
    /// `wrong-output`, with what is wrong; or why there are no outputs.
    pub fn prove(
        &self,
        session: &mut dyn Session,
        ring: &[Vec<HostTensor>],
        observed: &mut Observed,
    ) -> Result<Expectation, CaseFailure> {
        let outputs = session.outputs(0)?;
        if self.case.backend == backend::NULL || self.job.purpose == Purpose::MeasureUnverified {
            return Ok(Expectation::Itself(outputs));
        }
        // Small integer inputs can be the same by chance.
        let other = (1..ring.len()).find(|&index| ring[index] != ring[0]);
        let other_outputs = other.map(|index| session.outputs(index)).transpose()?;
        let tolerance = self.model.tolerance.of(self.case.dtype);
        let (expected, whose) = match self.reference_outputs(self.case.batch_size)? {
            Some(expected) => (Some(expected), "the reference".to_owned()),
            None => match other_outputs::read(&self.job.run_folder, self.case).map_err(CaseFailure::failed)? {
                Some(peer) => (Some(peer.outputs), format!("the outputs of {}", peer.backend)),
                None => (None, String::new()),
            },
        };
        if let Some(expected) = &expected {
            observed.verified = Some(false);
            let deviation =
                fixture::deviation(&outputs, expected).map_err(|why| wrong(format!("{why:#} ({whose})")))?;
            observed.max_abs_error = Some(deviation.max_abs_error);
            observed.max_rel_error = Some(deviation.max_rel_error);
            check_tolerance(deviation.max_rel_error, tolerance)
                .map_err(|why| wrong(format!("the outputs differ from {whose}: {why}")))?;
        }
        fixture::check_plausible(&outputs, other_outputs.as_deref()).map_err(|why| wrong(format!("{why:#}")))?;
        let takes_other_batches =
            self.model.inputs.iter().all(TensorSpec::is_batched) && !session.placement().has_fixed_sizes;
        if self.job.purpose == Purpose::Verify && takes_other_batches {
            self.prove_other_batch(session, &outputs, tolerance)?;
        }
        observed.verified = expected.as_ref().map(|_| true);
        match expected {
            Some(outputs) => Ok(Expectation::Reference { outputs, tolerance }),
            None => {
                let names = self.model.output_names(self.case.phase);
                other_outputs::write(&self.job.run_folder, self.case, &names, &outputs).map_err(CaseFailure::failed)?;
                Ok(Expectation::Itself(outputs))
            }
        }
    }

    /// The reference for the first batch of the ring: all outputs, or none where it was not made for this length.
    fn reference_outputs(&self, batch_size: usize) -> Result<Option<Vec<(String, HostTensor)>>, CaseFailure> {
        let Some(reference) = self.reference else { return Ok(None) };
        let samples = fixture::sample_indices(0, batch_size);
        let length = self.case.sequence_length;
        let rows = |name: &str| Some(reference.output(self.case.phase, name, length)?.rows(&samples));
        let names = self.model.output_names(self.case.phase).into_iter();
        let outputs: Option<Vec<_>> = names.map(|name| rows(&name).map(|rows| (name, rows))).collect();
        let is_promised = length.is_none_or(|length| self.model.sequence_lengths.contains(&length));
        if outputs.is_none() && is_promised {
            return Err(CaseFailure::failed("the reference lacks an output of the model"));
        }
        Ok(outputs)
    }

    /// The same samples in a batch of another size: what answers by heart does not have them.
    fn prove_other_batch(
        &self,
        session: &mut dyn Session,
        outputs: &[HostTensor],
        tolerance: f64,
    ) -> Result<(), CaseFailure> {
        let batch_size = self.case.batch_size;
        let other = if batch_size == 1 { 2 } else { 1 };
        let sizes = Sizes { batch: other, sequence: self.case.sequence_length };
        let inputs = fixture::batch(self.model, self.reference, 0, sizes)?;
        let in_batch = |why: anyhow::Error| wrong(format!("at batch size {other}: {why:#}"));
        let binding = session.bind(&inputs).map_err(|failure| {
            CaseFailure::new(failure.status, format!("at batch size {other}: {}", failure.message))
        })?;
        let others = session.outputs(binding)?;
        fixture::check_plausible(&others, None).map_err(in_batch)?;
        for (output, of_other) in outputs.iter().zip(&others) {
            if output.shape.first() == Some(&batch_size) && of_other.shape.first() != Some(&other) {
                return Err(in_batch(anyhow!("an output has shape {:?}", of_other.shape)));
            }
        }
        if let Some(expected) = self.reference_outputs(other)? {
            let deviation = fixture::deviation(&others, &expected).map_err(in_batch)?;
            check_tolerance(deviation.max_rel_error, tolerance).map_err(in_batch)?;
        }
        Ok(())
    }
}

impl Expectation {
    /// Compares the outputs once more, after the measurement.
    ///
    /// # Errors
    /// `wrong-output`: they changed.
    pub fn verify_again(&self, session: &mut dyn Session) -> Result<(), CaseFailure> {
        let outputs = session.outputs(0)?;
        let changed = |why: anyhow::Error| wrong(format!("after the measurement: {why:#}"));
        match self {
            Expectation::Reference { outputs: expected, tolerance } => {
                let deviation = fixture::deviation(&outputs, expected).map_err(changed)?;
                check_tolerance(deviation.max_rel_error, *tolerance).map_err(changed)
            }
            Expectation::Itself(before) => {
                let named: Vec<(String, HostTensor)> =
                    before.iter().enumerate().map(|(index, output)| (index.to_string(), output.clone())).collect();
                let deviation = fixture::deviation(&outputs, &named).map_err(changed)?;
                check_tolerance(deviation.max_rel_error, 1e-3).map_err(changed)
            }
        }
    }
}

fn wrong(why: String) -> CaseFailure {
    CaseFailure::new(Status::WrongOutput, why)
}

fn check_tolerance(error: f64, tolerance: f64) -> anyhow::Result<()> {
    ensure!(error <= tolerance, "an error of {error:.1e} of the largest value, where {tolerance:.0e} is allowed");
    Ok(())
}

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
                    let first_tokens = self.first_tokens(session, ring)?;
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

    /// Runs the first batch's samples in a batch of another size: a model that has a built-in size, or gives one row for
    /// all samples, fails here. Only for [`Purpose::Verify`].
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
        let of_next = if expectation.bindings.len() > 1 { session.outputs(1)? } else { Vec::new() };
        let binding = session.bind(&inputs).map_err(|failure| {
            CaseFailure::new(failure.status, format!("at batch size {other}: {}", failure.message))
        })?;
        let others = session.outputs(binding)?;
        let elements = |output: &HostTensor| output.shape.iter().product::<usize>();
        for (index, (output, of_other)) in outputs.iter().zip(&others).enumerate() {
            // Constants, such as the places of anchors, are the same for all samples.
            if of_next.get(index) == Some(output) && of_other == output {
                continue;
            }
            // A graph that squeezes dimensions of 1 also squeezes the batch of one.
            let grows = elements(of_other) * batch_size == elements(output) * other;
            let has_rows = [(output, batch_size), (of_other, other)].map(|(it, rows)| it.shape.first() == Some(&rows));
            if has_rows == [true, false] && !grows {
                return Err(in_batch(anyhow!("an output has shape {:?}", of_other.shape)));
            }
            // The rows of the batch are missing where it has several.
            if has_rows == [false, true] && output.shape == of_other.shape && !grows {
                let shape = &output.shape;
                return Err(wrong(format!("an output has shape {shape:?} at batch sizes {batch_size} and {other}")));
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
                    reference.outputs_of(self.request.model, Phase::Forward, &numbers, self.case.sequence_length)?,
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
mod tests;

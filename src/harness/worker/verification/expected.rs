//! What outputs are compared with: a reference, the same weights in f32, or the outputs of another backend.

use std::path::Path;

use super::{Verification, wrong};
use crate::backend::{self, Continuation, LoadRequest, Session};
use crate::definition::{Case, CaseFailure, Dtype, Origin, Phase, Sizes};
use crate::fixture::{self, Errors, HostTensor, NamedTensors, Spread};
use crate::harness::worker::closeness::Closeness;
use crate::harness::worker::peer_outputs::PeerOutputs;
use crate::machine::memory::available_bytes;
use crate::onnx::outputs_of_sigmoids;
use crate::run_data::BY_REFERENCE as REFERENCE;

/// Weights of models with up to this many parameters are dequantised for a comparison: 8 GiB of f32. The available
/// memory has to hold twice as much, for the cache and what is computed.
const MOST_PARAMETERS: u64 = 1 << 31;

/// What outputs of quantised weights are compared with, if there is no reference for them.
const SAME_WEIGHTS: &str = "the same weights in f32";

/// Whose outputs a case is compared with.
pub(super) struct Source {
    /// For the record.
    pub by: String,
    /// In a sentence, such as `the outputs of ort in f32`.
    pub whose: String,
}

/// A session, and its name for the record.
type SessionOf = (Box<dyn Session>, String);

/// What the outputs of a session are compared with, before and after the measurement.
pub struct Expectation {
    /// Names and values of the outputs, by binding.
    pub(super) bindings: Vec<NamedTensors>,
    pub(super) spread: Spread,
    pub(super) closeness: Closeness,
    /// The first tokens after the prompts, by binding, if no reference has them.
    pub(super) first_tokens: Vec<Vec<i64>>,
}

impl Expectation {
    /// Compares the outputs of one call with the expected ones.
    pub(super) fn compare(&self, outputs: &[HostTensor], expected: &NamedTensors) -> anyhow::Result<()> {
        let mut errors = Errors::default();
        errors.add(&self.spread, outputs, expected, &self.closeness.allowed)?;
        self.closeness.check(&self.spread, &errors).map(drop)
    }

    /// Compares the outputs once more, after the measurement.
    ///
    /// # Errors
    /// `wrong-output` if they changed, or the session fails.
    pub fn verify_again(&self, session: &mut dyn Session) -> Result<(), CaseFailure> {
        let mut errors = Errors::default();
        let after = |why: anyhow::Error| {
            wrong(format!(
                "after the measurement: {why:#}. Before it, the outputs of the same inputs were right: the model is random or keeps state, or the \
                 backend has changed its inputs"
            ))
        };
        for (binding, expected) in self.bindings.iter().enumerate() {
            let outputs = session.outputs(binding)?;
            // A closure has no outputs, neither before nor after.
            if expected.is_empty() && outputs.is_empty() {
                continue;
            }
            errors.add(&self.spread, &outputs, expected, &self.closeness.allowed).map_err(after)?;
        }
        self.closeness.check(&self.spread, &errors).map(drop).map_err(after)
    }
}

impl Verification<'_> {
    /// An expectation with these outputs. Outputs of sigmoids and those after many positions may have the errors that
    /// runtimes make there.
    fn expected(&self, bindings: Vec<NamedTensors>, closeness: Closeness) -> Result<Expectation, CaseFailure> {
        let closeness = match (self.case.phase, self.request.model.prompt_positions(self.case.sequence_length)) {
            (Phase::Prefill | Phase::Decode, Some(positions)) => closeness.with_positions(positions),
            _ => closeness,
        };
        let mut spread = Spread::of(&bindings, self.case.batch_size)?;
        if let Origin::Files { onnx: Some(file), .. } = &self.request.model.origin {
            outputs_of_sigmoids(file).unwrap_or_default().iter().for_each(|name| spread.allow_sigmoid(name));
        }
        Ok(Expectation { bindings, spread, closeness, first_tokens: Vec::new() })
    }

    /// What the outputs of each binding are compared with. Returns `None` if there is no reference, no session of the
    /// same weights in f32, and no usable outputs of another backend.
    pub(super) fn expectation(
        &self,
        ring: &[Vec<HostTensor>],
        rounded_to: Dtype,
    ) -> Result<Option<(Expectation, Source)>, CaseFailure> {
        let Case { dtype, batch_size, .. } = *self.case;
        let reference = (0..ring.len())
            .map(|binding| self.reference_outputs(binding, batch_size))
            .collect::<Result<Option<Vec<_>>, _>>()?;
        if let Some(bindings) = reference {
            let closeness = Closeness::to_reference(rounded_to, self.request.model.tolerance.of(rounded_to));
            let source = Source { by: REFERENCE.into(), whose: "the reference".into() };
            return Ok(Some((self.expected(bindings, closeness)?, source)));
        }
        if let Some(expectation) = self.of_same_weights(ring, rounded_to)? {
            return Ok(Some(expectation));
        }
        let Some(other) = PeerOutputs::read(self.job.folder.path(), self.case)? else { return Ok(None) };
        let PeerOutputs { backend, dtype: of_other, bindings, first_tokens, .. } = other;
        // The dtype with the larger rounding errors sets the tolerance.
        let coarser = if of_other == Dtype::F32 { dtype } else { of_other };
        let closeness = Closeness::to_peer(coarser, self.request.model.tolerance.of(coarser));
        let whose = format!("the outputs of {backend} in {of_other}");
        let by = if of_other == dtype { backend } else { format!("{backend} in {of_other}") };
        let expectation = Expectation { first_tokens, ..self.expected(bindings, closeness)? };
        Ok(Some((expectation, Source { by, whose }))
            .filter(|(expectation, _)| !expectation.spread.is_of_saturated_sigmoids()))
    }

    /// The outputs of the same quantised weights, computed in f32. Returns `None` if the weights are not quantised or
    /// too large, or if no backend has such a form.
    fn of_same_weights(
        &self,
        ring: &[Vec<HostTensor>],
        rounded_to: Dtype,
    ) -> Result<Option<(Expectation, Source)>, CaseFailure> {
        let (dtype, model) = (self.case.dtype, self.request.model);
        let is_small = model.parameters.is_some_and(|count| {
            let has_room = available_bytes().is_none_or(|available| count.saturating_mul(8) <= available);
            count <= MOST_PARAMETERS && has_room
        });
        let is_quantised = (model.is_gguf() && dtype != Dtype::F32) || model.blocks().is_some();
        if !is_quantised || !is_small {
            return Ok(None);
        }
        // On Unix a file stays as long as it is mapped, even if its folder is removed.
        let folder = tempfile::tempdir_in(self.job.folder.path()).map_err(anyhow::Error::from)?;
        let Some((mut exact, by)) = self.exact_session(folder.path())? else { return Ok(None) };
        let mut bindings = Vec::new();
        for inputs in ring {
            let binding = exact.bind(inputs)?;
            bindings.push(self.named(&exact.outputs(binding)?));
        }
        let first_tokens = self.first_tokens(&mut *exact, ring)?;
        let closeness = Closeness::to_reference(rounded_to, model.tolerance.of(rounded_to));
        let source = Source { whose: by.clone(), by };
        Ok(Some((Expectation { first_tokens, ..self.expected(bindings, closeness)? }, source)))
    }

    /// The first tokens after the prompts of a session to which `ring` is bound. Returns nothing for other phases, and
    /// for sessions that do not know them.
    pub(super) fn first_tokens(
        &self,
        session: &mut dyn Session,
        ring: &[Vec<HostTensor>],
    ) -> Result<Vec<Vec<i64>>, CaseFailure> {
        if self.case.phase != Phase::Decode {
            return Ok(Vec::new());
        }
        let one = Continuation::Likeliest { most: 1, ends: &[] };
        let tokens = ring.iter().enumerate().map(|(binding, inputs)| match session.first_tokens(binding)? {
            // An external worker tells only the logits after inputs, if it knows the verb `follow`.
            None => Ok(session.follow(inputs, one).ok().and_then(|next| Some(next.into_iter().next()?.likeliest))),
            known => Ok::<_, CaseFailure>(known),
        });
        Ok(tokens.collect::<Result<Option<Vec<_>>, _>>()?.unwrap_or_default())
    }

    /// A session of the same weights in f32, and its name. llama.cpp computes GGUF files, and ONNX Runtime graphs. For
    /// these two backends themselves, and if that fails, it is the backend's own session, which may share its errors.
    fn exact_session(&self, folder: &Path) -> Result<Option<SessionOf>, CaseFailure> {
        let own = &*self.case.backend;
        let exact = if self.request.model.is_gguf() { backend::LLAMA_CPP } else { backend::ORT };
        let alone = self.alone();
        if own != exact {
            let on_cpu = LoadRequest { device: "cpu", ..alone };
            let other = backend::find(exact).and_then(|other| other.load_exact(&on_cpu, folder));
            // If the engine is missing or cannot load the file, the case must not fail for that.
            if let Ok(Some(session)) = other {
                return Ok(Some((session, format!("{SAME_WEIGHTS} on {exact}"))));
            }
        }
        let session = backend::find(own)?.load_exact(&alone, folder)?;
        Ok(session.map(|session| (session, SAME_WEIGHTS.to_owned())))
    }

    /// The request for a session that is only for a comparison. What serving sessions share would stay until the
    /// process ends.
    pub(super) fn alone(&self) -> LoadRequest<'_> {
        LoadRequest { instances: 1, callers: 1, ..self.request }
    }

    /// A session of weights with rounding errors. Returns `None` if the model is too large for a copy.
    pub(super) fn rounded_session(&self, unit_roundoff: f64) -> Result<Option<Box<dyn Session>>, CaseFailure> {
        let folder = tempfile::tempdir_in(self.job.folder.path()).map_err(anyhow::Error::from)?;
        let rounded = fixture::with_rounded_weights(self.request.artifacts, folder.path(), unit_roundoff)?;
        let Some(artifacts) = rounded else { return Ok(None) };
        backend::find(&self.case.backend)?.load(&LoadRequest { artifacts: &artifacts, ..self.alone() }).map(Some)
    }

    /// All outputs of the reference for a batch of the ring. Returns `None` if there is no reference for this length.
    pub(super) fn reference_outputs(&self, binding: usize, batch: usize) -> Result<Option<NamedTensors>, CaseFailure> {
        let Some(reference) = self.reference else { return Ok(None) };
        let sizes = Sizes { batch, ..self.case.sizes() };
        Ok(reference.outputs(self.request.model, self.case.phase, binding, sizes)?)
    }
}

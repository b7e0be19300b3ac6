//! One case in its process, from loading to verification: everything but the sampling itself.
//!
//! The order is: load, bind the ring of inputs, make the first call, compare the outputs with the reference, warm up. Only
//! then may the case be measured; afterwards the outputs of the same session are compared once more.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::verification::{Expectation, Verification};
use crate::backend::{self, LoadRequest, Placement, Session, Stages};
use crate::definition::{Boundary, Case, CaseFailure, DataSource, Dtype, Effort, Model, Phase, Sizes};
use crate::fixture::{self, Artifacts, HostTensor, Reference, Samples};
use crate::harness::protocol::Job;
use crate::measurement::{self, TimedSession, WarmUp, WarmUpRule};
use crate::run_data::Observed;
use crate::statistics::median;

/// What the cases of a process share; each is loaded when the first case needs it.
#[derive(Default)]
pub struct Fixtures {
    references: HashMap<String, Option<Rc<Reference>>>,
    samples: Vec<(DataSource, String, Option<usize>, Rc<Samples>)>,
    /// The session of the last case, if it serves other sizes too.
    session: Option<KeptSession>,
}

/// A session that waits for a case that differs from its last one in nothing but sizes and boundary.
struct KeptSession {
    key: SessionKey,
    session: Box<dyn Session>,
    load_ms: Option<f64>,
}

/// The weights, graph and settings of a session.
#[derive(Clone, PartialEq)]
struct SessionKey {
    artifacts: Artifacts,
    backend: String,
    device: String,
    dtype: Dtype,
    phase: Phase,
    threads: usize,
}

impl Fixtures {
    fn reference(&mut self, model: &Model, artifacts: &Artifacts) -> Result<Option<Rc<Reference>>, CaseFailure> {
        let key = model.artifact_folder_name();
        if let Some(reference) = self.references.get(&key) {
            return Ok(reference.clone());
        }
        let reference = match &artifacts.reference {
            Some(path) => Some(Rc::new(fixture::read_reference(path)?)),
            None => None,
        };
        self.references.insert(key, reference.clone());
        Ok(reference)
    }

    /// The samples by which a model's answers are evaluated.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn samples(&mut self, model: &Model, sequence: Option<usize>) -> Result<Rc<Samples>, CaseFailure> {
        let is_same = |(source, name, length, _): &&(DataSource, String, Option<usize>, Rc<Samples>)| {
            *source == model.data_source && *name == model.name && *length == sequence
        };
        if let Some((.., samples)) = self.samples.iter().find(is_same) {
            return Ok(Rc::clone(samples));
        }
        let samples = Rc::new(Samples::open(model, sequence)?);
        self.samples.push((model.data_source.clone(), model.name.clone(), sequence, Rc::clone(&samples)));
        Ok(samples)
    }
}

/// A case that is loaded and verified.
pub struct LoadedCase {
    pub session: TimedSession,
    expectation: Expectation,
    key: SessionKey,
    load_ms: Option<f64>,
}

/// A case whose session is there and has its inputs.
pub struct Loaded {
    key: SessionKey,
    pub session: Box<dyn Session>,
    /// The batches that are bound, in the order of their bindings.
    pub ring: Vec<Vec<HostTensor>>,
    artifacts: Artifacts,
    reference: Option<Rc<Reference>>,
}

/// A case with its files and inputs.
struct Prepared<'a> {
    case: &'a Case,
    model: &'a Model,
    threads: usize,
    artifacts: Artifacts,
    reference: Option<Rc<Reference>>,
    ring: Vec<Vec<HostTensor>>,
}

impl<'a> Prepared<'a> {
    fn new(case: &'a Case, model: &'a Model, job: &Job, fixtures: &mut Fixtures) -> Result<Self, CaseFailure> {
        let artifacts = job.artifacts(model, case.dtype).cloned();
        let artifacts = artifacts.ok_or_else(|| CaseFailure::failed("its artifacts were not prepared"))?;
        let reference = fixtures.reference(model, &artifacts)?;
        let sizes = Sizes { batch: case.batch_size, sequence: case.sequence_length };
        let ring: Vec<Vec<HostTensor>> = (0..fixture::RING)
            .map(|index| fixture::batch(model, reference.as_deref(), index, sizes))
            .collect::<anyhow::Result<_>>()?;
        let threads = job.effort.effective_threads();
        Ok(Prepared { case, model, threads, artifacts, reference, ring })
    }

    fn key(&self) -> SessionKey {
        SessionKey {
            artifacts: self.artifacts.clone(),
            backend: self.case.backend.clone(),
            device: self.case.device.clone(),
            dtype: self.case.dtype,
            phase: self.case.phase,
            threads: self.threads,
        }
    }

    fn request(&self) -> LoadRequest<'_> {
        LoadRequest {
            model: self.model,
            artifacts: &self.artifacts,
            phase: self.case.phase,
            sizes: Sizes { batch: self.case.batch_size, sequence: self.case.sequence_length },
            device: &self.case.device,
            dtype: self.case.dtype,
            threads: self.threads,
        }
    }

    /// Runs the case once under the runtime's profiler, in a session that may use other providers too, and notes how much
    /// of it runs where it was asked for. Returns what its products are computed in, where the profile says it.
    ///
    /// # Errors
    /// `unsupported`: a node would run elsewhere, or a product would be computed in another dtype; the message names the
    /// operator.
    fn trace(&self, observed: &mut Observed) -> Result<Option<Dtype>, CaseFailure> {
        let Some(inputs) = self.ring.first() else { return Ok(None) };
        let Some(trace) = backend::find(&self.case.backend)?.trace(&self.request(), inputs)? else { return Ok(None) };
        let (provider, share, dtype) = (&trace.asked_for, trace.share(), self.case.dtype);
        observed.providers = Some(provider.clone());
        observed.provider_share = Some(share);
        if share < 1.0 {
            return Err(CaseFailure::unsupported(format!(
                "{provider} runs {:.1} % of the nodes; the others would fall back: {}",
                share * 100.0,
                trace.elsewhere().join(", ")
            )));
        }
        if let Some((computed_in, operators)) = trace.products_not_in(dtype) {
            observed.effective_dtype = Some(computed_in);
            return Err(CaseFailure::unsupported(format!(
                "{provider} has no {dtype} {}: it would compute in {computed_in} between casts",
                operators.join(", ")
            )));
        }
        Ok(trace.products.contains_key(&Some(dtype)).then_some(dtype))
    }

    /// Loads the case, binds its inputs and makes the first call, and notes what is seen on the way.
    fn load(self, kept: Option<KeptSession>, observed: &mut Observed) -> Result<Loaded, CaseFailure> {
        let Prepared { case, model, ring, .. } = &self;
        let backend = backend::find(&case.backend)?;
        observed.input_shape = ring.first().map(|inputs| describe_shapes(inputs));
        observed.tokens_a_call = match case.phase {
            Phase::Forward | Phase::Encoder => None,
            Phase::Prefill => model.prompt_positions(case.sequence_length).map(|positions| positions * case.batch_size),
            Phase::Decode => Some(case.batch_size),
        };

        // Loads the library, which is no part of loading the model.
        let versions = backend.versions(&case.device);
        observed.backend_version = Some(versions.backend);
        observed.library_version = Some(versions.library);
        // If the mark cannot be reset, the peak is the whole process's, which is still an upper bound.
        let _ = measurement::memory::reset_peak();
        let key = self.key();
        let mut session = match kept.filter(|kept| kept.key == key) {
            Some(KeptSession { mut session, load_ms, .. }) => {
                session.reset(&self.request())?;
                observed.load_ms = load_ms;
                observed.is_session_shared = true;
                session
            }
            None => {
                let start = Instant::now();
                let session = backend.load(&self.request())?;
                observed.load_ms = Some(milliseconds(start.elapsed()));
                session
            }
        };

        for inputs in ring {
            session.bind(inputs)?;
        }
        let compiled_before = session.compilation().unwrap_or_default();
        let start = Instant::now();
        session.run(0)?;
        session.sync()?;
        let elapsed = start.elapsed();
        let compilation = session.compilation();
        let compiled_now = compilation.unwrap_or_default() - compiled_before;
        observed.first_inference_ms = Some(milliseconds(elapsed.saturating_sub(compiled_now)));
        observed.compilation_ms = compilation.map(milliseconds);
        let Prepared { ring, artifacts, reference, .. } = self;
        Ok(Loaded { key, session, ring, artifacts, reference })
    }
}

/// Loads a case, binds its inputs and makes the first call, and notes what is seen on the way.
///
/// # Errors
/// Why the case cannot run. `observed` holds what was seen until then.
pub fn load(
    case: &Case,
    model: &Model,
    job: &Job,
    fixtures: &mut Fixtures,
    observed: &mut Observed,
) -> Result<Loaded, CaseFailure> {
    let prepared = Prepared::new(case, model, job, fixtures)?;
    prepared.load(fixtures.session.take(), observed)
}

/// Loads a case and compares its outputs, and notes what is seen on the way.
///
/// # Errors
/// Why the case has no figures. `observed` holds what was seen until then.
pub fn load_and_verify(
    case: &Case,
    model: &Model,
    job: &Job,
    fixtures: &mut Fixtures,
    observed: &mut Observed,
) -> Result<LoadedCase, CaseFailure> {
    let prepared = Prepared::new(case, model, job, fixtures)?;
    let traced_dtype = prepared.trace(observed)?;
    let Loaded { key, mut session, ring, artifacts, reference } = prepared.load(fixtures.session.take(), observed)?;
    let placement = session.placement();
    let placement = Placement { effective_dtype: placement.effective_dtype.or(traced_dtype), ..placement };
    note_placement(placement, case, &artifacts, observed)?;
    let verification = Verification { case, model, reference: reference.as_deref(), job };
    let expectation = verification.verify(&mut *session, &ring, observed)?;
    // Some runtimes compile in more calls than the first.
    observed.compilation_ms = observed.compilation_ms.or(session.compilation().map(milliseconds));
    Ok(LoadedCase { session: timed(session, ring, case.boundary), expectation, key, load_ms: observed.load_ms })
}

/// Loads a case that another process has verified.
///
/// # Errors
/// Why it cannot run any more.
pub fn load_again(case: &Case, model: &Model, job: &Job, fixtures: &mut Fixtures) -> Result<LoadedCase, CaseFailure> {
    let mut observed = Observed::default();
    let Loaded { key, session, ring, .. } = load(case, model, job, fixtures, &mut observed)?;
    let (expectation, load_ms) = (Expectation::default(), observed.load_ms);
    Ok(LoadedCase { session: timed(session, ring, case.boundary), expectation, key, load_ms })
}

/// The session as it is timed: from device to device, or from host to host.
pub fn timed(session: Box<dyn Session>, ring: Vec<Vec<HostTensor>>, boundary: Boundary) -> TimedSession {
    match boundary {
        Boundary::Compute => TimedSession::new(session, ring.len()),
        Boundary::EndToEnd => TimedSession::from_host(session, ring),
    }
}

impl LoadedCase {
    /// Warms the session up, by the rule of its backend.
    ///
    /// # Errors
    /// A call fails.
    pub fn warm_up(&mut self, case: &Case, effort: &Effort) -> Result<WarmUp, CaseFailure> {
        measurement::warm_up(&mut self.session, warm_up_rule(case, effort))
    }

    /// The median of a few calls, in milliseconds, for an idea of how fast it is.
    ///
    /// # Errors
    /// A call fails.
    pub fn rough_call_ms(&mut self) -> Result<f64, CaseFailure> {
        const CALLS: usize = 25;
        const PATIENCE: Duration = Duration::from_millis(300);
        let start = Instant::now();
        let mut times = Vec::new();
        while times.len() < CALLS && (times.is_empty() || start.elapsed() < PATIENCE) {
            let call = Instant::now();
            self.session.call(1)?;
            times.push(milliseconds(call.elapsed()));
        }
        median(&times).ok_or_else(|| CaseFailure::failed("no call was made"))
    }

    /// The medians over the last `calls` calls of their stages, in milliseconds: to the device, compute, to the host.
    /// Returns `None` if the calls do not go from host to host.
    pub fn stage_medians(&mut self, calls: usize) -> Option<[f64; 3]> {
        stage_medians(&self.session.take_stages(), calls)
    }

    /// Leaves the session for the next case, if it serves other sizes too.
    pub fn release(self, fixtures: &mut Fixtures) {
        let LoadedCase { session, key, load_ms, .. } = self;
        let session = session.into_session();
        if session.placement().serves_other_sizes {
            fixtures.session = Some(KeptSession { key, session, load_ms });
        }
    }

    /// Compares the outputs once more, after the measurement.
    ///
    /// # Errors
    /// `wrong-output`: they changed.
    pub fn verify_again(&mut self) -> Result<(), CaseFailure> {
        self.expectation.verify_again(self.session.session())
    }
}

/// The medians of the stages of the last `calls` calls. Those before them warmed up.
fn stage_medians(stages: &[Stages], calls: usize) -> Option<[f64; 3]> {
    let measured = &stages[stages.len().saturating_sub(calls)..];
    let median_of = |stage: fn(&Stages) -> Duration| {
        median(&measured.iter().map(|stages| milliseconds(stage(stages))).collect::<Vec<f64>>())
    };
    Some([median_of(|it| it.to_device)?, median_of(|it| it.compute)?, median_of(|it| it.to_host)?])
}

fn note_placement(
    placement: Placement,
    case: &Case,
    artifacts: &Artifacts,
    observed: &mut Observed,
) -> Result<(), CaseFailure> {
    if !placement.artifacts.is_empty() {
        observed.artifact_bytes = Some(artifacts.size_bytes(placement.artifacts.iter().map(PathBuf::as_path)));
        observed.artifact_sha256 = artifacts.sha256_of_loaded(placement.artifacts.iter().map(PathBuf::as_path)).ok();
    }
    observed.providers = Some(placement.providers);
    observed.executor = placement.executor;
    observed.device_type = placement.device_type;
    observed.threads = placement.threads;
    observed.effective_dtype = placement.effective_dtype;
    let effective = placement.effective_device;
    observed.effective_device = Some(effective.clone());
    if effective != case.device {
        return Err(CaseFailure::unavailable(format!("asked for {}, and it ran on {effective}", case.device)));
    }
    match placement.effective_dtype {
        Some(dtype) if dtype != case.dtype => {
            Err(CaseFailure::unsupported(format!("asked for {}, and it computes in {dtype}", case.dtype)))
        }
        _ => Ok(()),
    }
}

pub(super) fn warm_up_rule(case: &Case, effort: &Effort) -> WarmUpRule {
    let least = backend::find(&case.backend).map_or(0, |backend| backend.least_warm_up_calls());
    let at_least = effort.warmup.max(least);
    WarmUpRule {
        at_least,
        at_least_for: Duration::from_millis(100),
        at_most: Duration::from_secs_f64(effort.budget_seconds / 2.0),
    }
}

fn describe_shapes(inputs: &[HostTensor]) -> String {
    let shapes = inputs.iter().map(|input| input.shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x"));
    shapes.collect::<Vec<_>>().join(" ")
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_warm_up_are_not_in_the_medians_of_the_stages() {
        let call = |ms: u64| {
            let [to_device, compute, to_host] = [1, 2, 3_u64].map(|factor| Duration::from_millis(factor * ms));
            Stages { to_device, compute, to_host }
        };
        let stages = [100, 100, 100, 100, 2, 3, 4].map(call);
        assert_eq!(stage_medians(&stages, 3), Some([3.0, 6.0, 9.0]));
        assert_eq!(stage_medians(&[], 3), None);
    }
}

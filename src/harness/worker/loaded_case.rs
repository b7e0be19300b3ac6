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
use crate::definition::{Boundary, Case, CaseFailure, Dtype, Effort, Phase};
use crate::fixture::{self, HostTensor, Reference};
use crate::harness::protocol::{Job, WorkItem};
use crate::measurement::{self, CallTimes, TimedSession, WarmUp};
use crate::run_data::Observed;
use crate::statistics::median;

/// What the cases of a process share.
#[derive(Default)]
pub struct Fixtures {
    /// By path and model.
    references: HashMap<(PathBuf, String), Rc<Reference>>,
    /// The session of the last case, if it serves other sizes too.
    session: Option<KeptSession>,
}

/// A session that waits for a case that differs from its last one in nothing but sizes and boundary.
struct KeptSession {
    case: Case,
    session: Box<dyn Session>,
    load_ms: Option<f64>,
}

impl KeptSession {
    fn serves(&self, case: &Case) -> bool {
        let Case { batch_size, sequence_length, boundary, .. } = self.case;
        self.case == Case { batch_size, sequence_length, boundary, ..case.clone() }
    }
}

impl Fixtures {
    fn reference(
        &mut self,
        WorkItem { artifacts, model, .. }: &WorkItem,
    ) -> Result<Option<Rc<Reference>>, CaseFailure> {
        let Some(path) = &artifacts.reference else { return Ok(None) };
        let key = (path.clone(), model.artifact_folder_name());
        if !self.references.contains_key(&key) {
            self.references.insert(key.clone(), Rc::new(fixture::read_reference_of(model, path)?));
        }
        Ok(self.references.get(&key).cloned())
    }
}

/// A case whose session is there and has its inputs.
pub struct LoadedCase {
    case: Case,
    pub session: TimedSession,
    /// Empty if the outputs were not compared.
    expectation: Expectation,
    load_ms: Option<f64>,
}

/// Loads a case, binds its inputs and makes the first call, and notes what is seen on the way.
///
/// # Errors
/// Why the case cannot run. `observed` holds what was seen until then.
pub fn load(
    item: &WorkItem,
    job: &Job,
    fixtures: &mut Fixtures,
    observed: &mut Observed,
) -> Result<LoadedCase, CaseFailure> {
    let reference = fixtures.reference(item)?;
    let ring = ring(item, reference.as_deref())?;
    let session = start(item, job, &ring, fixtures, observed)?;
    Ok(LoadedCase::new(item, session, ring, Expectation::default(), observed))
}

/// Loads a case and compares its outputs, and notes what is seen on the way.
///
/// # Errors
/// Why the case has no figures. `observed` holds what was seen until then.
pub fn load_and_verify(
    item: &WorkItem,
    job: &Job,
    fixtures: &mut Fixtures,
    observed: &mut Observed,
) -> Result<LoadedCase, CaseFailure> {
    let reference = fixtures.reference(item)?;
    let ring = ring(item, reference.as_deref())?;
    let traced_dtype = trace(&job.request(item), &item.case, &ring[0], observed)?;
    let mut session = start(item, job, &ring, fixtures, observed)?;
    let placement = session.placement();
    let placement = Placement { effective_dtype: placement.effective_dtype.or(traced_dtype), ..placement };
    note_placement(placement, item, observed)?;
    let verification = Verification { case: &item.case, model: &item.model, reference: reference.as_deref(), job };
    let expectation = verification.verify(&mut *session, &ring, observed)?;
    // Some runtimes compile in more calls than the first.
    observed.start.compilation_ms = observed.start.compilation_ms.or(session.compilation().map(milliseconds));
    Ok(LoadedCase::new(item, session, ring, expectation, observed))
}

/// The batches that are bound, in the order of their bindings.
fn ring(item: &WorkItem, reference: Option<&Reference>) -> anyhow::Result<Vec<Vec<HostTensor>>> {
    (0..fixture::RING).map(|index| fixture::batch(&item.model, reference, index, item.case.sizes())).collect()
}

/// Runs the case once under the runtime's profiler, in a session that may use other providers too, and notes how much of it
/// runs where it was asked for. Returns what its products are computed in, where the profile says it.
///
/// # Errors
/// `unsupported`: a node would run elsewhere, or a product would be computed in another dtype; the message names the
/// operator.
fn trace(
    request: &LoadRequest<'_>,
    case: &Case,
    inputs: &[HostTensor],
    observed: &mut Observed,
) -> Result<Option<Dtype>, CaseFailure> {
    let Some(trace) = backend::find(&case.backend)?.trace(request, inputs)? else { return Ok(None) };
    let (provider, share, dtype) = (&trace.asked_for, trace.share(), case.dtype);
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

/// Loads the session or takes up the kept one, binds the inputs and makes the first call.
fn start(
    item: &WorkItem,
    job: &Job,
    ring: &[Vec<HostTensor>],
    fixtures: &mut Fixtures,
    observed: &mut Observed,
) -> Result<Box<dyn Session>, CaseFailure> {
    let (case, request) = (&item.case, job.request(item));
    let entry = backend::registry::entry(&case.backend)?;
    let backend = entry.backend()?;
    observed.input_shape = Some(describe_shapes(&ring[0]));
    observed.tokens_a_call = match case.phase {
        Phase::Forward | Phase::Encoder => None,
        Phase::Prefill => {
            item.model.prompt_positions(case.sequence_length).map(|positions| positions * case.batch_size)
        }
        Phase::Decode => Some(case.batch_size),
    };
    // Loads the library, which is no part of loading the model.
    observed.backend_version = Some(entry.version.into());
    observed.library_version = Some(entry.library_version(&case.device));
    // If the mark cannot be reset, the peak is the whole process's, which is still an upper bound.
    let _ = measurement::memory::reset_peak();
    let mut session = match fixtures.session.take().filter(|kept| kept.serves(case)) {
        Some(KeptSession { mut session, load_ms, .. }) => {
            session.reset(&request)?;
            observed.start.load_ms = load_ms;
            observed.is_session_shared = true;
            session
        }
        None => {
            let start = Instant::now();
            let session = backend.load(&request)?;
            observed.start.load_ms = Some(milliseconds(start.elapsed()));
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
    observed.start.first_inference_ms = Some(milliseconds(elapsed.saturating_sub(compiled_now)));
    observed.start.compilation_ms = compilation.map(milliseconds);
    Ok(session)
}

impl LoadedCase {
    /// The session is timed from device to device, or from host to host.
    fn new(
        item: &WorkItem,
        session: Box<dyn Session>,
        ring: Vec<Vec<HostTensor>>,
        expectation: Expectation,
        observed: &Observed,
    ) -> Self {
        let session = match item.case.boundary {
            Boundary::Compute => TimedSession::new(session, ring.len()),
            Boundary::EndToEnd => TimedSession::from_host(session, ring),
        };
        LoadedCase { case: item.case.clone(), session, expectation, load_ms: observed.start.load_ms }
    }

    /// Warms the session up, by the rule of its backend; `call` makes a call.
    ///
    /// # Errors
    /// A call fails.
    pub fn warm_up(
        &mut self,
        effort: &Effort,
        call: impl Fn(&mut TimedSession) -> Result<CallTimes, CaseFailure>,
    ) -> Result<WarmUp, CaseFailure> {
        let least = backend::find(&self.case.backend)?.least_warm_up_calls();
        let at_most = Duration::from_secs_f64(effort.budget_seconds / 2.0);
        measurement::warm_up(|| call(&mut self.session), effort.warmup.max(least), at_most)
    }

    /// The median of a few calls, in milliseconds, for an idea of how fast it is.
    ///
    /// # Errors
    /// A call fails.
    pub fn rough_call_ms(&mut self) -> Result<f64, CaseFailure> {
        const PATIENCE_NS: u64 = 300_000_000;
        let first = self.session.call(1)?.total();
        let calls = self.session.call((PATIENCE_NS / first).clamp(1, 25))?;
        let calls: Vec<f64> = calls.as_nanoseconds().iter().map(|&ns| ns as f64 / 1e6).collect();
        median(&calls).ok_or_else(|| CaseFailure::failed("no call was made"))
    }

    /// The medians over the last `calls` calls of their stages, in milliseconds: to the device, compute, to the host.
    /// Returns `None` if the calls do not go from host to host.
    pub fn stage_medians(&mut self, calls: usize) -> Option<[f64; 3]> {
        stage_medians(&self.session.take_stages(), calls)
    }

    /// Leaves the session for the next case, if it serves other sizes too.
    pub fn release(self, fixtures: &mut Fixtures) {
        let LoadedCase { case, session, load_ms, .. } = self;
        let session = session.into_session();
        if session.placement().serves_other_sizes {
            fixtures.session = Some(KeptSession { case, session, load_ms });
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

fn note_placement(placement: Placement, item: &WorkItem, observed: &mut Observed) -> Result<(), CaseFailure> {
    let WorkItem { case, artifacts, .. } = item;
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

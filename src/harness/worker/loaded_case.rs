//! One case in its process, from loading to verification: everything but the sampling itself.
//!
//! The order is: load, bind the ring of inputs, make the first call, compare the outputs with the reference, warm up. Only
//! then may the case be measured; afterwards the outputs of the same session are compared once more.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::verification::{Expectation, Verification};
use crate::backend::{self, LoadRequest, Placement, Session, Trace};
use crate::definition::{Boundary, Case, CaseFailure, Dtype, Effort, Origin, Phase, Sizes, Status, TimedOn};
use crate::fixture::{self, HostTensor, Reference, TimedSamples};
use crate::harness::protocol::{Job, Purpose, WorkItem};
use crate::measurement::{self, CallParts, CallTimes, Pipeline, TimedSession, WarmUp, memory};
use crate::run_data::{Outcome, Record, with_note};
use crate::statistics::median;

/// Loads the cases of a job, one after the other, and keeps what they share.
pub struct Worker<'a> {
    pub job: &'a Job,
    /// By path and model.
    references: HashMap<(PathBuf, String), Rc<Reference>>,
    /// The session of the last case, if it serves other sizes too.
    session: Option<KeptSession>,
    /// Cases that ran out of memory in this run.
    out_of_memory: Vec<Case>,
}

/// A session kept for the next case, which may differ from `case` only in batch size, sequence length, boundary and
/// source of inputs.
struct KeptSession {
    case: Case,
    session: Box<dyn Session>,
    load_ms: Option<f64>,
}

impl KeptSession {
    fn serves(&self, case: &Case) -> bool {
        let Case { batch_size, sequence_length, boundary, timed_on, .. } = self.case;
        self.case == Case { batch_size, sequence_length, boundary, timed_on, ..case.clone() }
    }
}

/// The batches with which a case is called, and where they come from.
pub struct CaseInputs {
    samples: Option<TimedSamples>,
    reference: Option<Rc<Reference>>,
    /// In the order of their bindings.
    pub ring: Vec<Vec<HostTensor>>,
    /// The sizes for which a session is loaded.
    pub sizes: Sizes,
}

/// A case with its loaded session, to which its inputs are bound.
pub struct LoadedCase {
    case: Case,
    pub session: TimedSession,
    /// Absent if this process is not the one that verifies the case.
    pub expectation: Option<Expectation>,
    load_ms: Option<f64>,
    /// The resident set before the first call.
    pub loaded_bytes: Option<u64>,
}

impl<'a> Worker<'a> {
    pub fn new(job: &'a Job) -> Self {
        Worker { job, references: HashMap::new(), session: None, out_of_memory: job.out_of_memory.clone() }
    }

    /// Remembers the case if it ran out of memory.
    pub fn note_end(&mut self, case: &Case, status: Status) {
        if status == Status::OutOfMemory {
            self.out_of_memory.push(case.clone());
        }
    }

    /// # Errors
    /// `out-of-memory` without a try, if the same case ran out of memory at a smaller batch size.
    fn check_memory_sufficed(&self, case: &Case) -> Result<(), CaseFailure> {
        let is_smaller = |known: &&Case| {
            known.batch_size < case.batch_size && Case { batch_size: case.batch_size, ..(*known).clone() } == *case
        };
        let Some(known) = self.out_of_memory.iter().find(is_smaller) else { return Ok(()) };
        let message = format!("not tried: memory ran out at batch {}", known.batch_size);
        Err(CaseFailure::new(Status::OutOfMemory, message))
    }

    /// Loads a case, binds its inputs, makes the first call, and notes in `outcome` what it sees. The first process of
    /// a case also compares the outputs.
    ///
    /// # Errors
    /// Why the case cannot run or has no figures. `outcome` has what was seen until then.
    pub fn load(&mut self, item: &WorkItem, outcome: &mut Outcome) -> Result<LoadedCase, CaseFailure> {
        let job = self.job;
        let (case, model) = (&item.case, &item.model);
        self.check_memory_sufficed(case)?;
        let CaseInputs { samples, reference, ring, sizes } = self.inputs(item)?;
        let request = LoadRequest { sizes, ..job.request(item) };
        let is_first = job.purpose.is_first_process();
        let mut traced_dtype = None;
        if is_first && let Some(trace) = backend::find(&case.backend)?.trace(&request, &ring[0])? {
            traced_dtype = note_trace(&trace, item, &mut outcome.row)?;
        }
        let (mut session, loaded_bytes) = self.start(item, &request, &ring, outcome)?;
        let mut expectation = None;
        if is_first {
            let placement = session.placement();
            let placement = Placement { effective_dtype: placement.effective_dtype.or(traced_dtype), ..placement };
            note_placement(placement, item, &mut outcome.row)?;
            let verification = Verification { case, reference: reference.as_deref(), job, request };
            // Samples can make up to 256 batches. Only as many are compared as there are seeded batches.
            let compared = &ring[..ring.len().min(fixture::RING)];
            expectation = Some(verification.verify(&mut *session, compared, &mut outcome.row)?);
            // Runtimes that compile over several calls know the time only now.
            let compilation_ms = session.compilation().map(milliseconds);
            outcome.row.compilation_time_ms = outcome.row.compilation_time_ms.or(compilation_ms);
        }
        let session = match (case.boundary, samples) {
            (Boundary::Compute, _) => TimedSession::new(session, ring.len()),
            (Boundary::EndToEnd, _) => TimedSession::from_host(session, ring),
            (Boundary::Pipeline, Some(samples)) => {
                let outputs = session.outputs(0)?;
                TimedSession::through(session, Pipeline::new(samples, &outputs, &model.output_names(case.phase)))
            }
            (Boundary::Pipeline, None) => return Err(CaseFailure::failed("a pipeline needs samples")),
        };
        Ok(LoadedCase { case: case.clone(), session, expectation, load_ms: outcome.row.load_time_ms, loaded_bytes })
    }

    /// The batches of a case.
    ///
    /// # Errors
    /// The samples or the reference cannot be read, or do not fit the model.
    pub fn inputs(&mut self, item: &WorkItem) -> Result<CaseInputs, CaseFailure> {
        let (case, model) = (&item.case, &item.model);
        let samples = match case.timed_on {
            TimedOn::Seeded => None,
            TimedOn::Samples => {
                let is_one_shape = backend::find(&case.backend)?.needs_one_shape(&case.device);
                Some(TimedSamples::open(model, case.sizes(), is_one_shape)?)
            }
        };
        // A reference has outputs for its own inputs only, not for samples.
        let reference = if samples.is_some() { None } else { self.reference(item)? };
        let ring: Vec<_> = match &samples {
            Some(samples) => (0..samples.len()).map(|batch| samples.inputs(batch)).collect::<anyhow::Result<_>>()?,
            None => {
                let inputs = |index| fixture::batch(model, reference.as_deref(), index, case.sizes());
                // Further batches would only add to the memory that is recorded.
                let is_one_enough = matches!(self.job.purpose, Purpose::Observe | Purpose::Load);
                let batches = if is_one_enough { 1 } else { fixture::RING };
                (0..batches).map(inputs).collect::<anyhow::Result<_>>()?
            }
        };
        let sizes = samples.as_ref().map_or(case.sizes(), |samples| samples.sizes(case.sizes()));
        Ok(CaseInputs { samples, reference, ring, sizes })
    }

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

    /// Loads the session or takes up the kept one, binds the inputs and makes the first call. Returns it with the resident set before
    /// that call.
    fn start(
        &mut self,
        item: &WorkItem,
        request: &LoadRequest<'_>,
        ring: &[Vec<HostTensor>],
        outcome: &mut Outcome,
    ) -> Result<(Box<dyn Session>, Option<u64>), CaseFailure> {
        let case = &item.case;
        let entry = backend::registry::entry(&case.backend)?;
        let backend = entry.backend()?;
        outcome.row.input_shape = Some(describe_shapes(ring));
        outcome.tokens_a_call = match case.phase {
            Phase::Forward | Phase::Encoder => None,
            Phase::Prefill => {
                item.model.prompt_positions(case.sequence_length).map(|positions| positions * case.batch_size)
            }
            Phase::Decode => Some(case.batch_size),
        };
        outcome.row.backend_version = Some(entry.version.into());
        // This loads the library, whose loading time must not count as the model's.
        let version = entry.library_version(&case.device);
        if let Some(before) = item.row.library_version.as_ref().filter(|before| **before != version) {
            let backend = &case.backend;
            let why = format!("it was measured with {backend} {before}, and now there is {backend} {version}");
            return Err(CaseFailure::failed(why));
        }
        outcome.row.library_version = Some(version);
        outcome.row.library_path = backend.library_path(&case.device).map(|path| path.display().to_string());
        // If the mark cannot be reset, the peak is the whole process's, which is still an upper bound.
        let _ = memory::reset_peak();
        let mut session = match self.session.take().filter(|kept| kept.serves(case)) {
            Some(KeptSession { mut session, load_ms, .. }) => {
                session.reset(request)?;
                outcome.row.load_time_ms = load_ms;
                outcome.is_session_shared = true;
                session
            }
            None => {
                let start = Instant::now();
                let session = backend.load(request)?;
                outcome.row.load_time_ms = Some(milliseconds(start.elapsed()));
                session
            }
        };
        // A kept session reports the total of its compilations; what it has so far belongs to earlier cases.
        let of_others = session.compilation().filter(|_| outcome.is_session_shared).unwrap_or_default();
        for inputs in ring {
            session.bind(inputs)?;
        }
        outcome.row.new_tokens = (case.phase == Phase::Decode).then(|| session.calls_in_a_row());
        let compiled_before = session.compilation().unwrap_or_default();
        let loaded_bytes = memory::resident_bytes();
        let start = Instant::now();
        session.run(0)?;
        session.sync()?;
        let elapsed = start.elapsed();
        let compilation = session.compilation();
        let compiled_now = compilation.unwrap_or_default().saturating_sub(compiled_before);
        let first = session.first_call().unwrap_or_else(|| elapsed.saturating_sub(compiled_now));
        outcome.row.first_inference_ms = Some(milliseconds(first));
        // `None` so far if the runtime compiles over several calls, as libtorch does; `load` asks again later.
        let own = compilation.map(|all| milliseconds(all.saturating_sub(of_others)));
        outcome.row.compilation_time_ms = own.or(outcome.row.compilation_time_ms);
        outcome.row.trace_time_ms = session.placement().tracing.map(milliseconds);
        Ok((session, loaded_bytes))
    }

    /// Keeps the session for the next case, if it serves other sizes too.
    pub fn release(&mut self, LoadedCase { case, session, load_ms, .. }: LoadedCase) {
        let session = session.into_session();
        if session.placement().serves_other_sizes {
            self.session = Some(KeptSession { case, session, load_ms });
        }
    }
}

/// Notes which fraction of a case runs on the requested provider, by a trace of one call in a session that may use
/// other providers, too. Returns the dtype of its matrix products, if the trace says it. A user's file of f16 or bf16
/// may be computed in f32.
///
/// # Errors
/// `unsupported`: a node would run elsewhere, or a product would be computed in another dtype; the message names the
/// operator.
fn note_trace(trace: &Trace, item: &WorkItem, row: &mut Record) -> Result<Option<Dtype>, CaseFailure> {
    let dtype = item.case.dtype;
    let (provider, share) = (&trace.asked_for, trace.share());
    row.providers = Some(provider.clone());
    row.provider_share = Some(share);
    if share < 1.0 {
        return Err(CaseFailure::unsupported(format!(
            "{provider} runs {:.1} % of the nodes; the others would fall back: {}",
            share * 100.0,
            trace.elsewhere().join(", ")
        )));
    }
    if let Some((computed_in, operators)) = trace.products_not_in(dtype) {
        row.effective_dtype = Some(computed_in);
        if is_half_file(item) {
            return Ok(Some(computed_in));
        }
        return Err(CaseFailure::unsupported(format!(
            "{provider} has no {dtype} {}: it would compute in {computed_in} between casts",
            operators.join(", ")
        )));
    }
    Ok(trace.products.contains_key(&Some(dtype)).then_some(dtype))
}

/// Whether the case runs a file of the user's that is f16 or bf16 itself: an ONNX file that was not converted for the
/// case, or a GGUF file.
fn is_half_file(item: &WorkItem) -> bool {
    let is_loaded = match &item.model.origin {
        Origin::Files { onnx: Some(file), .. } => item.artifacts.parts.iter().any(|it| it.onnx.as_ref() == Some(file)),
        Origin::Gguf { .. } => true,
        _ => false,
    };
    is_loaded && matches!(item.case.dtype, Dtype::F16 | Dtype::Bf16)
}

impl LoadedCase {
    /// Warms the session up, by the rule of its backend.
    pub fn warm_up(&mut self, effort: &Effort) -> Result<WarmUp, CaseFailure> {
        let at_most = Duration::from_secs_f64(effort.budget_seconds / 2.0);
        self.warm_up_by(effort.warmup, at_most, |session| session.call(1))
    }

    /// Warms the session up with `call`. Makes `at_least` calls, or as many as the backend needs if that is more, and
    /// then further calls until the times are steady or `at_most` is over (see `measurement::warm_up`).
    pub fn warm_up_by(
        &mut self,
        at_least: usize,
        at_most: Duration,
        call: impl Fn(&mut TimedSession) -> Result<CallTimes, CaseFailure>,
    ) -> Result<WarmUp, CaseFailure> {
        let least = backend::find(&self.case.backend)?.least_warm_up_calls();
        measurement::warm_up(|| call(&mut self.session), at_least.max(least), at_most)
    }

    /// A rough latency: the median of up to 25 calls, in milliseconds.
    pub fn rough_call_ms(&mut self) -> Result<f64, CaseFailure> {
        const PATIENCE_NS: u64 = 300_000_000;
        let first: u64 = self.session.call(1)?.iter().sum();
        let calls = self.session.call((PATIENCE_NS / first.max(1)).clamp(1, 25))?;
        let calls: Vec<f64> = calls.iter().map(|&ns| ns as f64 / 1e6).collect();
        median(&calls).ok_or_else(|| CaseFailure::failed("no call was made"))
    }
}

/// Notes the medians of the parts of the last `calls` calls, in milliseconds. Earlier calls were warm-up. Calls that
/// are only the computation have no parts.
pub fn note_parts(parts: &[CallParts], calls: usize, row: &mut Record) {
    let measured = &parts[parts.len().saturating_sub(calls)..];
    let median_of = |part: fn(&CallParts) -> Option<Duration>| {
        median(&measured.iter().filter_map(part).map(milliseconds).collect::<Vec<f64>>())
    };
    row.preprocess_ms = median_of(|it| it.preprocess);
    row.h2d_ms = median_of(|it| Some(it.stages.to_device));
    row.compute_ms = median_of(|it| Some(it.stages.compute));
    row.d2h_ms = median_of(|it| Some(it.stages.to_host));
    row.postprocess_ms = median_of(|it| it.postprocess);
}

fn note_placement(placement: Placement, item: &WorkItem, row: &mut Record) -> Result<(), CaseFailure> {
    let WorkItem { case, artifacts, .. } = item;
    if !placement.artifacts.is_empty() {
        let bytes = artifacts.size_bytes(placement.artifacts.iter().map(PathBuf::as_path));
        // The code of a Python file may read its weights from anywhere.
        let is_code = placement.artifacts[0].extension().is_some_and(|kind| kind == "py");
        row.model_size_mb = (!is_code).then(|| memory::megabytes(bytes));
        row.artifact_sha256 = artifacts.sha256_of_loaded(placement.artifacts.iter().map(PathBuf::as_path)).ok();
    }
    row.providers = Some(placement.providers);
    row.message = placement.executor.map(|executor| format!("executed by {executor}"));
    row.device_type = placement.device_type.or(row.device_type.take());
    row.threads = placement.threads;
    row.parameters = row.parameters.or(placement.parameters);
    row.gguf_scheme = placement.gguf_scheme;
    row.effective_dtype = placement.effective_dtype;
    let effective = placement.effective_device;
    row.effective_device = Some(effective.clone());
    if effective != case.device {
        return Err(CaseFailure::unavailable(format!("asked for {}, and it ran on {effective}", case.device)));
    }
    match placement.effective_dtype {
        Some(dtype) if dtype != case.dtype && is_half_file(item) => {
            let note = match &item.model.origin {
                Origin::Gguf { .. } => {
                    format!("computed in {dtype}, to which its {} weights were converted", case.dtype)
                }
                _ => format!("computed in {dtype} between casts from and to the {} of the file", case.dtype),
            };
            row.message = with_note(row.message.take(), note);
            Ok(())
        }
        Some(dtype) if dtype != case.dtype => {
            Err(CaseFailure::unsupported(format!("asked for {}, and it computes in {dtype}", case.dtype)))
        }
        _ => Ok(()),
    }
}

/// The shapes of the inputs; `1x9..16` if batches have different sizes.
fn describe_shapes(ring: &[Vec<HostTensor>]) -> String {
    let sizes = |input: usize, dimension: usize| {
        let sizes = ring.iter().map(|batch| batch[input].shape[dimension]);
        let (least, most) = sizes.fold((usize::MAX, 0), |(least, most), size| (least.min(size), most.max(size)));
        if least == most { most.to_string() } else { format!("{least}..{most}") }
    };
    let shape = |(place, input): (usize, &HostTensor)| {
        (0..input.shape.len()).map(|dimension| sizes(place, dimension)).collect::<Vec<_>>().join("x")
    };
    ring[0].iter().enumerate().map(shape).collect::<Vec<_>>().join(" ")
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Stages;

    #[test]
    fn calls_of_the_warm_up_are_not_in_the_medians_of_the_parts() {
        let call = |ms: u64| {
            let [to_device, compute, to_host] = [1, 2, 3_u64].map(|factor| Duration::from_millis(factor * ms));
            let stages = Stages { to_device, compute, to_host };
            CallParts { preprocess: Some(Duration::from_millis(4 * ms)), stages, postprocess: None }
        };
        let parts = [100, 100, 100, 100, 2, 3, 4].map(call);
        let mut row = Record::default();
        note_parts(&parts, 3, &mut row);
        let medians = [row.preprocess_ms, row.h2d_ms, row.compute_ms, row.d2h_ms, row.postprocess_ms];
        assert_eq!(medians, [Some(12.0), Some(3.0), Some(6.0), Some(9.0), None]);
        note_parts(&[], 3, &mut row);
        assert_eq!((row.preprocess_ms, row.h2d_ms), (None, None));
    }

    #[test]
    fn shapes_that_differ_are_described_by_their_least_and_largest_sizes() {
        let tensor = |shape: &[usize]| HostTensor { shape: shape.to_vec(), data: Vec::<i64>::new().into() };
        let ring = [9, 16, 12].map(|length| vec![tensor(&[1, length]), tensor(&[1, 3])]);
        assert_eq!(describe_shapes(&ring), "1x9..16 1x3");
        assert_eq!(describe_shapes(&ring[..1]), "1x9 1x3");
    }
}

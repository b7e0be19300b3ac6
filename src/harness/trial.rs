//! One case in its process, from loading to the proof: everything but the sampling itself.
//!
//! The order is: load, bind the ring of inputs, first call, compare the outputs with the reference, warm up. Only then
//! may it be measured; afterwards the outputs of the same session are compared once more.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::assignment::{Assignment, Purpose};
use super::manifest::Observed;
use super::peer;
use crate::backend::{self, LoadRequest, Placement, Session};
use crate::definition::{Case, Effort, Model, Phase, Shortfall, Sizes, Status};
use crate::fixture::{self, Artifacts, HostTensor, Reference};
use crate::measurement::{self, TimedSession, WarmUp, WarmUpRule};

/// What the cases of a process share; each is loaded when the first case needs it.
#[derive(Default)]
pub struct Fixtures {
    references: HashMap<String, Option<Rc<Reference>>>,
    hashes: HashMap<std::path::PathBuf, String>,
}

impl Fixtures {
    fn reference(&mut self, model: &Model, artifacts: &Artifacts) -> Result<Option<Rc<Reference>>, Shortfall> {
        let key = model.artifact_folder_name();
        if let Some(reference) = self.references.get(&key) {
            return Ok(reference.clone());
        }
        let reference = match &artifacts.reference {
            Some(path) => Some(Rc::new(fixture::read_reference(path).map_err(Shortfall::failed)?)),
            None => None,
        };
        self.references.insert(key, reference.clone());
        Ok(reference)
    }

    fn sha256(&mut self, path: &Path) -> Option<String> {
        if !self.hashes.contains_key(path) {
            self.hashes.insert(path.to_owned(), fixture::sha256_of_file(path).ok()?);
        }
        self.hashes.get(path).cloned()
    }
}

/// A case that is loaded and verified.
pub struct Trial {
    pub session: TimedSession,
    expectation: Expectation,
}

/// What the outputs of the first batch are compared with.
enum Expectation {
    Reference {
        outputs: Vec<(String, HostTensor)>,
        tolerance: f64,
    },
    /// No reference: what the session itself gave before timing.
    Itself(Vec<HostTensor>),
}

/// Loads a case and compares its outputs, and notes what is seen on the way.
///
/// # Errors
/// Why the case has no figures. `observed` holds what was seen until then.
pub fn load_and_prove(
    case: &Case,
    model: &Model,
    assignment: &Assignment,
    fixtures: &mut Fixtures,
    observed: &mut Observed,
) -> Result<Trial, Shortfall> {
    let backend = backend::find(&case.backend)?;
    let artifacts = fixture::prepare(model, &assignment.prepared_folder).map_err(Shortfall::failed)?;
    let reference = fixtures.reference(model, &artifacts)?;
    let sizes = Sizes { batch: case.batch_size, sequence: case.sequence_length };
    let ring: Vec<Vec<HostTensor>> = (0..fixture::RING)
        .map(|index| fixture::batch(model, reference.as_deref(), index, sizes))
        .collect::<Result<_, _>>()
        .map_err(Shortfall::failed)?;
    observed.input_shape = ring.first().map(|inputs| describe_shapes(inputs));
    observed.tokens_a_call = match case.phase {
        Phase::Forward | Phase::Encoder => None,
        Phase::Prefill => model.prompt_positions(case.sequence_length).map(|positions| positions * case.batch_size),
        Phase::Decode => Some(case.batch_size),
    };

    let request = LoadRequest {
        model,
        artifacts: &artifacts,
        phase: case.phase,
        sequence_length: case.sequence_length,
        device: &case.device,
        dtype: case.dtype,
        threads: assignment.effort.effective_threads(),
    };
    // Loads the library, which is no part of loading the model.
    let versions = backend.versions();
    observed.backend_version = Some(versions.backend);
    observed.library_version = Some(versions.library);
    // Where the mark cannot be reset, the peak is the whole process's, which is still an upper bound.
    let _ = measurement::memory::reset_peak();
    let start = Instant::now();
    let mut session = backend.load(&request)?;
    observed.load_ms = Some(milliseconds(start.elapsed()));

    for inputs in &ring {
        session.bind(inputs)?;
    }
    let start = Instant::now();
    session.run(0)?;
    session.sync()?;
    observed.first_inference_ms = Some(milliseconds(start.elapsed()));

    note_placement(session.placement(), case, &artifacts, fixtures, observed)?;
    let expectation = first_proof(&mut *session, &ring, case, model, reference.as_deref(), assignment, observed)?;

    Ok(Trial { session: TimedSession::new(session, ring.len()), expectation })
}

impl Trial {
    /// Warms the session up, by the rule of its backend.
    ///
    /// # Errors
    /// A call fails.
    pub fn warm_up(&mut self, case: &Case, effort: &Effort) -> Result<WarmUp, Shortfall> {
        measurement::warm_up(&mut self.session, warm_up_rule(case, effort))
    }

    /// Compares the outputs once more, after the measurement.
    ///
    /// # Errors
    /// `wrong-output`: they changed.
    pub fn prove_again(&mut self) -> Result<(), Shortfall> {
        let outputs = self.session.session().outputs(0)?;
        let changed = |why: String| Shortfall::new(Status::WrongOutput, format!("after the measurement: {why}"));
        match &self.expectation {
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

fn note_placement(
    placement: Placement,
    case: &Case,
    artifacts: &Artifacts,
    fixtures: &mut Fixtures,
    observed: &mut Observed,
) -> Result<(), Shortfall> {
    if !placement.artifacts.is_empty() {
        observed.artifact_bytes = Some(artifacts.size_bytes(placement.artifacts.iter().map(PathBuf::as_path)));
        let hashes: Vec<String> = placement.artifacts.iter().filter_map(|path| fixtures.sha256(path)).collect();
        observed.artifact_sha256 = Some(hashes.join(" "));
    }
    observed.providers = Some(placement.providers);
    observed.executor = placement.executor;
    observed.threads = placement.threads;
    observed.effective_dtype = placement.effective_dtype;
    let effective = placement.effective_device;
    observed.effective_device = Some(effective.clone());
    if effective != case.device {
        return Err(Shortfall::unavailable(format!("asked for {}, and it ran on {effective}", case.device)));
    }
    match placement.effective_dtype {
        Some(dtype) if dtype != case.dtype => {
            Err(Shortfall::unsupported(format!("asked for {}, and it computes in {dtype}", case.dtype)))
        }
        _ => Ok(()),
    }
}

fn first_proof(
    session: &mut dyn Session,
    ring: &[Vec<HostTensor>],
    case: &Case,
    model: &Model,
    reference: Option<&Reference>,
    assignment: &Assignment,
    observed: &mut Observed,
) -> Result<Expectation, Shortfall> {
    let wrong = |why: String| Shortfall::new(Status::WrongOutput, why);
    let outputs = session.outputs(0)?;
    if case.backend == backend::NULL || assignment.purpose == Purpose::MeasureUnproven {
        return Ok(Expectation::Itself(outputs));
    }
    // Small integer inputs can be the same by chance.
    let other = (1..ring.len()).find(|&index| ring[index] != ring[0]);
    let other_outputs = other.map(|index| session.outputs(index)).transpose()?;
    let tolerance = model.tolerance.of(case.dtype);
    let samples = fixture::sample_indices(0, case.batch_size);
    // All outputs or none: a reference that was not made for this length is no reference.
    let expected: Option<Vec<(String, HostTensor)>> = reference.and_then(|reference| {
        let rows = |name: &str| Some(reference.output(case.phase, name, case.sequence_length)?.rows(&samples));
        model.output_names(case.phase).into_iter().map(|name| rows(&name).map(|rows| (name, rows))).collect()
    });
    let is_promised = case.sequence_length.is_none_or(|length| model.sequence_lengths.contains(&length));
    if reference.is_some() && expected.is_none() && is_promised {
        return Err(Shortfall::failed("the reference lacks an output of the model"));
    }
    let (expected, whose) = match expected {
        Some(expected) => (Some(expected), "the reference".to_owned()),
        None => match peer::read(&assignment.run_folder, case).map_err(Shortfall::failed)? {
            Some(peer) => (Some(peer.outputs), format!("the outputs of {}", peer.backend)),
            None => (None, String::new()),
        },
    };
    if let Some(expected) = &expected {
        observed.verified = Some(false);
        let deviation = fixture::deviation(&outputs, expected).map_err(|why| wrong(format!("{why} ({whose})")))?;
        observed.max_abs_error = Some(deviation.max_abs_error);
        observed.max_rel_error = Some(deviation.max_rel_error);
        check_tolerance(deviation.max_rel_error, tolerance)
            .map_err(|why| wrong(format!("the outputs differ from {whose}: {why}")))?;
        observed.verified = Some(true);
    }
    fixture::check_plausible(&outputs, other_outputs.as_deref()).map_err(wrong)?;
    match expected {
        Some(outputs) => Ok(Expectation::Reference { outputs, tolerance }),
        None => {
            peer::write(&assignment.run_folder, case, &model.output_names(case.phase), &outputs)
                .map_err(Shortfall::failed)?;
            Ok(Expectation::Itself(outputs))
        }
    }
}

fn check_tolerance(error: f64, tolerance: f64) -> Result<(), String> {
    if error <= tolerance {
        return Ok(());
    }
    Err(format!("an error of {error:.1e} of the largest value, where {tolerance:.0e} is allowed"))
}

fn warm_up_rule(case: &Case, effort: &Effort) -> WarmUpRule {
    // TorchScript's profiling executor recompiles in its first calls.
    let at_least = if case.backend == "tch" { effort.warmup.max(20) } else { effort.warmup };
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

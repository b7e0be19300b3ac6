//! `GET /api/v1/benchmark/{model}`: one case, measured while the client waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, json};
use super::asked::{Asked, ITERATIONS, WARMUP, value};
use super::context::Context;
use super::devices::Found;
use super::failure::Failure;
use super::job::{self, Job};
use super::models::Chosen;
use super::past;
use crate::backend;
use crate::definition::{Dtype, Phase, Status};
use crate::history::History;
use crate::run_data::Record;

/// The parameters of a measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BenchmarkQuery {
    /// `cpu` (the default), `cuda`, `cuda:1`, `mps`, …
    pub device: Option<String>,
    /// Calls to measure. The default is 100.
    pub iterations: Option<usize>,
    /// The least number of calls before the first measured one. The default is 10.
    pub warmup: Option<usize>,
    /// The default is the backend for the file's extension, or else the first one with the device that runs the model.
    pub backend: Option<String>,
    /// The default is the device's own dtype, usually `f32`.
    pub dtype: Option<String>,
    /// The default is 1.
    pub batch_size: Option<usize>,
    pub threads: Option<usize>,
    /// The default is the variant of the named file, or else the original.
    pub variant: Option<String>,
    /// For a model with several phases. The default is its first.
    pub phase: Option<String>,
    /// For a model with sequence lengths. The default is the first of its list.
    pub sequence_length: Option<usize>,
    /// Accept an answer from the history that is at most this old: `90s`, `15m`, `1h`, `7d`. It has the same model,
    /// machine, versions and parameters.
    pub max_age: Option<String>,
}

pub async fn benchmark(
    State(context): State<Arc<Context>>,
    model: Result<Path<String>, axum::extract::rejection::PathRejection>,
    query: Result<Query<BenchmarkQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Path(model) = model.map_err(|_| Failure::not_found("the name of the model is not UTF-8"))?;
    let Query(query) = query?;
    let max_age = query.max_age.as_deref().map(past::age).transpose()?;
    let found = context.devices.ready().await;
    let chosen = context.models.find(&model, query.variant.as_deref())?;
    let asked = asked(&context, &query, &chosen, &found)?;
    if let Some(age) = max_age
        && let Some(record) = past::find(&context, &asked, &chosen, &found, age).await
    {
        return Ok(json(&Answer::new(record, true)));
    }
    let job = context.queue.submit(asked, false)?;
    let waiting = Waiting::new(context.clone(), job.clone());
    let place = place_headers(&job);
    job.end().await;
    drop(waiting);
    let mut response = answer(&context, &job).await.map(|record| json(&Answer::new(record, false)));
    if let Ok(response) = &mut response {
        response.headers_mut().extend(place);
    }
    response
}

/// Headers with the job's place in the queue when the request came, and its expected wait in seconds.
pub fn place_headers(job: &Job) -> HeaderMap {
    let status = job.status();
    let mut headers = HeaderMap::new();
    headers.insert("inferbench-queue-place", HeaderValue::from(status.place.unwrap_or(0)));
    headers.insert("inferbench-expected-wait", HeaderValue::from(status.expected_wait_s.unwrap_or(0.0).round() as u64));
    headers
}

/// The one case that a request asks for.
fn asked(context: &Context, query: &BenchmarkQuery, chosen: &Chosen, found: &Found) -> Result<Asked, Failure> {
    let model = chosen.entry.model.as_ref().map_err(|failure| Failure::parameter(failure.message.clone()))?;
    let phase = query.phase.as_deref().map(|text| value::<Phase>("phase", text)).transpose()?;
    if let Some(phase) = phase.filter(|phase| !model.phases.iter().any(|plan| plan.phase == *phase)) {
        return Err(Failure::parameter(format!("phase: {} has no phase {phase}", chosen.entry.name)));
    }
    if let (Some(asked), Some(own)) = (query.batch_size, model.fixed_batch())
        && asked != own
    {
        return Err(Failure::parameter(format!("batch_size: {} takes {own} only", chosen.entry.name)));
    }
    let dtype = query.dtype.as_deref().map(|text| value::<Dtype>("dtype", text)).transpose()?;
    let asked = Asked {
        suite: None,
        models: vec![chosen.entry.name.clone()],
        variants: vec![chosen.entry.variant.clone()],
        backends: query.backend.iter().cloned().collect(),
        devices: vec![query.device.clone().unwrap_or_else(|| "cpu".into())],
        dtypes: query.dtype.iter().cloned().collect(),
        batch_sizes: vec![query.batch_size.unwrap_or(1)],
        phases: query.phase.clone().or(model.phases.first().map(|plan| plan.phase.to_string())).into_iter().collect(),
        sequence_lengths: query.sequence_length.or(model.sequence_lengths.first().copied()).into_iter().collect(),
        iterations: Some(query.iterations.unwrap_or(ITERATIONS.min(context.settings.most_iterations))),
        warmup: Some(query.warmup.unwrap_or(WARMUP)),
        threads: query.threads,
    };
    let mut asked = asked.checked(&context.paths, &context.settings)?;
    let candidates = match (asked.backends.first(), chosen.backend) {
        (Some(named), _) => vec![named.as_str()],
        (None, Some(of_file)) => vec![of_file],
        (None, None) => backend::registry::built(),
    };
    let there = found.having(&asked.devices, &candidates)?;
    let runs = |name: &&&str| backend::registry::check_model(name, model, dtype.unwrap_or(model.dtype)).is_ok();
    // If no backend runs the model, the run says why.
    let backend = there.iter().find(runs).or(there.first()).map(|name| (*name).to_owned());
    asked.backends = backend.into_iter().collect();
    Ok(asked)
}

/// The record that a job has left in the history.
///
/// # Errors
/// The job or its case failed, was cancelled or was interrupted, or the record cannot be read.
async fn answer(context: &Context, job: &Job) -> Result<Record, Failure> {
    let status = job.status();
    let internal = |message: String| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message);
    match status.state {
        job::State::Done => {}
        job::State::Interrupted => return Err(Failure::unavailable("the server is ending", 60)),
        job::State::Cancelled => return Err(Failure::unavailable("the measurement was cancelled", 1)),
        _ => return Err(internal(status.message.unwrap_or_else(|| "the measurement failed".into()))),
    }
    let history = History::open(&[context.paths.reports().join(&status.id)])?;
    let mut records = history.latest()?.records()?;
    if records.is_empty() {
        return Err(internal("the run has left no record".into()));
    }
    let record = records.remove(0);
    let message = record.message.clone().unwrap_or_else(|| record.status.to_string());
    let code = match record.status {
        Status::Ok | Status::Suspicious | Status::Unstable => return Ok(record),
        Status::Unavailable => StatusCode::CONFLICT,
        Status::Unsupported => StatusCode::UNPROCESSABLE_ENTITY,
        Status::Failed | Status::WrongOutput | Status::OutOfMemory | Status::Timeout => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    let available_devices = match record.status {
        Status::Unavailable => Some(context.devices.ready().await.available(&[&record.backend])),
        _ => None,
    };
    let failure = Failure::new(code, format!("{}: {message}", record.status));
    Err(Failure { record: Some(Box::new(record)), available_devices, ..failure })
}

/// A client that waits for a job. When the last one leaves, the job is cancelled unless it is detached.
pub struct Waiting {
    context: Arc<Context>,
    job: Arc<Job>,
}

impl Waiting {
    pub fn new(context: Arc<Context>, job: Arc<Job>) -> Self {
        job.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting { context, job }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let was_last = self.job.waiting.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && !self.job.is_detached.load(Ordering::SeqCst) && !self.job.state().is_over() {
            self.context.queue.cancel(&self.job);
        }
    }
}

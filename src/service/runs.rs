//! `/api/v1/runs`: starts, follows and cancels jobs. A job is shown together with its run in the history.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use super::answer::json;
use super::asked::Asked;
use super::benchmark::place_headers;
use super::context::Context;
use super::failure::Failure;
use super::guard::MOST_BODY;
use super::job::{Job, JobStatus, State as JobState};
use crate::backend::registry;
use crate::history::RunFacts;

/// How long a client may take to send a body.
const BODY: Duration = Duration::from_secs(15);
/// How often a stream without events sends a comment, so that no proxy closes it.
const ALIVE: Duration = Duration::from_secs(30);

/// A job, a run of the history, or both.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Run {
    pub id: String,
    /// `queued`, `running`, `done`, `failed`, `cancelled` or `interrupted`.
    pub state: JobState,
    /// The job; absent for a run that no server has started.
    pub job: Option<JobStatus>,
    /// The facts of the run in the history; absent before its end.
    pub facts: Option<RunFacts>,
    /// Paths below this server.
    pub links: Links,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Links {
    #[serde(rename = "self")]
    pub own: String,
    pub events: String,
    pub records: String,
    /// A page with charts, as soon as there are records.
    pub report: String,
}

impl Run {
    pub fn new(id: &str, job: Option<JobStatus>, facts: Option<RunFacts>) -> Self {
        let own = format!("/api/v1/runs/{id}");
        // A run that was killed has no end.
        let is_stopped =
            |facts: &RunFacts| facts.is_interrupted.is_some_and(|is_told| is_told || facts.finished.is_none());
        let of_history = if facts.as_ref().is_some_and(is_stopped) { JobState::Interrupted } else { JobState::Done };
        Run {
            id: id.into(),
            state: job.as_ref().map_or(of_history, |job| job.state),
            job,
            facts,
            links: Links {
                events: format!("{own}/events"),
                records: format!("/api/v1/records?run={id}"),
                report: format!("{own}/report"),
                own,
            },
        }
    }

    /// Whether it has one of these models and one of these backends, as measured or else as requested. An empty list is
    /// no restriction.
    pub fn has(&self, models: &[String], backends: &[String]) -> bool {
        let has_one =
            |wanted: &[String], asked: &[String]| wanted.is_empty() || asked.iter().any(|it| wanted.contains(it));
        match (&self.facts, &self.job) {
            (Some(facts), _) => facts.has(models, backends),
            (None, Some(job)) => has_one(models, &job.asked.models) && has_one(backends, &job.asked.backends),
            (None, None) => models.is_empty() && backends.is_empty(),
        }
    }

    /// Whether it is of this suite, as measured or else as requested.
    pub fn is_of_suite(&self, suite: &str) -> bool {
        let of_facts = self.facts.as_ref().map(|facts| facts.suite.as_str());
        of_facts.or(self.job.as_ref().map(|job| job.asked.suite_name())) == Some(suite)
    }
}

/// `POST /api/v1/runs`.
pub async fn submit(State(context): State<Arc<Context>>, headers: HeaderMap, body: Body) -> Result<Response, Failure> {
    // A page of another site cannot send this content type without a preflight request.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let message = "the body has to be JSON, with `Content-Type: application/json`";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive");
    let large = |_| Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is cut short, or larger than 1 MiB");
    let bytes = timeout(BODY, to_bytes(body, MOST_BODY)).await.map_err(late)?.map_err(large)?;
    let wrong = |error: serde_json::Error| {
        let what = if error.is_data() { "" } else { "the body is not valid JSON: " };
        Failure::parameter(format!("{what}{error}").replace("expected usize", "expected a whole number from 0 on"))
    };
    let asked: Asked = serde_json::from_slice(&bytes).map_err(wrong)?;
    let asked = complete(&context, asked).await?;
    let job = context.queue.submit(asked, true)?;
    let run = Run::new(&job.id(), Some(job.status()), None);
    let mut response = (StatusCode::ACCEPTED, json(&run)).into_response();
    response.headers_mut().extend(place_headers(&job));
    if let Ok(location) = HeaderValue::from_str(&run.links.own) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Fills in the defaults, and checks that there is something to measure.
async fn complete(context: &Context, asked: Asked) -> Result<Asked, Failure> {
    let mut asked = asked.checked(&context.paths, &context.settings)?;
    if asked.suite.is_none() && asked.models.is_empty() {
        return Err(Failure::parameter("name a suite or models"));
    }
    let variant = asked.variants.first().filter(|variant| *variant != "all").cloned();
    let found = asked.models.iter().map(|name| context.models.find(name, variant.as_deref()));
    let chosen = found.collect::<Result<Vec<_>, Failure>>()?;
    asked.models = chosen.iter().map(|chosen| chosen.entry.name.clone()).collect();
    if asked.suite.is_some() {
        return Ok(asked);
    }
    if asked.devices.is_empty() {
        asked.devices = vec!["cpu".into()];
    }
    if asked.batch_sizes.is_empty() {
        asked.batch_sizes = vec![1];
    }
    if asked.variants.is_empty() {
        let variants: BTreeSet<&String> = chosen.iter().map(|chosen| &chosen.entry.variant).collect();
        asked.variants = variants.into_iter().cloned().collect();
    }
    if asked.backends.is_empty() {
        let of_files: Option<Vec<&str>> = chosen.iter().map(|chosen| chosen.backend).collect();
        let candidates = of_files.unwrap_or_else(registry::built);
        let found = context.devices.ready().await;
        asked.backends = found.having(&asked.devices, &candidates)?.into_iter().map(str::to_owned).collect();
    }
    Ok(asked)
}

fn found(context: &Context, id: &str) -> Result<Arc<Job>, Failure> {
    context.queue.job(id).ok_or_else(|| Failure::not_found("there is no job of that id; `GET /api/v1/runs` lists them"))
}

/// `GET /api/v1/runs/{id}/events`: server-sent events from the beginning, or from the one after `Last-Event-ID`.
pub async fn events(
    State(context): State<Arc<Context>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let job = found(&context, &id)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<usize>().ok());
    if job.event(0).is_none() {
        // Of a job of an earlier server, only the end is known.
        job.update(|_| {});
    }
    let changes = job.changes();
    // An earlier server may have sent more events than there are now. The last event of a job that is over is sent
    // again.
    let known = *changes.borrow();
    let most = known.saturating_sub(usize::from(job.state().is_over()));
    let next = last.map_or(0, |last| last.saturating_add(1).min(most));
    let stream = stream::unfold((job, changes, next), async |(job, mut changes, next)| {
        loop {
            let is_over = job.state().is_over();
            if let Some(event) = job.event(next) {
                let data = serde_json::to_string(&event.data).unwrap_or_default();
                let event = Event::default().id(next.to_string()).event(event.kind).data(data);
                return Some((Ok::<_, Infallible>(event), (job, changes, next + 1)));
            }
            if is_over || changes.changed().await.is_err() {
                return None;
            }
        }
    });
    Ok(Sse::new(Box::pin(stream)).keep_alive(KeepAlive::new().interval(ALIVE)).into_response())
}

/// `DELETE /api/v1/runs/{id}`: cancels a job. Cases that are finished are kept.
pub async fn cancel(State(context): State<Arc<Context>>, Path(id): Path<String>) -> Result<Response, Failure> {
    let job = found(&context, &id)?;
    if job.state().is_over() {
        let message = "the job is over; `inferbench store prune --run ID` removes a run from the history";
        return Err(Failure::new(StatusCode::CONFLICT, message));
    }
    context.queue.cancel(&job);
    Ok((StatusCode::ACCEPTED, json(&Run::new(&id, Some(job.status()), None))).into_response())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_run_without_a_job_is_done_if_nothing_has_stopped_it() {
        let state = |(is_interrupted, finished)| {
            Run::new("r", None, Some(RunFacts { is_interrupted, finished, ..RunFacts::default() })).state
        };
        let end = Some(Timestamp::UNIX_EPOCH);
        let states = [(Some(false), end), (None, None), (Some(true), end), (Some(false), None)].map(state);
        assert_eq!(states, [JobState::Done, JobState::Done, JobState::Interrupted, JobState::Interrupted]);
    }
}

//! The lists of devices, models, suites, runs and records, with filters and pages; reports and comparisons.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::answer::{bytes, json as response};
use super::asked::{suites, value};
use super::command::read;
use super::context::Context;
use super::failure::Failure;
use super::job::State as JobState;
use super::models::Listed;
use super::past::age;
use super::queue::since;
use super::runs::Run;
use crate::definition::{Dtype, Status, usual_backend};
use crate::history::{History, PAGE, PROFILES, records_as_parquet, write_records};
use crate::paths::Paths;
use crate::report::index::REPORT;
use crate::run_data::Record;
use crate::run_data::files::folders_with;

/// Rows per page: by default, and at most.
const ROWS: usize = 100;
const MOST_ROWS: usize = 1000;

type Asked<T> = Result<Query<T>, QueryRejection>;

/// A page of a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The `offset` of the next page, if there is one.
    pub next_offset: Option<usize>,
}

/// One page of a list. Later items are not computed.
fn page<T>(items: impl Iterator<Item = T>, offset: Option<usize>, limit: Option<NonZeroUsize>) -> Page<T> {
    // A limit of 0 would give the same page again and again.
    let (offset, limit) = (offset.unwrap_or(0), limit.map_or(ROWS, NonZeroUsize::get).min(MOST_ROWS));
    let mut items: Vec<T> = items.skip(offset).take(limit + 1).collect();
    let has_more = items.len() > limit;
    items.truncate(limit);
    Page { items, next_offset: has_more.then(|| offset.saturating_add(limit)) }
}

/// `GET /api/v1/devices`.
pub async fn devices(State(context): State<Arc<Context>>) -> Response {
    response(&*context.devices.ready().await)
}

/// The parameters of the list of models.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelsQuery {
    pub family: Option<String>,
    pub modality: Option<String>,
    pub limit: Option<NonZeroUsize>,
    pub offset: Option<usize>,
}

/// `GET /api/v1/models`.
pub async fn models(State(context): State<Arc<Context>>, asked: Asked<ModelsQuery>) -> Result<Response, Failure> {
    let Query(asked) = asked?;
    let is = |filter: &Option<String>, value: &Option<String>| filter.is_none() || filter == value;
    let matches = |model: &Listed| is(&asked.family, &model.family) && is(&asked.modality, &model.modality);
    let models = context.models.list()?.into_iter().filter(matches);
    Ok(response(&page(models, asked.offset, asked.limit)))
}

/// `GET /api/v1/suites`.
pub async fn list_suites(State(context): State<Arc<Context>>) -> Response {
    response(&json!({ "items": suites(&context.paths) }))
}

/// The parameters of the list of runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunsQuery {
    pub state: Option<JobState>,
    pub suite: Option<String>,
    /// Models, separated by commas. The run has at least one of them.
    pub model: Option<String>,
    /// Backends, separated by commas. The run has at least one of them.
    pub backend: Option<String>,
    /// Not older than this: `90s`, `15m`, `1h`, `7d`.
    pub max_age: Option<String>,
    pub limit: Option<NonZeroUsize>,
    pub offset: Option<usize>,
}

/// `GET /api/v1/runs`: jobs and the runs of the history, the newest first.
pub async fn runs(State(context): State<Arc<Context>>, asked: Asked<RunsQuery>) -> Result<Response, Failure> {
    let Query(mut asked) = asked?;
    asked.backend = in_words_of_records(asked.backend, backend_of);
    let oldest = asked.max_age.as_deref().map(age).transpose()?.map(since);
    context.may_read()?;
    let listing = move || -> anyhow::Result<Page<Run>> {
        let history = History::open(&[context.paths.reports()])?;
        // Ids begin with the time.
        let mut by_id: BTreeMap<String, Option<&crate::history::Run>> =
            history.runs().iter().map(|run| (run.name().to_owned(), Some(run))).collect();
        for job in context.queue.jobs() {
            by_id.entry(job.id()).or_default();
        }
        let run = |(id, run): (String, Option<&crate::history::Run>)| {
            let job = context.queue.job(&id).map(|job| job.status());
            // A run that cannot be read is listed without its facts.
            Run::new(&id, job, run.and_then(|run| run.facts().ok()))
        };
        let listed = |list: &Option<String>| list.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect();
        let (models, backends): (Vec<String>, Vec<String>) = (listed(&asked.model), listed(&asked.backend));
        let matches = |run: &Run| {
            let started = run.facts.as_ref().map(|facts| facts.timestamp).or(run.job.as_ref().map(|job| job.submitted));
            asked.state.is_none_or(|state| run.state == state)
                && run.has(&models, &backends)
                && asked.suite.as_ref().is_none_or(|suite| run.is_of_suite(suite))
                && oldest.is_none_or(|oldest| started.is_some_and(|started| started >= oldest))
        };
        Ok(page(by_id.into_iter().rev().map(run).filter(matches), asked.offset, asked.limit))
    };
    Ok(response(&blocking(listing).await?))
}

/// `GET /api/v1/runs/{id}`.
pub async fn run(State(context): State<Arc<Context>>, Path(id): Path<String>) -> Result<Response, Failure> {
    let job = context.queue.job(&id).map(|job| job.status());
    let is_running = job.as_ref().is_some_and(|job| !job.state.is_over());
    let name = id.clone();
    let facts = match is_running {
        true => None,
        false => {
            context.may_read()?;
            let read = blocking(move || find(&context.paths, &name)?.map(|run| run.facts()).transpose()).await;
            // A job is shown even if its facts cannot be read.
            if job.is_some() { read.unwrap_or_default() } else { read? }
        }
    };
    if job.is_none() && facts.is_none() {
        return Err(no_run());
    }
    Ok(response(&Run::new(&id, job, facts)))
}

fn no_run() -> Failure {
    Failure::not_found("there is no run of that id; `GET /api/v1/runs` lists them")
}

/// A run of the history by its id, which is looked up among the names of all runs.
fn find(paths: &Paths, id: &str) -> anyhow::Result<Option<crate::history::Run>> {
    Ok(History::open(&[paths.reports()])?.runs().iter().find(|run| run.name() == id).cloned())
}

/// `GET /api/v1/runs/{id}/report`: the page with the charts of a run.
pub async fn report(State(context): State<Arc<Context>>, Path(id): Path<String>) -> Result<Response, Failure> {
    context.may_read()?;
    let reading = move || {
        let page = find(&context.paths, &id)?.map(|run| run.pages().join(REPORT)).filter(|page| page.is_file());
        Ok(page.map(fs_err::read).transpose()?)
    };
    Ok(page_of_history(blocking(reading).await?.ok_or_else(no_run)?))
}

/// `GET /api/v1/runs/profiles/{profile}/profile.html`: the page of a profile. The links `../profiles/…` of a report
/// lead here from the path of the report.
pub async fn profile(State(context): State<Arc<Context>>, Path(name): Path<String>) -> Result<Response, Failure> {
    context.may_read()?;
    let reading = move || {
        // The name is looked up among all profiles.
        let folders = folders_with(&context.paths.reports().join(PROFILES), PAGE);
        let folder = folders.iter().find(|folder| folder.file_name().is_some_and(|its| its == name.as_str()));
        Ok(folder.map(|folder| fs_err::read(folder.join(PAGE))).transpose()?)
    };
    let missing = || Failure::not_found("there is no profile of that name; `inferbench profile` makes one");
    Ok(page_of_history(blocking(reading).await?.ok_or_else(missing)?))
}

/// A page from the history. It is a single file with inline scripts and requests nothing, so its policy differs from
/// that of the server's pages.
fn page_of_history(page: Vec<u8>) -> Response {
    let mut response = bytes(page, "text/html; charset=utf-8");
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'";
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}

/// The parameters of the list of records. Several names are separated by commas.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RecordsQuery {
    /// Ids of runs.
    pub run: Option<String>,
    pub model: Option<String>,
    pub variant: Option<String>,
    pub backend: Option<String>,
    pub device: Option<String>,
    pub dtype: Option<String>,
    pub batch_size: Option<usize>,
    pub status: Option<String>,
    /// Not older than this: `90s`, `15m`, `1h`, `7d`.
    pub max_age: Option<String>,
    pub limit: Option<NonZeroUsize>,
    pub offset: Option<usize>,
}

impl RecordsQuery {
    fn matches(&self, record: &Record, oldest: Option<Timestamp>) -> bool {
        is_among(&self.model, &record.model)
            && is_among(&self.variant, &record.variant)
            && is_among(&self.backend, &record.backend)
            && is_among(&self.device, &record.device)
            && is_among(&self.dtype, record.dtype.name())
            && is_among(&self.status, record.status.name())
            && self.batch_size.is_none_or(|size| size == record.batch_size)
            && oldest.is_none_or(|oldest| record.timestamp >= oldest)
    }
}

/// Replaces the names in a list by those that records use, such as `ort` for `onnxruntime`. Commas separate them.
/// Unknown names stay.
fn in_words_of_records(list: Option<String>, word: impl Fn(&str) -> Option<String>) -> Option<String> {
    let words =
        |list: String| list.split(',').map(|name| word(name).unwrap_or_else(|| name.into())).collect::<Vec<_>>();
    list.map(|list| words(list).join(","))
}

fn backend_of(name: &str) -> Option<String> {
    usual_backend(name).ok()
}

fn dtype_of(name: &str) -> Option<String> {
    Some(value::<Dtype>("dtype", name).ok()?.to_string())
}

fn is_among(list: &Option<String>, value: &str) -> bool {
    list.as_ref().is_none_or(|list| list.split(',').any(|name| name == value))
}

/// `GET /api/v1/records`, the newest run first: JSON, CSV or Parquet by `Accept`.
pub async fn records(
    State(context): State<Arc<Context>>,
    headers: HeaderMap,
    asked: Asked<RecordsQuery>,
) -> Result<Response, Failure> {
    let Query(mut asked) = asked?;
    asked.backend = in_words_of_records(asked.backend, backend_of);
    asked.dtype = in_words_of_records(asked.dtype, dtype_of);
    for name in asked.status.iter().flat_map(|list| list.split(',')) {
        let known = serde_json::from_value::<Status>(name.into());
        known.map_err(|error| Failure::parameter(format!("status: {error}")))?;
    }
    let oldest = asked.max_age.as_deref().map(age).transpose()?.map(since);
    let form = Form::accepted(&headers)?;
    context.may_read()?;
    let listing = move || -> anyhow::Result<(Page<Record>, Vec<String>)> {
        let history = History::open(&[context.paths.reports()])?;
        let mut unread = Vec::new();
        // A run that cannot be read does not hide the others.
        let of_run = |run: &crate::history::Run| match run.records() {
            Ok(records) => records,
            Err(error) => {
                unread.push(format!("{}: {error:#}", run.name()));
                Vec::new()
            }
        };
        let is_named = |run: &&crate::history::Run| is_among(&asked.run, run.name());
        let is_new =
            |run: &&crate::history::Run| oldest.is_none_or(|it| run.started().is_none_or(|started| started >= it));
        let runs = history.runs().iter().filter(is_named).filter(is_new);
        let records = runs.flat_map(of_run).filter(|record| asked.matches(record, oldest));
        Ok((page(records, asked.offset, asked.limit), unread))
    };
    let (page, unread) = blocking(listing).await?;
    let mut response = match form {
        Form::Json => response(&json!({ "items": page.items, "next_offset": page.next_offset, "unreadable": unread })),
        Form::Csv => {
            let mut text = Vec::new();
            write_records(&page.items, &mut text)?;
            bytes(text, "text/csv; charset=utf-8")
        }
        Form::Parquet => bytes(records_as_parquet(&page.items)?, "application/vnd.apache.parquet"),
    };
    if let Some(next) = page.next_offset {
        response.headers_mut().insert("inferbench-next-offset", HeaderValue::from(next));
    }
    // Only JSON has room for the reasons.
    if !unread.is_empty() {
        response.headers_mut().insert("inferbench-unreadable", HeaderValue::from(unread.len()));
    }
    Ok(response)
}

/// A format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
    Parquet,
}

impl Form {
    /// The first format that a client accepts.
    ///
    /// # Errors
    /// 406 if it accepts none.
    fn accepted(headers: &HeaderMap) -> Result<Form, Failure> {
        let Some(accepted) = headers.get(header::ACCEPT) else { return Ok(Form::Json) };
        let names =
            accepted.to_str().unwrap_or_default().split(',').map(|it| it.split(';').next().unwrap_or_default().trim());
        let form = |name: &str| match name {
            "application/json" | "*/*" | "application/*" | "text/html" => Some(Form::Json),
            "text/csv" | "text/*" => Some(Form::Csv),
            "application/vnd.apache.parquet" | "application/x-parquet" | "application/parquet" => Some(Form::Parquet),
            _ => None,
        };
        names.into_iter().find_map(form).ok_or_else(|| {
            let message = "records are application/json, text/csv or application/vnd.apache.parquet";
            Failure::new(StatusCode::NOT_ACCEPTABLE, message)
        })
    }
}

/// The parameters of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareQuery {
    /// The run to compare with.
    pub base: String,
    /// The run that may be faster or slower.
    pub candidate: String,
}

/// `GET /api/v1/compare`: what `inferbench compare BASE CANDIDATE --format json` prints.
pub async fn compare(State(context): State<Arc<Context>>, asked: Asked<CompareQuery>) -> Result<Response, Failure> {
    let Query(CompareQuery { base, candidate }) = asked?;
    if context.queue.running().is_some() {
        let message = "a comparison would disturb the measurement that runs; try again when it has ended";
        return Err(Failure::unavailable(message, 5));
    }
    for id in [&base, &candidate] {
        let (paths, id) = (context.paths.clone(), id.clone());
        blocking(move || find(&paths, &id)).await?.ok_or_else(no_run)?;
    }
    let output = read(&["compare".into(), "--format=json".into(), "--".into(), base, candidate]).await?;
    if output.stdout.is_empty() {
        let message = output.last_words.strip_prefix("inferbench: ").unwrap_or(&output.last_words);
        return Err(Failure::parameter(message));
    }
    Ok(bytes(output.stdout, "application/json"))
}

/// Reads files on the thread for blocking work.
async fn blocking<T: Send + 'static>(read: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> Result<T, Failure> {
    Ok(spawn_blocking(read).await.map_err(|_| Failure::panicked())??)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use axum::extract::Query;

    use super::{RunsQuery, backend_of, dtype_of, in_words_of_records, page};

    #[test]
    fn filters_take_the_names_that_requests_take() {
        let of = |list: &str, word: fn(&str) -> Option<String>| in_words_of_records(Some(list.into()), word);
        assert_eq!(of("onnxruntime,tch", backend_of).as_deref(), Some("ort,tch"));
        assert_eq!(of("float16,F32,none", dtype_of).as_deref(), Some("f16,f32,none"));
        assert_eq!(in_words_of_records(None, backend_of), None);
    }

    #[test]
    fn a_page_beyond_the_end_is_empty() {
        let last = page(0..3, Some(usize::MAX), None);
        assert_eq!((last.items.len(), last.next_offset), (0, None));
        assert_eq!(page(0..3, Some(1), NonZeroUsize::new(1)).next_offset, Some(2));
    }

    #[test]
    fn a_page_has_at_least_one_row() {
        let asked = |query: &str| {
            Query::<RunsQuery>::try_from_uri(&format!("/runs?{query}").parse().unwrap()).map(|asked| asked.0.limit)
        };
        assert_eq!(asked("limit=2").unwrap(), NonZeroUsize::new(2));
        assert!(asked("limit=0").unwrap_err().body_text().contains("limit: "));
    }
}

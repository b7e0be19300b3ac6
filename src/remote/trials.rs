//! A load test of a server, from its description to the rows.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use jiff::Timestamp;

use super::connection::{Connection, Seen};
use super::fault::{Fault, Kind, apart};
use super::limits::{Limits, Spent};
use super::notes::{Notes, ProcessorClock};
use super::protocol::{Described, Right, Wishes, describe};
use super::session::Session;
use super::target::{Address, Headers, Target};
use crate::catalogue::read_catalogue;
use crate::definition::{
    Case, CaseFailure, DataSource, Dtype, ElementType, Model, ORIGINAL, Phase, Sizes, Status, TensorSpec, usable_name,
};
use crate::fixture::{HostTensor, RING, TensorData, TimedSamples, batch, prepare_and_hold, read_reference_of};
use crate::harness::note_found;
use crate::machine::{Machine, Revision};
use crate::measurement::serving::{Batching, Instances, Observer, Trials, with_instances};
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::run_data::files::unused_name;
use crate::run_data::{LoadAnswer, LoadResult, LoadRun, LoadTerms, RequestLengths, Scenario, with_note};
use crate::statistics::SortedCalls;

/// The backend of cases that a server computes.
pub const HTTP: &str = "http";
/// Requests before the first trial.
const WARM_UP: usize = 3;
/// The most characters of a server's own name or model, and of a message about the server.
const MOST_NAME: usize = 100;
const MOST_MESSAGE: usize = 1000;

/// Where inputs come from, if they are not seeded, and what the outputs are compared with.
#[derive(Clone, Debug)]
pub enum Reference {
    /// A file with inputs and right outputs, like the reference of a model.
    File(PathBuf),
    /// The reference of a packaged model.
    Model(String),
    /// Samples without right outputs.
    Samples(DataSource),
}

/// A server, and its model if the server answers.
pub struct Server {
    /// The URL as results show it. Absent if its host cannot be resolved.
    url: Option<String>,
    found: Result<(Arc<Target>, Described), Fault>,
    wishes: Wishes,
    spent: Arc<Spent>,
}

impl Server {
    /// Resolves the server and asks it about its model. A server that does not answer is not an error: its row gives the
    /// reason.
    ///
    /// # Errors
    /// The user's flags are wrong, or do not fit the server's description.
    pub fn find(
        address: &Address,
        headers: Headers,
        wishes: Wishes,
        limits: Limits,
        reference: Option<&Reference>,
        paths: &Paths,
    ) -> Result<Self> {
        ensure!(
            limits.requests > WARM_UP,
            "`--max-requests {}` leaves no request after the {WARM_UP} requests of the warm-up",
            limits.requests
        );
        let spent = Arc::new(Spent::new(limits));
        let target = match found_in_time(address, headers, limits.time)? {
            Ok(target) => Arc::new(target),
            Err(fault) => return Ok(Server { url: None, found: Err(fault), wishes, spent }),
        };
        let mut connection = Connection::new(target.clone(), spent.clone())?;
        let sizes = Sizes { batch: wishes.batch_size, sequence: wishes.sequence_length };
        let are_tensors = Cell::new(false);
        let right = |model: &Model| {
            are_tensors.set(true);
            reference.map(|reference| right_of(reference, model, sizes, paths)).transpose()
        };
        let described = spent.watched(&|| {}, || apart(describe(&mut connection, &target, &wishes, right)));
        let cleaned = |text: &str| target.cleaned_text(text, MOST_NAME);
        let described = described.map_err(|error| anyhow!(target.cleaned_text(&format!("{error:#}"), MOST_MESSAGE)))?;
        let has_own_inputs = matches!(reference, Some(Reference::File(_) | Reference::Samples(_)));
        ensure!(
            described.is_err() || are_tensors.get() || !has_own_inputs,
            "`--reference` and `--data-source` have tensors, which only the protocols v2 and grpc take: leave them out"
        );
        let url = Some(target.shown());
        let found = match described {
            Err(fault) => Err(with_reason(target.cleaned(fault), &spent)),
            Ok(described) => {
                let model = cleaned(&described.model);
                let server = described.server.as_deref().map(cleaned);
                let input_shape = described.input_shape.as_deref().map(cleaned);
                Ok((target, Described { model, server, input_shape, ..described }))
            }
        };
        Ok(Server { url, found, wishes, spent })
    }

    /// Whether the server answers.
    pub fn is_found(&self) -> bool {
        self.found.is_ok()
    }

    /// Whether answers consist of tokens.
    pub fn makes_tokens(&self) -> bool {
        self.found.as_ref().is_ok_and(|(_, described)| described.makes_tokens())
    }
}

/// Resolves the server within this time, since a name server may take long.
fn found_in_time(address: &Address, headers: Headers, time: Duration) -> Result<Result<Target, Fault>> {
    let (sender, found) = mpsc::channel();
    let address = address.clone();
    thread::spawn(move || drop(sender.send(Target::find(&address, headers))));
    let late = || Fault::new(Kind::Unresolved, format!("the name has no address within {} s", time.as_secs_f64()));
    found.recv_timeout(time).unwrap_or_else(|_| Ok(Err(late())))
}

/// The fault, with the reason why the load test ended if that interrupted the request.
fn with_reason(fault: Fault, spent: &Spent) -> Fault {
    match spent.why_over().filter(|_| fault.kind == Kind::Interrupted) {
        Some(why) => Fault::new(fault.kind, format!("{}: {why}", fault.detail)),
        None => fault,
    }
}

/// Inputs with their right outputs, if these are known.
fn right_of(reference: &Reference, served: &Model, sizes: Sizes, paths: &Paths) -> Result<Right> {
    let (model, reference) = match reference {
        Reference::File(file) => (served.clone(), read_reference_of(served, file)?),
        Reference::Samples(source) => {
            let model = Model { data_source: source.clone(), ..served.clone() };
            let samples = TimedSamples::open(&model, sizes, true)?;
            let inputs = (0..samples.len()).map(|batch| samples.inputs(batch)).collect::<Result<_>>()?;
            return Ok(Right::of_samples(inputs));
        }
        Reference::Model(name) => {
            let entries = read_catalogue(&paths.models()?)?;
            let is_meant = |model: &&Model| model.name == *name && model.variant == ORIGINAL;
            let model = entries.iter().filter_map(|entry| entry.model.as_ref().ok()).find(is_meant);
            let model = model.with_context(|| format!("there is no packaged model {name:?} to compare with"))?;
            ensure!(model.generation.is_none(), "{name} makes tokens, whose values are not compared");
            let held = prepare_and_hold(model, &paths.prepared(), Dtype::F32)?;
            let file = held.artifacts.reference.as_ref().with_context(|| format!("{name} has no reference"))?;
            (model.clone(), read_reference_of(model, file)?)
        }
    };
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for place in 0..RING {
        let of_place = batch(&model, Some(&reference), place, sizes)?;
        // In the server's order if the names are the same, and otherwise in the reference's.
        let of_name = |name: &str| model.inputs.iter().position(|input| input.name == name);
        let ordered = served.inputs.iter().enumerate().map(|(position, input)| {
            let place = of_name(&input.name).unwrap_or(position);
            let known = of_place.get(place).map(|known| in_type_of(input, known));
            known.context("the reference has fewer inputs than the server's model")
        });
        inputs.push(ordered.collect::<Result<Vec<HostTensor>>>()?);
        let right = reference.outputs(&model, Phase::Forward, place, sizes)?;
        outputs.push(right.with_context(|| format!("the reference of {} has no outputs for this case", model.name))?);
    }
    Right::new(inputs, outputs, sizes.batch)
}

/// An input in the type that the server takes: in halves, or, as engines of TensorRT take tokens, in 32 bits.
fn in_type_of(served: &TensorSpec, known: &HostTensor) -> HostTensor {
    match &known.data {
        TensorData::I64(values) if served.dtype == ElementType::I32 => {
            let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
            HostTensor { shape: known.shape.clone(), data: values.into() }
        }
        _ => known.clone().for_input(served.dtype),
    }
}

/// Writes the notes of the sessions into the rows.
struct Noting<'a> {
    notes: &'a Mutex<Notes>,
    spent: &'a Spent,
    clock: Mutex<ProcessorClock>,
}

impl Noting<'_> {
    fn taken(&self) -> Notes {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Noting<'_> {
    fn begin(&self) {
        drop(self.taken());
        self.spent.begin_trial();
        self.spent.take_most();
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = ProcessorClock::start();
    }

    fn finish(&self, mut row: LoadResult) -> LoadResult {
        row.client_processors = self.clock.lock().unwrap_or_else(PoisonError::into_inner).processors();
        row.connections_used = Some(self.spent.take_most());
        let mut row = self.taken().into_row(row);
        // A trial that ended by itself is complete, even if no other may follow.
        if let Some(why) = self.spent.why_over().filter(|_| row.ended_early || row.unanswered > 0) {
            row.message = with_note(row.message, why);
            row.ended_early = true;
        }
        row
    }

    fn why_over(&self, queries: usize) -> Option<String> {
        self.spent.lacks(queries);
        self.spent.why_over()
    }

    fn requests_left(&self) -> usize {
        self.spent.requests_left()
    }

    fn most_rate(&self) -> f64 {
        self.spent.limits().rate
    }
}

/// Puts the server under load. A server that does not answer has a row with the reason.
///
/// # Errors
/// The terms go beyond a limit.
pub fn load(paths: &Paths, server: Server, terms: &LoadTerms) -> Result<LoadRun> {
    let (timestamp, machine) = (Timestamp::now(), Machine::read());
    let run_id = unused_name(&paths.loads(), timestamp);
    let mut answer = served(server, terms)?;
    note_found(&mut answer.results);
    for row in &mut answer.results {
        row.run_id.clone_from(&run_id);
        row.host_id.clone_from(&machine.host_id);
        row.timestamp = timestamp;
    }
    let git_commit = Revision::read(paths.root()).commit;
    let LoadAnswer { results, windows } = answer;
    Ok(LoadRun { run_id, host_id: machine.host_id, timestamp, git_commit, windows, results })
}

fn without_server(url: Option<String>, wishes: &Wishes, fault: &Fault, terms: &LoadTerms) -> LoadAnswer {
    let name = wishes.model.as_deref().map(name_in_ids).filter(|name| !name.is_empty());
    let case =
        case_of(&name.unwrap_or_else(|| "server".to_owned()), None, Dtype::F32, Phase::Forward, wishes.batch_size);
    let status = if fault.kind.is_absence() { Status::Unavailable } else { Status::Failed };
    let row = LoadResult::about(&case, terms, 0).failed(CaseFailure::new(status, fault.to_string()));
    let row = LoadResult { instances: 0, url, errors: Some(format!("{} × 1", fault.kind)), ..row };
    LoadAnswer { results: vec![row], ..LoadAnswer::default() }
}

/// The server's name of a model, as a part of an id: without an owner or a folder before a slash, and without the
/// version in an address such as `net/versions/2`.
fn name_in_ids(model: &str) -> String {
    let model = model.split_once("/versions/").map_or(model, |(name, _)| name);
    let last = model.rsplit('/').next().unwrap_or(model);
    usable_name(last.trim_end_matches(".gguf"))
}

/// The case of a server's model. Its device is the server's own name.
fn case_of(model: &str, server: Option<&str>, dtype: Dtype, phase: Phase, batch_size: usize) -> Case {
    let server = server.and_then(|server| server.split_whitespace().next()).map(usable_name);
    let device = server.filter(|name| !name.is_empty()).unwrap_or_else(|| "server".to_owned());
    Case { device, dtype, phase, ..Case::new(model, HTTP, batch_size) }
}

fn in_words(connections: usize) -> String {
    plural(connections, "connection", "connections")
}

fn served(server: Server, terms: &LoadTerms) -> Result<LoadAnswer> {
    let Server { url, found, wishes, spent } = server;
    let (shared, limits) = (&spent, spent.limits());
    let (target, described) = match found {
        Ok(found) => found,
        Err(fault) => return Ok(without_server(url, &wishes, &fault, terms)),
    };
    let connections = match terms.scenario {
        Scenario::Single | Scenario::Multi => 1,
        Scenario::Concurrent => terms.users,
        Scenario::Offline | Scenario::Server => limits.connections,
    };
    ensure!(
        connections <= limits.connections,
        "{connections} users are more than {}; `--connections` raises the limit",
        in_words(limits.connections)
    );
    ensure!(
        terms.rate.is_none_or(|rate| rate <= limits.rate),
        "a rate of {}/s is above the limit of {}/s; `--max-rate` raises it",
        terms.rate.unwrap_or_default(),
        limits.rate
    );
    ensure!(
        terms.seconds <= limits.time.as_secs_f64(),
        "a trial of {} s is longer than the limit of {} s; `--max-time` raises it",
        terms.seconds,
        limits.time.as_secs_f64()
    );
    let queries = (terms.queries as f64).max(terms.seconds * terms.rate.unwrap_or(0.0));
    let requests = queries * terms.scenario.samples_of_query() as f64;
    ensure!(
        requests + WARM_UP as f64 <= limits.requests as f64,
        "a trial of {requests:.0} requests and {WARM_UP} of the warm-up are above the limit of {}; `--max-requests` raises it",
        limits.requests
    );
    let terms = LoadTerms { callers: connections, ..terms.clone() };
    let Described { protocol, model, server, dtype, phase, input_shape } = described;
    let case = case_of(&name_in_ids(&model), server.as_deref(), dtype, phase, wishes.batch_size);
    let lengths = match &terms.lengths {
        // Texts have their own lengths.
        Some(RequestLengths::Drawn { prompt: None, output: Some(output) }) if wishes.texts.is_some() => {
            Some(format!("texts → {output}"))
        }
        lengths => lengths.as_ref().map(ToString::to_string),
    };
    let row = LoadResult {
        callers: None,
        instances: 0,
        input_shape,
        lengths,
        library_version: server.clone(),
        url,
        protocol: Some(protocol.name() + if target.is_http2 { ", HTTP/2" } else { "" }),
        server,
        connections: Some(connections),
        ..LoadResult::about(&case, &terms, 0)
    };
    eprintln!("load on {} by {} with {}: {case}", target.shown(), protocol.name(), in_words(connections));
    let spent: &Spent = shared;
    let notes = Mutex::new(Notes::default());
    let connect_times = Mutex::new(Vec::new());
    let first_fault = Mutex::new(None);
    let is_closed_loop = matches!(terms.scenario, Scenario::Single | Scenario::Multi | Scenario::Concurrent);
    // Each user has a connection, and requests that all arrive at once use every connection.
    let opens_all = terms.scenario != Scenario::Server;
    let idle = Mutex::new(Vec::new());
    let connection = || Connection::new(target.clone(), shared.clone());
    let open = |number: usize| -> Result<Session<'_>, CaseFailure> {
        let (protocol, target) = (protocol.as_ref(), target.as_ref());
        let (idle, connection, notes) = (&idle, &connection, &notes);
        let mut session = Session { idle, connection, target, protocol, spent, notes, is_closed_loop };
        if number > 0 && !opens_all {
            return Ok(session);
        }
        let mut own = connection().map_err(|error| CaseFailure::failed(format!("no further connection: {error}")))?;
        let mut seen = Seen::default();
        let opened = own.open(&mut seen);
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(own);
        let times = seen.connects.iter().map(Duration::as_nanos);
        connect_times.lock().unwrap_or_else(PoisonError::into_inner).extend(times);
        // A connection that cannot be opened is tried again by its first request.
        if number == 0 {
            let mut ask = |request| {
                spent.take_request();
                session.ask(request, &mut Seen::default()).map(drop)
            };
            opened.and_then(|()| (0..WARM_UP).try_for_each(&mut ask)).map_err(|fault| {
                let fault = with_reason(fault, spent);
                *first_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.kind);
                failure_of(&fault)
            })?;
        }
        Ok(session)
    };
    let batching = Batching { most: 1, delay: Duration::ZERO };
    let noting = Noting { notes: &notes, spent, clock: Mutex::new(ProcessorClock::start()) };
    let with_sessions = |instances: &Instances<'_>| {
        spent.watched(&|| instances.cut(), || {
            let mut answer = LoadAnswer::default();
            let mut terms = terms.clone();
            for search in 0..terms.searches.max(1) {
                terms.search = search;
                let row = LoadResult { search, ..row.clone() };
                let trials = Trials {
                    instances,
                    terms: &terms,
                    row: row.clone(),
                    meter: None,
                    observer: Some(&noting),
                    usual_tokens: 1,
                };
                let failed = match trials.all() {
                    Ok(found) => {
                        let highest = found.results.iter().find(|row| row.is_highest);
                        terms.first_rate = highest.and_then(|row| row.rate).or(terms.first_rate);
                        answer.results.extend(found.results);
                        answer.windows.extend(found.windows);
                        None
                    }
                    Err(failure) if answer.results.is_empty() => return Err(failure),
                    Err(failure) => Some((search, failure)),
                };
                // A search that failed or was not made has a row. Earlier searches are kept.
                let why_over = spent.why_over();
                let missed = why_over.as_ref().filter(|_| search + 1 < terms.searches);
                let missed = missed.map(|why| (search + 1, CaseFailure::failed(why.clone())));
                if let Some((search, failure)) = failed.or(missed) {
                    answer.results.push(LoadResult { search, ..row.failed(failure) });
                }
                if why_over.is_some() {
                    break;
                }
            }
            Ok(answer)
        })
    };
    // The limits also hold while connections are opened and the server is warmed up.
    let answer = spent.watched(&|| {}, || with_instances(connections, batching, open, with_sessions));
    let first_fault = first_fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut answer = answer.unwrap_or_else(|mut failure| {
        if let Some(why) = spent.why_over().filter(|why| !failure.message.contains(why.as_str())) {
            failure.message = format!("{}; {why}", failure.message);
        }
        let errors = first_fault.map(|kind: Kind| format!("{kind} × 1"));
        let row = LoadResult { errors, ..row.failed(failure) };
        LoadAnswer { results: vec![row], ..LoadAnswer::default() }
    });
    let times = connect_times.into_inner().unwrap_or_else(PoisonError::into_inner);
    let times = SortedCalls::new(times.into_iter().map(|ns| u64::try_from(ns).unwrap_or(u64::MAX)).collect());
    for row in &mut answer.results {
        // For trials that opened no connection themselves.
        row.connect_p50_ms = row.connect_p50_ms.or(times.as_ref().map(|times| times.percentile(0.5) as f64 / 1e6));
        row.connect_max_ms = row.connect_max_ms.or(times.as_ref().map(|times| times.max() as f64 / 1e6));
    }
    Ok(answer)
}

fn failure_of(fault: &Fault) -> CaseFailure {
    let status = match fault.kind {
        kind if kind.is_wrong_answer() => Status::WrongOutput,
        kind if kind.is_absence() => Status::Unavailable,
        Kind::Timeout => Status::Timeout,
        _ => Status::Failed,
    };
    CaseFailure::new(status, fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_a_packaged_model_have_the_type_that_the_server_takes() {
        let of = |data: TensorData, dtype: ElementType| {
            in_type_of(&TensorSpec::new("x", dtype, Vec::new()), &HostTensor { shape: vec![2], data })
        };
        for dtype in [ElementType::F16, ElementType::Bf16, ElementType::F32] {
            let found = of(vec![0.5_f32, -2.0].into(), dtype);
            assert_eq!((found.element_type(), found.to_f64()), (dtype, vec![0.5, -2.0]));
        }
        for dtype in [ElementType::I32, ElementType::I64] {
            let found = of(vec![7_i64, -1].into(), dtype);
            assert_eq!((found.element_type(), found.to_f64()), (dtype, vec![7.0, -1.0]));
        }
    }

    #[test]
    fn a_model_is_named_without_its_owner_its_extension_and_its_version() {
        for model in ["net", "owner/net", "folder/net.gguf", "net/versions/2"] {
            assert_eq!(name_in_ids(model), "net", "{model}");
        }
    }
}

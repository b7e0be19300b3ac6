//! A session that serves calls of its case: each answers one request or several.

use std::time::{Duration, Instant};

use super::loaded_case::{CaseInputs, Worker};
use crate::backend::{self, LoadRequest, Session};
use crate::definition::{Boundary, Case, CaseFailure, Status};
use crate::fixture::HostTensor;
use crate::harness::protocol::{Job, WorkItem};
use crate::load::Draws;
use crate::machine::{sharpen_timers, wait_until};
use crate::measurement::serving::{Answer, Serve};
use crate::measurement::warm_up;
use crate::run_data::LoadTerms;

/// A session with its batches for each number of requests that may share a call.
pub struct Server {
    sessions: Vec<Box<dyn Session>>,
    /// By the number of requests, ascending.
    shares: Vec<Share>,
    boundary: Boundary,
    /// Service times, if they are simulated.
    draws: Option<Draws>,
}

/// The batches for up to this many requests.
struct Share {
    requests: usize,
    session: usize,
    bindings: Vec<usize>,
    next: usize,
    /// The bound batches on the host, if calls begin there.
    batches: Vec<Vec<HostTensor>>,
}

/// Loads a session, or one for each batch size if none serves several, and warms it up.
///
/// # Errors
/// The case cannot be served with these terms, or a session cannot be loaded.
pub fn open(job: &Job, item: &WorkItem, terms: &LoadTerms, number: usize) -> Result<Server, CaseFailure> {
    let Case { boundary, batch_size, .. } = item.case;
    if boundary == Boundary::Pipeline {
        return Err(CaseFailure::unsupported("requests have no pipeline; take the boundary compute or end-to-end"));
    }
    if terms.most_batch > 1 && item.model.fixed_batch().is_some() {
        return Err(CaseFailure::unsupported(
            "its inputs have no open dimension called batch, so requests cannot share a call",
        ));
    }
    let backend = backend::find(&item.case.backend)?;
    let mut worker = Worker::new(job);
    let draws = terms.service.map(|service| Draws::of_session(service, terms.seed, number));
    if draws.is_some() {
        sharpen_timers();
    }
    let mut server = Server { sessions: Vec::new(), shares: Vec::new(), boundary, draws: None };
    let mut serves_other_sizes = false;
    for requests in 1..=terms.most_batch {
        // A session for each size would take as much memory as that many models.
        if !(serves_other_sizes || requests.is_power_of_two() || requests == terms.most_batch) {
            continue;
        }
        let case = Case { batch_size: requests * batch_size, ..item.case.clone() };
        let item = WorkItem { case, ..item.clone() };
        let CaseInputs { ring, sizes, .. } = worker.inputs(&item)?;
        let bind = |session: &mut Box<dyn Session>| -> Result<Vec<usize>, CaseFailure> {
            ring.iter().map(|inputs| session.bind(inputs)).collect()
        };
        let kept = server.sessions.last_mut().filter(|_| serves_other_sizes).map(bind);
        // A session may have no room for batches of another size.
        let is_full = |bound: &Result<_, CaseFailure>| bound.as_ref().is_err_and(|it| it.status == Status::Unsupported);
        let bindings = match kept.filter(|bound| !is_full(bound)) {
            Some(bindings) => bindings?,
            None => {
                let mut session = backend.load(&LoadRequest { sizes, ..job.request(&item) })?;
                serves_other_sizes = session.placement().serves_other_sizes;
                let bindings = bind(&mut session)?;
                server.sessions.push(session);
                bindings
            }
        };
        let place = server.sessions.len() - 1;
        let batches = if boundary == Boundary::EndToEnd { ring } else { Vec::new() };
        server.shares.push(Share { requests, session: place, bindings, next: 0, batches });
        let call = || {
            let begin = Instant::now();
            server.compute(requests)?;
            Ok(vec![begin.elapsed().as_nanos() as u64])
        };
        let at_least = job.effort.warmup.max(backend.least_warm_up_calls());
        warm_up(call, at_least, Duration::from_secs_f64(job.effort.budget_seconds / 2.0))?;
    }
    Ok(Server { draws, ..server })
}

impl Server {
    fn compute(&mut self, requests: usize) -> Result<(), CaseFailure> {
        let fits = |share: &&mut Share| share.requests >= requests;
        let share =
            self.shares.iter_mut().find(fits).ok_or_else(|| CaseFailure::failed("too many requests at once"))?;
        let (session, place) = (&mut self.sessions[share.session], share.next);
        share.next = (place + 1) % share.bindings.len();
        let binding = share.bindings[place];
        session.rewind(binding);
        for _ in 0..session.calls_in_a_row() {
            if self.boundary == Boundary::EndToEnd {
                drop(session.call_from_host(binding, &share.batches[place])?);
            } else {
                session.run(binding)?;
                session.sync()?;
            }
        }
        Ok(())
    }
}

impl Serve for Server {
    fn serve(&mut self, _: usize, requests: usize) -> Result<Answer, CaseFailure> {
        let begin = Instant::now();
        self.compute(requests)?;
        if let Some(time) = self.draws.as_mut().and_then(Iterator::next) {
            wait_until(begin + time);
        }
        Ok(Answer::default())
    }
}

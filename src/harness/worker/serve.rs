//! Serves a case: sessions answer requests that arrive by the terms of a load test.

use std::time::Duration;

use super::loaded_case::Worker;
use super::{call_server, token_server};
use crate::backend;
use crate::definition::{Case, CaseFailure, Status, device_type};
use crate::harness::protocol::WorkItem;
use crate::measurement::serving::{Batching, Serve, Trials, with_instances};
use crate::measurement::{EnergyMeter, memory};
use crate::run_data::{LoadAnswer, LoadResult, Outcome, Record};

impl Worker<'_> {
    /// Runs the trials of the item. The outputs of another session are compared first, as in every measurement.
    pub fn serve(&mut self, item: &WorkItem) -> Result<LoadAnswer, CaseFailure> {
        let job = self.job;
        let terms = job.load.as_ref().ok_or_else(|| CaseFailure::failed("a load test has terms"))?;
        let Case { backend: name, device, .. } = &item.case;
        if terms.callers > 1 && !backend::find(name)?.serves_callers(device) {
            let why = format!(
                "a session of {name} on {device} takes one call at a time: use `--instances` instead of `--callers`"
            );
            return Err(CaseFailure::unsupported(why));
        }
        let mut outcome = Outcome::new(item.row.clone());
        drop(self.load(item, &mut outcome)?);
        if outcome.row.status == Status::Suspicious {
            return Err(CaseFailure::new(Status::Suspicious, outcome.row.message.unwrap_or_default()));
        }
        // From here on, the peak is that of the serving sessions.
        let _ = memory::reset_peak();
        let batching = Batching { most: terms.most_batch, delay: Duration::from_secs_f64(terms.most_delay_ms / 1e3) };
        let open = |number| -> Result<Box<dyn Serve>, CaseFailure> {
            match &terms.lengths {
                Some(lengths) => Ok(Box::new(token_server::open(job, item, terms, lengths, number)?)),
                None => Ok(Box::new(call_server::open(job, item, terms, number)?)),
            }
        };
        let computes_on = outcome.row.device_type.as_deref().or(device_type(&item.case.device));
        let meter = EnergyMeter::of(&item.case.device, computes_on);
        let energy_kind =
            meter.as_ref().map_or_else(|reason| format!("none: {reason:#}"), |meter| meter.kind.to_owned());
        let row = LoadResult::about(&item.case, terms, job.effort.effective_threads());
        let Record { input_shape, library_version, artifact_sha256, new_tokens, .. } = outcome.row;
        let usual_tokens = new_tokens.unwrap_or(1).max(1);
        let row = LoadResult { energy_kind: Some(energy_kind), input_shape, library_version, artifact_sha256, ..row };
        with_instances(terms.served_at_once(), batching, open, |instances| {
            let mut answer = Trials { instances, terms, row, meter: meter.ok(), observer: None, usual_tokens }.all()?;
            // Read before the sessions end, because external workers end with them.
            let memory_mb = memory::peak_bytes().map(memory::megabytes);
            answer.results.iter_mut().for_each(|result| result.memory_mb = memory_mb);
            Ok(answer)
        })
    }
}

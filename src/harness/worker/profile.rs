//! Profiles a case: a plain session and a profiled one in one process.

use anyhow::{Context, Result};

use super::case_outcome::unwinding;
use super::loaded_case::{CaseInputs, Worker};
use crate::backend::{self, LoadRequest};
use crate::definition::CaseFailure;
use crate::harness::protocol::WorkItem;
use crate::measurement;
use crate::run_data::{Outcome, ProfiledCalls};

impl Worker<'_> {
    /// Answers the times of the operators of the only item.
    pub fn profile(&mut self) -> Result<()> {
        let item = self.job.work.first().context("there is nothing to profile")?;
        let answer = unwinding(|| self.profiled_calls(item));
        Ok(fs_err::write(self.job.answer_path(), serde_json::to_vec(&answer)?)?)
    }

    /// The plain session's outputs are compared before, as in every measurement.
    fn profiled_calls(&mut self, item: &WorkItem) -> Result<ProfiledCalls, CaseFailure> {
        let backend = backend::find(&item.case.backend)?;
        let CaseInputs { ring, sizes, .. } = self.inputs(item)?;
        let mut profiled = backend.load_profiled(&LoadRequest { sizes, ..self.job.request(item) })?;
        for inputs in &ring {
            profiled.bind(inputs)?;
        }
        let mut loaded = self.load(item, &mut Outcome::new(item.row.clone()))?;
        loaded.warm_up(&self.job.effort, |session| session.call(1))?;
        measurement::profile(&mut loaded.session, &mut *profiled, ring.len(), backend.least_warm_up_calls())
    }
}

//! Profiles a case: a plain session and a profiled one in one process, or the stacks of the process's threads.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::loaded_case::{CaseInputs, Worker};
use crate::backend::{self, LoadRequest};
use crate::definition::CaseFailure;
use crate::harness::protocol::WorkItem;
use crate::measurement::{self, StackSampler};
use crate::report::profile::{folded_stacks, page};
use crate::run_data::{CaseProfile, CpuStacks, Outcome, Profile, ProfiledCalls, write_whole};

/// How long stacks are sampled.
const STACKS: Duration = Duration::from_secs(5);

impl Worker<'_> {
    /// Samples the stacks of this process's threads during calls of the item. The outputs are not compared.
    ///
    /// # Errors
    /// `unsupported` if another process computes; the item cannot be loaded or called; or stacks cannot be sampled.
    pub fn sample_stacks(&mut self, item: &WorkItem) -> Result<CpuStacks, CaseFailure> {
        let mut loaded = self.load(item, &mut Outcome::new(item.row.clone()))?;
        if loaded.session.session().has_own_clock() {
            let why = format!("{} computes in another process, whose stacks are not sampled", item.case.backend);
            return Err(CaseFailure::unsupported(why));
        }
        loaded.warm_up(&self.job.effort)?;
        let sampler = StackSampler::start()?;
        let begin = Instant::now();
        while begin.elapsed() < STACKS {
            loaded.session.call(1)?;
        }
        Ok(sampler.stop()?)
    }

    /// Measures the operators of the item. The outputs of the plain session are compared before the first timed call,
    /// as in every measurement.
    pub fn profile(&mut self, item: &WorkItem) -> Result<ProfiledCalls, CaseFailure> {
        let backend = backend::find(&item.case.backend)?;
        let CaseInputs { ring, sizes, .. } = self.inputs(item)?;
        let mut profiled = backend.load_profiled(&LoadRequest { sizes, ..self.job.request(item) })?;
        for inputs in &ring {
            profiled.bind(inputs)?;
        }
        let mut loaded = self.load(item, &mut Outcome::new(item.row.clone()))?;
        loaded.warm_up(&self.job.effort)?;
        measurement::profile(&mut loaded.session, &mut *profiled, ring.len(), backend.least_warm_up_calls())
    }
}

/// The stacks of a case's threads during `cargo bench -- --profile-time`, as files in the case's folder of Criterion's tree.
#[derive(Default)]
pub struct CriterionStacks {
    sampler: Option<StackSampler>,
}

impl criterion::profiler::Profiler for CriterionStacks {
    fn start_profiling(&mut self, _id: &str, _folder: &Path) {
        // If it cannot start, the calls are still made: another profiler may be attached to the process.
        self.sampler = StackSampler::start().inspect_err(|error| eprintln!("  no stacks of threads: {error:#}")).ok();
    }

    fn stop_profiling(&mut self, id: &str, folder: &Path) {
        let Some(sampler) = self.sampler.take() else { return };
        match sampler.stop().and_then(|stacks| write_stacks(id, stacks, folder)) {
            Ok(page) => eprintln!("  stacks of threads: {}", page.display()),
            Err(error) => eprintln!("  no stacks of threads: {error:#}"),
        }
    }
}

/// Writes a page and folded stacks; returns the page's path.
fn write_stacks(id: &str, stacks: CpuStacks, folder: &Path) -> Result<PathBuf> {
    fs_err::create_dir_all(folder)?;
    write_whole(&folder.join("stacks.folded"), folded_stacks(&stacks).as_bytes())?;
    let case = CaseProfile { case_id: id.into(), model: id.into(), stacks: Some(stacks), ..CaseProfile::default() };
    let path = folder.join("flamegraph.html");
    write_whole(&path, page(&Profile { cases: vec![case], ..Profile::default() }, None)?.as_bytes())?;
    Ok(path)
}

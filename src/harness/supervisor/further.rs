//! Further processes: after each case was measured once, all cases are measured once more, and again, as often as was asked
//! for. So a machine that gets slower does so for all cases alike.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{RunEnd, Supervisor, is_interrupted_with};
use crate::definition::Case;
use crate::harness::protocol::{Job, Purpose};

/// A process that ends before its figures is started once more; after so many of them a case gets no further one.
const MOST_LOST: usize = 2;

impl Supervisor<'_> {
    /// Measures every case that has figures in further processes. What goes wrong there costs only the figures of a process.
    ///
    /// # Errors
    /// A worker cannot be started, or the run's folder cannot be written.
    pub(super) fn measure_again(&self) -> Result<RunEnd> {
        let mut lost = BTreeMap::new();
        for process in 2..=self.effort.processes {
            for index in 0..self.groups.len() {
                if self.measure_group_again(process, index, &mut lost)? == RunEnd::Interrupted {
                    return Ok(RunEnd::Interrupted);
                }
            }
        }
        Ok(RunEnd::Complete)
    }

    /// Measures the cases of a group that fewer than `process` processes have measured; `lost` counts processes by case.
    fn measure_group_again(&self, process: usize, index: usize, lost: &mut BTreeMap<String, usize>) -> Result<RunEnd> {
        let group = &self.groups[index];
        let path = self.folder.path().join("job-further.json");
        loop {
            let outcomes = self.folder.read_outcomes();
            let is_open = |case: &Case| {
                let id = case.to_string();
                let is_measured = outcomes.finished.get(&id).is_some_and(|outcome| outcome.status.is_measured());
                let processes = 1 + outcomes.further.get(&id).map_or(0, Vec::len);
                is_measured && processes < process && lost.get(&id).is_none_or(|lost| *lost < MOST_LOST)
            };
            let open: Vec<_> = group.cases.iter().filter(|(case, _)| is_open(case)).collect();
            let Some((first, _)) = open.first() else { return Ok(RunEnd::Complete) };
            if !self.is_silent {
                eprintln!("\nprocess {process} of {} on {} {}", self.effort.processes, group.backend, group.device);
            }
            let mut job = Job { purpose: Purpose::MeasureAgain, ..self.job(index, &open, &outcomes.finished) };
            // Each process has another order, if it is shuffled.
            job.effort.shuffle = job.effort.shuffle.map(|seed| seed.wrapping_add(process as u64));
            job.write(&path)?;
            let ended = self.run_worker(group, &path)?;
            if is_interrupted_with(ended.status) {
                return Ok(RunEnd::Interrupted);
            }
            if !ended.status.success() {
                let was_at = self.folder.read_outcomes().unfinished.map(|id| id.to_string());
                let id = was_at.filter(|id| open.iter().any(|(case, _)| case.to_string() == *id));
                let id = id.unwrap_or_else(|| first.to_string());
                eprintln!("  {id}: process {process} is lost: {}", ended.failure(self.effort));
                *lost.entry(id).or_default() += 1;
            }
        }
    }
}

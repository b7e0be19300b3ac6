//! Further processes: after each case was measured once, all cases are measured once more, and again, as often as was asked
//! for. So a machine that gets slower does so for all cases alike.

use std::collections::BTreeMap;

use anyhow::Result;

use super::Supervisor;
use crate::harness::protocol::{Job, Purpose, WorkItem};

/// A process that ends before its figures is started once more; after so many of them a case gets no further one.
const MOST_LOST: usize = 2;

impl Supervisor<'_> {
    /// Measures every case that has figures in further processes. What goes wrong there costs only the figures of a process.
    ///
    /// # Errors
    /// A worker cannot be started, or the run's folder cannot be written.
    pub(super) fn measure_again(&self) -> Result<()> {
        let mut lost = BTreeMap::new();
        for process in 2..=self.job.effort.processes {
            self.groups.iter().try_for_each(|group| self.measure_group_again(process, group, &mut lost))?;
        }
        Ok(())
    }

    /// Measures the cases of a group that fewer than `process` processes have measured; `lost` counts processes by case.
    fn measure_group_again(
        &self,
        process: usize,
        group: &[WorkItem],
        lost: &mut BTreeMap<String, usize>,
    ) -> Result<()> {
        loop {
            let outcomes = self.folder.read_outcomes();
            let is_open = |item: &&WorkItem| {
                let id = item.id();
                let is_measured = outcomes.finished.get(&id).is_some_and(|outcome| outcome.status.is_measured());
                let processes = 1 + outcomes.further.get(&id).map_or(0, Vec::len);
                is_measured && processes < process && lost.get(&id).is_none_or(|lost| *lost < MOST_LOST)
            };
            let open: Vec<&WorkItem> = group.iter().filter(is_open).collect();
            let Some(WorkItem { case: first, .. }) = open.first() else { return Ok(()) };
            let mut job = Job { purpose: Purpose::MeasureAgain, ..self.job(&open, &outcomes.finished) };
            if !self.is_silent {
                eprintln!("\nprocess {process} of {} on {} {}", job.effort.processes, first.backend, first.device);
            }
            // Each process has another order, if it is shuffled.
            job.effort.shuffle = job.effort.shuffle.map(|seed| seed.wrapping_add(process as u64));
            let ended = self.run_worker(&job, "further")?;
            if !ended.status.success() {
                let was_at = self.folder.read_outcomes().unfinished.map(|id| id.to_string());
                let id = was_at.filter(|id| open.iter().any(|item| item.id() == *id));
                let id = id.unwrap_or_else(|| first.to_string());
                eprintln!("  {id}: process {process} is lost: {}", ended.failure());
                *lost.entry(id).or_default() += 1;
            }
        }
    }
}

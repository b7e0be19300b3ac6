//! What goes on on the machine besides a measurement, seen over about a second.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::lock::{BUSY, keep_others_out};
use crate::machine::memory::{available_bytes, swapped_pages};
use crate::machine::{ContainerLimits, Machine, ProcessorTime, TICKS_PER_SECOND, own_ticks, running_processes};
use crate::paths::Paths;

/// The state of the machine. Unknown facts are absent.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    pub machine: Machine,
    pub limits: Option<ContainerLimits>,
    /// Part of all processors' time that others used, from 0 to 1.
    pub others_share: Option<f64>,
    /// Part of all processors' time that the hypervisor took.
    pub stolen_share: Option<f64>,
    /// The processes that used most, the first the busiest.
    pub busiest: Vec<BusyProcess>,
    /// Pages that went to or came from the swap area.
    pub swapped_pages: Option<u64>,
    pub available_memory_bytes: Option<u64>,
    /// True if another run measures with the same target folder. `None` if this is not known.
    pub is_measuring: Option<bool>,
}

/// A process and the part of one processor that it used.
#[derive(Clone, Debug, PartialEq)]
pub struct BusyProcess {
    pub id: u32,
    pub name: String,
    pub share: f64,
}

const WINDOW: Duration = Duration::from_secs(1);
const NAMED: usize = 3;

impl Conditions {
    /// Takes about a second.
    pub fn watch(paths: &Paths) -> Self {
        let machine = Machine::read();
        let before = (ProcessorTime::now(), own_ticks(), running_processes(), swapped_pages());
        let start = Instant::now();
        thread::sleep(WINDOW);
        let seconds = start.elapsed().as_secs_f64();
        let after = (ProcessorTime::now(), own_ticks(), running_processes(), swapped_pages());

        let (others_share, stolen_share) = shares(before.0.zip(before.1), after.0.zip(after.1)).unzip();
        Conditions {
            machine,
            limits: ContainerLimits::read(),
            others_share,
            stolen_share,
            busiest: busiest(&before.2, &after.2, seconds),
            swapped_pages: before.3.zip(after.3).map(|(before, after)| after.saturating_sub(before)),
            available_memory_bytes: available_bytes(),
            is_measuring: is_measuring(paths),
        }
    }
}

/// Whether another run measures with these paths. Returns `None` if the folder cannot be written, which says nothing of others.
fn is_measuring(paths: &Paths) -> Option<bool> {
    match keep_others_out(paths) {
        Ok(_) => Some(false),
        Err(why) => format!("{why:#}").contains(BUSY).then_some(true),
    }
}

/// What others used and what was stolen, as parts of all processors' time.
fn shares(before: Option<(ProcessorTime, u64)>, after: Option<(ProcessorTime, u64)>) -> Option<(f64, f64)> {
    let ((before, own_before), (after, own_after)) = before.zip(after)?;
    let total = after.total.saturating_sub(before.total).max(1) as f64;
    let others = (after.busy - before.busy) as f64 - (own_after - own_before) as f64;
    Some((others.max(0.0) / total, after.stolen.saturating_sub(before.stolen) as f64 / total))
}

type Processes = BTreeMap<u32, (String, u64)>;

fn busiest(before: &Processes, after: &Processes, seconds: f64) -> Vec<BusyProcess> {
    let own = std::process::id();
    let used = after.iter().filter(|&(&id, _)| id != own).filter_map(|(&id, (name, ticks))| {
        let used = ticks.saturating_sub(before.get(&id).map_or(0, |(_, ticks)| *ticks));
        (used > 0).then(|| {
            (used, BusyProcess { id, name: name.clone(), share: used as f64 / TICKS_PER_SECOND as f64 / seconds })
        })
    });
    let mut used: Vec<_> = used.collect();
    used.sort_by_key(|(used, process)| (std::cmp::Reverse(*used), process.id));
    used.into_iter().take(NAMED).map(|(_, process)| process).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_written_is_no_other_run() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path().to_owned());
        assert_eq!(is_measuring(&paths.apart(folder.path().join("part"))), Some(false));
        let lock = keep_others_out(&paths.apart(folder.path().join("part"))).unwrap();
        assert_eq!(is_measuring(&paths.apart(folder.path().join("part"))), Some(true));
        drop(lock);
        // No folder can be made below a file.
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(is_measuring(&paths.apart(folder.path().join("file"))), None);
    }

    #[test]
    fn others_are_what_is_busy_and_not_this_process() {
        let time = |total, busy, stolen| ProcessorTime { processors: 2, total, busy, stolen };
        let shares = shares(Some((time(1000, 500, 10), 40)), Some((time(1200, 600, 20), 80)));
        assert_eq!(shares, Some((0.3, 0.05)));
        assert_eq!(super::shares(None, Some((time(1, 1, 1), 1))), None);
    }

    #[test]
    fn the_busiest_come_first_and_idle_ones_not_at_all() {
        let list = |ticks: [u64; 3]| -> Processes {
            let names = ["cc1plus", "sleep", "a (b)"];
            (1..).zip(names.into_iter().zip(ticks)).map(|(id, (name, ticks))| (id, (name.to_owned(), ticks))).collect()
        };
        let busiest = busiest(&list([10, 5, 100]), &list([60, 5, 300]), 2.0);
        let seen: Vec<_> = busiest.iter().map(|process| (process.id, process.name.as_str(), process.share)).collect();
        assert_eq!(seen, [(3, "a (b)", 1.0), (1, "cc1plus", 0.25)]);
    }
}

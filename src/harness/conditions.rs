//! What else the machine is doing, watched for about a second.

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
    /// Fraction of all processors' time that other processes used, from 0 to 1.
    pub others_share: Option<f64>,
    /// Fraction of all processors' time that the hypervisor took.
    pub stolen_share: Option<f64>,
    /// The processes that used most processor time, the busiest first.
    pub busiest: Vec<BusyProcess>,
    /// Pages that went to or came from the swap area.
    pub swapped_pages: Option<u64>,
    pub available_memory_bytes: Option<u64>,
    /// True if another run measures with the same target folder. `None` if this is not known.
    pub is_measuring: Option<bool>,
}

/// A process and the fraction of one processor that it used.
#[derive(Clone, Debug, PartialEq)]
pub struct BusyProcess {
    pub id: u32,
    pub name: String,
    pub share: f64,
}

const WINDOW: Duration = Duration::from_secs(1);
const NAMED: usize = 3;

/// Prints the environment variables that change what is measured. Outputs stay right, so nobody would notice otherwise.
pub fn say_variables(machine: &Machine) {
    let variables = machine.variables.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    if !variables.is_empty() {
        eprintln!("environment variables that affect the runtimes: {variables}");
    }
}

impl Conditions {
    /// Takes about a second.
    pub fn watch(paths: &Paths) -> Self {
        let machine = Machine::read();
        let look = || (ProcessorTime::now().zip(own_ticks()), running_processes(), swapped_pages());
        let (time_before, processes_before, swapped_before) = look();
        let start = Instant::now();
        thread::sleep(WINDOW);
        let seconds = start.elapsed().as_secs_f64();
        let (time, processes, swapped) = look();

        let shares = time_before.zip(time).map(|((before, own_before), (now, own))| {
            let own = own.saturating_sub(own_before);
            (now.others_share_since(before, own), now.stolen_share_since(before))
        });
        let (others_share, stolen_share) = shares.unzip();
        Conditions {
            machine,
            limits: ContainerLimits::read(),
            others_share,
            stolen_share,
            busiest: busiest(&processes_before, &processes, seconds),
            swapped_pages: swapped_before.zip(swapped).map(|(before, now)| now.saturating_sub(before)),
            available_memory_bytes: available_bytes(),
            is_measuring: is_measuring(paths),
        }
    }
}

/// Whether another run measures with these paths. Returns `None` if the folder cannot be written: then it is not known.
fn is_measuring(paths: &Paths) -> Option<bool> {
    match keep_others_out(paths) {
        Ok(_) => Some(false),
        Err(why) => format!("{why:#}").contains(BUSY).then_some(true),
    }
}

type Processes = BTreeMap<u32, (String, u64)>;

fn busiest(before: &Processes, after: &Processes, seconds: f64) -> Vec<BusyProcess> {
    let process = |(&id, (name, ticks)): (&u32, &(String, u64))| {
        let used = ticks.saturating_sub(before.get(&id).map_or(0, |(_, ticks)| *ticks));
        BusyProcess { id, name: name.clone(), share: used as f64 / TICKS_PER_SECOND as f64 / seconds }
    };
    let is_busy_other = |process: &BusyProcess| process.share > 0.0 && process.id != std::process::id();
    let mut busiest: Vec<BusyProcess> = after.iter().map(process).filter(is_busy_other).collect();
    busiest.sort_by(|one, other| other.share.total_cmp(&one.share).then(one.id.cmp(&other.id)));
    busiest.truncate(NAMED);
    busiest
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

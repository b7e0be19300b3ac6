//! Which processors a paired benchmark's threads run on: chosen by topology, set, and read back.
//!
//! The scheduler places threads once in a process's life, which can make it several per cent faster or slower than the
//! next process. So all arms of a duel run on the same processors.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::kernel_files::{named, value};
use super::processes::own_folders;

/// Where Linux describes the processors.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// A logical processor and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processor {
    number: usize,
    /// The speed relative to others; that of efficiency cores is lower.
    capacity: usize,
    /// The package, and the first thread of the core.
    core: (usize, usize),
}

/// All processors that this process may use, in the order in which threads get them: those of one package together (the
/// largest one first), different cores before second threads of a core, fast cores before efficient ones, and the first
/// processor, which serves most interrupts, late. Empty if the system does not tell them.
pub fn processor_order() -> Vec<usize> {
    order(read_topology(Path::new(PROCESSORS), &allowed())).iter().map(|processor| processor.number).collect()
}

/// Divides processors into groups of `processors` each, and keeps those that have the same memory as the first group.
/// Data that one of them has loaded is as near to the others.
pub fn equal_groups(numbers: &[usize], processors: usize) -> Vec<Vec<usize>> {
    groups(Path::new(PROCESSORS), numbers, processors)
}

fn groups(root: &Path, numbers: &[usize], processors: usize) -> Vec<Vec<usize>> {
    let node = |number: usize| {
        let mut names = fs::read_dir(root.join(format!("cpu{number}"))).ok()?.flatten().map(|entry| entry.file_name());
        names.find(|name| {
            name.to_string_lossy().strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
        })
    };
    let package = |number: usize| read_topology(root, &[number])[0].core.0;
    let memory = |group: &[usize]| group.iter().map(|&number| (package(number), node(number))).collect::<BTreeSet<_>>();
    let groups: Vec<&[usize]> = numbers.chunks_exact(processors.max(1)).collect();
    let is_equal = |group: &&&[usize]| memory(group) == memory(groups[0]);
    groups.iter().filter(is_equal).map(|group| group.to_vec()).collect()
}

/// Whether two of these processors are threads of one core.
pub fn share_a_core(numbers: &[usize]) -> bool {
    let cores: BTreeSet<_> =
        read_topology(Path::new(PROCESSORS), numbers).iter().map(|processor| processor.core).collect();
    cores.len() < numbers.len()
}

fn order(mut processors: Vec<Processor>) -> Vec<Processor> {
    processors.sort_by_key(|processor| Reverse(processor.number));
    let mut seen = BTreeSet::new();
    let is_second: BTreeMap<usize, bool> =
        processors.iter().map(|processor| (processor.number, !seen.insert(processor.core))).collect();
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    processors.iter().for_each(|processor| *sizes.entry(processor.core.0).or_default() += 1);
    // An efficient core does more for a thread than the second thread of a fast core, but less than a fast core of its
    // own.
    processors.sort_by_key(|it| (Reverse(sizes[&it.core.0]), it.core.0, is_second[&it.number], Reverse(it.capacity)));
    processors
}

/// Reads where each processor lies; a processor whose place is unknown counts as a core of its own.
fn read_topology(root: &Path, numbers: &[usize]) -> Vec<Processor> {
    // The first number of a list such as `0-1` or `0,4`.
    let fact = |number: usize, name: &str| -> Option<usize> {
        value(root.join(format!("cpu{number}/topology/{name}")))?.split([',', '-']).next()?.parse().ok()
    };
    const FULL: usize = 1024;
    // Intel's hybrid processors have this list; ARM gives capacities.
    let efficient = value(root.join("../../cpu_atom/cpus")).map_or_else(Vec::new, |list| numbers_of(&list));
    let capacity = |number: usize| {
        let told = value(root.join(format!("cpu{number}/cpu_capacity"))).and_then(|text| text.parse().ok());
        told.unwrap_or(if efficient.contains(&number) { 0 } else { FULL })
    };
    // Not by `core_id`, which on ARM begins again in each cluster of a package.
    let place = |&number: &usize| {
        let (package, thread) = (fact(number, "physical_package_id"), fact(number, "thread_siblings_list"));
        Processor { number, capacity: capacity(number), core: (package.unwrap_or(0), thread.unwrap_or(number)) }
    };
    numbers.iter().map(place).collect()
}

/// Whether some of these processors are slower than others by design.
pub fn are_of_several_kinds(numbers: &[usize]) -> bool {
    let kinds: BTreeSet<_> = read_topology(Path::new(PROCESSORS), numbers).iter().map(|it| it.capacity).collect();
    kinds.len() > 1
}

/// The numbers of a list such as `0-3,8`.
fn numbers_of(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// The processors that the calling thread may use.
#[cfg(target_os = "linux")]
pub(super) fn allowed() -> Vec<usize> {
    use nix::sched::{CpuSet, sched_getaffinity};
    let set = sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&number| set.is_set(number).unwrap_or(false)).collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn allowed() -> Vec<usize> {
    Vec::new()
}

/// Lets the calling thread, and the threads that it starts from now on, run on these processors only.
///
/// # Errors
/// The system refuses; only Linux can do it.
pub fn confine_thread(processors: &[usize]) -> anyhow::Result<()> {
    const CALLING: i32 = 0;
    confine(CALLING, processors)
}

/// Lets all threads of this process, and of its external workers, run on these processors only.
///
/// # Errors
/// The system refuses; only Linux can do it.
pub fn confine_process(processors: &[usize]) -> anyhow::Result<()> {
    for task in tasks() {
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A thread may have ended.
        confine(thread, processors).or_else(|error| if task.path().exists() { Err(error) } else { Ok(()) })?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn confine(thread: i32, processors: &[usize]) -> anyhow::Result<()> {
    use anyhow::Context;
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for &processor in processors {
        set.set(processor).with_context(|| format!("processor {processor}"))?;
    }
    sched_setaffinity(nix::unistd::Pid::from_raw(thread), &set)
        .with_context(|| format!("a thread cannot be confined to the processors {processors:?}"))
}

#[cfg(not(target_os = "linux"))]
fn confine(_thread: i32, _processors: &[usize]) -> anyhow::Result<()> {
    anyhow::bail!("threads are pinned on Linux only; `--no-pin` measures without")
}

/// The threads of this process and of its external workers.
fn tasks() -> impl Iterator<Item = fs::DirEntry> {
    own_folders().into_iter().flat_map(|folder| fs::read_dir(folder.join("task"))).flatten().flatten()
}

/// How many nanoseconds each thread of this process, and of its external workers, has run. Empty if the system does not
/// tell.
pub fn thread_times() -> BTreeMap<i32, u64> {
    let time = |task: fs::DirEntry| -> Option<(i32, u64)> {
        let schedstat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ran = schedstat.split_whitespace().next()?.parse().ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, ran))
    };
    tasks().filter_map(time).collect()
}

/// Pins each of the threads that have run most since `before` to one of these processors. They are the pool that
/// computes, whichever library it belongs to. With fewer than two processors it does nothing, since [`confine_thread`]
/// is enough.
pub fn pin_busiest(before: &BTreeMap<i32, u64>, processors: &[usize]) -> anyhow::Result<()> {
    if processors.len() < 2 {
        return Ok(());
    }
    let since = |(thread, ran): (i32, u64)| (ran - before.get(&thread).copied().unwrap_or(0).min(ran), thread);
    let mut busiest: Vec<(u64, i32)> = thread_times().into_iter().map(since).collect();
    busiest.sort_unstable_by_key(|(ran, _)| Reverse(*ran));
    busiest.truncate(processors.len());
    // By number, which is the order in which they were started, so that it is the same in every arm.
    busiest.sort_unstable_by_key(|(_, thread)| *thread);
    busiest.iter().zip(processors).try_for_each(|((_, thread), processor)| confine(*thread, &[*processor]))
}

/// Reads back where the threads of this process may run: the distinct lists of processors, as the kernel writes them
/// (`0-1`), each with its number of threads.
pub fn thread_affinities() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for task in tasks() {
        let status = value(task.path().join("status")).unwrap_or_default();
        if let Some(list) = named(&status, "Cpus_allowed_list") {
            *found.entry(list).or_insert(0) += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processors of packages with two threads per core, numbered as Linux does: first threads first.
    fn machine(packages: usize, cores: usize) -> Vec<Processor> {
        let all = packages * cores;
        let place = |number: usize| {
            let core = number % all;
            Processor { number, capacity: 1024, core: (core / cores, core % cores) }
        };
        (0..2 * all).map(place).collect()
    }

    fn numbers(processors: Vec<Processor>) -> Vec<usize> {
        order(processors).iter().map(|processor| processor.number).collect()
    }

    #[test]
    fn threads_get_cores_of_their_own_while_there_are_some() {
        assert_eq!(numbers(machine(1, 2)), [3, 2, 1, 0]);
        assert_eq!(numbers(machine(1, 3)), [5, 4, 3, 2, 1, 0]);
        let single = (0..4).map(|number| Processor { number, capacity: 1024, core: (0, number) }).collect();
        assert_eq!(numbers(single), [3, 2, 1, 0]);
    }

    #[test]
    fn fast_cores_come_before_efficient_ones_and_these_before_second_threads() {
        let root = tempfile::tempdir().unwrap();
        for (number, threads) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3"), (4, "4"), (5, "5")] {
            let folder = root.path().join(format!("system/cpu/cpu{number}/topology"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("thread_siblings_list"), format!("{threads}\n")).unwrap();
        }
        let of = |root: &Path| numbers(read_topology(root, &[0, 1, 2, 3, 4, 5]));
        let processors = root.path().join("system/cpu");
        assert_eq!(of(&processors), [5, 4, 3, 1, 2, 0]);
        fs::create_dir(root.path().join("cpu_atom")).unwrap();
        fs::write(root.path().join("cpu_atom/cpus"), "4-5\n").unwrap();
        assert_eq!(of(&processors), [3, 1, 5, 4, 2, 0]);
        assert_eq!(numbers_of("0-3,8"), [0, 1, 2, 3, 8]);
    }

    #[test]
    fn threads_stay_in_one_package_while_they_fit() {
        // Package 0 has the processors 0, 1, 4 and 5.
        assert_eq!(numbers(machine(2, 2)), [5, 4, 1, 0, 7, 6, 3, 2]);
    }

    #[test]
    fn cores_with_one_number_in_several_clusters_are_several() {
        let root = tempfile::tempdir().unwrap();
        for (number, core_id, threads) in [(0, "0", "0"), (1, "0", "1"), (2, "1", "2,4"), (4, "1", "2,4")] {
            let folder = root.path().join(format!("cpu{number}/topology"));
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in [("physical_package_id", "0"), ("core_id", core_id), ("thread_siblings_list", threads)]
            {
                fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        let cores: Vec<_> =
            read_topology(root.path(), &[0, 1, 2, 4, 5]).iter().map(|processor| processor.core).collect();
        assert_eq!(cores, [(0, 0), (0, 1), (0, 2), (0, 2), (0, 5)]);
    }

    #[test]
    fn groups_of_processors_have_the_memory_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        for (number, package, node) in [(0, 0, 0), (1, 0, 0), (2, 0, 1), (3, 0, 1), (4, 1, 0), (5, 0, 0)] {
            let folder = root.path().join(format!("cpu{number}"));
            fs::create_dir_all(folder.join("topology")).unwrap();
            fs::create_dir(folder.join(format!("node{node}"))).unwrap();
            fs::write(folder.join("topology/physical_package_id"), format!("{package}\n")).unwrap();
        }
        let of = |processors| groups(root.path(), &[5, 1, 0, 2, 3, 4], processors);
        assert_eq!(of(1), [[5], [1], [0]]);
        assert_eq!(of(2), [[5, 1]], "0 and 2 have memories of their own");
        assert_eq!(of(7), [[0; 0]; 0]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_confined_thread_is_read_back() {
        let first = processor_order()[0];
        let affinities = std::thread::spawn(move || {
            confine_thread(&[first]).unwrap();
            thread_affinities()
        });
        let affinities = affinities.join().unwrap();
        assert!(affinities.contains_key(&first.to_string()), "{affinities:?}");
    }
}

//! Where the processors' time goes, from Linux's `/proc`: in total, stolen by a hypervisor, and per process.
//!
//! The unit is the tick of that interface, a hundredth of a second on every Linux. What cannot be read is absent.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use super::processes::own_sum;
use super::processors::allowed;

/// The processors that this process may use, read once: a library may bind the calling thread later.
static OWN: LazyLock<Vec<usize>> = LazyLock::new(allowed);

/// Ticks of one processor per second.
pub const TICKS_PER_SECOND: u64 = 100;

/// Ticks since the system started, summed over the processors that this process may use (`/proc/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    pub processors: u64,
    /// All ticks: busy, idle, waiting and stolen.
    pub total: u64,
    /// In processes, the kernel and its interrupts.
    pub busy: u64,
    /// Taken by the hypervisor while a process was ready to run.
    pub stolen: u64,
}

impl ProcessorTime {
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?, &OWN)
    }

    /// The sum over these processors, or over all if the system does not tell which.
    fn parse(stat: &str, own: &[usize]) -> Option<Self> {
        let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse::<usize>().ok();
        let all: Vec<usize> = stat.lines().filter_map(number).collect();
        // Only in this file, a container may number its processors anew.
        let own = if own.iter().all(|number| all.contains(number)) { own } else { &[] };
        let mut found = ProcessorTime::default();
        for line in stat.lines() {
            let Some((name, ticks)) = line.strip_prefix("cpu").and_then(|line| line.split_once(' ')) else { continue };
            // The first line, without a number, is the sum.
            let Ok(number) = name.parse::<usize>() else { continue };
            if !own.is_empty() && !own.contains(&number) {
                continue;
            }
            let ticks: Vec<u64> = ticks.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
            // The time of guests, which follows, is in `user` and `nice` already.
            let &[user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen, ..] = ticks.as_slice() else {
                return None;
            };
            let busy = user + nice + system + interrupts + soft_interrupts;
            found.processors += 1;
            found.total += busy + idle + waiting + stolen;
            found.busy += busy;
            found.stolen += stolen;
        }
        (found.processors > 0).then_some(found)
    }

    /// The part of all processors' time since `before` that the hypervisor took, from 0 to 1.
    pub fn stolen_share_since(self, before: Self) -> f64 {
        self.share_since(before, self.stolen.saturating_sub(before.stolen))
    }

    /// The part of all processors' time since `before` that other processes used, if this process used `own` ticks.
    pub fn others_share_since(self, before: Self, own: u64) -> f64 {
        self.share_since(before, self.busy.saturating_sub(before.busy).saturating_sub(own))
    }

    fn share_since(self, before: Self, ticks: u64) -> f64 {
        ticks as f64 / self.total.saturating_sub(before.total).max(1) as f64
    }
}

/// Ticks that this process has used with all its threads, and its external workers that still run.
pub fn own_ticks() -> Option<u64> {
    own_sum(|folder| Some(parse_process(&fs::read_to_string(folder.join("stat")).ok()?)?.1))
}

/// Every process's name and the ticks that it has used, by its id.
pub fn running_processes() -> BTreeMap<u32, (String, u64)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // A process that ends meanwhile is left out.
    let read = |id: u32| Some((id, parse_process(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?));
    ids.filter_map(read).collect()
}

/// Name and ticks of a process; the name is in parentheses and may hold anything.
fn parse_process(stat: &str) -> Option<(String, u64)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((name.to_owned(), user + system))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 20 30 1000 5 2 3 40 9 1\ncpu0 50 10 15 500 2 1 1 20 0 0\n\
        cpu1 50 10 15 500 3 1 2 20 0 0\nintr 123 0\nctxt 1\n";

    #[test]
    fn guests_are_counted_once_and_stolen_time_apart() {
        let time = ProcessorTime::parse(STAT, &[]).unwrap();
        assert_eq!(time, ProcessorTime { processors: 2, total: 1200, busy: 155, stolen: 40 });
    }

    #[test]
    fn only_the_processors_that_a_process_may_use_count() {
        let time = ProcessorTime::parse(STAT, &[1]).unwrap();
        assert_eq!(time, ProcessorTime { processors: 1, total: 601, busy: 78, stolen: 20 });
        assert_eq!(ProcessorTime::parse(STAT, &[1, 7]).unwrap().processors, 2);
    }

    #[test]
    fn counters_that_go_back_are_no_time_of_others() {
        let before = ProcessorTime { processors: 2, total: 1000, busy: 500, stolen: 10 };
        let after = ProcessorTime { total: 1200, busy: 600, stolen: 20, ..before };
        assert_eq!((after.others_share_since(before, 40), after.stolen_share_since(before)), (0.3, 0.05));
        // The kernel corrects its sums now and then.
        let back = ProcessorTime { busy: 499, stolen: 9, ..after };
        assert_eq!((back.others_share_since(before, 0), back.stolen_share_since(before)), (0.0, 0.0));
    }

    #[test]
    fn kernels_without_steal_time_and_other_texts_are_unknown() {
        for text in ["", "cpu0 1 2 3 4 5 6 7\n", "cpu0 a b c d e f g h\n", "intr 1\n"] {
            assert_eq!(ProcessorTime::parse(text, &[]), None, "{text:?}");
        }
    }

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let stat = "7 (a) (b c) R 1 1 1 0 -1 4194304 100 0 0 0 31 11 5 6 20 0 1 0 1693690 3133440 390\n";
        assert_eq!(parse_process(stat), Some(("a) (b c".into(), 42)));
        assert_eq!(parse_process("7 (a) R 1"), None);
    }
}

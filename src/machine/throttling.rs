//! How often the system has slowed the processors down.

use std::fs;
use std::path::Path;

use super::container::held_back;
use super::kernel_files::{kernel_number, value};

/// The file in which a control group of version 1 counts how often it was throttled, as a container sees it.
const VERSION_1: &str = "/sys/fs/cgroup/cpu/cpu.stat";

/// How often processors were slowed down by heat, or the control group was throttled by its limit. Returns `None` if
/// the system tells neither.
pub fn throttled() -> Option<u64> {
    let by_group = held_back().or_else(|| kernel_number(VERSION_1, "nr_throttled"));
    by_group.into_iter().chain(by_heat(Path::new("/sys/devices/system/cpu"))).reduce(|sum, more| sum + more)
}

/// The sum over the processors; those that are switched off have no count.
fn by_heat(processors: &Path) -> Option<u64> {
    let folders = fs::read_dir(processors).into_iter().flatten().flatten();
    let counts = folders.filter_map(|it| value(it.path().join("thermal_throttle/core_throttle_count"))?.parse().ok());
    counts.reduce(|sum: u64, more: u64| sum + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_behind_one_that_is_switched_off_are_counted() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(by_heat(root.path()), None);
        fs::create_dir_all(root.path().join("cpu1")).unwrap();
        for (name, count) in [("cpu0", "3\n"), ("cpu2", "4\n")] {
            let folder = root.path().join(name).join("thermal_throttle");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("core_throttle_count"), count).unwrap();
        }
        assert_eq!(by_heat(root.path()), Some(7));
    }
}

//! The limits of the control group that this process runs in, which is usually a container's.

use std::path::{Path, PathBuf};

use super::kernel_files::{kernel_number, named, value};

/// Where the control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// The tightest limits of the group and its ancestors. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContainerLimits {
    /// Processors' worth of time.
    pub processors: Option<f64>,
    pub memory_bytes: Option<u64>,
}

impl ContainerLimits {
    /// Returns `None` if no control group can be read.
    pub fn read() -> Option<Self> {
        let root = Path::new(GROUPS);
        let of_version_2 = own_group().and_then(|own| Self::read_below(root, &own));
        of_version_2.or_else(|| Self::of_version_1(root, &value("/proc/self/cgroup")?))
    }

    /// The limits by version 1, in which each controller has its own groups. `text` lists this process's group for
    /// each.
    fn of_version_1(root: &Path, text: &str) -> Option<Self> {
        let around = |controller: &str| groups_of_version_1(root, text, controller);
        let number = |file: PathBuf| value(file)?.parse::<u64>().ok();
        let memory = |group: PathBuf| number(group.join("memory.limit_in_bytes")).filter(is_limit);
        // Without a quota, the file holds -1.
        let quota = |group: PathBuf| {
            Some(number(group.join("cpu.cfs_quota_us"))? as f64 / number(group.join("cpu.cfs_period_us"))? as f64)
        };
        root.join("memory").is_dir().then(|| ContainerLimits {
            processors: around("cpu").into_iter().filter_map(quota).reduce(f64::min),
            memory_bytes: around("memory").into_iter().filter_map(memory).min(),
        })
    }

    fn read_below(root: &Path, own: &str) -> Option<Self> {
        root.join("cgroup.controllers").is_file().then_some(())?;
        let mut limits = ContainerLimits::default();
        for group in groups_around(root, own) {
            let processors = value(group.join("cpu.max")).and_then(|text| processors(&text));
            let memory = value(group.join("memory.max")).and_then(|text| text.parse().ok());
            limits.processors = limits.processors.into_iter().chain(processors).reduce(f64::min);
            limits.memory_bytes = limits.memory_bytes.into_iter().chain(memory).min();
        }
        Some(limits)
    }
}

/// How often the group and its ancestors were throttled because they had used up their share of the processors. Returns
/// `None` if no control group of version 2 tells.
pub(super) fn held_back() -> Option<u64> {
    held_back_below(Path::new(GROUPS), &own_group()?)
}

fn held_back_below(root: &Path, own: &str) -> Option<u64> {
    let count = |group: PathBuf| kernel_number(group.join("cpu.stat"), "nr_throttled");
    groups_around(root, own).into_iter().filter_map(count).reduce(|sum, more| sum + more)
}

/// The memory that the group and its ancestors may still take, with the file cache that they would give up. Returns
/// `None` if none has a limit.
#[cfg(target_os = "linux")]
pub(super) fn available_bytes() -> Option<u64> {
    let root = Path::new(GROUPS);
    let of_version_2 = own_group().and_then(|own| available_below(root, &own));
    of_version_2.or_else(|| available_by_version_1(root, &value("/proc/self/cgroup")?))
}

#[cfg(target_os = "linux")]
fn available_below(root: &Path, own: &str) -> Option<u64> {
    left_in(groups_around(root, own), ["memory.current", "memory.max", "inactive_file"])
}

#[cfg(target_os = "linux")]
fn available_by_version_1(root: &Path, text: &str) -> Option<u64> {
    let names = ["memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file"];
    left_in(groups_of_version_1(root, text, "memory"), names)
}

/// The least that one of the groups may still take. The names are those of the memory that a group uses, of its limit,
/// and of the file cache that it would give up.
#[cfg(target_os = "linux")]
fn left_in(groups: Vec<PathBuf>, [used, limit, files]: [&str; 3]) -> Option<u64> {
    let number = |group: &Path, name: &str| value(group.join(name))?.parse::<u64>().ok();
    let left = |group: PathBuf| {
        let files = kernel_number(group.join("memory.stat"), files).unwrap_or(0);
        let held = number(&group, used)?.saturating_sub(files);
        Some(number(&group, limit).filter(is_limit)?.saturating_sub(held))
    };
    groups.into_iter().filter_map(left).min()
}

/// Whether these bytes are a limit. Version 1 writes nearly 2^63 if there is none.
fn is_limit(bytes: &u64) -> bool {
    *bytes < 1 << 60
}

/// The folders of this process's group of a controller of version 1, and of the group's ancestors. `text` lists the
/// group of each controller.
fn groups_of_version_1(root: &Path, text: &str, controller: &str) -> Vec<PathBuf> {
    let own = text.lines().find_map(|line| {
        let (controllers, own) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|it| it == controller).then(|| own.trim_start_matches('/'))
    });
    own.map_or_else(Vec::new, |own| groups_around(&root.join(controller), own))
}

/// The path of this process's group of version 2, below the root.
fn own_group() -> Option<String> {
    Some(named(&value("/proc/self/cgroup")?, "0")?.trim_start_matches('/').to_owned())
}

/// The folders of a group and its ancestors.
fn groups_around(root: &Path, own: &str) -> Vec<PathBuf> {
    root.join(own).ancestors().take_while(|group| group.starts_with(root)).map(Path::to_path_buf).collect()
}

/// Reads `quota period`. Returns `None` for the quota `max`, which is no limit.
fn processors(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_tightest_limit_of_all_groups_around_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        assert_eq!(ContainerLimits::read_below(root, "a/b"), None);
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        write("cgroup.controllers", "cpu memory\n");
        assert_eq!(ContainerLimits::read_below(root, "a/b"), Some(ContainerLimits::default()));
        write("a/cpu.max", "150000 100000\n");
        write("a/b/cpu.max", "max 100000\n");
        write("a/memory.max", "max\n");
        write("a/b/memory.max", "1073741824\n");
        let expected = ContainerLimits { processors: Some(1.5), memory_bytes: Some(1 << 30) };
        assert_eq!(ContainerLimits::read_below(root, "a/b"), Some(expected));
    }

    #[test]
    fn the_controllers_of_version_1_have_limits_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let text = "12:memory:/a/b\n4:cpu,cpuacct:/a\n1:name=systemd:/x\n0::/\n";
        assert_eq!(ContainerLimits::of_version_1(root.path(), text), None);
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("cpu/cpu.cfs_quota_us", "-1\n");
        write("cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(ContainerLimits::of_version_1(root.path(), text), Some(ContainerLimits::default()));
        write("memory/a/memory.limit_in_bytes", "2147483648\n");
        write("memory/a/b/memory.limit_in_bytes", "4294967296\n");
        write("cpu/a/cpu.cfs_quota_us", "150000\n");
        write("cpu/a/cpu.cfs_period_us", "100000\n");
        let expected = ContainerLimits { processors: Some(1.5), memory_bytes: Some(1 << 31) };
        assert_eq!(ContainerLimits::of_version_1(root.path(), text), Some(expected));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_files_hold_of_a_groups_memory_is_available() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let write = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
        write("a/b/memory.current", "700\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(available_below(root.path(), "a/b"), None);
        write("a/memory.max", "1000\n");
        write("a/memory.current", "800\n");
        write("a/memory.stat", "anon 500\ninactive_file 300\n");
        assert_eq!(available_below(root.path(), "a/b"), Some(500));
        write("a/b/memory.max", "600\n");
        assert_eq!(available_below(root.path(), "a/b"), Some(0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_of_version_1_has_as_much_memory_available_as_its_limit_leaves() {
        let root = tempfile::tempdir().unwrap();
        // A container sees its own group as the root.
        let text = "12:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n0::/\n";
        assert_eq!(available_by_version_1(root.path(), text), None);
        fs::create_dir_all(root.path().join("memory")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join("memory").join(name), text).unwrap();
        write("memory.usage_in_bytes", "800\n");
        write("memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(available_by_version_1(root.path(), text), None);
        write("memory.limit_in_bytes", "1000\n");
        write("memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
        assert_eq!(available_by_version_1(root.path(), text), Some(500));
    }

    #[test]
    fn a_process_is_held_back_with_the_groups_around_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let write = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
        // The root group has no count.
        write("cpu.stat", "usage_usec 9\n");
        assert_eq!(held_back_below(root.path(), "a/b"), None);
        write("a/cpu.stat", "usage_usec 9\nnr_periods 8\nnr_throttled 5\n");
        write("a/b/cpu.stat", "usage_usec 9\nnr_periods 8\nnr_throttled 2\n");
        assert_eq!([held_back_below(root.path(), "a/b"), held_back_below(root.path(), "a")], [Some(7), Some(5)]);
    }
}

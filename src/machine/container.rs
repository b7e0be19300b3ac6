//! The limits of the control group (version 2) that this process runs in: those of a container, as a rule.

use std::fs;
use std::path::{Path, PathBuf};

/// The tightest limits of the group and of those around it. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContainerLimits {
    /// `cpu.max`: processors' worth of time.
    pub processors: Option<f64>,
    /// `memory.max`.
    pub memory_bytes: Option<u64>,
}

impl ContainerLimits {
    /// `None` where no control group of version 2 can be read.
    pub fn read() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Self::read_below(Path::new("/sys/fs/cgroup"), own)
    }

    fn read_below(root: &Path, own: &str) -> Option<Self> {
        root.join("cgroup.controllers").is_file().then_some(())?;
        let mut limits = ContainerLimits::default();
        let folder: PathBuf = root.join(own);
        for group in folder.ancestors().take_while(|group| group.starts_with(root)) {
            let read = |name: &str| fs::read_to_string(group.join(name)).ok();
            let processors = read("cpu.max").and_then(|text| processors(&text));
            let memory = read("memory.max").and_then(|text| text.trim().parse().ok());
            limits.processors = smaller(limits.processors, processors);
            limits.memory_bytes = smaller(limits.memory_bytes, memory);
        }
        Some(limits)
    }
}

/// `quota period`; the quota is `max` where there is none.
fn processors(cpu_max: &str) -> Option<f64> {
    let (quota, period) = cpu_max.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then_some(quota / period)
}

fn smaller<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_of_all_groups_around_counts() {
        let root = std::env::temp_dir().join(format!("inferbench-cgroup-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        assert_eq!(ContainerLimits::read_below(&root, "a/b"), None);
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        write("cgroup.controllers", "cpu memory\n");
        assert_eq!(ContainerLimits::read_below(&root, "a/b"), Some(ContainerLimits::default()));
        write("a/cpu.max", "150000 100000\n");
        write("a/b/cpu.max", "max 100000\n");
        write("a/memory.max", "max\n");
        write("a/b/memory.max", "1073741824\n");
        let expected = ContainerLimits { processors: Some(1.5), memory_bytes: Some(1 << 30) };
        assert_eq!(ContainerLimits::read_below(&root, "a/b"), Some(expected));
    }
}

//! How often the system has slowed the processors down.

use super::container::held_back;
use super::kernel_files::{kernel_number, value};

/// Where a control group of version 1 tells how often this process has used up its share of the processors, if it is in a container.
const VERSION_1: &str = "/sys/fs/cgroup/cpu/cpu.stat";

/// How often processors were slowed down so far because they were hot, or held back because a control group allows no more. Returns
/// `None` if the system tells neither.
pub fn throttled() -> Option<u64> {
    let by_group = held_back().or_else(|| kernel_number(VERSION_1, "nr_throttled"));
    let of_processor =
        |number: usize| value(format!("/sys/devices/system/cpu/cpu{number}/thermal_throttle/core_throttle_count"));
    let by_heat: Vec<u64> = (0..).map_while(of_processor).filter_map(|count| count.parse().ok()).collect();
    let by_heat = (!by_heat.is_empty()).then(|| by_heat.iter().sum::<u64>());
    by_group.or(by_heat).map(|_| by_group.unwrap_or(0) + by_heat.unwrap_or(0))
}

//! Files in which Linux shows facts: one value each, or one named value per line.

use std::fs;
use std::path::Path;

/// The only value of a file. Returns `None` if the file is missing or empty.
pub(super) fn value(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The value of a line such as `name : value` or `name value`; the first one if there are several.
pub(super) fn named(text: &str, name: &str) -> Option<String> {
    let after_name = |line: &str| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([':', ' ', '\t']).then(|| rest.trim_matches([':', ' ', '\t']).to_owned())
    };
    text.lines().find_map(after_name)
}

/// The number in a named line, in bytes where the kernel says `kB`: a field of `/proc/meminfo`, `/proc/vmstat` or
/// `/proc/self/status`. Returns `None` if the file or the line is missing.
pub(super) fn kernel_number(path: impl AsRef<Path>, name: &str) -> Option<u64> {
    parse_number(&named(&fs::read_to_string(path).ok()?, name)?)
}

fn parse_number(value: &str) -> Option<u64> {
    match value.strip_suffix("kB") {
        Some(kibibytes) => Some(1024 * kibibytes.trim().parse::<u64>().ok()?),
        None => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let text = "VmPeak:\t 9 kB\nVmHWM:\t    12 kB\noom_kill_all 3\noom_kill 4\nmodel name\t: A CPU\n";
        let number = |name| parse_number(&named(text, name)?);
        assert_eq!((number("VmHWM"), number("oom_kill"), number("VmRSS")), (Some(12 * 1024), Some(4), None));
        assert_eq!(named(text, "model name").as_deref(), Some("A CPU"));
        assert_eq!(named(text, "model"), Some("name\t: A CPU".into()));
    }
}

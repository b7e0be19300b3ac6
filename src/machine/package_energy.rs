//! The energy counters of the processor's packages: Linux `powercap`, for Intel and AMD RAPL. No other system shows
//! them.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use fs_err as fs;

/// A package's counter of microjoules.
pub struct PackageEnergy {
    path: PathBuf,
    /// The counter begins again from 0 after this value.
    pub range: u64,
}

impl PackageEnergy {
    /// The counters of all packages. Other zones would count energy twice: parts of a package are included in it, and
    /// the zone of the whole system (`psys`) includes the packages.
    ///
    /// # Errors
    /// There is no such counter, or this user may not read it.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        Self::below(Path::new("/sys/class/powercap"))
    }

    /// As [`Self::all`], for the zones in this folder.
    pub fn below(powercap: &Path) -> anyhow::Result<Vec<Self>> {
        let mut counters = Vec::new();
        for entry in fs::read_dir(powercap)?.flatten() {
            // `intel-rapl:0` is a whole zone (AMD has the same name), and `intel-rapl:0:1` is a part of it.
            let folder = entry.file_name().to_string_lossy().into_owned();
            if !folder.starts_with("intel-rapl:") || folder.matches(':').count() != 1 {
                continue;
            }
            if !fs::read_to_string(entry.path().join("name"))?.starts_with("package") {
                continue;
            }
            let range = read_number(&entry.path().join("max_energy_range_uj"))?;
            let counter = PackageEnergy { path: entry.path().join("energy_uj"), range };
            counter.microjoules()?;
            counters.push(counter);
        }
        ensure!(!counters.is_empty(), "no RAPL counter in {}", powercap.display());
        Ok(counters)
    }

    /// The current value of the counter.
    pub fn microjoules(&self) -> anyhow::Result<u64> {
        read_number(&self.path)
    }
}

fn read_number(path: &Path) -> anyhow::Result<u64> {
    fs::read_to_string(path)?.trim().parse().with_context(|| path.display().to_string())
}

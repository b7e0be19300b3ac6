//! The paths of the project's root and of the folders below it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders that a process works with.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
    target: PathBuf,
    /// The folder of Criterion's tree and the runs, if they are not in their usual places.
    apart: Option<PathBuf>,
}

/// The value of an environment variable. Returns `None` if it is not set or empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Paths {
    /// The checkout that the executable was built from, or `INFERBENCH_ROOT`, or the current folder.
    pub fn find() -> Self {
        let built_from = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let root = match variable("INFERBENCH_ROOT") {
            Some(root) => PathBuf::from(root),
            None if built_from.join("models").is_dir() => built_from,
            None => PathBuf::from("."),
        };
        let target = variable("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let target = std::path::absolute(&target).unwrap_or(target);
        Paths { root, target, apart: None }
    }

    /// The same project, with Criterion's tree and the runs in a folder of their own.
    pub fn apart(&self, folder: PathBuf) -> Self {
        Paths { apart: Some(folder), ..self.clone() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Model definitions and a user's own models.
    pub fn models(&self) -> PathBuf {
        variable("INFERBENCH_MODELS_DIR").map_or_else(|| self.root.join("models"), PathBuf::from)
    }

    /// Weights and graphs that were made from the definitions; may be deleted at any time.
    pub fn prepared(&self) -> PathBuf {
        self.root.join(".prepared")
    }

    /// Native libraries that `scripts/setup` got.
    pub fn native(&self) -> PathBuf {
        self.root.join(".native")
    }

    /// The root of Criterion's tree, by Criterion's own rule.
    pub fn criterion(&self) -> PathBuf {
        if let Some(apart) = &self.apart {
            return apart.join("criterion");
        }
        variable("CRITERION_HOME").map_or_else(|| self.target.join("criterion"), PathBuf::from)
    }

    /// The root of Criterion's tree of cold starts, whose ids are those of the measurements.
    pub fn cold_starts(&self) -> PathBuf {
        self.criterion().with_file_name("criterion-load")
    }

    /// The folders of runs, beside Criterion's tree, each with a manifest and the outcomes of the cases.
    pub fn runs(&self) -> PathBuf {
        let criterion = self.criterion();
        criterion.parent().unwrap_or(&self.target).join("inferbench").join("runs")
    }

    /// The folders of runs whose measurements are not kept: verifications, tests and profiles.
    pub fn unkept_runs(&self) -> PathBuf {
        self.runs().with_file_name("unkept-runs")
    }

    /// The last result of `inferbench selftest`.
    pub fn selftest(&self) -> PathBuf {
        self.runs().with_file_name("selftest.json")
    }

    /// How fast this machine multiplies and copies, measured once.
    pub fn peaks(&self) -> PathBuf {
        variable("INFERBENCH_PEAKS").map_or_else(|| self.runs().with_file_name("peaks.json"), PathBuf::from)
    }

    /// The folder of duels and of what they build.
    pub fn duels(&self) -> PathBuf {
        self.runs().with_file_name("duel")
    }

    /// The folder of reports, which is the history of runs.
    pub fn reports(&self) -> PathBuf {
        variable("INFERBENCH_REPORTS").map_or_else(|| self.root.join("target-reports"), PathBuf::from)
    }
}

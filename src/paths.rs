//! The paths of the project's root and of the folders below it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders that a process works with.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
    target: PathBuf,
    /// Whether the root is a package that uses inferbench.
    is_of_other_package: bool,
    /// The checkout of inferbench: the root, or the sources of the executable if the root is a package that uses inferbench.
    checkout: PathBuf,
    /// The folder of Criterion's tree and the runs, if they are not in their usual places.
    apart: Option<PathBuf>,
}

/// The value of an environment variable. Returns `None` if it is not set or empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The sources that this executable was built from.
const BUILT_FROM: &str = env!("CARGO_MANIFEST_DIR");

/// The checkout that this executable was built from, if it is still there, or the folder of an archive that it lies in.
fn checkout() -> Option<PathBuf> {
    let executable = std::env::current_exe().unwrap_or_default();
    let folders = [Some(Path::new(BUILT_FROM)), executable.parent()];
    folders.into_iter().flatten().find(|folder| folder.join("models/suites").is_dir()).map(Path::to_owned)
}

/// Whether a folder has the manifest of a package that depends on inferbench.
fn uses_inferbench(folder: &Path) -> bool {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let Ok(manifest) = text.parse::<toml::Table>() else { return false };
    // `[target.'cfg(unix)'.dev-dependencies]` has the same form as the whole manifest.
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
    let tables =
        targets.chain([&manifest]).flat_map(|of| ["dependencies", "dev-dependencies"].map(|name| of.get(name)));
    let mut dependencies = tables.flatten().filter_map(toml::Value::as_table).flatten();
    dependencies.any(|(name, of)| of.get("package").and_then(toml::Value::as_str).unwrap_or(name) == "inferbench")
}

impl Paths {
    /// The folders of `INFERBENCH_ROOT`; or else of the package in the current folder or above it that uses inferbench, of the
    /// checkout that the executable was built from or lies in, or the current folder.
    pub fn find() -> Self {
        let current = std::env::current_dir().unwrap_or_default();
        let package = current.ancestors().find(|folder| uses_inferbench(folder));
        Self::of(match (variable("INFERBENCH_ROOT"), package) {
            (Some(root), _) => PathBuf::from(root),
            (None, Some(package)) => package.to_owned(),
            (None, None) => checkout().unwrap_or_else(|| PathBuf::from(".")),
        })
    }

    /// The folders of a project.
    pub fn of(root: PathBuf) -> Self {
        let is_of_other_package = uses_inferbench(&root);
        let checkout = checkout().filter(|_| is_of_other_package).unwrap_or_else(|| root.clone());
        let absolute = std::path::absolute(&root).unwrap_or_else(|_| root.clone());
        let workspace = absolute.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
        let workspace = workspace.map_or_else(|| root.clone(), Path::to_owned);
        let target = variable("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let target = std::path::absolute(&target).unwrap_or(target);
        Paths { root, target, is_of_other_package, checkout, apart: None }
    }

    /// The same project, with Criterion's tree and the runs in a folder of their own.
    pub fn apart(&self, folder: PathBuf) -> Self {
        Paths { apart: Some(folder), ..self.clone() }
    }

    /// The same project, for a part of a suite whose folder this is among those of all parts: machines that share a checkout do not
    /// write into the same files.
    pub fn of_part(&self, folder: &Path) -> Self {
        self.apart(self.runs().with_file_name("parts").join(folder))
    }

    /// The file that the part which is measured on a machine holds: parts have folders of their own, which several machines may share.
    pub fn part_lock(&self, host_id: &str) -> PathBuf {
        Paths { apart: None, ..self.clone() }.runs().with_file_name(format!("lock-{host_id}"))
    }

    /// The folder of the reports of parts, whose runs are no runs of the history before they are merged.
    pub fn parts(&self) -> PathBuf {
        self.reports().join("parts")
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the root is a package that uses inferbench.
    pub fn is_of_other_package(&self) -> bool {
        self.is_of_other_package
    }

    /// Model definitions, suites and a user's own models.
    pub fn models(&self) -> PathBuf {
        variable("INFERBENCH_MODELS_DIR").map_or_else(|| self.checkout.join("models"), PathBuf::from)
    }

    /// Weights and graphs that were made from the definitions; may be deleted at any time.
    pub fn prepared(&self) -> PathBuf {
        match self.is_of_other_package {
            false => self.root.join(".prepared"),
            true => self.target.join("inferbench/prepared"),
        }
    }

    /// Native libraries that `scripts/setup` got.
    pub fn native(&self) -> PathBuf {
        self.checkout.join(".native")
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

    /// The folders of profiles, beside those of the runs.
    pub fn profiles(&self) -> PathBuf {
        self.reports().join("profiles")
    }

    /// The folders of load tests, beside those of the runs.
    pub fn loads(&self) -> PathBuf {
        self.reports().join("loads")
    }

    /// The folder of reports, which is the history of runs.
    pub fn reports(&self) -> PathBuf {
        variable("INFERBENCH_REPORTS").map_or_else(|| self.root.join("target-reports"), PathBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_uses_inferbench_by_any_of_its_tables_of_dependencies() {
        let folder = tempfile::tempdir().unwrap();
        for (manifest, uses) in [
            ("[dev-dependencies]\ninferbench = '0.1'", true),
            ("[dependencies.inferbench]\npath = '../inferbench'", true),
            ("[target.'cfg(unix)'.dev-dependencies]\ninferbench = '0.1'", true),
            ("[dev-dependencies]\nbench = { package = 'inferbench', version = '0.1' }", true),
            ("[dev-dependencies]\ninferbench = { package = 'other', version = '0.1' }", false),
            ("[package]\nname = 'inferbench'", false),
        ] {
            std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
            let paths = Paths::of(folder.path().to_owned());
            assert_eq!(paths.is_of_other_package(), uses, "{manifest}");
            assert_eq!(paths.models() == folder.path().join("models"), !uses, "{manifest}");
        }
    }
}

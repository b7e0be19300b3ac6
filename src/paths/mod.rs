//! The paths of the project's root and of the folders below it.
//!
//! It takes the current folder and the environment. It gives paths, and the files that the program brings along. What
//! is in the files is read elsewhere.

mod program_files;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};

/// The folders that a process works with.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
    place: Place,
    /// The folder of Criterion's tree and the runs, unless `apart` or `CRITERION_HOME` names another.
    target: PathBuf,
    /// The folder of Criterion's tree and the runs, if these are kept apart, as those of a part of a suite.
    apart: Option<PathBuf>,
}

/// What kind of folder the root is.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Checkout,
    /// A package that uses inferbench, and the checkout that its manifest names, if it names one.
    Package(Option<PathBuf>),
    /// Any other folder, in which somebody uses the installed program.
    Elsewhere,
}

/// The variable with the folder of prepared files of an arm of a duel. Another arm may make files of the same names
/// from other models.
pub const PREPARED: &str = "INFERBENCH_PREPARED";

/// The variable of `--trust`.
pub const TRUST: &str = "INFERBENCH_TRUST";

/// The variable with the files that may run code when they are read, one per line, for the processes that this one
/// starts.
const TRUSTED: &str = "INFERBENCH_TRUSTED_FILES";

fn trusted() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static FILES: LazyLock<Mutex<BTreeSet<PathBuf>>> = LazyLock::new(|| {
        let given = std::env::var(TRUSTED).unwrap_or_default();
        Mutex::new(given.lines().map(PathBuf::from).collect())
    });
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets these files run code when they are read, in this process and in those that it starts from now on.
pub(crate) fn trust<'a>(files: impl IntoIterator<Item = &'a Path>) {
    trusted().extend(files.into_iter().filter_map(|file| file.canonicalize().ok()));
}

/// Whether a file may run code when it is read.
pub(crate) fn is_trusted(file: &Path) -> bool {
    file.canonicalize().is_ok_and(|file| trusted().contains(&file))
}

/// The variable with the trusted files, for the processes that this one starts.
pub(crate) fn trusted_files() -> (&'static str, OsString) {
    let files: Vec<OsString> = trusted().iter().map(|file| file.clone().into_os_string()).collect();
    (TRUSTED, files.join(OsStr::new("\n")))
}

/// The value of an environment variable. Returns `None` if it is not set or empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The variable that names the folder of reports.
pub const OUTPUT_DIR: &str = "INFERBENCH_OUTPUT_DIR";

/// Makes this the folder of reports of this process and of those that it starts. `main` calls it before it starts a
/// thread.
pub fn put_output_dir(folder: &Path) {
    // SAFETY: the process has no other thread yet.
    unsafe { std::env::set_var(OUTPUT_DIR, folder) };
}

/// The user's cache folder, which all projects and folders share.
pub fn cache() -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default();
    variable("XDG_CACHE_HOME").map_or_else(|| home().join(".cache"), PathBuf::from).join("inferbench")
}

/// The folder of the revisions that duels have checked out, one folder per target folder and one in it per revision.
pub fn worktrees() -> PathBuf {
    cache().join("worktrees")
}

fn has_models(folder: &Path) -> bool {
    folder.join("models/suites").is_dir()
}

/// What kind of folder a root is, if its `Cargo.toml` tells.
fn place_of(folder: &Path) -> Option<Place> {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let package = manifest.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    if package == Some("inferbench") && has_models(folder) {
        return Some(Place::Checkout);
    }
    // `[target.'cfg(unix)'.dev-dependencies]` has the same form as the whole manifest.
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
    let tables =
        targets.chain([&manifest]).flat_map(|of| ["dependencies", "dev-dependencies"].map(|name| of.get(name)));
    let mut dependencies = tables.flatten().filter_map(toml::Value::as_table).flatten();
    let is_inferbench = |(name, of): &(&String, &toml::Value)| {
        of.get("package").and_then(toml::Value::as_str).unwrap_or(name) == "inferbench"
    };
    let (_, found) = dependencies.find(is_inferbench)?;
    let checkout =
        found.get("path").and_then(toml::Value::as_str).and_then(|path| folder.join(path).canonicalize().ok());
    Some(Place::Package(checkout.filter(|checkout| has_models(checkout))))
}

impl Paths {
    /// The paths below `INFERBENCH_ROOT`; or else below the current folder or the next one above it that is a checkout
    /// of inferbench or a package that uses it; or else below the current folder.
    pub fn find() -> Self {
        if let Some(root) = variable("INFERBENCH_ROOT") {
            return Self::of(PathBuf::from(root));
        }
        let current = std::env::current_dir().unwrap_or_default();
        let found = current.ancestors().find_map(|folder| Some((folder.to_owned(), place_of(folder)?)));
        let (root, place) = found.unwrap_or_else(|| (PathBuf::from("."), Place::Elsewhere));
        Self::at(root, place)
    }

    /// The paths below a root. A folder with suites counts as a checkout, unless its manifest says otherwise.
    pub fn of(root: PathBuf) -> Self {
        let usual = if has_models(&root) { Place::Checkout } else { Place::Elsewhere };
        let place = place_of(&root).unwrap_or(usual);
        Self::at(root, place)
    }

    fn at(root: PathBuf, place: Place) -> Self {
        let mut paths = Paths { root, place, target: PathBuf::new(), apart: None };
        paths.target = match paths.place {
            Place::Elsewhere => std::path::absolute(paths.reports()).unwrap_or_else(|_| paths.reports()),
            _ => cargo_target(&paths.root),
        };
        paths
    }

    /// The same project, with Criterion's tree and the runs in a folder of their own.
    pub fn apart(&self, folder: PathBuf) -> Self {
        Paths { apart: Some(folder), ..self.clone() }
    }

    /// Whether Criterion's tree and the runs are kept apart.
    pub fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// The same project for a part of a suite, with `folder` among the folders of all parts: machines that share a
    /// checkout do not write into the same files.
    pub fn of_part(&self, folder: &Path) -> Self {
        self.apart(self.runs().with_file_name("parts").join(folder))
    }

    /// The file that a machine locks while it measures a part: parts have folders of their own, which several machines
    /// may share.
    pub fn part_lock(&self, host_id: &str) -> PathBuf {
        Paths { apart: None, ..self.clone() }.runs().with_file_name(format!("lock-{host_id}"))
    }

    /// The folder of the parts' reports. Their runs are not in the history before they are merged.
    pub fn parts(&self) -> PathBuf {
        self.reports().join("parts")
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the root is a package that uses inferbench.
    pub fn is_of_other_package(&self) -> bool {
        matches!(self.place, Place::Package(_))
    }

    /// The checkout of inferbench: the root, or the one that a package names.
    pub fn checkout(&self) -> Option<&Path> {
        match &self.place {
            Place::Checkout => Some(&self.root),
            Place::Package(checkout) => checkout.as_deref(),
            Place::Elsewhere => None,
        }
    }

    /// The folder of model definitions, suites and a user's own models: `INFERBENCH_MODELS_DIR`, that of the checkout,
    /// or else the program's own.
    ///
    /// # Errors
    /// The program's own files cannot be unpacked into the cache folder.
    pub fn models(&self) -> Result<PathBuf> {
        if let Some(own) = variable("INFERBENCH_MODELS_DIR") {
            return Ok(PathBuf::from(own));
        }
        let folder =
            self.checkout().map_or_else(|| program_files::unpacked(&cache()), |checkout| Ok(checkout.to_owned()));
        Ok(folder?.join("models"))
    }

    /// The folders of users' own models: those beside the packaged ones, and outside a checkout those of the current
    /// folder, too.
    pub fn users_models(&self, models: &Path) -> Vec<PathBuf> {
        let is_elsewhere = self.checkout().is_none() && variable("INFERBENCH_MODELS_DIR").is_none();
        let here = || std::path::absolute(self.root.join("models")).ok();
        let here = is_elsewhere.then(here).flatten();
        let parents = [Some(models.to_owned()), here].into_iter().flatten();
        parents.flat_map(|parent| ["exported", "trained", "quantized"].map(|folder| parent.join(folder))).collect()
    }

    /// A script that the program runs, by its name below the checkout: the checkout's, or else the program's own.
    ///
    /// # Errors
    /// The program's own files cannot be unpacked into the cache folder.
    pub fn script(&self, name: &str) -> Result<PathBuf> {
        let own = self.checkout().map(|checkout| checkout.join(name)).filter(|path| path.is_file());
        own.map_or_else(|| Ok(program_files::unpacked(&cache())?.join(name)), Ok)
    }

    /// The folder for an imported model of this name.
    pub fn imported(&self, name: &str) -> PathBuf {
        let models = variable("INFERBENCH_MODELS_DIR").map(PathBuf::from);
        let models = models.unwrap_or_else(|| self.checkout().unwrap_or(&self.root).join("models"));
        models.join("exported").join(name)
    }

    /// Weights and graphs that were made from the definitions; may be deleted at any time.
    pub fn prepared(&self) -> PathBuf {
        if let Some(of_arm) = variable(PREPARED) {
            return PathBuf::from(of_arm);
        }
        match self.place {
            Place::Checkout => self.root.join(".prepared"),
            Place::Package(_) => self.target.join("inferbench/prepared"),
            Place::Elsewhere => cache().join("prepared"),
        }
    }

    /// Graphs of single operators, which the program makes.
    pub fn operators(&self) -> PathBuf {
        self.prepared().join("operators")
    }

    /// The folder of native libraries, which [`Self::setup_command`] fetches.
    pub fn native(&self) -> PathBuf {
        self.checkout().map_or_else(|| cache().join("native"), |checkout| checkout.join(".native"))
    }

    /// The command that fetches a native library.
    pub fn setup_command(&self, part: &str) -> String {
        let program = if self.place == Place::Checkout { "scripts/setup" } else { "inferbench setup" };
        format!("{program} {part}")
    }

    /// How to fetch the native library of this part and then add a feature to the build: with commands in a checkout,
    /// or in the manifest of a package that uses inferbench.
    pub fn build_advice(&self, part: Option<&str>, feature: &str) -> String {
        let setup = part.map(|part| self.setup_command(part));
        match (&self.place, setup) {
            (Place::Elsewhere, _) => format!("a build from a checkout with the feature {feature} has it"),
            (Place::Package(_), None) => format!("add the feature {feature} to inferbench in Cargo.toml"),
            (Place::Package(_), Some(setup)) => {
                format!("run `{setup}`, and add the feature {feature} to inferbench in Cargo.toml")
            }
            (Place::Checkout, None) => format!("add it with `cargo bench --features {feature}`"),
            (Place::Checkout, Some(setup)) => format!("add it with `{setup} && cargo bench --features {feature}`"),
        }
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
        let usual = || match self.place {
            Place::Elsewhere => cache().join("peaks.json"),
            _ => self.runs().with_file_name("peaks.json"),
        };
        variable("INFERBENCH_PEAKS").map_or_else(usual, PathBuf::from)
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
        let usual =
            || if self.root == Path::new(".") { "target-reports".into() } else { self.root.join("target-reports") };
        variable(OUTPUT_DIR).map_or_else(usual, PathBuf::from)
    }

    /// Checks that the folders of reports and of runs can be written, before hours are spent on what belongs there.
    pub fn check_writable(&self) -> Result<()> {
        let of_runs = match self.place {
            _ if variable("CRITERION_HOME").is_some() => "CRITERION_HOME",
            Place::Elsewhere => "`--output-dir`",
            Place::Checkout | Place::Package(_) => "CARGO_TARGET_DIR",
        };
        for (folder, named_by) in [(self.reports(), "`--output-dir`"), (self.runs(), of_runs)] {
            let try_it = || -> std::io::Result<()> {
                std::fs::create_dir_all(&folder)?;
                tempfile::tempfile_in(&folder).map(drop)
            };
            let is_utf8 = folder.to_str().is_some();
            ensure!(is_utf8, "{}: this path is not UTF-8; set {named_by} to another folder", folder.display());
            let cannot = || format!("{} cannot be written; set {named_by} to another folder", folder.display());
            try_it().with_context(cannot)?;
        }
        Ok(())
    }
}

/// Cargo's target folder for a package.
fn cargo_target(root: &Path) -> PathBuf {
    let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    let workspace = absolute.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    let workspace = workspace.map_or_else(|| root.to_owned(), Path::to_owned);
    let said = variable("CARGO_TARGET_DIR").or_else(|| variable("CARGO_BUILD_TARGET_DIR"));
    let target = said.map_or_else(|| workspace.join("target"), PathBuf::from);
    std::path::absolute(&target).unwrap_or(target)
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
            assert_eq!(paths.checkout(), None, "{manifest}");
        }
    }

    #[test]
    fn a_checkout_is_the_root_or_what_a_package_names() {
        let folder = tempfile::tempdir().unwrap();
        let [checkout, package] = ["checkout", "package"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(checkout.join("models/suites")).unwrap();
        std::fs::create_dir_all(&package).unwrap();
        assert_eq!(Paths::of(checkout.clone()).native(), checkout.join(".native"));
        std::fs::write(package.join("Cargo.toml"), "[dev-dependencies]\ninferbench = { path = '../checkout' }")
            .unwrap();
        let paths = Paths::of(package.clone());
        let checkout = checkout.canonicalize().unwrap();
        assert_eq!((paths.native(), paths.models().unwrap()), (checkout.join(".native"), checkout.join("models")));
        assert_eq!(paths.reports(), package.join("target-reports"));
    }

    #[test]
    fn all_that_is_measured_elsewhere_is_in_the_folder_of_reports() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path().to_owned());
        let reports = folder.path().join("target-reports");
        assert_eq!(paths.reports(), reports);
        assert!(paths.runs().starts_with(&reports) && paths.duels().starts_with(&reports));
        assert!(paths.native().starts_with(cache()) && paths.prepared().starts_with(cache()));
        assert_eq!(paths.imported("net"), folder.path().join("models/exported/net"));
        paths.check_writable().unwrap();
        std::fs::remove_dir_all(&reports).unwrap();
        std::fs::write(&reports, "").unwrap();
        let error = format!("{:#}", paths.check_writable().unwrap_err());
        assert!(error.contains("target-reports cannot be written; set `--output-dir`"), "{error}");
    }

    #[test]
    fn a_checkout_with_runs_that_cannot_be_written_needs_another_target_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("models/suites")).unwrap();
        std::fs::write(folder.path().join("target"), "").unwrap();
        let paths = Paths::of(folder.path().to_owned()).apart(folder.path().join("target"));
        let error = format!("{:#}", paths.check_writable().unwrap_err());
        assert!(error.contains("runs cannot be written; set CARGO_TARGET_DIR to another folder"), "{error}");
    }

    #[test]
    fn a_package_gets_a_backend_by_its_manifest() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("Cargo.toml"), "[dev-dependencies]\ninferbench = '0.1'").unwrap();
        let advice = Paths::of(folder.path().to_owned()).build_advice(Some("tch"), "tch");
        assert_eq!(advice, "run `inferbench setup tch`, and add the feature tch to inferbench in Cargo.toml");
    }
}

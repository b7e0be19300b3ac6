//! Finds installed runtimes: named by a variable, in an active Python environment, or from `inferbench setup`.
//!
//! A process looks for each runtime once, and passes the answer on to the processes that it starts. So a run keeps its
//! runtime to the end, even if an environment changes meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::paths::variable;

/// A Python environment whose runtimes are used: a folder, a Python in it, or `none`.
pub const ENVIRONMENT: &str = "INFERBENCH_ENVIRONMENT";
/// The variables that name one runtime each. They take precedence over environments.
const OF_ONE_RUNTIME: [&str; 5] = [
    "ORT_DYLIB_PATH",
    "INFERBENCH_OPENVINO_LIBRARY",
    "INFERBENCH_LLAMA_LIBRARY",
    "INFERBENCH_JAX_PYTHON",
    "INFERBENCH_TORCH_PYTHON",
];
/// The variable that hands the runtimes that a process has found to the processes that it starts.
const FOUND: &str = "INFERBENCH_FOUND";

/// A file of a runtime, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    pub path: PathBuf,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A variable names it.
    Variable,
    /// It is in a Python environment.
    Environment,
    /// `inferbench setup` installed it.
    Setup,
}

/// A Python environment, with the folders in which it finds packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    folder: PathBuf,
    packages: Vec<PathBuf>,
}

impl Environment {
    /// The environment in a folder, or the one of a Python executable. A folder that `pip install --target` has filled
    /// is one too.
    pub fn of(place: &Path) -> Self {
        // conda on Windows has its Python in the environment's own folder.
        let is_own = |folder: &&Path| !["bin", "scripts"].contains(&name_of(folder).to_lowercase().as_str());
        let python = place.ancestors().skip(1).find(is_own).filter(|_| place.is_file());
        let folder = python.unwrap_or(place).to_owned();
        let mut packages = Vec::new();
        for libraries in ["lib", "lib64"].map(|name| folder.join(name)) {
            // An environment that was upgraded keeps the folders of older versions.
            let minor = |it: &PathBuf| name_of(it).strip_prefix("python3.").and_then(|minor| minor.parse::<u32>().ok());
            let mut of_versions: Vec<PathBuf> =
                children(&libraries).filter(|it| name_of(it).starts_with("python")).collect();
            of_versions.sort_by_key(|it| Reverse(minor(it)));
            for of_version in of_versions {
                packages.extend(["site-packages", "dist-packages"].map(|name| of_version.join(name)));
            }
        }
        packages.push(folder.join("Lib").join("site-packages"));
        packages.retain(|folder| folder.is_dir());
        packages.push(folder.clone());
        Environment { folder, packages }
    }

    /// The environment of the Python that the shell finds, which may have packages in several places.
    fn of_python_on_path() -> Option<Self> {
        const ASK: &str = "import sys; print(sys.prefix, *filter(None, sys.path), sep='\\n')";
        ["python3", "python"].into_iter().find_map(|python| {
            let output =
                Command::new(python).args(["-c", ASK]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
            let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
            let mut lines = text.lines().map(PathBuf::from);
            Some(Environment { folder: lines.next()?, packages: lines.collect() })
        })
    }

    /// The first folder or file of that name among the packages.
    pub fn package(&self, name: &str) -> Option<PathBuf> {
        self.packages.iter().map(|folder| folder.join(name)).find(|path| path.exists())
    }

    /// The version of a package, from the name of its metadata folder.
    pub fn version(&self, package: &str) -> Option<String> {
        let entries = self.packages.iter().flat_map(|folder| children(folder));
        let version = |path: PathBuf| {
            Some(name_of(&path).strip_prefix(package)?.strip_prefix('-')?.strip_suffix(".dist-info")?.to_owned())
        };
        entries.filter_map(version).next()
    }

    /// The Python of the environment.
    pub fn python(&self) -> Option<PathBuf> {
        ["bin/python3", "bin/python", "Scripts/python.exe", "python.exe"]
            .map(|name| self.folder.join(name))
            .into_iter()
            .find(|path| path.is_file())
    }
}

/// The environments that variables name, and the one in which this program is installed.
static NAMED: LazyLock<Vec<Environment>> = LazyLock::new(|| {
    if let Some(own) = variable(ENVIRONMENT) {
        return if own == "none" { Vec::new() } else { vec![Environment::of(Path::new(&own))] };
    }
    let variables = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).map(PathBuf::from);
    // The program may be installed in an environment that is not active, as by `pipx` and `uvx`.
    let executable = std::env::current_exe().ok();
    let own = executable.as_deref().and_then(Path::parent).and_then(Path::parent);
    let marks = ["pyvenv.cfg", "conda-meta", "inferbench/__init__.py"];
    let own = own.map(Environment::of).filter(|own| marks.iter().any(|mark| own.package(mark).is_some()));
    variables.map(|folder| Environment::of(&folder)).chain(own).collect()
});

/// The environment of the Python that the shell finds.
static ON_PATH: LazyLock<Option<Environment>> =
    LazyLock::new(|| if variable(ENVIRONMENT).is_some() { None } else { Environment::of_python_on_path() });

/// The active environments, in the order in which they are searched.
fn active() -> impl Iterator<Item = &'static Environment> {
    // Python is run only if the named environments lack the runtime.
    NAMED.iter().chain(std::iter::once_with(|| ON_PATH.as_ref()).flatten())
}

/// [`ON_PATH`], if `python` is its Python. It may have packages outside its folder: the user's own, and those in
/// `PYTHONPATH`.
fn on_path(python: &Path) -> Option<&'static Environment> {
    ON_PATH.as_ref().filter(|it| it.python().as_deref() == Some(python))
}

/// The environment of a Python that was found.
pub fn environment_of(python: &Path) -> Environment {
    on_path(python).cloned().unwrap_or_else(|| Environment::of(python))
}

/// The folders in which `python` looks for packages, if it is the one that the shell finds. They include the user's own
/// folder and `PYTHONPATH`, which an isolated Python ignores. Empty for others, whose packages are all in their
/// environment.
pub fn places_of_packages(python: &Path) -> &'static [PathBuf] {
    on_path(python).map(|found| found.packages.as_slice()).unwrap_or_default()
}

/// The results of all searches so far, by the key of the search; `None` if nothing was found.
type Found = BTreeMap<String, Option<Installed>>;

static FOUND_SO_FAR: LazyLock<Mutex<Found>> = LazyLock::new(|| {
    let given = std::env::var(FOUND).ok().and_then(|text| serde_json::from_str(&text).ok());
    Mutex::new(given.unwrap_or_default())
});

/// The variable `FOUND` with its value for the processes that this one starts.
pub fn found_so_far() -> (&'static str, String) {
    let found = FOUND_SO_FAR.lock().unwrap_or_else(PoisonError::into_inner);
    (FOUND, serde_json::to_string(&*found).unwrap_or_default())
}

/// Makes an inferbench process use the runtimes of an environment, whatever this process's variables name.
pub fn use_environment(command: &mut Command, folder: &Path) {
    for variable in OF_ONE_RUNTIME {
        command.env_remove(variable);
    }
    command.env(ENVIRONMENT, folder).env_remove(FOUND);
}

/// The places in which to search for a runtime.
pub struct Search<'a> {
    /// Distinguishes the runtime from others.
    pub key: &'a str,
    /// The variable that names the runtime.
    pub variable: Option<&'static str>,
    /// The only environment to search, if the backend was given one.
    pub environment: Option<&'a Path>,
}

impl Search<'_> {
    /// Finds the runtime: named by the variable, in an environment, or from `inferbench setup`. The file is not
    /// checked: it may be missing.
    pub fn find(
        &self,
        in_environment: impl Fn(&Environment) -> Option<PathBuf>,
        of_setup: impl FnOnce() -> Option<PathBuf>,
    ) -> Option<Installed> {
        let look = || {
            let of = |environment: &Environment| {
                Some(Installed { path: in_environment(environment)?, origin: Origin::Environment })
            };
            if let Some(only) = self.environment {
                return of(&Environment::of(only));
            }
            if let Some(path) = self.variable.and_then(variable) {
                return Some(Installed { path: path.into(), origin: Origin::Variable });
            }
            active().find_map(of).or_else(|| Some(Installed { path: of_setup()?, origin: Origin::Setup }))
        };
        let key = self.environment.map_or_else(|| self.key.to_owned(), |it| format!("{} {}", self.key, it.display()));
        let mut found = FOUND_SO_FAR.lock().unwrap_or_else(PoisonError::into_inner);
        found.entry(key).or_insert_with(look).clone()
    }
}

/// Whether a folder is a Python environment: one that Python or conda has made, or one with packages.
pub fn has_packages(folder: &Path) -> bool {
    let marks = ["pyvenv.cfg", "conda-meta", "onnxruntime", "openvino", "jaxlib", "torch"];
    marks.iter().any(|mark| folder.join(mark).exists()) || Environment::of(folder).packages.len() > 1
}

/// The first file of a folder, in the order of names, whose name starts with `beginning`.
pub fn file_beginning(folder: &Path, beginning: &str) -> Option<PathBuf> {
    let mut files: Vec<PathBuf> = children(folder).filter(|path| name_of(path).starts_with(beginning)).collect();
    files.sort();
    files.into_iter().find(|path| path.is_file())
}

fn children(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn name_of(path: &Path) -> String {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_found_by_its_python_and_its_newest_packages_come_first() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("env");
        let version_of = |python: &str, packages: &[&str]| {
            for (packages, number) in packages.iter().zip(1..) {
                fs_err::create_dir_all(folder.join(packages).join(format!("torch-{number}.dist-info"))).unwrap();
            }
            let python = folder.join(python);
            fs_err::create_dir_all(python.parent().unwrap()).unwrap();
            fs_err::write(&python, "").unwrap();
            let version = Environment::of(&python).version("torch");
            fs_err::remove_dir_all(&folder).unwrap();
            version
        };
        let versions = ["9", "10", "8"].map(|minor| format!("lib/python3.{minor}/site-packages"));
        assert_eq!(version_of("bin/python3", &versions.each_ref().map(String::as_str)).as_deref(), Some("2"));
        for python in ["Scripts/python.exe", "python.exe"] {
            assert_eq!(version_of(python, &["Lib/site-packages"]).as_deref(), Some("1"), "{python}");
        }
    }
}

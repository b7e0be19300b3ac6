//! Workers in Python that ship with this package: Python reads their modules from the standard input, before the first frame.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::guard::Guard;
use super::process::{OutsideProcess, within};
use crate::backend::installed::{Environment, Origin, Search, environment_of, places_of_packages};
use crate::backend::interface::DeviceReport;
use crate::definition::CaseFailure;
use crate::machine::displacing_mapping;
use crate::paths::{Paths, cache};

/// The name of a module and its text.
pub(super) type Module = (&'static str, &'static str);

/// The frames of the protocol, which all workers in Python import.
pub(super) const FRAMES: Module = ("frames", include_str!("python/frames.py"));

/// The loop that answers requests in all workers in Python. Each worker adds how it loads a model.
pub(super) const SERVING: Module = ("serving", include_str!("python/serving.py"));

/// How long Python may take until it reads its modules.
const PATIENCE: Duration = Duration::from_secs(120);

/// A library that a worker in Python needs.
pub(super) struct Library {
    pub name: &'static str,
    /// Its name for `inferbench setup` and among the packages of an environment.
    pub key: &'static str,
    /// The variable that names a Python with the library.
    pub variable: &'static str,
    /// The names of its packages for pip.
    pub packages: &'static str,
    /// What an environment with these packages has in its `site-packages`.
    pub files: &'static [&'static str],
    /// The environments of inferbench in the cache. A complete one has the file `requirements`, which is written last.
    pub own: &'static [&'static str],
}

impl Library {
    /// The Python that has the library: named by the variable, in a Python environment, or of `inferbench setup`.
    pub fn python(&self, place: Option<&Path>) -> Result<PathBuf, CaseFailure> {
        let Library { name, key, variable, packages, files, own } = *self;
        let in_environment = |environment: &Environment| {
            let has_all = files.iter().all(|file| environment.package(file).is_some());
            environment.python().filter(|_| has_all)
        };
        let is_whole = |folder: &PathBuf| folder.join("requirements").is_file();
        let python = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
        let of_setup = || Some(own.iter().map(|own| cache().join(own)).find(is_whole)?.join(python));
        let search = Search { key, variable: Some(variable), environment: place };
        let found = search.find(in_environment, of_setup);
        if let Some(found) = found.as_ref().filter(|found| found.path.is_file()) {
            return Ok(found.path.clone());
        }
        let named = found.filter(|found| found.origin == Origin::Variable).map(|found| found.path);
        Err(CaseFailure::unavailable(match (place, named) {
            (Some(place), _) => format!("{name} is not in {}: install {packages} there", place.display()),
            (None, Some(path)) => {
                format!("{name}: {variable} is {path:?}, which is not a file: set it to the path of a Python")
            }
            (None, None) => format!(
                "{name} is not here; get it with `{}`, or by `pip install {packages}` in an active environment, or set {variable} \
                 to a Python that has it",
                Paths::find().setup_command(key)
            ),
        }))
    }

    /// A report for each device that the library may know.
    pub fn devices<const N: usize>(&self, place: Option<&Path>, names: [&str; N]) -> Vec<DeviceReport> {
        let python = self.python(place).map(|python| python.display().to_string());
        names.map(|name| DeviceReport::probed(name, python.clone())).into()
    }

    /// Its key and version, by the environment of its Python. Empty without such a Python or if the version is not
    /// known.
    pub fn version(&self, place: Option<&Path>) -> String {
        let version = self.python(place).ok().and_then(|python| environment_of(&python).version(self.key));
        version.map_or_else(String::new, |version| format!("{} {version}", self.key))
    }
}

/// Loads the modules in the first line of the standard input. If one of them needs a package that is missing or too
/// old, the answer to the first request is an error frame that says so. Arguments are the folders in which packages are
/// searched.
const BEGIN: &str = "import json, linecache, os, struct, sys, types
output, requests = os.dup(1), os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
sys.stdin = sys.__stdin__ = os.fdopen(requests)
sys.path[:], sys.argv[1:] = sys.argv[1:] or sys.path, []
try:
    for name, text in json.loads(sys.stdin.buffer.readline()):
        file = f'inferbench/{name}.py'
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        sys.modules[name] = types.ModuleType(name)
        exec(compile(text, file, 'exec'), sys.modules[name].__dict__)
except ImportError as why:
    text = ' '.join(str(why).split())[:300] or 'a package cannot be imported'
    if isinstance(why, ModuleNotFoundError) and why.name:
        package = why.name.partition('.')[0]
        text = f'{sys.executable} lacks the package {package}: install it by `{sys.executable} -m pip install {package}`'
    answer = json.dumps({'error': {'status': 'unavailable', 'message': text}}).encode()
    os.write(output, struct.pack('<4sIQ', b'IFB1', len(answer), 0) + answer)
    sys.stdin.buffer.read()";

/// Removes the variables whose names begin with one of `beginnings` from the environment of a process.
pub(super) fn remove_variables(command: &mut Command, beginnings: &[&str]) {
    for (name, _) in std::env::vars_os() {
        if beginnings.iter().any(|beginning| name.to_string_lossy().starts_with(beginning)) {
            command.env_remove(name);
        }
    }
}

/// Starts Python with these modules, each after the modules that it imports; the last one runs the worker. The process
/// has a folder for temporary files, which is removed when it ends.
pub(super) fn start(
    name: &str,
    python: PathBuf,
    modules: &[Module],
    prepare: impl FnOnce(&mut Command),
) -> Result<OutsideProcess, CaseFailure> {
    let wrong = |error: std::io::Error| CaseFailure::failed(format!("a temporary folder for {name}: {error}"));
    let folder = tempfile::Builder::new().prefix(&format!("inferbench-{name}-")).tempdir().map_err(wrong)?;
    // The process may start in another folder, so a path has to be absolute. A bare name is looked up in PATH.
    let is_path = python.components().count() > 1;
    let python = Some(&python).filter(|_| is_path).and_then(|it| std::path::absolute(it).ok()).unwrap_or(python);
    let mut command = Command::new(&python);
    // In a duel, Python's addresses differ from generation to generation like those of the arm that starts it.
    let displaced = displacing_mapping().map(|length| format!("import mmap\ndisplacing = mmap.mmap(-1, {length})\n"));
    let begin = displaced.unwrap_or_default() + BEGIN;
    command.args(["-I", "-c", begin.as_str()]).args(places_of_packages(&python)).env("TMPDIR", folder.path());
    prepare(&mut command);
    let mut process = OutsideProcess::start(name, command)?;
    process.keep(Guard::start(process.id(), folder).map_err(wrong)?);
    let modules = serde_json::to_string(modules).unwrap_or_default();
    within(PATIENCE, process.id(), name, || process.write_line(&modules))?;
    Ok(process)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_worker_leaves_in_its_temporary_folder_goes_with_it() {
        let mut folder = PathBuf::new();
        let write = "import os, signal, tempfile\ntempfile.mkdtemp()\nos.kill(os.getpid(), signal.SIGKILL)";
        let mut process = start("worker", "python3".into(), &[("write", write)], |command| {
            let place = command.get_envs().find(|(name, _)| *name == "TMPDIR").and_then(|(_, place)| place);
            folder = place.unwrap().into();
        })
        .unwrap();
        assert!(process.wait(std::time::Duration::from_secs(60)).is_some());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        drop(process);
        assert!(!folder.exists());
    }
}

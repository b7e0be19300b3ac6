//! What a name on the command line means: the running executable, another one, a suite, a model's file, or a revision.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use super::build::{BuildFlags, build, build_bench, kept_copy, short_sha256};
use super::worktree::{Worktree, find_commit, remove_left_over};
use crate::backend::{has_packages, registry};
use crate::catalogue::{is_model_file, is_module, path_of, read_catalogue};
use crate::compare::Program;
use crate::definition::{MODULES, Suite, SuiteModel, usable_name};
use crate::fixture::sha256_of_file;
use crate::machine::files::is_executable;
use crate::machine::processes::{CAN_SUSPEND, own_executable};
use crate::paths::Paths;

enum Meaning {
    /// The bench of the package in the current folder, as its files are now.
    WorkingTree,
    /// The running executable, with the suite of this file if there is one.
    Running(Option<PathBuf>),
    /// The running executable, with a suite of the model in a file, and the file's SHA-256.
    Model(PathBuf, String),
    Executable(PathBuf),
    /// The running executable, with the runtimes of a Python environment.
    Environment(PathBuf),
    Commit(String),
}

/// Finds the programs of a duel and builds the revisions among them. Names of the same commit share one build. The
/// worktrees must stay as long as the programs are used.
///
/// # Errors
/// The system cannot stop processes, a name means nothing, a revision does not build, or the user stops it
/// ([`Interrupted`](crate::harness::Interrupted)).
pub fn resolve_all(paths: &Paths, names: &[String], flags: &BuildFlags) -> Result<(Vec<Program>, Vec<Worktree>)> {
    ensure!(CAN_SUSPEND, "unavailable: a duel stops its processes in turn, and this system cannot stop processes");
    let flags = &flags.with_file(paths.root())?;
    // Cases are paired by their names, so all model files have the name of the first.
    let first = names.iter().map(|name| path_of(file_of(name))).find(|path| is_model(path));
    let model = first.map(|file| name_of_file(paths, &file)).transpose()?.unwrap_or_default();
    remove_left_over(paths)?;
    let (mut programs, mut worktrees) = (Vec::<Program>::new(), Vec::new());
    // All names are looked up before a build that may take minutes.
    let meanings = names.iter().map(|name| meaning(paths, name, &model, &mut worktrees));
    let meanings = meanings.collect::<Result<Vec<Meaning>>>()?;
    let own_root = fs_err::canonicalize(paths.root())?;
    for (name, meaning) in names.iter().zip(meanings) {
        let here = |executable, suite| program(name, executable, own_root.clone(), suite);
        programs.push(match meaning {
            Meaning::WorkingTree => here(build_bench(paths, name, paths.root(), flags)?, None)?,
            Meaning::Running(suite) => here(kept_copy(paths, &own_executable()?)?, suite)?,
            Meaning::Model(suite, sha256) => {
                Program { suite_sha256: Some(sha256), ..here(kept_copy(paths, &own_executable()?)?, Some(suite))? }
            }
            Meaning::Executable(path) => here(path, None)?,
            Meaning::Environment(path) => Program { name: name.clone(), environment: Some(path), ..running(paths)? },
            Meaning::Commit(commit) => match programs.iter().find(|other| other.commit.as_ref() == Some(&commit)) {
                Some(other) => Program { name: name.clone(), ..other.clone() },
                None => {
                    let worktree = Worktree::of_project(paths, &commit)?;
                    let project = worktree.project();
                    let executable = match paths.is_of_other_package() {
                        true => build_bench(paths, name, project, flags)?,
                        false => build(paths, name, &commit, &worktree)?,
                    };
                    let built = program(name, executable, project.to_owned(), None)?;
                    worktrees.push(worktree);
                    Program { commit: Some(commit), ..built }
                }
            },
        });
    }
    Ok((programs, worktrees))
}

fn is_model(file: &Path) -> bool {
    is_model_file(file) || is_module(file)
}

/// A name for the model in a file that no model of the catalogue has.
fn name_of_file(paths: &Paths, file: &Path) -> Result<String> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut name = usable_name(stem.split('.').next().unwrap_or_default());
    if name.is_empty() {
        name = "model".into();
    }
    let known = read_catalogue(&paths.models()?)?;
    while known.iter().any(|entry| entry.name == name) {
        name = format!("my-{name}");
    }
    Ok(name)
}

/// The running executable as a program.
pub fn running(paths: &Paths) -> Result<Program> {
    program(".", kept_copy(paths, &own_executable()?)?, fs_err::canonicalize(paths.root())?, None)
}

/// Writes a suite with the model in a file. Returns the path of the suite, and the SHA-256 of the model's file.
fn suite_of_file(paths: &Paths, name: &str, file: PathBuf) -> Result<(PathBuf, String)> {
    // A duel is resumed with the same files only, so a file that has changed makes another suite.
    let hash = sha256_of_file(&file)?;
    // Only PyTorch runs a module.
    let is_run = |backend: &&str| !is_module(&file) || *backend == MODULES[0];
    let backends = registry::built().into_iter().filter(is_run).map(str::to_owned).collect();
    let model = SuiteModel { path: Some(file), ..SuiteModel::from(name) };
    let suite = toml::to_string(&Suite { models: vec![model], ..Suite::new(name, backends) })?;
    let text = format!("# {hash}\n{suite}");
    let path = paths.duels().join("files").join(format!("{}.toml", short_sha256(&text)));
    fs_err::create_dir_all(path.parent().unwrap_or(&path))?;
    fs_err::write(&path, text)?;
    Ok((path, hash))
}

/// The file in a name such as `HEAD~1:net.py`, which is git's for a file of a revision; otherwise the whole name.
fn file_of(name: &str) -> &str {
    match name.split_once(':') {
        Some((revision, file)) if !file.is_empty() && !revision.ends_with(".py") => file,
        _ => name,
    }
}

/// A file of a revision in the repository of the current folder, such as `HEAD~1:net.py`, in a worktree with all files
/// of that revision. Returns `None` if the name has no such revision.
fn file_of_revision(paths: &Paths, name: &str, worktrees: &mut Vec<Worktree>) -> Result<Option<PathBuf>> {
    let file = file_of(name);
    let Some(revision) = name.strip_suffix(file).and_then(|revision| revision.strip_suffix(':')) else {
        return Ok(None);
    };
    let Some(commit) = find_commit(Path::new("."), revision)? else { return Ok(None) };
    let folder = match worktrees.iter().find(|worktree| worktree.commit == commit) {
        Some(known) => known.project().to_owned(),
        None => {
            let worktree = Worktree::of_files(paths, Path::new("."), &commit)?;
            let folder = worktree.project().to_owned();
            worktrees.push(worktree);
            folder
        }
    };
    let path = folder.join(path_of(file));
    ensure!(path.is_file(), "the revision {revision} has no file {file}: give its path from the repository's root");
    Ok(Some(path))
}

/// What a name means. The revision of a file is checked out into another one of the `worktrees`.
fn meaning(paths: &Paths, name: &str, model: &str, worktrees: &mut Vec<Worktree>) -> Result<Meaning> {
    let path = &path_of(name);
    if name == "." {
        return Ok(if paths.is_of_other_package() { Meaning::WorkingTree } else { Meaning::Running(None) });
    }
    let of_revision = if path.is_file() { None } else { file_of_revision(paths, name, worktrees)? };
    let path = of_revision.as_ref().unwrap_or(path);
    if path.is_file() {
        let path = fs_err::canonicalize(path)?;
        if is_model(&path) {
            let (suite, sha256) = suite_of_file(paths, model, path)?;
            return Ok(Meaning::Model(suite, sha256));
        }
        if path.extension().is_some_and(|extension| extension == "toml" || extension == "json") {
            return Ok(Meaning::Running(Some(path)));
        }
        ensure!(
            is_executable(&path),
            "{name} is a file, but neither an executable nor a suite (.toml, .json) nor a model (.onnx, .pt, .pt2, .py, .gguf, .safetensors)"
        );
        return Ok(Meaning::Executable(path));
    }
    if has_packages(path) {
        return Ok(Meaning::Environment(fs_err::canonicalize(path)?));
    }
    ensure!(!is_model(path), "there is no file {name}");
    match find_commit(paths.root(), name)? {
        Some(commit) => Ok(Meaning::Commit(commit)),
        None => bail!(
            "{name:?} is not a revision of {}, an executable, a suite, a model's file or a Python environment; `.` is the running inferbench, or the working tree of a package",
            paths.root().display()
        ),
    }
}

fn program(name: &str, executable: PathBuf, root: PathBuf, suite: Option<PathBuf>) -> Result<Program> {
    Ok(Program {
        name: name.to_owned(),
        commit: None,
        sha256: sha256_of_file(&executable)?,
        libraries: BTreeSet::new(),
        suite_sha256: suite.as_deref().map(sha256_of_file).transpose()?,
        suite,
        executable,
        root,
        environment: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_changed_is_another_suite() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path().to_owned()).apart(folder.path().join("apart"));
        let file = folder.path().join("net.onnx");
        let suite_of = |bytes: &str| {
            std::fs::write(&file, bytes).unwrap();
            suite_of_file(&paths, "net", file.clone()).unwrap()
        };
        let before = suite_of("one");
        let another = suite_of("another");
        assert!(another.0 != before.0 && another.1 != before.1);
        assert_eq!(suite_of("one"), before);
        // A copy of the file elsewhere has the same hash.
        let copy = folder.path().join("copy.onnx");
        std::fs::copy(&file, &copy).unwrap();
        let of_copy = suite_of_file(&paths, "net", copy).unwrap();
        assert!(of_copy.0 != before.0 && of_copy.1 == before.1);
    }
}

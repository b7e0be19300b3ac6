//! What a name on the command line means: the running executable, another one, a suite file, or a revision.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::build::{build, keep_executable};
use super::worktree::{Worktree, find_commit};
use crate::compare::Program;
use crate::fixture::sha256_of_file;
use crate::paths::Paths;

/// A program that can take part, and the worktree that must stay as long as it does.
pub struct ReadyProgram {
    pub program: Program,
    pub worktree: Option<Worktree>,
}

enum Meaning {
    Running,
    Suite(PathBuf),
    Executable(PathBuf),
    Commit(String),
}

/// Finds the programs of a duel and builds the revisions among them. Names of one commit share what is built of it. Returns
/// `None` if the user stopped a build.
///
/// # Errors
/// A name means nothing, a revision does not build, or an executable does not know the protocol of arms.
pub fn resolve_all(paths: &Paths, names: &[String]) -> Result<Option<Vec<ReadyProgram>>> {
    // All names are looked up before a build that may take minutes.
    let meanings = names.iter().map(|name| meaning(paths, name)).collect::<Result<Vec<Meaning>>>()?;
    let mut ready = Vec::new();
    for (name, meaning) in names.iter().zip(meanings) {
        let Some(program) = make(paths, name, meaning, &ready)? else { return Ok(None) };
        ready.push(program);
    }
    Ok(Some(ready))
}

fn meaning(paths: &Paths, name: &str) -> Result<Meaning> {
    let path = Path::new(name);
    if name == "." {
        return Ok(Meaning::Running);
    }
    if path.is_file() {
        let path = fs_err::canonicalize(path)?;
        let is_suite = path.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        let is_executable = path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
        return match (is_suite, is_executable) {
            (true, _) => Ok(Meaning::Suite(path)),
            (false, true) => Ok(Meaning::Executable(path)),
            (false, false) => bail!("{name} is a file, but neither an executable nor a suite (.toml, .json)"),
        };
    }
    match find_commit(paths.root(), name)? {
        Some(commit) => Ok(Meaning::Commit(commit)),
        None => bail!(
            "{name:?} is no revision of {}, no executable and no suite file; `.` is the running inferbench",
            paths.root().display()
        ),
    }
}

fn make(paths: &Paths, name: &str, meaning: Meaning, others: &[ReadyProgram]) -> Result<Option<ReadyProgram>> {
    let own_root = || fs_err::canonicalize(paths.root());
    let commit = match meaning {
        Meaning::Running => return ready(name, copy_of_running(paths)?, own_root()?, None).map(Some),
        Meaning::Suite(path) => return ready(name, copy_of_running(paths)?, own_root()?, Some(path)).map(Some),
        Meaning::Executable(path) => return ready(name, path, own_root()?, None).map(Some),
        Meaning::Commit(commit) => commit,
    };
    let mut programs = others.iter().map(|other| &other.program);
    if let Some(other) = programs.find(|other| other.commit.as_ref() == Some(&commit)) {
        return Ok(Some(ReadyProgram { program: Program { name: name.to_owned(), ..other.clone() }, worktree: None }));
    }
    let worktree = Worktree::add(paths, &commit)?;
    let Some(executable) = build(paths, name, &commit, &worktree)? else { return Ok(None) };
    let ReadyProgram { program, .. } = ready(name, executable, worktree.path().to_owned(), None)?;
    Ok(Some(ReadyProgram { program: Program { commit: Some(commit), ..program }, worktree: Some(worktree) }))
}

fn ready(name: &str, executable: PathBuf, root: PathBuf, suite: Option<PathBuf>) -> Result<ReadyProgram> {
    let hash = |path: &Path| sha256_of_file(path).map_err(anyhow::Error::from);
    let program = Program {
        name: name.to_owned(),
        commit: None,
        sha256: hash(&executable)?,
        suite_sha256: suite.as_deref().map(hash).transpose()?,
        suite,
        executable,
        root,
    };
    check_protocol(&program)?;
    Ok(ReadyProgram { program, worktree: None })
}

/// Copies the running executable: a build in the middle of the duel may put another one in its place.
fn copy_of_running(paths: &Paths) -> Result<PathBuf> {
    let linked = PathBuf::from("/proc/self/exe");
    let own = if linked.exists() { linked } else { std::env::current_exe()? };
    let copy = paths.duels().join("executables").join(&sha256_of_file(&own)?[..40]);
    if !copy.is_file() {
        keep_executable(&own, &copy)?;
    }
    Ok(copy)
}

/// Asks an executable whether it knows the protocol of arms, before anything else is built or run.
///
/// # Errors
/// It cannot be started, or it is too old.
fn check_protocol(program: &Program) -> Result<()> {
    let output = Command::new(&program.executable).args(["arm", "--help"]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| anyhow::anyhow!("{}: {error}", program.executable.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("unrecognized subcommand") {
        bail!(
            "{} has no `inferbench arm`, which times the slices of a duel: it is older than paired benchmarks. Take a later \
             revision, or compare two runs with baselines (`inferbench run --save-baseline`, `--baseline`)",
            program.name
        );
    }
    bail!("{}: `arm --help` ended with {}: {}", program.name, output.status, complaint.trim())
}

//! What a name on the command line means: the running executable, another one, a suite file, or a revision.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::build::{build, keep_executable};
use super::worktree::{Worktree, find_commit};
use crate::compare::Program;
use crate::fixture::sha256_of_file;
use crate::harness::own_executable;
use crate::paths::Paths;

enum Meaning {
    /// The running executable, with the suite of this file if there is one.
    Running(Option<PathBuf>),
    Executable(PathBuf),
    Commit(String),
}

/// Finds the programs of a duel and builds the revisions among them. Names of one commit share what is built of it. The
/// worktrees must stay as long as the programs are used.
///
/// # Errors
/// A name means nothing, a revision does not build, or the user stops it ([`Interrupted`](crate::harness::Interrupted)).
pub fn resolve_all(paths: &Paths, names: &[String]) -> Result<(Vec<Program>, Vec<Worktree>)> {
    // All names are looked up before a build that may take minutes.
    let meanings = names.iter().map(|name| meaning(paths, name)).collect::<Result<Vec<Meaning>>>()?;
    let own_root = fs_err::canonicalize(paths.root())?;
    let (mut programs, mut worktrees) = (Vec::<Program>::new(), Vec::new());
    for (name, meaning) in names.iter().zip(meanings) {
        programs.push(match meaning {
            Meaning::Running(suite) => program(name, copy_of_running(paths)?, own_root.clone(), suite)?,
            Meaning::Executable(path) => program(name, path, own_root.clone(), None)?,
            Meaning::Commit(commit) => match programs.iter().find(|other| other.commit.as_ref() == Some(&commit)) {
                Some(other) => Program { name: name.clone(), ..other.clone() },
                None => {
                    let worktree = Worktree::add(paths, &commit)?;
                    let executable = build(paths, name, &commit, &worktree)?;
                    let built = program(name, executable, worktree.path().to_owned(), None)?;
                    worktrees.push(worktree);
                    Program { commit: Some(commit), ..built }
                }
            },
        });
    }
    Ok((programs, worktrees))
}

fn meaning(paths: &Paths, name: &str) -> Result<Meaning> {
    let path = Path::new(name);
    if name == "." {
        return Ok(Meaning::Running(None));
    }
    if path.is_file() {
        let path = fs_err::canonicalize(path)?;
        let is_suite = path.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        let is_executable = path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
        return match (is_suite, is_executable) {
            (true, _) => Ok(Meaning::Running(Some(path))),
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

fn program(name: &str, executable: PathBuf, root: PathBuf, suite: Option<PathBuf>) -> Result<Program> {
    Ok(Program {
        name: name.to_owned(),
        commit: None,
        sha256: sha256_of_file(&executable)?,
        suite_sha256: suite.as_deref().map(sha256_of_file).transpose()?,
        suite,
        executable,
        root,
    })
}

/// Copies the running executable: a build in the middle of the duel may put another one in its place.
fn copy_of_running(paths: &Paths) -> Result<PathBuf> {
    let own = own_executable()?;
    let copy = paths.duels().join("executables").join(&sha256_of_file(&own)?[..40]);
    if !copy.is_file() {
        keep_executable(&own, &copy)?;
    }
    Ok(copy)
}

//! What a name on the command line means: the running executable, another one, a suite file, or a revision.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::fighter::{Side, check_protocol};
use super::revision::{self, Worktree};
use crate::fixture::sha256_of_file;
use crate::paths::Paths;

/// A side that can fight, and the worktree that must stay as long as it does.
pub struct Ready {
    pub side: Side,
    pub worktree: Option<Worktree>,
}

/// What a name means.
enum Meaning {
    Running,
    Suite(PathBuf),
    Executable(PathBuf),
    Commit(String),
}

/// Both sides of a duel, the revisions among them built. Names of one commit share what is made of it. `None` where the
/// user stopped a build.
///
/// # Errors
/// A name means nothing, or a revision does not build.
pub fn resolve_both(paths: &Paths, base: &str, candidate: &str) -> Result<Option<[Ready; 2]>, String> {
    // Before a build that may take minutes, both names are looked up.
    let (of_base, of_candidate) = (meaning(paths, base)?, meaning(paths, candidate)?);
    let Some(base) = make(paths, base, of_base, None)? else { return Ok(None) };
    let Some(candidate) = make(paths, candidate, of_candidate, Some(&base.side))? else { return Ok(None) };
    Ok(Some([base, candidate]))
}

fn meaning(paths: &Paths, name: &str) -> Result<Meaning, String> {
    let path = Path::new(name);
    if name == "." {
        return Ok(Meaning::Running);
    }
    if path.is_file() {
        let path = path.canonicalize().map_err(|error| format!("{name}: {error}"))?;
        let is_suite = path.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        let is_executable = path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
        return match (is_suite, is_executable) {
            (true, _) => Ok(Meaning::Suite(path)),
            (false, true) => Ok(Meaning::Executable(path)),
            (false, false) => Err(format!("{name} is a file, but neither an executable nor a suite (.toml, .json)")),
        };
    }
    revision::commit(paths.root(), name)?.map(Meaning::Commit).ok_or_else(|| {
        format!(
            "{name:?} is no revision of {}, no executable and no suite file; `.` is the running inferbench",
            paths.root().display()
        )
    })
}

fn make(paths: &Paths, name: &str, meaning: Meaning, other: Option<&Side>) -> Result<Option<Ready>, String> {
    let commit = match meaning {
        Meaning::Running => return running(paths, name, None).map(Some),
        Meaning::Suite(path) => return running(paths, name, Some(path)).map(Some),
        Meaning::Executable(path) => return ready(name, path, root(paths)?, None).map(Some),
        Meaning::Commit(commit) => commit,
    };
    if let Some(other) = other.filter(|other| other.commit.as_ref() == Some(&commit)) {
        return Ok(Some(Ready { side: Side { name: name.to_owned(), ..other.clone() }, worktree: None }));
    }
    let Some((executable, worktree)) = revision::build(paths, name, &commit)? else { return Ok(None) };
    let Ready { side, .. } = ready(name, executable, worktree.path().to_owned(), None)?;
    Ok(Some(Ready { side: Side { commit: Some(commit), ..side }, worktree: Some(worktree) }))
}

fn ready(name: &str, executable: PathBuf, root: PathBuf, suite: Option<PathBuf>) -> Result<Ready, String> {
    let hash = |path: &Path| sha256_of_file(path).map_err(|error| format!("{}: {error}", path.display()));
    let side = Side {
        name: name.to_owned(),
        commit: None,
        sha256: hash(&executable)?,
        suite_sha256: suite.as_deref().map(hash).transpose()?,
        suite,
        executable,
        root,
    };
    check_protocol(&side)?;
    Ok(Ready { side, worktree: None })
}

/// A copy of this very executable: a build in the middle of the duel may put another in its place.
fn running(paths: &Paths, name: &str, suite: Option<PathBuf>) -> Result<Ready, String> {
    let folder = paths.duels().join("executables");
    let named = |error: std::io::Error| format!("{}: {error}", folder.display());
    let own = std::env::current_exe().map_err(|error| format!("the path of this executable: {error}"))?;
    let own = if Path::new("/proc/self/exe").exists() { PathBuf::from("/proc/self/exe") } else { own };
    let hash = sha256_of_file(&own).map_err(named)?;
    let copy = folder.join(&hash[..40]);
    if !copy.is_file() {
        fs::create_dir_all(&folder).map_err(named)?;
        let partial = copy.with_extension("partial");
        fs::copy(&own, &partial).and_then(|_| fs::rename(&partial, &copy)).map_err(named)?;
    }
    ready(name, copy, root(paths)?, suite)
}

fn root(paths: &Paths) -> Result<PathBuf, String> {
    paths.root().canonicalize().map_err(|error| format!("{}: {error}", paths.root().display()))
}

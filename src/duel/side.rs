//! What a name on the command line means: the running executable, another one, a suite file, or a revision.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::fighter::Side;
use super::revision::{self, Worktree};
use crate::fixture::sha256_of_file;
use crate::places::Places;

/// A side that can fight, and the worktree that must stay as long as it does.
pub struct Ready {
    pub side: Side,
    pub worktree: Option<Worktree>,
}

/// Both sides of a duel. Names of one commit share what is made of it. `None` where the user stopped a build.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_both(places: &Places, base: &str, candidate: &str) -> Result<Option<[Ready; 2]>, String> {
    let Some(base) = resolve(places, base, None)? else { return Ok(None) };
    let Some(candidate) = resolve(places, candidate, Some(&base.side))? else { return Ok(None) };
    Ok(Some([base, candidate]))
}

/// Finds or makes what `name` means. `None` where the user stopped the build.
///
/// # Errors
/// There is no such thing, or the revision does not build.
fn resolve(places: &Places, name: &str, other: Option<&Side>) -> Result<Option<Ready>, String> {
    let path = Path::new(name);
    if name == "." {
        return running(places, name, None).map(Some);
    }
    if path.is_file() {
        let path = path.canonicalize().map_err(|error| format!("{name}: {error}"))?;
        let is_suite = path.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        if is_suite {
            return running(places, name, Some(path)).map(Some);
        }
        let is_executable = path.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0);
        if is_executable {
            return ready(name, path, root(places)?, None).map(Some);
        }
        return Err(format!("{name} is a file, but neither an executable nor a suite (.toml, .json)"));
    }
    let Some(commit) = revision::commit(places.root(), name)? else {
        return Err(format!(
            "{name:?} is no revision of {}, no executable and no suite file; `.` is the running inferbench",
            places.root().display()
        ));
    };
    if let Some(other) = other.filter(|other| other.commit.as_ref() == Some(&commit)) {
        return Ok(Some(Ready { side: Side { name: name.to_owned(), ..other.clone() }, worktree: None }));
    }
    let Some((executable, worktree)) = revision::build(places, name, &commit)? else { return Ok(None) };
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
    Ok(Ready { side, worktree: None })
}

/// A copy of this very executable: a build in the middle of the duel may put another in its place.
fn running(places: &Places, name: &str, suite: Option<PathBuf>) -> Result<Ready, String> {
    let folder = places.duels().join("executables");
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
    ready(name, copy, root(places)?, suite)
}

fn root(places: &Places) -> Result<PathBuf, String> {
    places.root().canonicalize().map_err(|error| format!("{}: {error}", places.root().display()))
}

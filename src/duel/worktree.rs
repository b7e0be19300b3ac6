//! A revision that is checked out into a git worktree of its own, with its submodules. A project also gets links to
//! untracked files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use super::build::{settings_of_no_revision, short_sha256};
use crate::machine::Machine;
use crate::machine::files::link;
use crate::paths::{Paths, worktrees};

/// Folders of an inferbench checkout for users' own files, which may be untracked.
const USERS_OWN: [&str; 3] = ["models/exported", "models/trained", "models/quantized"];

/// A checked-out revision; it is removed when this is dropped.
pub struct Worktree {
    pub commit: String,
    /// The folder of the project in the worktree. The project may be only a part of the repository.
    project: PathBuf,
    /// The repository and its submodules, each with the folder that it is checked out into.
    checkouts: Vec<(PathBuf, PathBuf)>,
}

/// Finds the commit of a revision. Returns `None` if there is no such revision.
pub fn find_commit(repository: &Path, revision: &str) -> Result<Option<String>> {
    // Git also refuses a repository that belongs to another user, and then says what to do.
    if let Err(why) = git(repository, &["rev-parse", "--git-dir"])? {
        bail!("there are no revisions to compare in {}; git says: {why}", repository.display());
    }
    let name = format!("{revision}^{{commit}}");
    Ok(git(repository, &["rev-parse", "--verify", "--quiet", &name])?.ok())
}

/// Whether git ignores a file, or the file lies outside of the repository.
pub fn is_ignored(repository: &Path, file: &Path) -> Result<bool> {
    let root = git(repository, &["rev-parse", "--show-toplevel"])?.map_err(|why| anyhow!("git: {why}"))?;
    Ok(!file.starts_with(root) || git(repository, &["check-ignore", "--quiet", &file.to_string_lossy()])?.is_ok())
}

/// The folder of the worktrees of a project's duels, which is the same in a resumed duel. It lies outside of the
/// repository: inside, cargo would also apply the working tree's `.cargo/config.toml` to a revision.
fn folder(paths: &Paths) -> Result<PathBuf> {
    // Machines may share the cache, and have different projects at the same path.
    let text = format!("{} {}", std::path::absolute(paths.duels())?.display(), Machine::read().host_id);
    Ok(worktrees().join(short_sha256(&text)))
}

/// The path of a new worktree.
fn new_path(paths: &Paths, name: &str) -> Result<PathBuf> {
    let folder = folder(paths)?;
    fs_err::create_dir_all(&folder).context("revisions are checked out there: set XDG_CACHE_HOME to another folder")?;
    Ok(fs_err::canonicalize(folder)?.join(name))
}

/// Removes the worktrees of a duel that was killed, and those of versions that had them elsewhere.
pub fn remove_left_over(paths: &Paths) -> Result<()> {
    let folders = [folder(paths)?, paths.duels().join("worktrees"), paths.duels().join("revisions")];
    for entry in folders.iter().flat_map(fs::read_dir).flatten().flatten() {
        remove(paths.root(), &entry.path());
    }
    Ok(())
}

/// Removes a worktree. `git worktree prune` would also forget those of the user whose folders are not here now, such as
/// in a container.
fn remove(repository: &Path, path: &Path) {
    let _ = fs::remove_dir_all(path);
    let _ = git(repository, &["worktree", "remove", "--force", "--force", &path.to_string_lossy()]);
    // Succeeds after the last one.
    let _ = path.parent().map(fs::remove_dir);
}

impl Worktree {
    /// Checks out the files of a commit of any repository.
    ///
    /// # Errors
    /// Git does not start, or fails; or the folder cannot be written.
    pub fn of_files(paths: &Paths, repository: &Path, commit: &str) -> Result<Self> {
        let path = new_path(paths, &format!("files-{commit}"))?;
        let mut worktree = Worktree { commit: commit.into(), project: path.clone(), checkouts: Vec::new() };
        worktree.check_out(&fs_err::canonicalize(repository)?, commit, &path)?;
        Ok(worktree)
    }

    /// Checks out a commit of the project, and links what the project's folder has and git does not track.
    ///
    /// # Errors
    /// Git does not start, or fails; or the folder cannot be written.
    pub fn of_project(paths: &Paths, commit: &str) -> Result<Self> {
        let path = new_path(paths, commit)?;
        let root = fs_err::canonicalize(paths.root())?;
        let prefix = git(&root, &["rev-parse", "--show-prefix"])?.unwrap_or_default();
        let project = path.join(&prefix);
        let mut worktree = Worktree { commit: commit.into(), project: project.clone(), checkouts: Vec::new() };
        worktree.check_out(&root, commit, &path)?;
        if git(&root, &["rev-parse", "--show-toplevel"])?.is_ok_and(|top| path.starts_with(top)) {
            let path = path.display();
            eprintln!(
                "{path} is in the repository, whose cargo settings apply there: set XDG_CACHE_HOME to another folder"
            );
        }
        for file in settings_of_no_revision(&root, &project)? {
            eprintln!("{} applies to `.` only, and to no revision", file.display());
        }
        // A library's lock file is often untracked; both revisions then use the packages of the working tree.
        let depth = Path::new(&prefix).components().count();
        for (from, to) in root.ancestors().zip(project.ancestors()).take(depth + 1) {
            let [from, to] = [from, to].map(|folder| folder.join("Cargo.lock"));
            if from.is_file() && !to.exists() {
                fs_err::copy(&from, &to)?;
            }
        }
        let own = Paths::of(project.clone());
        let native = own.native();
        if native.starts_with(&path) && paths.native().is_dir() && !native.exists() {
            link(&fs_err::canonicalize(paths.native())?, &native).with_context(|| native.display().to_string())?;
        }
        // One link per model: a revision with other weights replaces its own link and leaves the other revision's files alone.
        if own.prepared().starts_with(&path) {
            link_missing(&paths.prepared(), &own.prepared(), &BTreeSet::new())?;
        }
        let folders = if paths.is_of_other_package() { &["models"][..] } else { &USERS_OWN[..] };
        for &folder in folders {
            // A tracked file belongs to the working tree's revision; this revision has its own.
            let known = git(&root, &["ls-files", "-z", folder])?.unwrap_or_default();
            let known = known.split('\0').filter(|name| !name.is_empty()).map(|name| root.join(name)).collect();
            link_missing(&root.join(folder), &project.join(folder), &known)?;
        }
        Ok(worktree)
    }

    /// The project's folder.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Checks a commit out into a new folder, with the submodules that the working tree has. Git takes their commits from
    /// there and needs no network.
    fn check_out(&mut self, repository: &Path, commit: &str, path: &Path) -> Result<()> {
        let text = path.to_string_lossy();
        let added = git(repository, &["worktree", "add", "--detach", "--quiet", "--force", &text, commit])?;
        self.checkouts.push((repository.to_owned(), path.to_owned()));
        added.map_err(|why| anyhow!("git worktree add {text} {commit}: {why}"))?;
        if !path.join(".gitmodules").is_file() {
            return Ok(());
        }
        let root = git(repository, &["rev-parse", "--show-toplevel"])?.map_err(|why| anyhow!("git: {why}"))?;
        let entries = git(path, &["ls-files", "--stage", "-z"])?.unwrap_or_default();
        let submodules = entries.split('\0').filter_map(|entry| entry.strip_prefix("160000 ")?.split_once(" 0\t"));
        for (commit, name) in submodules {
            let own = Path::new(&root).join(name);
            if !own.join(".git").exists() {
                eprintln!("the submodule {name} is missing: it is not checked out in the working tree");
            } else if let Err(why) = self.check_out(&own, commit, &path.join(name)) {
                eprintln!("the submodule {name} is missing: {why:#}");
            }
        }
        Ok(())
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        // Submodules lie in the folder of their repository.
        self.checkouts.iter().rev().for_each(|(repository, path)| remove(repository, path));
    }
}

/// Links what is in one folder and not in the other, except for the files in `known`.
fn link_missing(from: &Path, to: &Path, known: &BTreeSet<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    fs_err::create_dir_all(to)?;
    for entry in entries.flatten() {
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        if known.contains(&path) {
            continue;
        }
        // In a folder with tracked files, in this revision or in the working tree, only untracked files are linked.
        let is_mixed = place.is_dir() || !place.exists() && known.iter().any(|file| file.starts_with(&path));
        if is_mixed && path.is_dir() && !place.is_symlink() {
            link_missing(&path, &place, known)?;
        } else if !place.exists() {
            link(&fs_err::canonicalize(path)?, &place).with_context(|| place.display().to_string())?;
        }
    }
    Ok(())
}

/// Returns git's output, or its error message.
fn git(repository: &Path, arguments: &[&str]) -> Result<Result<String, String>> {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).stdin(Stdio::null()).output();
    let output = output.context("git")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with this file as its first commit.
    fn repository(root: &Path, file: &str, text: &str) {
        fs::create_dir_all(root).unwrap();
        git(root, &["init", "--quiet"]).unwrap().unwrap();
        commit(root, file, text);
    }

    fn commit(root: &Path, file: &str, text: &str) {
        fs::write(root.join(file), text).unwrap();
        git(root, &["add", "."]).unwrap().unwrap();
        let who = ["-c", "user.name=a", "-c", "user.email=a@localhost"];
        git(root, &[&who[..], &["commit", "--quiet", "--message", "a"]].concat()).unwrap().unwrap();
    }

    fn worktrees_of(root: &Path) -> usize {
        git(root, &["worktree", "list"]).unwrap().unwrap().lines().count()
    }

    #[test]
    fn a_worktree_lies_outside_of_the_repository_and_those_of_the_user_outlive_it() {
        let folder = tempfile::tempdir().unwrap();
        let [root, own, away] = ["repository", "own", "away"].map(|name| folder.path().join(name));
        repository(&root, "net.onnx", "net");
        git(&root, &["worktree", "add", "--quiet", "--detach", &own.to_string_lossy()]).unwrap().unwrap();
        fs::rename(&own, &away).unwrap();
        let paths = Paths::of(root.clone());
        let commit = find_commit(&root, "HEAD").unwrap().unwrap();
        let worktree = Worktree::of_project(&paths, &commit).unwrap();
        let project = worktree.project().to_owned();
        assert!(!project.starts_with(fs::canonicalize(&root).unwrap()), "{project:?}");
        assert_eq!(fs::read_to_string(project.join("net.onnx")).unwrap(), "net");
        drop(worktree);
        assert!(!project.parent().unwrap().exists());
        fs::rename(&away, &own).unwrap();
        git(&own, &["status"]).unwrap().unwrap();
        assert_eq!(worktrees_of(&root), 2);
        // A duel that was killed removes nothing.
        std::mem::forget(Worktree::of_project(&paths, &commit).unwrap());
        remove_left_over(&paths).unwrap();
        assert_eq!((project.exists(), worktrees_of(&root)), (false, 2));
    }

    #[test]
    fn a_revision_has_its_submodules_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let [root, engine] = ["repository", "engine"].map(|name| folder.path().join(name));
        repository(&engine, "engine.c", "old");
        repository(&root, "net.onnx", "net");
        let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"];
        let engine = engine.to_string_lossy();
        git(&root, &[&add[..], &[&*engine, "parts/engine"]].concat()).unwrap().unwrap();
        commit(&root, "net.onnx", "net with an engine");
        let own = root.join("parts/engine");
        commit(&own, "engine.c", "new");
        commit(&root, "net.onnx", "another net");
        let paths = Paths::of(root.clone());
        for (revision, text) in [("HEAD", "new"), ("HEAD~1", "old")] {
            let worktree = Worktree::of_project(&paths, &find_commit(&root, revision).unwrap().unwrap()).unwrap();
            assert_eq!(fs::read_to_string(worktree.project().join("parts/engine/engine.c")).unwrap(), text);
        }
        assert_eq!([&root, &own].map(|root| worktrees_of(root)), [1, 1]);
        git(&own, &["status"]).unwrap().unwrap();
    }

    #[test]
    fn a_revision_of_a_member_of_a_workspace_has_what_git_does_not_know() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("crates/mine/Cargo.toml", "[dev-dependencies]\ninferbench = '0.1'");
        write("crates/mine/models/sub/labels.txt", "tracked");
        repository(folder.path(), ".gitignore", "Cargo.lock\n*.onnx\ntarget\n");
        write("Cargo.lock", "version = 4");
        write("crates/mine/models/net.onnx", "net");
        write("crates/mine/models/sub/net.onnx", "net in a folder that git knows");
        write("crates/mine/models/labels.txt", "untracked");
        write("crates/mine/models/sub/labels.txt", "changed");
        let paths = Paths::of(folder.path().join("crates/mine"));
        fs::create_dir_all(paths.prepared().join("nothing")).unwrap();
        let commit = find_commit(paths.root(), "HEAD").unwrap().unwrap();
        let worktree = Worktree::of_project(&paths, &commit).unwrap();
        let project = worktree.project();
        assert_eq!(fs::read_to_string(project.join("../../Cargo.lock")).unwrap(), "version = 4");
        assert!(!project.join("Cargo.lock").exists());
        let read = |name: &str| fs::read_to_string(project.join("models").join(name)).unwrap();
        assert_eq!([read("net.onnx"), read("sub/net.onnx")], ["net", "net in a folder that git knows"]);
        assert_eq!([read("labels.txt"), read("sub/labels.txt")], ["untracked", "tracked"]);
        assert!(Paths::of(project.to_owned()).prepared().join("nothing").is_dir());
    }
}

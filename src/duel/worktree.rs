//! A revision that is checked out into a git worktree of its own, with the untracked files linked into it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::machine::files::link;
use crate::paths::Paths;

/// Folders of an inferbench checkout for users' own files, which may be untracked.
const USERS_OWN: [&str; 3] = ["models/exported", "models/trained", "models/quantized"];

/// A checked-out revision; it is removed when this is dropped.
pub struct Worktree {
    repository: PathBuf,
    path: PathBuf,
    /// The folder of the project in the worktree. The project may be only a part of the repository.
    project: PathBuf,
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

/// Puts all files of a commit into a new folder.
///
/// # Errors
/// Git or tar does not start, or fails; then there is no folder.
pub fn unpack(repository: &Path, commit: &str, folder: &Path) -> Result<()> {
    let above = folder.parent().unwrap_or(folder);
    fs_err::create_dir_all(above)?;
    let unpacked = tempfile::tempdir_in(above)?;
    let root = git(repository, &["rev-parse", "--show-toplevel"])?.map_err(|why| anyhow!("git: {why}"))?;
    let archive = unpacked.path().join("archive.tar");
    git(Path::new(&root), &["archive", "--output", &archive.to_string_lossy(), commit])?
        .map_err(|why| anyhow!("git archive {commit}: {why}"))?;
    let files = unpacked.path().join("files");
    fs_err::create_dir(&files)?;
    let status = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&files).status().context("tar")?;
    ensure!(status.success(), "tar could not unpack the files of {commit}");
    fs_err::rename(files, folder)?;
    Ok(())
}

impl Worktree {
    pub fn add(paths: &Paths, commit: &str) -> Result<Self> {
        let path = paths.duels().join("worktrees").join(commit);
        let root = fs_err::canonicalize(paths.root())?;
        let prefix = git(&root, &["rev-parse", "--show-prefix"])?.unwrap_or_default();
        let project = path.join(&prefix);
        let worktree = Worktree { repository: root.clone(), path: path.clone(), project: project.clone() };
        // A duel that was killed has left its worktree.
        worktree.remove();
        fs_err::create_dir_all(path.parent().unwrap_or(&path))?;
        let text = path.to_string_lossy();
        git(&root, &["worktree", "add", "--detach", "--quiet", "--force", &text, commit])?
            .map_err(|why| anyhow!("git worktree add {text} {commit}: {why}"))?;
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

    fn remove(&self) {
        if self.path.exists() {
            let _ = git(&self.repository, &["worktree", "remove", "--force", "--force", &self.path.to_string_lossy()]);
            let _ = fs::remove_dir_all(&self.path);
        }
        let _ = git(&self.repository, &["worktree", "prune"]);
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        self.remove();
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

    #[test]
    fn a_revision_of_a_member_of_a_workspace_has_what_git_does_not_know() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("crates/mine/Cargo.toml", "[dev-dependencies]\ninferbench = '0.1'");
        write(".gitignore", "Cargo.lock\n*.onnx\ntarget\n");
        write("crates/mine/models/sub/labels.txt", "tracked");
        for arguments in [
            &["init", "--quiet"][..],
            &["add", "."],
            &["-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "--message", "a"],
        ] {
            git(folder.path(), arguments).unwrap().unwrap();
        }
        write("Cargo.lock", "version = 4");
        write("crates/mine/models/net.onnx", "net");
        write("crates/mine/models/sub/net.onnx", "net in a folder that git knows");
        write("crates/mine/models/labels.txt", "untracked");
        write("crates/mine/models/sub/labels.txt", "changed");
        let paths = Paths::of(folder.path().join("crates/mine"));
        fs::create_dir_all(paths.prepared().join("nothing")).unwrap();
        let commit = find_commit(paths.root(), "HEAD").unwrap().unwrap();
        let worktree = Worktree::add(&paths, &commit).unwrap();
        let project = worktree.project();
        assert_eq!(fs::read_to_string(project.join("../../Cargo.lock")).unwrap(), "version = 4");
        assert!(!project.join("Cargo.lock").exists());
        let read = |name: &str| fs::read_to_string(project.join("models").join(name)).unwrap();
        assert_eq!([read("net.onnx"), read("sub/net.onnx")], ["net", "net in a folder that git knows"]);
        assert_eq!([read("labels.txt"), read("sub/labels.txt")], ["untracked", "tracked"]);
        assert!(Paths::of(project.to_owned()).prepared().join("nothing").is_dir());
    }
}

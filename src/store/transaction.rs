//! Several files of a folder, changed together or not at all.
//!
//! Files are written below `.staging/`, under the paths that they are to have. Renaming that folder to `.committed/` is
//! the decision: before it, whatever ends the process leaves the old files; after it, whoever locks the folder next
//! finishes what is left to do ([`recover`]). The caller holds the folder's lock.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const STAGING: &str = ".staging";
const COMMITTED: &str = ".committed";
/// In `.committed/`: the paths that are to be gone, one a line.
const REMOVALS: &str = "removals";
/// In `.committed/`: the files that are to be put in their places.
const FILES: &str = "files";

/// Changes that are being prepared.
pub struct Transaction {
    root: PathBuf,
    removals: Vec<String>,
    is_committed: bool,
}

impl Transaction {
    /// # Errors
    /// The folder cannot be written.
    pub fn begin(root: &Path) -> Result<Self, String> {
        let transaction = Transaction { root: root.to_owned(), removals: Vec::new(), is_committed: false };
        let files = transaction.staged();
        fs::create_dir_all(&files).map_err(|error| format!("{}: {error}", files.display()))?;
        Ok(transaction)
    }

    /// A file at this path below the root, new or in the place of another.
    ///
    /// # Errors
    /// It cannot be written; the disk is full.
    pub fn put(&mut self, path: &str, write: impl FnOnce(&mut File) -> Result<(), String>) -> Result<(), String> {
        let target = self.root.join(path);
        let named = |error: String| format!("{}: {error}", target.display());
        let staged = self.staged().join(path);
        let create = || {
            fs::create_dir_all(staged.parent().unwrap_or(&staged))?;
            File::create(&staged)
        };
        let mut file = create().map_err(|error| named(error.to_string()))?;
        write(&mut file).map_err(named)?;
        file.sync_all().map_err(|error| named(error.to_string()))
    }

    /// No file at this path below the root.
    pub fn remove(&mut self, path: &str) {
        self.removals.push(path.to_owned());
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// They could not be decided on, and nothing has changed; or they are decided and could not all be made, and the
    /// next one who opens the folder makes the rest.
    pub fn commit(mut self) -> Result<(), String> {
        let root = self.root.clone();
        let staging = root.join(STAGING);
        let decide = || -> io::Result<()> {
            let mut removals = File::create(staging.join(REMOVALS))?;
            for path in &self.removals {
                writeln!(removals, "{path}")?;
            }
            removals.sync_all()?;
            sync_folders(&staging)?;
            fs::rename(&staging, root.join(COMMITTED))?;
            sync_folder(&root)
        };
        decide().map_err(|error| format!("{}: {error}", root.display()))?;
        self.is_committed = true;
        recover(&root)
    }

    fn staged(&self) -> PathBuf {
        self.root.join(STAGING).join(FILES)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.is_committed {
            let _ = fs::remove_dir_all(self.root.join(STAGING));
        }
    }
}

/// Whether something is left to do for [`recover`].
pub fn is_unfinished(root: &Path) -> bool {
    root.join(COMMITTED).is_dir() || root.join(STAGING).is_dir()
}

/// Finishes what was decided, and clears away what was not.
///
/// # Errors
/// A file cannot be put in its place.
pub fn recover(root: &Path) -> Result<(), String> {
    let committed = root.join(COMMITTED);
    let finish = || -> io::Result<()> {
        if committed.is_dir() {
            // Either may be gone already, if clearing away at the end of this function was interrupted.
            let removals = unless_missing(fs::read_to_string(committed.join(REMOVALS)))?.unwrap_or_default();
            for path in removals.lines() {
                remove(root, Path::new(path))?;
            }
            let files = committed.join(FILES);
            let mut staged = Vec::new();
            unless_missing(find_files(&files, &mut staged))?;
            // In the reverse of their order the results come last: who reads besides finds the rest of a run already there.
            staged.sort();
            for path in staged.iter().rev() {
                let relative = path.strip_prefix(&files).unwrap_or(path);
                let target = root.join(relative);
                let folder = target.parent().unwrap_or(root);
                fs::create_dir_all(folder)?;
                fs::rename(path, &target)?;
                // Up to the root, since the folders may be new too.
                for folder in folder.ancestors().take(relative.components().count()) {
                    sync_folder(folder)?;
                }
            }
            fs::remove_dir_all(&committed)?;
        }
        unless_missing(fs::remove_dir_all(root.join(STAGING))).map(|_| ())
    };
    finish().map_err(|error| format!("{}: {error}", root.display()))
}

/// Removes a file, and the folders that are empty without it.
fn remove(root: &Path, path: &Path) -> io::Result<()> {
    unless_missing(fs::remove_file(root.join(path)))?;
    // The last ancestors are the table's folder, which stays, and the root.
    let folders: Vec<&Path> = path.ancestors().skip(1).filter(|folder| folder.components().count() > 1).collect();
    for folder in folders {
        if fs::remove_dir(root.join(folder)).is_err() {
            break;
        }
    }
    Ok(())
}

fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn find_files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_files(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a/1` is old, `a/2` is to go.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/1"), "old").unwrap();
        fs::write(folder.path().join("a/b/2"), "to go").unwrap();
        folder
    }

    fn prepared(root: &Path) -> Transaction {
        let mut transaction = Transaction::begin(root).unwrap();
        for (path, content) in [("a/b/1", "new"), ("a/c/3", "more")] {
            transaction
                .put(path, |file| file.write_all(content.as_bytes()).map_err(|error| error.to_string()))
                .unwrap();
        }
        transaction.remove("a/b/2");
        transaction
    }

    fn content(root: &Path) -> Vec<(String, String)> {
        let mut files = Vec::new();
        find_files(root, &mut files).unwrap();
        files.sort();
        let name = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
        files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
    }

    const OLD: [(&str, &str); 2] = [("a/b/1", "old"), ("a/b/2", "to go")];
    const NEW: [(&str, &str); 2] = [("a/b/1", "new"), ("a/c/3", "more")];

    #[test]
    fn changes_are_made_together() {
        let folder = folder();
        prepared(folder.path()).commit().unwrap();
        assert_eq!(content(folder.path()), pairs(&NEW));
        assert!(!is_unfinished(folder.path()));
    }

    #[test]
    fn without_the_decision_nothing_changes() {
        let folder = folder();
        drop(prepared(folder.path()));
        assert_eq!(content(folder.path()), pairs(&OLD));
        // As after kill -9, when nothing is dropped.
        std::mem::forget(prepared(folder.path()));
        assert!(is_unfinished(folder.path()));
        recover(folder.path()).unwrap();
        assert_eq!(content(folder.path()), pairs(&OLD));
    }

    #[test]
    fn after_the_decision_the_rest_is_made_wherever_it_was_stopped() {
        for done in 0..=3 {
            let folder = folder();
            let root = folder.path();
            std::mem::forget(prepared(root));
            fs::write(root.join(STAGING).join(REMOVALS), "a/b/2\n").unwrap();
            fs::rename(root.join(STAGING), root.join(COMMITTED)).unwrap();
            let steps: [&dyn Fn(); 3] = [
                &|| fs::remove_file(root.join("a/b/2")).unwrap(),
                &|| {
                    fs::create_dir_all(root.join("a/c")).unwrap();
                    fs::rename(root.join(COMMITTED).join(FILES).join("a/c/3"), root.join("a/c/3")).unwrap();
                },
                &|| fs::rename(root.join(COMMITTED).join(FILES).join("a/b/1"), root.join("a/b/1")).unwrap(),
            ];
            steps[..done].iter().for_each(|step| step());
            recover(root).unwrap();
            assert_eq!(content(root), pairs(&NEW), "stopped after {done} steps");
        }
    }

    #[test]
    fn a_folder_that_is_empty_goes_with_its_last_file() {
        let folder = folder();
        let mut transaction = Transaction::begin(folder.path()).unwrap();
        transaction.remove("a/b/1");
        transaction.remove("a/b/2");
        transaction.commit().unwrap();
        assert!(!folder.path().join("a/b").exists() && folder.path().join("a").is_dir());
    }
}

//! The files that the program brings along: suites, packaged models, and the scripts that it runs. They are in the
//! executable, and are unpacked into the user's cache folder when they are first needed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

mod listed {
    include!(concat!(env!("OUT_DIR"), "/program_files.rs"));
}

/// The folder with the program's files below a cache folder. It is made if it is missing or not whole.
pub fn unpacked(cache: &Path) -> Result<PathBuf> {
    let folders = cache.join("program");
    let folder = folders.join(format!("{}-{}", env!("CARGO_PKG_VERSION"), listed::IDENTITY));
    if !is_whole(&folder) {
        unpack(&folders, &folder).with_context(|| {
            let megabytes = listed::FILES.iter().map(|(_, content)| content.len()).sum::<usize>() as f64 / 1e6;
            let folders = folders.display();
            format!("the program's own files ({megabytes:.0} MB) cannot be put into {folders}; set XDG_CACHE_HOME to another cache folder")
        })?;
    }
    Ok(folder)
}

fn is_whole(folder: &Path) -> bool {
    let is_there = |(name, content): &(&str, &[u8])| {
        std::fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == content.len() as u64)
    };
    listed::FILES.iter().all(is_there)
}

/// Makes the folder under another name, and renames it when it is whole: other processes see it whole or not at all.
fn unpack(folders: &Path, folder: &Path) -> Result<()> {
    fs_err::create_dir_all(folders)?;
    let partial = tempfile::Builder::new().prefix(".partial-").tempdir_in(folders)?;
    let content = partial.path().join("files");
    for (name, bytes) in &listed::FILES {
        let path = content.join(name);
        fs_err::create_dir_all(path.parent().unwrap_or(&path))?;
        fs_err::write(&path, bytes)?;
    }
    // The folder lacks files, unless another process has just made it whole.
    if folder.exists() && !is_whole(folder) {
        let _ = std::fs::rename(folder, partial.path().join("broken"));
    }
    let moved = std::fs::rename(&content, folder);
    ensure!(
        is_whole(folder),
        "{}: {}",
        folder.display(),
        moved.map_or_else(|error| error.to_string(), |()| "files are missing".into())
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_files_are_those_of_the_checkout() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
        let cache = tempfile::tempdir().unwrap();
        let folder = unpacked(cache.path()).unwrap();
        for (name, _) in &listed::FILES {
            assert!(std::fs::read(folder.join(name)).unwrap() == std::fs::read(checkout.join(name)).unwrap(), "{name}");
        }
        // All files of the models and of the importer that git tracks.
        let mut git = std::process::Command::new("git");
        git.current_dir(checkout).args(["ls-files", "models", "scripts/import", "scripts/export", "scripts/setup"]);
        let known = String::from_utf8(git.output().unwrap().stdout).unwrap();
        let is_listed = |name: &str| listed::FILES.iter().any(|(own, _)| *own == name);
        let missing: Vec<&str> = known.lines().filter(|name| !is_listed(name)).collect();
        assert_eq!(missing, ["models/README.md"]);
    }

    #[test]
    fn files_that_are_missing_or_cut_short_are_not_used() {
        let cache = tempfile::tempdir().unwrap();
        let folder = unpacked(cache.path()).unwrap();
        std::fs::write(folder.join("models/suites/quick.toml"), "").unwrap();
        std::fs::remove_file(folder.join("models/suites/key.toml")).unwrap();
        assert_eq!(unpacked(cache.path()).unwrap(), folder);
        assert!(is_whole(&folder));
        let left: Vec<_> = std::fs::read_dir(cache.path().join("program")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn first_starts_at_the_same_time_all_find_whole_files() {
        let cache = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| is_whole(&unpacked(cache.path()).unwrap()))).collect();
            assert!(starts.into_iter().all(|start| start.join().unwrap()));
        });
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
        let cache = tempfile::NamedTempFile::new().unwrap();
        let error = format!("{:#}", unpacked(cache.path()).unwrap_err());
        assert!(error.contains("set XDG_CACHE_HOME to another cache folder"), "{error}");
        assert!(error.contains(&cache.path().display().to_string()), "{error}");
    }
}

//! Writes files so that whatever ends a process (a crash, a signal, a full disk) leaves them readable.
//!
//! A file of one value is replaced whole or not at all. A file with one JSON document per line only grows, so at most
//! its last line is damaged. Damaged and empty lines are left out when the file is read. Each new line begins with a
//! line break, so that it does not continue a damaged one.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fs_err::OpenOptions;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The beginning of the name of a file or folder that is being written.
pub(crate) const HIDDEN: &str = ".inferbench-partial-";

/// Makes hidden files or folders with these permissions, as far as the process's mask leaves them.
pub(crate) fn hidden(permissions: u32) -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(HIDDEN);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(permissions));
    #[cfg(not(unix))]
    let _ = permissions;
    builder
}

/// Writes a file whole or not at all: a full disk or a kill leaves the old one. A link stays, and the file that it
/// leads to is replaced. What cannot be replaced, such as a device or a pipe, is written into.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> Result<()> {
        ensure!(!path.is_dir(), "it is a folder");
        if path.is_symlink() && path.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // The file that the link leads to is not there yet.
            return write_whole(&path.parent().unwrap_or(Path::new("")).join(path.read_link()?), bytes);
        }
        // The target of a link such as `/dev/fd/63` may have no path. If it is a file, another process has it open and
        // may append to it.
        let is_open = path.is_symlink() && ["/dev", "/proc"].iter().any(|folder| path.starts_with(folder));
        let target = if path.is_symlink() { path.canonicalize().ok() } else { Some(path.to_owned()) };
        if is_open || path.metadata().is_ok_and(|found| !found.is_dir() && (target.is_none() || !found.is_file())) {
            let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
            return Ok(file.write_all(bytes)?);
        }
        let target = target.as_deref().unwrap_or(path);
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(folder.is_dir(), "there is no folder {}", folder.display());
        let mut file = hidden(0o666).tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(target)?;
        Ok(())
    };
    write().with_context(|| path.display().to_string())
}

/// Writes a value in JSON, and creates the folders of the file.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    fs_err::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    write_whole(path, &serde_json::to_vec_pretty(value)?)
}

/// Reads a file of JSON.
///
/// # Errors
/// The file cannot be read, or has another form.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    serde_json::from_slice(&fs_err::read(path)?).with_context(|| path.display().to_string())
}

/// Writes a value in CBOR (RFC 8949), for what is too large for JSON, and creates the folders of the file.
pub fn write_cbor<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    fs_err::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).with_context(|| path.display().to_string())?;
    write_whole(path, &bytes)
}

/// Reads a file of CBOR. Returns `None` if there is none.
pub fn read_cbor<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs_err::read(path) {
        Ok(bytes) => ciborium::from_reader(bytes.as_slice()).with_context(|| path.display().to_string()).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Adds a line and waits until it is on the disk.
pub fn append_line<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("\n{}", serde_json::to_string(value)?).as_bytes())?;
    Ok(file.file().sync_data()?)
}

/// Reads the lines that are whole. Returns no line if the file is missing.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let bytes = match fs_err::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    Ok(bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// The folders in a folder that hold a file of this name, in the order of their names, without those that are being
/// written.
pub fn folders_with(parent: &Path, file: &str) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(parent).into_iter().flatten().flatten();
    let is_visible = |entry: &fs_err::DirEntry| !entry.file_name().to_string_lossy().starts_with(HIDDEN);
    let mut folders: Vec<PathBuf> =
        entries.filter(is_visible).map(|entry| entry.path()).filter(|path| path.join(file).is_file()).collect();
    folders.sort();
    folders
}

/// The name of a new folder: the time, and a number if two begin in the same second.
pub fn unused_name(parent: &Path, started: Timestamp) -> String {
    let time = started.strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut candidates = std::iter::once(time.clone()).chain((2..).map(|number| format!("{time}-{number}")));
    candidates.find(|name| !parent.join(name).exists()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_stay_and_pipes_are_written_into() {
        use std::os::fd::AsRawFd;

        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert!(link.is_symlink() && !file.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        std::fs::remove_file(&file).unwrap();
        write_whole(&link, b"first").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "first");
        let (reader, writer) = std::io::pipe().unwrap();
        write_whole(Path::new(&format!("/dev/fd/{}", writer.as_raw_fd())), b"new").unwrap();
        drop(writer);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "new");
    }

    #[test]
    fn a_file_is_not_written_into_a_folder_that_does_not_exist() {
        let folder = tempfile::tempdir().unwrap().path().join("none");
        let error = format!("{:#}", write_whole(&folder.join("file"), b"").unwrap_err());
        assert_eq!(error, format!("{0}/file: there is no folder {0}", folder.display()));
    }

    #[test]
    fn a_folder_that_is_being_written_is_not_listed() {
        let parent = tempfile::tempdir().unwrap();
        let partial = format!("{HIDDEN}x");
        for name in ["a", &partial] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
            std::fs::write(parent.path().join(name).join("f"), "").unwrap();
        }
        assert_eq!(folders_with(parent.path(), "f"), [parent.path().join("a")]);
    }

    #[test]
    fn a_damaged_line_is_lost_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        assert!(read_lines::<u32>(&path).unwrap().is_empty());
        assert!(read_lines::<u32>(folder.path()).is_err(), "a folder is no file without lines");
        append_line(&path, &1).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"\n\"\xff\"\n2").unwrap();
        append_line(&path, &3).unwrap();
        assert_eq!(read_lines::<u32>(&path).unwrap(), [1, 2, 3]);
        file.write_all(b"\n{\"torn").unwrap();
        append_line(&path, &4).unwrap();
        assert_eq!(read_lines::<u32>(&path).unwrap(), [1, 2, 3, 4]);
    }
}

//! Files that are there whole or not at all.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// The beginning of the name of a file or folder that is being written.
pub(crate) const HIDDEN: &str = ".partial-";

/// Makes hidden files or folders with these permissions, as far as the process's mask leaves them.
pub(crate) fn hidden(permissions: u32) -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(HIDDEN);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(permissions));
    builder
}

/// Writes a file whole or not at all: a full disk or a kill leaves the old one.
///
/// # Errors
/// The folder is missing or the disk is full.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> Result<()> {
        let mut file = hidden(0o666).tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| path.display().to_string())
}

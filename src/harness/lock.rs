//! One measurement at a time per target folder: two at once would write the same files, and measure each other.

use std::fs::TryLockError;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use fs_err::File;

use crate::paths::Paths;

/// Keeps other measurements with these paths out until it is dropped.
///
/// # Errors
/// Another process is measuring.
pub fn keep_others_out(paths: &Paths) -> Result<std::fs::File> {
    lock(&paths.runs())
}

/// The lock lies beside the folders of all kinds of runs, so that a verification waits for a measurement too.
pub(super) fn lock(runs: &Path) -> Result<std::fs::File> {
    fs_err::create_dir_all(runs)?;
    let path = runs.with_file_name("lock");
    let file = File::create(&path)?.into_parts().0;
    let locked = file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => anyhow!("another run is measuring with this target folder; wait for its end"),
        TryLockError::Error(error) => error.into(),
    });
    locked.context(path.display().to_string())?;
    Ok(file)
}

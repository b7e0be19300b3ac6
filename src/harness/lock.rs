//! One measurement at a time per target folder: two at once would write the same files, and measure each other.

use std::fs::TryLockError;

use anyhow::{Context, Result, anyhow};
use fs_err::File;

use crate::paths::Paths;

/// In the error of [`keep_others_out`] if another process is measuring.
pub const BUSY: &str = "another run is measuring with this target folder";

/// Keeps other measurements with these paths out until it is dropped.
///
/// # Errors
/// Another process is measuring.
pub fn keep_others_out(paths: &Paths) -> Result<std::fs::File> {
    // Beside the folders of all kinds of runs, so that a verification waits for a measurement too.
    let path = paths.runs().with_file_name("lock");
    fs_err::create_dir_all(path.parent().unwrap_or(&path))?;
    let file = File::create(&path)?.into_parts().0;
    let locked = file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => anyhow!("{BUSY}; wait for its end"),
        TryLockError::Error(error) => error.into(),
    });
    locked.context(path.display().to_string())?;
    Ok(file)
}

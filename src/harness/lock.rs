//! One measurement at a time per target folder: two at once would write the same files and disturb each other.

use std::fs::TryLockError;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fs_err::File;

use super::supervisor::{Interrupted, is_interrupted};
use crate::machine::Machine;
use crate::paths::Paths;

/// In the error of [`keep_others_out`] if another process is measuring.
pub const BUSY: &str = "another run is measuring with this target folder";
/// How often a waiting process checks whether the other part has ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A lock that keeps other measurements out until it is dropped.
pub struct Lock {
    _own: std::fs::File,
    _of_machine: Option<std::fs::File>,
}

/// Locks out other measurements with these paths, and parts of suites on this machine, until the lock is dropped.
///
/// # Errors
/// Another process is measuring, or a lock cannot be opened.
pub fn keep_others_out(paths: &Paths) -> Result<Lock> {
    // One lock for all kinds of runs: a verification would disturb a measurement, too.
    let own = held(&paths.runs().with_file_name("lock"))?;
    // A part already holds this lock, from `wait_for_other_parts`.
    let of_machine = (!paths.is_apart()).then(|| held(&paths.part_lock(&Machine::read().host_id))).transpose()?;
    Ok(Lock { _own: own, _of_machine: of_machine })
}

fn held(path: &Path) -> Result<std::fs::File> {
    let (file, locked) = try_lock(path)?;
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(anyhow!("{BUSY}; wait for its end")),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
    .context(path.display().to_string())
}

/// Waits until no other part of a suite is measured on this machine, and locks other parts out until the lock is
/// dropped: several slots of a scheduler may be on one machine.
///
/// # Errors
/// The user has stopped the wait ([`Interrupted`]), or the file cannot be locked.
pub fn wait_for_other_parts(paths: &Paths) -> Result<std::fs::File> {
    let path = paths.part_lock(&Machine::read().host_id);
    let (file, mut locked) = try_lock(&path)?;
    if matches!(locked, Err(TryLockError::WouldBlock)) {
        eprintln!("waiting for another part that is being measured on this machine");
    }
    // Ctrl-C would not interrupt a blocking lock.
    while matches!(locked, Err(TryLockError::WouldBlock)) {
        if is_interrupted() {
            bail!(Interrupted);
        }
        thread::sleep(LOOK_EVERY);
        locked = file.try_lock();
    }
    locked.with_context(|| path.display().to_string())?;
    Ok(file)
}

fn try_lock(path: &Path) -> Result<(std::fs::File, Result<(), TryLockError>)> {
    fs_err::create_dir_all(path.parent().unwrap_or(path))?;
    let file = File::create(path)?.into_parts().0;
    let locked = file.try_lock();
    Ok((file, locked))
}

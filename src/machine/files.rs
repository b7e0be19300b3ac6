//! File operations that differ between systems: links, executables, identities, and the swap of two folders.

use std::fs::Metadata;
use std::io;
use std::path::Path;

/// Makes a symbolic link to a file or folder.
///
/// # Errors
/// The path exists already, or this user may not make links.
pub fn link(target: &Path, link: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(target, link);
    #[cfg(windows)]
    match target.is_dir() {
        true => std::os::windows::fs::symlink_dir(target, link),
        false => std::os::windows::fs::symlink_file(target, link),
    }
}

/// Whether a file can be run as a program.
pub fn is_executable(path: &Path) -> bool {
    #[cfg(unix)]
    return path.metadata().is_ok_and(|it| std::os::unix::fs::PermissionsExt::mode(&it.permissions()) & 0o111 != 0);
    #[cfg(windows)]
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("exe"))
}

/// The device and number of a file, by which it differs from a file that replaces it. Returns `None` if the system does
/// not tell.
pub fn identity(metadata: &Metadata) -> Option<(u64, u64)> {
    #[cfg(unix)]
    return Some((std::os::unix::fs::MetadataExt::dev(metadata), std::os::unix::fs::MetadataExt::ino(metadata)));
    #[cfg(windows)]
    {
        let _ = metadata;
        None
    }
}

/// Lets this process open as many files as the system allows; the usual limit exists for programs that use `select`.
/// Returns the new limit, if it is known.
pub fn raise_file_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        // macOS accepts no more than this, whatever limit it reports.
        const OF_MACOS: u64 = 10_240;
        let wanted = [hard, hard.min(OF_MACOS)].into_iter().filter(|most| *most > soft);
        let raised = wanted.into_iter().find(|most| setrlimit(Resource::RLIMIT_NOFILE, *most, hard).is_ok());
        Some(raised.unwrap_or(soft))
    }
    #[cfg(not(unix))]
    None
}

/// Swaps two folders in one step. Returns `false` if the system or the file system cannot do it.
///
/// # Errors
/// One of them is missing, or this user may not rename it.
pub fn swap(one: &Path, other: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
            done => Ok(done.map(|()| true)?),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (one, other);
        Ok(false)
    }
}

//! A worker does not go on measuring unseen when the process that started it was killed.

/// Lets the system end this process when its supervisor or driver ends, however that happens: an arm that is stopped cannot
/// look for itself.
#[cfg(target_os = "linux")]
pub fn end_with_parent() {
    // Fails only if the signal is none.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
}

/// Where the system has no such means, a thread looks.
#[cfg(not(target_os = "linux"))]
pub fn end_with_parent() {
    let parent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        std::process::exit(1);
    });
}

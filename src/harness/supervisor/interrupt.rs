//! Ctrl-C and SIGTERM: the run ends, and what was measured is kept.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::exit_codes;

/// How much later than a worker this process may notice an interrupt.
const NOTICE: Duration = Duration::from_millis(200);
const SIGINT: i32 = 2;

/// Whether the user has asked to stop. From the first call on, Ctrl-C and SIGTERM no longer end the process by themselves.
pub fn is_interrupted() -> bool {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    static HANDLER: OnceLock<()> = OnceLock::new();
    HANDLER.get_or_init(|| {
        // Fails only if another handler is set, which this package does not do.
        let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::SeqCst));
    });
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Whether the user has asked to stop, given that a worker has just ended. Ctrl-C goes to both processes, and the worker may
/// have ended before this process has noticed.
pub fn is_interrupted_with(worker: ExitStatus) -> bool {
    let is_told = worker.signal() == Some(SIGINT) || worker.code() == Some(exit_codes::INTERRUPTED.into());
    if is_told && !is_interrupted() {
        thread::sleep(NOTICE);
    }
    is_interrupted()
}

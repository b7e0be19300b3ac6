//! Ctrl-C and SIGTERM: the run ends, and what was measured is kept.

use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::exit_codes;
use crate::machine::processes::is_ended_by_ctrl_c;

/// How much later than a worker this process may notice an interrupt.
const NOTICE: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A second request to stop ends the process at once if it comes this long after the first.
const PATIENCE: Duration = Duration::from_secs(3);

/// The user has asked to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Whether the user has asked to stop. After the first call, Ctrl-C and SIGTERM end the process only if they are
/// repeated after `PATIENCE`.
pub fn is_interrupted() -> bool {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    static HANDLER: OnceLock<()> = OnceLock::new();
    HANDLER.get_or_init(|| {
        // Fails only if another handler is set, which this package does not do.
        let _ = ctrlc::set_handler(|| {
            static FIRST: OnceLock<Instant> = OnceLock::new();
            // A user who asks again does not want to wait until a large file is written.
            if FIRST.get_or_init(Instant::now).elapsed() > PATIENCE {
                std::process::exit(exit_codes::INTERRUPTED.into());
            }
            INTERRUPTED.store(true, Ordering::SeqCst);
        });
    });
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Whether the user has asked to stop, given that a worker has just ended. Ctrl-C goes to both processes, and the worker may
/// have ended before this process has noticed.
pub fn is_interrupted_with(worker: ExitStatus) -> bool {
    let is_told = is_ended_by_ctrl_c(worker) || worker.code() == Some(exit_codes::INTERRUPTED.into());
    if is_told && !is_interrupted() {
        thread::sleep(NOTICE);
    }
    is_interrupted()
}

/// Waits for the end of a process, and ends it when the user asks to stop.
///
/// # Errors
/// [`Interrupted`], or the system cannot say how the process ended.
pub fn wait_for(mut child: Child) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return if is_interrupted_with(status) { Err(Interrupted.into()) } else { Ok(status) };
        }
        if is_interrupted() {
            // The processes that it has started end with it.
            let _ = child.kill();
            child.wait()?;
            bail!(Interrupted);
        }
        thread::sleep(LOOK_EVERY);
    }
}

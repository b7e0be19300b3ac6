//! Waits for a process, and ends it when the user wants to stop.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use crate::harness::{is_interrupted, is_interrupted_with};

/// Between two looks the duel sleeps, so as not to disturb what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How the process ended; `None` where the user stopped it.
///
/// # Errors
/// The system cannot say.
pub fn wait(mut child: Child) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!is_interrupted_with(status)).then_some(status));
        }
        if is_interrupted() {
            // Children of its own end when it is gone.
            let _ = child.kill();
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

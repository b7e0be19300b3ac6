//! Waits for a process, and ends it when the user wants to stop.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use crate::harness::{is_interrupted, is_interrupted_with};

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits for the end of a process. Returns `None` if the user stopped it.
///
/// # Errors
/// The system cannot say how it ended.
pub fn wait(mut child: Child) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!is_interrupted_with(status)).then_some(status));
        }
        if is_interrupted() {
            // The processes that it has started end when it is gone.
            let _ = child.kill();
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

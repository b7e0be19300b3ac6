//! A folder that a worker has for itself, which goes with the worker.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::machine::processes::STARTED_FOR;

/// Ends a process group and removes a folder when its input ends; if it was told that the group is ended, it removes the folder.
const GUARD: &str =
    r#"read -r said || kill -KILL -- "-$1"; for wait in 0 0.1 1; do sleep $wait; rm -rf -- "$2" && exit; done"#;

/// Ends a worker's processes and removes its folder even if this process ends without a word. On Windows, the folder is removed only when the
/// guard is dropped.
pub(super) struct Guard {
    process: Option<Child>,
    _folder: Option<TempDir>,
}

impl Guard {
    pub(super) fn start(group: u32, folder: TempDir) -> std::io::Result<Self> {
        if !cfg!(unix) {
            return Ok(Guard { process: None, _folder: Some(folder) });
        }
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh", &group.to_string()]).arg(folder.path()).env_remove(STARTED_FOR);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let process = Some(command.spawn()?);
        let _ = folder.keep();
        Ok(Guard { process, _folder: None })
    }
}

impl Drop for Guard {
    /// The group is ended.
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        if let Some(mut input) = process.stdin.take() {
            let _ = input.write_all(b"ended\n");
        }
        let _ = process.wait();
    }
}

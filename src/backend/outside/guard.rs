//! A worker's own temporary folder, which is removed when the worker ends.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::machine::processes::STARTED_FOR;

/// Kills a process group and removes a folder when its input ends. After a line of input, it only removes the folder:
/// the group has already ended.
const GUARD: &str =
    r#"read -r said || kill -KILL -- "-$1"; for wait in 0 0.1 1; do sleep $wait; rm -rf -- "$2" && exit; done"#;

/// Ends a worker's processes and removes its folder even if this process is killed. On Windows, it only removes the
/// folder, when the guard is dropped.
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
    /// The group must have ended before.
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        if let Some(mut input) = process.stdin.take() {
            let _ = input.write_all(b"ended\n");
        }
        let _ = process.wait();
    }
}

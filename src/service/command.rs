//! Child processes: this executable with another command, as the leader of its own process group.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::process::Command;
use tokio::time::timeout;

use crate::harness::PATH_VARIABLES;
use crate::machine::processes::own_executable;

/// How long a command that only reads may take.
const READING: Duration = Duration::from_secs(300);

/// The result of a command.
pub struct Output {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    /// The last line of standard error.
    pub last_words: String,
}

/// A command of this executable. Variables that set flags are not passed on: only the request decides.
pub fn command(arguments: &[String]) -> Result<Command> {
    let mut command = Command::new(own_executable()?);
    for (name, _) in std::env::vars_os() {
        let is_flag =
            name.to_string_lossy().starts_with("INFERBENCH_") && PATH_VARIABLES.iter().all(|(kept, _)| name != *kept);
        if is_flag {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    Ok(command)
}

/// Runs a command that only reads, and waits for its end.
pub async fn read(arguments: &[String]) -> Result<Output> {
    let ended = timeout(READING, command(arguments)?.output()).await;
    let late = || format!("{} did not end within {} s", arguments.join(" "), READING.as_secs());
    let output = ended.with_context(late)??;
    let last_words = String::from_utf8_lossy(&output.stderr).lines().next_back().unwrap_or_default().to_owned();
    Ok(Output { code: output.status.code(), stdout: output.stdout, last_words })
}

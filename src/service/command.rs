//! The child processes: this executable as another command, which leads a process group of its own.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::harness::PATH_VARIABLES;
use crate::machine::processes::own_executable;

/// How long a command that only reads may take.
const READING: Duration = Duration::from_secs(300);
/// Bytes that a command that only reads may print.
const MOST_OUTPUT: u64 = 256 << 20;

/// What a command came to.
pub struct Output {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    /// The last line of standard error.
    pub last_words: String,
}

/// A command of this executable. Variables that are flags are not passed on: a request says what it wants.
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

/// Runs a command that only reads, to its end.
pub async fn read(arguments: &[String]) -> Result<Output> {
    let mut child = command(arguments)?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, errors) = (child.stdout.take().context("no output")?, child.stderr.take().context("no errors")?);
    let reading = async {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (mut out, mut errors) = (out.take(MOST_OUTPUT), errors.take(MOST_OUTPUT));
        let (read, also) = tokio::join!(out.read_to_end(&mut stdout), errors.read_to_end(&mut stderr));
        read.and(also)?;
        let status = child.wait().await?;
        let last_words = String::from_utf8_lossy(&stderr).lines().next_back().unwrap_or_default().to_owned();
        anyhow::Ok(Output { code: status.code(), stdout, last_words })
    };
    timeout(READING, reading).await.with_context(|| format!("{}: no end", arguments.join(" ")))?
}

//! Runs the jobs one after the other, each as a run in its own process.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use super::command::{Output, command, read};
use super::context::Context;
use super::job::{Job, State};
use super::progress::Progress;
use crate::exit_codes;
use crate::harness::{BUSY, keep_others_out};
use crate::machine::processes::{ending_signal, kill_group, terminate};
use crate::run_data::RunFolder;

/// How long a run may take to store its results after it was told to end.
const GRACE: Duration = Duration::from_secs(20);
/// How often a job checks whether another measurement on this machine has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The most bytes of a line. A longer one is read in pieces.
const MOST_LINE: u64 = 1 << 16;

/// Runs the jobs, one after the other, until the server ends.
pub async fn work(context: Arc<Context>) {
    let queue = &context.queue;
    for id in &queue.left_over {
        convert_rest(&context, id).await;
    }
    // Devices are tried before anything is measured. That may take minutes.
    while timeout(LOOK_EVERY, context.devices.ready()).await.is_err() {
        if queue.is_closing() {
            return;
        }
    }
    while let Some(job) = queue.next().await {
        run(&context, &job).await;
        queue.learn(&job);
    }
}

/// Runs a job to its end.
async fn run(context: &Arc<Context>, job: &Job) {
    let (state, message) = match attempt(context, job).await {
        Ok(ended) => ended,
        Err(error) => (State::Failed, Some(format!("{error:#}"))),
    };
    if state != State::Done {
        convert_rest(context, &job.id()).await;
    }
    context.queue.end(job, state, message);
}

/// Runs a job until it is over, and returns how it ended.
async fn attempt(context: &Arc<Context>, job: &Job) -> Result<(State, Option<String>)> {
    loop {
        if !wait_for_turn(context, job).await? {
            return Ok(unwanted(context));
        }
        job.update(|status| {
            status.state = State::Running;
            status.started.get_or_insert(Timestamp::now());
            (status.place, status.expected_wait_s, status.message) = (Some(0), Some(0.0), None);
        });
        context.queue.keep(job)?;
        let (status, last_words) = measure(context, job).await?;
        if job.is_cancelled() {
            return Ok(unwanted(context));
        }
        return Ok(match status.code().and_then(|code| u8::try_from(code).ok()) {
            // The records have the status of each case.
            Some(
                exit_codes::OK
                | exit_codes::REGRESSION_OR_WRONG
                | exit_codes::NOTHING_MEASURED
                | exit_codes::CASE_FAILED,
            ) => (State::Done, None),
            // Another run took the lock first.
            Some(exit_codes::USAGE) if last_words.contains(BUSY) => continue,
            Some(exit_codes::INTERRUPTED) if context.queue.is_closing() => {
                (State::Interrupted, Some("the server was ended after the case that was running".into()))
            }
            _ => (State::Failed, Some(why(status, &last_words))),
        });
    }
}

/// The state of a job that was stopped: the server is ending, or somebody has cancelled it.
fn unwanted(context: &Context) -> (State, Option<String>) {
    match context.queue.is_closing() {
        true => (State::Interrupted, Some("the server was ended before the job was finished".into())),
        false => (State::Cancelled, None),
    }
}

/// Waits until nothing else measures on this machine. Returns false if the job was cancelled meanwhile, or the server is ending.
async fn wait_for_turn(context: &Context, job: &Job) -> Result<bool> {
    loop {
        if job.is_cancelled() || context.queue.is_closing() {
            return Ok(false);
        }
        match keep_others_out(&context.paths) {
            Ok(_) => return Ok(true),
            Err(error) if !format!("{error:#}").contains(BUSY) => return Err(error),
            Err(_) => {}
        }
        let message = "another measurement runs on this machine";
        if job.status().message.as_deref() != Some(message) {
            // The job is `running` already if another run took the lock first.
            job.update(|status| (status.state, status.message) = (State::Queued, Some(message.into())));
        }
        sleep(LOOK_EVERY).await;
    }
}

fn why(status: ExitStatus, last_words: &str) -> String {
    match ending_signal(status) {
        Some((number, name)) => format!("the process was ended by signal {number} ({name})"),
        None => last_words.strip_prefix("inferbench: ").unwrap_or(last_words).to_owned(),
    }
}

/// Starts the run, follows it, and ends it when the job is cancelled. Returns its exit status and its last line.
async fn measure(context: &Context, job: &Job) -> Result<(ExitStatus, String)> {
    let arguments = job.status().asked.arguments(&job.id(), &context.queue.folder, &context.settings);
    let mut child = command(&arguments)?.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let group = child.id();
    let mut lines = BufReader::new(child.stderr.take().context("no errors")?);
    let mut progress = Progress::new(&context.paths, &job.id());
    let (mut last_words, mut line) = (String::new(), Vec::new());
    let (mut is_told, mut is_over) = (false, false);
    loop {
        let mut limited = (&mut lines).take(MOST_LINE);
        tokio::select! {
            // If another branch is taken, the part of a line that was read stays in `line`.
            _ = limited.read_until(b'\n', &mut line) => {
                if line.is_empty() {
                    break;
                }
            }
            // The lines may never end: a process that the run has started may keep standard error open.
            _ = child.wait(), if !is_over => {
                is_over = true;
                group.into_iter().for_each(kill_group);
                continue;
            }
            () = sleep(LOOK_EVERY), if is_over => break,
            () = job.cancellation(), if !is_told && !is_over => {
                is_told = true;
                end(&mut child, &progress).await;
                continue;
            }
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        line.clear();
        if text.is_empty() {
            continue;
        }
        // A run prints before it times the calls of a case, not meanwhile: reading the outcomes now does not disturb
        // them.
        progress.look(job, &text);
        if context.queue.is_closing() && !is_told && progress.may_end() {
            is_told = true;
            group.into_iter().for_each(terminate);
        }
        last_words = text;
    }
    let status = child.wait().await?;
    // A run that was killed may have left workers.
    group.into_iter().for_each(kill_group);
    progress.look(job, "");
    Ok((status, last_words))
}

/// Ends a run that is no longer wanted. It gets time to store its finished cases, if it has any.
async fn end(child: &mut Child, progress: &Progress) {
    let Some(group) = child.id() else { return };
    if progress.finished > 0 {
        terminate(group);
        if timeout(GRACE, child.wait()).await.is_ok() {
            return;
        }
    }
    kill_group(group);
    let _ = child.start_kill();
}

/// Puts the finished cases of a killed run into the history, unless they are there already. The folder of a run without
/// finished cases is removed.
async fn convert_rest(context: &Context, id: &str) {
    let folder = RunFolder::new(context.paths.runs().join(id));
    if context.paths.reports().join(id).exists() || !folder.path().is_dir() {
        return;
    }
    // The folder of a run that has not begun is empty. It can go without a wait for other measurements.
    if fs_err::remove_dir(folder.path()).is_ok() {
        return;
    }
    // A run whose server was killed is told to end, and converts its results itself.
    let mut patience = GRACE;
    while keep_others_out(&context.paths).is_err() && !patience.is_zero() {
        sleep(LOOK_EVERY).await;
        patience = patience.saturating_sub(LOOK_EVERY);
    }
    // Outcomes that cannot be read may have finished cases. The conversion then says what is wrong.
    if folder.read_outcomes().is_ok_and(|outcomes| outcomes.finished.is_empty()) {
        let _ = fs_err::remove_dir_all(folder.path());
        return;
    }
    let arguments = ["convert".to_owned(), format!("--run={id}")];
    let is_converted = |output: &Output| {
        [exit_codes::OK, exit_codes::NOTHING_MEASURED].iter().any(|&code| output.code == Some(code.into()))
    };
    match read(&arguments).await {
        Ok(output) if is_converted(&output) => {}
        Ok(output) => eprintln!("inferbench: run {id} was not converted: {}", output.last_words),
        Err(error) => eprintln!("inferbench: run {id} was not converted: {error:#}"),
    }
}

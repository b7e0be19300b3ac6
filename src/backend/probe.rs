//! Probes devices, each in a process of its own: a process can hold only one ONNX Runtime, and drivers crash.

use std::collections::HashMap;
use std::fs;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::registry::{Entry, find};

/// The variable that makes a process a probe; its value is `backend device`.
const PROBE: &str = "INFERBENCH_PROBE";

/// The beginning of the line with a probe's answer; the rest is a `Result` as JSON.
const ANSWER: &str = "inferbench-probe: ";

/// How long a device may take to show that it works. A software driver compiles its first kernels for seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A description of the device, or why it does not work.
type Answer = Result<String, String>;

/// The backend and device that this process has to probe, if it is a probe.
pub fn asked() -> Option<(String, String)> {
    let asked = std::env::var(PROBE).ok()?;
    asked.split_once(' ').map(|(backend, device)| (backend.to_owned(), device.to_owned()))
}

/// `main` of a probe: prints a description of the device, or why it does not work.
pub fn answer((backend, device): &(String, String)) -> ExitCode {
    let answer: Answer = find(backend).and_then(|backend| backend.probe(device)).map_err(|failure| failure.message);
    // JSON keeps the answer in one line.
    println!("{ANSWER}{}", serde_json::json!(answer));
    ExitCode::SUCCESS
}

/// Describes the device after a probe, which runs once per process.
///
/// # Errors
/// Why the device does not work.
pub(super) fn try_device(entry: &'static Entry, device: &str) -> Answer {
    static TRIED: Mutex<Option<HashMap<(&'static str, String), Answer>>> = Mutex::new(None);
    let mut tried = TRIED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let tried = tried.get_or_insert_default();
    tried.entry((entry.name, device.to_owned())).or_insert_with(|| ask(entry, device)).clone()
}

fn ask(entry: &Entry, device: &str) -> Answer {
    let failed = |error: std::io::Error| format!("probing {device}: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.env(PROBE, format!("{} {device}", entry.name));
    if let Ok(backend) = entry.backend() {
        command.envs(backend.process_environment(device));
    }
    answer_of(command, device, PATIENCE).map_err(failed)?
}

/// Runs a probe and reads its answer.
fn answer_of(mut command: Command, device: &str, patience: Duration) -> std::io::Result<Answer> {
    // Files and no pipes: a driver that logs more than a pipe holds would otherwise wait for ever.
    let (said, words) = (NamedTempFile::new()?, NamedTempFile::new()?);
    let read = |file: &NamedTempFile| Ok::<_, std::io::Error>(String::from_utf8_lossy(&fs::read(file)?).into_owned());
    let mut probe = command.stdin(Stdio::null()).stdout(said.reopen()?).stderr(words.reopen()?).spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = probe.try_wait()? {
            break status;
        }
        if start.elapsed() > patience {
            let _ = probe.kill();
            let _ = probe.wait();
            return Ok(Err(format!("{device} did not answer within {} s", patience.as_secs())));
        }
        thread::sleep(Duration::from_millis(10));
    };
    // Libraries print there too, before and after.
    let answer = read(&said)?.lines().find_map(|line| serde_json::from_str(line.strip_prefix(ANSWER)?).ok());
    let words = read(&words)?;
    let last = words.lines().next_back().unwrap_or_default();
    Ok(answer.unwrap_or_else(|| Err(format!("the probe of {device} ended with {status}; its last words: {last}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_of_script(script: &str) -> Answer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        answer_of(command, "abacus", Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn a_driver_that_logs_more_than_a_pipe_holds_still_answers() {
        let log = "head -c 300000 /dev/zero | tr '\\0' 'x'; echo;";
        let script = format!("{{ {log} }} >&2; {log} echo 'inferbench-probe: {{\"Ok\":\"a GPU\"}}'; {{ {log} }} >&2");
        assert_eq!(answer_of_script(&script), Ok("a GPU".into()));
    }

    #[test]
    fn a_probe_that_crashes_leaves_its_last_words() {
        let answer = answer_of_script("echo 'no driver' >&2; exit 3").unwrap_err();
        assert!(answer.contains("exit status: 3") && answer.ends_with("its last words: no driver"), "{answer}");
    }
}

//! Tries devices, each in a process of its own: a process can hold one ONNX Runtime only, and drivers crash.

use std::collections::HashMap;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{Backend, find};

/// The variable that makes a process a probe; its value is `backend device`.
const PROBE: &str = "INFERBENCH_PROBE";

/// What the line of a probe's answer begins with; the rest is a `Result` as JSON.
const ANSWER: &str = "inferbench-probe: ";

/// How long a device may take to show that it works. A software driver compiles its first kernels for seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the device is, or why it does not work.
type Answer = Result<String, String>;

/// Backend and device that this process is to try, if it is a probe.
pub fn asked() -> Option<(String, String)> {
    let asked = std::env::var(PROBE).ok()?;
    asked.split_once(' ').map(|(backend, device)| (backend.to_owned(), device.to_owned()))
}

/// `main` of a probe: says on standard output what the device is, or why it does not work.
pub fn answer((backend, device): &(String, String)) -> ExitCode {
    let answer = find(backend).map_err(|failure| failure.message).and_then(|backend| backend.probe(device));
    // One line, whatever the answer has in it.
    println!("{ANSWER}{}", serde_json::json!(answer));
    ExitCode::SUCCESS
}

/// What the device is, tried once a process.
///
/// # Errors
/// Why it does not work.
pub fn try_device(backend: &dyn Backend, device: &str) -> Answer {
    static TRIED: Mutex<Option<HashMap<(&'static str, String), Answer>>> = Mutex::new(None);
    let mut tried = TRIED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let tried = tried.get_or_insert_default();
    tried.entry((backend.name(), device.to_owned())).or_insert_with(|| ask(backend, device)).clone()
}

fn ask(backend: &dyn Backend, device: &str) -> Answer {
    let failed = |error: std::io::Error| format!("trying {device}: {error}");
    let mut probe = Command::new(std::env::current_exe().map_err(failed)?)
        .env(PROBE, format!("{} {device}", backend.name()))
        .envs(backend.process_environment(device))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let start = Instant::now();
    while probe.try_wait().map_err(failed)?.is_none() {
        if start.elapsed() > PATIENCE {
            let _ = probe.kill();
            let _ = probe.wait();
            return Err(format!("{device} did not answer within {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = probe.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stdout);
    // Libraries print there too, before and after.
    let answer =
        said.lines().find_map(|line| line.strip_prefix(ANSWER)).and_then(|line| serde_json::from_str(line).ok());
    answer.unwrap_or_else(|| {
        let words = String::from_utf8_lossy(&output.stderr);
        let words = words.lines().next_back().unwrap_or_default();
        Err(format!("trying {device} ended with {}; its last words: {words}", output.status))
    })
}

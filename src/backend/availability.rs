//! Which devices are available here: the answers for the planner and for `inferbench devices`.
//!
//! Each device is probed in its own process: a process can hold only one ONNX Runtime, and drivers crash.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::installed::found_so_far;
use super::interface::DeviceReport;
use super::registry::{self, Entry};
use crate::definition::{CaseFailure, Dtype, Model, Status, device_kind};
use crate::exit_codes;
use crate::machine::processes::own_executable;
use crate::selection::Capabilities;

/// The variable that makes a process a probe; its value is `backend device`.
const PROBE: &str = "INFERBENCH_PROBE";

/// The beginning of the line with a probe's answer; the rest is a `Result` as JSON.
const ANSWER: &str = "inferbench-probe: ";

/// How long a device may take to show that it works. A software driver compiles its first kernels for seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A description of the device, or why it does not work.
type Answer = Result<String, CaseFailure>;

/// The backend and device that this process has to probe, if it is a probe.
pub fn asked_by_probe() -> Option<(String, String)> {
    let asked = std::env::var(PROBE).ok()?;
    asked.split_once(' ').map(|(backend, device)| (backend.to_owned(), device.to_owned()))
}

/// `main` of a probe: prints a description of the device, or why it does not work.
pub fn answer_probe((backend, device): &(String, String)) -> u8 {
    let answer: Answer = registry::find(backend).and_then(|backend| backend.probe(device)).map_err(|failure| {
        // A device that fails is unavailable. `unsupported` is kept: it means that another device would compute
        // silently.
        let is_other_device = failure.status == Status::Unsupported;
        if is_other_device { failure } else { CaseFailure::unavailable(failure.message) }
    });
    // JSON keeps the answer in one line.
    println!("{ANSWER}{}", serde_json::json!(answer));
    exit_codes::OK
}

/// The devices of all backends but `null`, in the order of the registry. Devices that need a probe are probed, in
/// parallel.
///
/// # Errors
/// A backend is `unavailable` if this build does not have it.
pub fn tried_devices() -> Vec<(&'static Entry, Result<Vec<DeviceReport>, CaseFailure>)> {
    thread::scope(|scope| {
        let of_backend = |entry: &'static Entry| Ok(all_tried(entry, entry.backend()?.devices()));
        let backends: Vec<_> = registry::real().map(|entry| (entry, scope.spawn(move || of_backend(entry)))).collect();
        backends.into_iter().map(|(entry, reports)| (entry, joined(reports))).collect()
    })
}

/// The reports after the probes, which run in parallel.
fn all_tried(entry: &'static Entry, reports: Vec<DeviceReport>) -> Vec<DeviceReport> {
    thread::scope(|scope| {
        let reports = reports.into_iter();
        let probes: Vec<_> = reports.map(|report| scope.spawn(move || tried(entry, report))).collect();
        probes.into_iter().map(joined).collect()
    })
}

/// The result of a thread. A panic of the thread continues in the caller.
fn joined<T>(thread: thread::ScopedJoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The report, after a probe if the device needs one. A process probes each device once.
fn tried(entry: &'static Entry, report: DeviceReport) -> DeviceReport {
    type Tried = BTreeMap<(&'static str, String), Arc<OnceLock<Answer>>>;
    static TRIED: Mutex<Tried> = Mutex::new(BTreeMap::new());
    if !report.needs_probe || report.availability.is_err() {
        return report;
    }
    let key = (entry.name, report.device.clone());
    let answer = TRIED.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
    DeviceReport { availability: answer.get_or_init(|| ask(entry, &report.device)).clone(), ..report }
}

/// The registry's answers to the planner.
pub struct Registry;

impl Capabilities for Registry {
    fn check_device(&self, backend: &str, device: &str) -> Result<(), CaseFailure> {
        let entry = registry::entry(backend)?;
        let devices = entry.backend()?.devices();
        // `cuda:1` may have no report of its own. That of `cuda` then says whether `cuda:1` needs a probe.
        let is_asked_for = |report: &&DeviceReport| report.device == device || report.device == device_kind(device);
        let asked = devices.iter().find(is_asked_for).cloned();
        let asked = asked.map(|asked| tried(entry, DeviceReport { device: device.to_owned(), ..asked }));
        let reason = match asked.map(|asked| asked.availability) {
            None => {
                // A program that cannot describe itself has one report, for `cpu`, which says why.
                let only = match devices.as_slice() {
                    [DeviceReport { device, availability: Err(why), .. }] => {
                        format!(", and no {device}: {}", why.message)
                    }
                    _ => String::new(),
                };
                CaseFailure::unavailable(format!("{backend} has no device {device:?}{only}"))
            }
            Some(Ok(_)) => return Ok(()),
            Some(Err(reason)) => reason,
        };
        // An installed library does not show that its device works.
        let tried = all_tried(entry, devices).into_iter();
        let available = tried.filter(|report| report.availability.is_ok()).map(|report| report.device);
        let available = available.collect::<Vec<_>>().join(", ");
        let has = if available.is_empty() { String::new() } else { format!("; {backend} has {available} here") };
        Err(CaseFailure::new(reason.status, format!("{}{has}", reason.message)))
    }

    fn check_model(&self, backend: &str, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        registry::check_model(backend, model, dtype)
    }
}

/// The right to run a probe. At most as many run at once as there are processors, because their time is limited.
struct Turn;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Turn {
    fn take() -> Self {
        let most = thread::available_parallelism().map_or(1, usize::from);
        let running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        *RUNNING.1.wait_while(running, |running| *running >= most).unwrap_or_else(PoisonError::into_inner) += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RUNNING.1.notify_one();
    }
}

fn ask(entry: &Entry, device: &str) -> Answer {
    let _turn = Turn::take();
    let failed = |error: anyhow::Error| CaseFailure::unavailable(format!("probing {device}: {error:#}"));
    let mut command = Command::new(own_executable().map_err(failed)?);
    command.env(PROBE, format!("{} {device}", entry.name)).envs([found_so_far()]);
    if let Ok(backend) = entry.backend() {
        command.envs(backend.process_environment(device));
    }
    answer_of(command, device, PATIENCE).map_err(|error| failed(error.into()))?
}

/// Runs a probe and reads its answer.
fn answer_of(mut command: Command, device: &str, patience: Duration) -> std::io::Result<Answer> {
    // Files instead of pipes: a driver that logs more than a pipe holds would block forever.
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
            let message = format!("{device} did not answer within {} s", patience.as_secs());
            return Ok(Err(CaseFailure::unavailable(message)));
        }
        thread::sleep(Duration::from_millis(10));
    };
    // Libraries print to stdout too, before and after the answer.
    let answer = read(&said)?.lines().find_map(|line| serde_json::from_str(line.strip_prefix(ANSWER)?).ok());
    let words = read(&words)?;
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    let said = last.map_or_else(String::new, |line| format!("; its last words: {line}"));
    let silent = || format!("the probe of {device} ended with {status}{said}");
    Ok(answer.unwrap_or_else(|| Err(CaseFailure::unavailable(silent()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_backend_and_an_absent_device_say_what_there_is() {
        let error = Registry.check_device("onnx", "cpu").unwrap_err();
        assert_eq!(error.status, Status::Unavailable);
        assert!(error.message.contains("there are ort, tch, candle"), "{error}");
        let error = Registry.check_device(registry::NULL, "cuda").unwrap_err();
        assert!(error.message.contains("null has cpu here"), "{error}");
    }

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
        let answer = answer_of_script("echo 'no driver' >&2; exit 3").unwrap_err().message;
        assert!(answer.contains("exit status: 3") && answer.ends_with("its last words: no driver"), "{answer}");
        let answer = answer_of_script("echo >&2; exit 3").unwrap_err().message;
        assert!(answer.ends_with("ended with exit status: 3"), "{answer}");
    }
}

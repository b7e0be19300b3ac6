//! ONNX Runtime Web: a page in a browser that speaks the protocol of external workers, with frames over HTTP.
//!
//! The page's scripts ship with this package. `inferbench setup browser` installs the browser and the runtime.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::guard::Guard;
use super::messages::data_files;
use super::page_server::{PageFiles, PageServer};
use super::process::{OutsideProcess, Wires};
use super::program::describe;
use super::session::OutsideSession;
use crate::backend::artifact::{Format, check_graphs, parts_of};
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::definition::{CaseFailure, Dtype, Model};
use crate::paths::{Paths, variable};

pub struct OrtWeb;

const DEVICES: [&str; 5] = ["wasm", "webgpu", "webnn", "webnn-gpu", "webnn-npu"];

static PAGE: [(&str, &str); 5] = [
    ("profiles.js", include_str!("ort_web/profiles.js")),
    ("serve.js", include_str!("ort_web/serve.js")),
    ("frames.js", include_str!("ort_web/frames.js")),
    ("device.js", include_str!("ort_web/device.js")),
    ("sessions.js", include_str!("ort_web/sessions.js")),
];

/// The browser shows one page and does nothing else: it makes no background requests, and does not throttle a page that
/// seems hidden. It runs without a sandbox, which root, containers and the browser of `inferbench setup` lack.
const FLAGS: &str = "--headless --no-sandbox --no-first-run --no-default-browser-check --disable-background-networking \
    --disable-component-update --disable-sync --disable-default-apps --disable-extensions --disable-breakpad \
    --disable-domain-reliability --disable-client-side-phishing-detection --no-pings --no-proxy-server --metrics-recording-only \
    --disable-background-timer-throttling --disable-renderer-backgrounding --disable-backgrounding-occluded-windows \
    --disable-dev-shm-usage --password-store=basic --use-mock-keychain";

/// How long a browser may take to request its page. A browser that cannot start a process for pages never does.
const START: Duration = Duration::from_secs(30);
/// How long the page may take to run. It is shorter than the time limit of a probe, so that the reason is still
/// reported.
const PATIENCE: Duration = Duration::from_secs(50);

struct Browser {
    executable: PathBuf,
    /// The folder of `inferbench setup browser`.
    folder: PathBuf,
}

/// The browser of `INFERBENCH_BROWSER` or of `inferbench setup browser`. Both need the runtime of the latter.
fn browser() -> Result<Browser, String> {
    let named = variable("INFERBENCH_BROWSER").map(PathBuf::from);
    if let Some(named) = named.as_ref().filter(|named| !named.is_file()) {
        return Err(format!(
            "ONNX Runtime Web: INFERBENCH_BROWSER is {}, which is not a file: set it to the path of a Chromium",
            named.display()
        ));
    }
    let folder = Paths::find().native().join("browser");
    let how = format!("get it with `{}`", Paths::find().setup_command("browser"));
    if !folder.join("ort").is_dir() {
        return Err(format!("ONNX Runtime Web is not here; {how}"));
    }
    let executable = named.unwrap_or_else(|| folder.join("chromium"));
    if !executable.is_file() {
        return Err(format!("there is no browser at {}; {how}", executable.display()));
    }
    Ok(Browser { executable, folder })
}

/// Opens the page for a device. The page may read the files `model`.
fn open(device: &str, threads: usize, model: Vec<PathBuf>) -> Result<OutsideProcess, CaseFailure> {
    let Browser { executable, folder } = browser().map_err(CaseFailure::unavailable)?;
    let wrong = |error: std::io::Error| CaseFailure::failed(format!("opening a page in a browser: {error}"));
    let files = PageFiles { own: &PAGE, runtime: folder.join("ort"), model };
    let (server, input, output) = PageServer::start(files).map_err(wrong)?;
    let own = tempfile::Builder::new().prefix("inferbench-browser-").tempdir().map_err(wrong)?;
    let mut command = Command::new(&executable);
    command.args(FLAGS.split_whitespace()).arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1");
    command.arg(format!("--user-data-dir={}", own.path().join("profile").display()));
    let of_device: &[&str] = match device {
        "webgpu" => &["--enable-unsafe-webgpu", "--disable-gpu-watchdog"],
        "wasm" => &["--disable-gpu"],
        _ => &["--enable-features=WebMachineLearningNeuralNetwork"],
    };
    command.args(of_device);
    command.arg(format!("{}?device={device}&threads={threads}", server.address()));
    for name in ["TMPDIR", "HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env(name, own.path());
    }
    if executable.starts_with(&folder) {
        // Libraries that a machine without another browser may lack.
        command.env("LD_LIBRARY_PATH", folder.join("lib"));
    }
    let wires = Wires { input: Box::new(input), output: Box::new(output) };
    let mut process = OutsideProcess::start_wired("ort-web", command, wires)?;
    let guard = Guard::start(process.id(), own).map_err(wrong)?;
    process.keep(guard);
    let start = Instant::now();
    while !server.has_page() {
        if process.wait(Duration::from_millis(5)).is_some() {
            return Err(process.ended());
        }
        let patience = if server.is_asked() { PATIENCE } else { START };
        if start.elapsed() > patience {
            let seconds = patience.as_secs();
            return Err(CaseFailure::failed(format!("the browser did not open its page within {seconds} s")));
        }
    }
    process.keep(server);
    Ok(process)
}

impl Backend for OrtWeb {
    fn library_path(&self, _: &str) -> Option<PathBuf> {
        Some(browser().ok()?.executable)
    }

    fn devices(&self) -> Vec<DeviceReport> {
        let found = browser().map(|own| own.executable.display().to_string()).map_err(CaseFailure::unavailable);
        DEVICES.map(|device| DeviceReport::probed(device, found.clone())).into()
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        describe(&mut open(device, 1, Vec::new())?)?.availability()
    }

    fn needs_one_shape(&self, device: &str) -> bool {
        device != "wasm"
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        let pins = std::fs::read_to_string(Paths::find().native().join(".browser.stamp")).unwrap_or_default();
        let version = pins.split_once("onnxruntime-web-").and_then(|(_, rest)| rest.split_once(".tgz"));
        Some(version.map_or_else(String::new, |(version, _)| format!("onnxruntime-web {version}")))
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_graphs(model, dtype, &[Dtype::F32], &[Dtype::F32])
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(open_session(request)?))
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        Ok(Box::new(open_session(request)?))
    }
}

fn open_session(request: &LoadRequest<'_>) -> Result<OutsideSession, CaseFailure> {
    let parts = parts_of(request, Format::Onnx)?;
    let files = parts.iter().flat_map(|(_, graph)| {
        let data = data_files(graph).into_iter().map(|name| graph.with_file_name(name));
        std::iter::once(graph.to_path_buf()).chain(data)
    });
    OutsideSession::load(open(request.device, request.threads, files.collect())?, request)
}

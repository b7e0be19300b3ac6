//! JAX: a Python process that traces a model's ONNX graphs and compiles them with XLA.
//!
//! Its program ships with this package and is read by Python from the standard input, before the first frame.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use super::process::OutsideProcess;
use super::program::describe;
use super::session::OutsideSession;
use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::cuda::cuda_environment;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::definition::{CaseFailure, Dtype, Model, device_kind};
use crate::paths::variable;

pub struct Jax;

/// The modules of the program, in the order in which they import each other; the last one runs it.
const MODULES: [(&str, &str); 7] = [
    ("frames", include_str!("jax/frames.py")),
    ("operators", include_str!("jax/operators.py")),
    ("graph", include_str!("jax/graph.py")),
    ("sessions", include_str!("jax/sessions.py")),
    ("programs", include_str!("jax/programs.py")),
    ("profiles", include_str!("jax/profiles.py")),
    ("serve", include_str!("jax/serve.py")),
];

/// Makes modules of the first line of the standard input.
const BEGIN: &str = "import json, linecache, sys, types
for name, text in json.loads(sys.stdin.buffer.readline()):
    file = f'inferbench/{name}.py'
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, file, 'exec'), sys.modules[name].__dict__)";

/// The Python that has JAX: a user's own, or that of `scripts/setup jax`.
fn python() -> Result<PathBuf, String> {
    if let Some(own) = variable("INFERBENCH_JAX_PYTHON") {
        return Ok(PathBuf::from(own));
    }
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache"))).unwrap_or_default();
    let python = cache.join("inferbench/jax/bin/python");
    let missing = "JAX is not here; get it with `scripts/setup jax`, or set INFERBENCH_JAX_PYTHON to a Python that has jax and onnx";
    if python.is_file() { Ok(python) } else { Err(missing.into()) }
}

/// The version of a package of that Python, as its folder of metadata says.
fn installed(package: &str) -> Option<String> {
    let python = python().ok()?;
    let environment = python.parent()?.parent()?;
    let folders = std::fs::read_dir(environment.join("lib")).ok()?.flatten();
    let packages = folders.flat_map(|folder| std::fs::read_dir(folder.path().join("site-packages"))).flatten();
    packages.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix(package)?.strip_prefix('-')?.strip_suffix(".dist-info")?.to_owned())
    })
}

/// Starts Python for a device with so many threads: XLA reads the number when it is loaded.
fn start(device: &str, threads: usize) -> Result<OutsideProcess, CaseFailure> {
    let mut command = Command::new(python().map_err(CaseFailure::unavailable)?);
    command.args(["-I", "-c", BEGIN]);
    let threads = threads.to_string();
    command.env("JAX_PLATFORMS", device_kind(device)).env("JAX_ENABLE_X64", "1");
    command.env("NPROC", &threads).env("PJRT_NPROC", &threads);
    // A call would otherwise wait for the memory of the whole GPU, and its compilation be read from an earlier run.
    command.env("XLA_PYTHON_CLIENT_PREALLOCATE", "false").env("JAX_ENABLE_COMPILATION_CACHE", "false");
    // With less, f32 would be f32 by name only.
    command.env("JAX_DEFAULT_MATMUL_PRECISION", "highest");
    let mut process = OutsideProcess::start("jax", command)?;
    let program = serde_json::to_string(&MODULES).unwrap_or_default();
    process.write_line(&program)?;
    Ok(process)
}

fn open(request: &LoadRequest<'_>) -> Result<OutsideSession, CaseFailure> {
    parts_of(request, Format::Onnx)?;
    OutsideSession::load(start(request.device, request.threads)?, request)
}

impl Backend for Jax {
    fn devices(&self) -> Vec<DeviceReport> {
        let report = |device: &str| DeviceReport {
            device: device.into(),
            availability: python().map(|python| python.display().to_string()).map_err(CaseFailure::unavailable),
            needs_probe: true,
        };
        ["cpu", "cuda", "tpu"].map(report).into()
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        describe(&mut start(device, 1)?)?.devices[0].availability()
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        if device_kind(device) == "cuda" { cuda_environment() } else { Vec::new() }
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        true
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        Some(installed("jax").map_or_else(String::new, |jax| format!("jax {jax}")))
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_artifact(model, dtype, &[Dtype::F32, Dtype::Bf16], Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(open(request)?))
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        Ok(Box::new(open(request)?))
    }
}

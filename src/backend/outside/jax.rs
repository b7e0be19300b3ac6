//! JAX: a Python process that traces a model's ONNX graphs and compiles them with XLA.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::process::OutsideProcess;
use super::program::describe;
use super::python::{self, FRAMES, Library, Module, SERVING};
use super::session::OutsideSession;
use crate::backend::artifact::{Format, check_artifact, parts_of};
use crate::backend::cuda::cuda_environment;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::definition::{CaseFailure, Dtype, Model, device_kind};

/// JAX in the default Python, or in one Python environment.
pub struct Jax {
    pub place: Option<&'static Path>,
}

const MODULES: [Module; 8] = [
    FRAMES,
    SERVING,
    ("operators", include_str!("jax/operators.py")),
    ("graph", include_str!("jax/graph.py")),
    ("sessions", include_str!("jax/sessions.py")),
    ("programs", include_str!("jax/programs.py")),
    ("profiles", include_str!("jax/profiles.py")),
    ("serve", include_str!("jax/serve.py")),
];

const LIBRARY: Library = Library {
    name: "JAX",
    key: "jax",
    variable: "INFERBENCH_JAX_PYTHON",
    packages: "jax onnx",
    files: &["jaxlib", "onnx"],
    own: &["jax"],
};

/// Variables with these prefixes change what JAX and XLA do. They are removed, so that only a case's name sets
/// anything.
const OF_COMPILERS: [&str; 3] = ["JAX_", "LIBTPU_INIT_ARGS", "XLA_"];

/// Starts Python for a device. XLA reads the number of threads when it is loaded.
fn start(place: Option<&Path>, device: &str, threads: usize) -> Result<OutsideProcess, CaseFailure> {
    python::start("jax", LIBRARY.python(place)?, &MODULES, |command| {
        let threads = threads.to_string();
        python::remove_variables(command, &OF_COMPILERS);
        command.env("JAX_PLATFORMS", device_kind(device)).env("JAX_ENABLE_X64", "1");
        command.env("NPROC", &threads).env("PJRT_NPROC", &threads);
        // Do not allocate the memory of the whole GPU in advance, nor read compilations of an earlier run.
        command.env("XLA_PYTHON_CLIENT_PREALLOCATE", "false").env("JAX_ENABLE_COMPILATION_CACHE", "false");
        // With a lower precision, f32 would be f32 in name only.
        command.env("JAX_DEFAULT_MATMUL_PRECISION", "highest");
    })
}

fn open(place: Option<&Path>, request: &LoadRequest<'_>) -> Result<OutsideSession, CaseFailure> {
    parts_of(request, Format::Onnx)?;
    OutsideSession::load(start(place, request.device, request.threads)?, request)
}

impl Backend for Jax {
    fn devices(&self) -> Vec<DeviceReport> {
        LIBRARY.devices(self.place, ["cpu", "cuda", "tpu"])
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        describe(&mut start(self.place, device, 1)?)?.availability()
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        cuda_environment(device)
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        true
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        Some(LIBRARY.version(self.place))
    }

    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        LIBRARY.python(self.place).ok()
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        check_artifact(model, dtype, &[Dtype::F32, Dtype::Bf16], Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(open(self.place, request)?))
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        Ok(Box::new(open(self.place, request)?))
    }
}

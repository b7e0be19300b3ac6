//! PyTorch in its own Python: the module of a model's library, called as it is (eager), or compiled by `torch.compile`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::process::OutsideProcess;
use super::program::describe;
use super::python::{self, FRAMES, Module};
use super::session::OutsideSession;
use crate::backend::artifact::names;
use crate::backend::cuda::cuda_environment;
use crate::backend::installed::{Environment, Search};
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::definition::{CaseFailure, Dtype, Model, Origin, device_kind};
use crate::paths::{Paths, cache};

/// How a module is called: as it is, or compiled.
#[derive(Clone, Copy, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    Eager,
    Compile,
}

/// PyTorch: the one that is used here, or that of one Python environment.
pub struct Torch {
    pub place: Option<&'static Path>,
    pub mode: Mode,
}

const MODULES: [Module; 4] = [
    FRAMES,
    ("networks", include_str!("torch/networks.py")),
    ("sessions", include_str!("torch/sessions.py")),
    ("serve", include_str!("torch/serve.py")),
];

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// The Python that has PyTorch: that of `INFERBENCH_TORCH_PYTHON`, of an environment with torch, or of `inferbench setup torch`.
fn python(place: Option<&Path>) -> Result<PathBuf, CaseFailure> {
    let in_environment = |environment: &Environment| {
        let has_torch = environment.package("torch/__init__.py").is_some();
        environment.python().filter(|_| has_torch)
    };
    // Its file of requirements is the last that is written.
    let own = cache().join("torch");
    let of_setup = || own.join("requirements").is_file().then(|| own.join("bin/python"));
    let search = Search { key: "torch", variable: Some("INFERBENCH_TORCH_PYTHON"), environment: place };
    let found = search.find(in_environment, of_setup).filter(|found| found.path.is_file());
    found.map(|found| found.path).ok_or_else(|| {
        CaseFailure::unavailable(match place {
            Some(place) => format!("PyTorch is not in {}: install torch there", place.display()),
            None => format!(
                "PyTorch is not here; get it with `{}`, or by `pip install torch` in an active environment, or set \
                 INFERBENCH_TORCH_PYTHON to a Python that has it",
                Paths::find().setup_command("torch")
            ),
        })
    })
}

impl Torch {
    /// Starts Python for a device with so many threads.
    fn start(&self, device: &str, threads: usize) -> Result<OutsideProcess, CaseFailure> {
        let mode: &str = self.mode.into();
        let export = Paths::find().script("scripts/export/entry.py");
        let export = export.map_err(|error| CaseFailure::failed(format!("{error:#}")))?;
        python::start("torch", python(self.place)?, &MODULES, |command| {
            command.env("TORCH_WORKER_MODE", mode).env("TORCH_WORKER_DEVICE", device_kind(device));
            // Where the modules of packaged models are defined.
            command.env("TORCH_WORKER_EXPORT", export.parent().unwrap_or(&export));
            command.env("OMP_NUM_THREADS", threads.to_string());
            // Nothing is read from an earlier compilation, and nothing is asked of a model hub.
            command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1").env("HF_HUB_OFFLINE", "1");
        })
    }

    fn open(&self, request: &LoadRequest<'_>) -> Result<OutsideSession, CaseFailure> {
        OutsideSession::load(self.start(request.device, request.threads)?, request)
    }
}

impl Backend for Torch {
    fn devices(&self) -> Vec<DeviceReport> {
        let report = |device: &str| DeviceReport {
            device: device.into(),
            availability: python(self.place).map(|python| python.display().to_string()),
            needs_probe: true,
        };
        ["cpu", "cuda", "mps", "xpu"].map(report).into()
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        describe(&mut self.start(device, 1)?)?.devices[0].availability()
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        if device_kind(device) == "cuda" { cuda_environment() } else { Vec::new() }
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        self.mode != Mode::Eager
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        let version = Environment::of(&python(self.place).ok()?).version("torch");
        Some(version.map_or_else(String::new, |torch| format!("torch {torch}")))
    }

    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        python(self.place).ok()
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        match &model.origin {
            Origin::Files { .. } => Err(CaseFailure::unsupported("PyTorch runs packaged models here: an ONNX file is no module")),
            Origin::Packaged { quantization: Some(_), .. } => {
                Err(CaseFailure::unsupported("this variant is made from ONNX graphs, and there is no module of it"))
            }
            Origin::Packaged { .. } if !DTYPES.contains(&dtype) => {
                Err(CaseFailure::unsupported(format!("no {dtype} of modules here; there are {}", names(&DTYPES))))
            }
            Origin::Packaged { .. } => Ok(()),
        }
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(self.open(request)?))
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        Ok(Box::new(self.open(request)?))
    }
}

//! PyTorch in its own Python: the module of a model's library, called as it is (eager), or compiled by `torch.compile`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::messages::{Ask, Inputs};
use super::process::OutsideProcess;
use super::program::describe;
use super::python::{self, FRAMES, Library, Module, SERVING};
use super::session::OutsideSession;
use crate::backend::artifact::names;
use crate::backend::cuda::cuda_environment;
use crate::backend::installed::Environment;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::definition::{CaseFailure, Dtype, Model, Origin, TensorSpec, backends_in_places, device_kind};
use crate::paths::Paths;

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

const MODULES: [Module; 7] = [
    FRAMES,
    SERVING,
    ("networks", include_str!("torch/networks.py")),
    ("files", include_str!("torch/files.py")),
    ("sessions", include_str!("torch/sessions.py")),
    ("profiles", include_str!("torch/profiles.py")),
    ("serve", include_str!("torch/serve.py")),
];

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

const LIBRARY: Library = Library {
    name: "PyTorch",
    key: "torch",
    variable: "INFERBENCH_TORCH_PYTHON",
    packages: "torch",
    files: &["torch/__init__.py"],
};

impl Torch {
    /// Starts Python for a device with so many threads.
    fn start(&self, device: &str, threads: usize, is_profiled: bool) -> Result<OutsideProcess, CaseFailure> {
        let mode: &str = self.mode.into();
        let export = Paths::find().script("scripts/export/entry.py");
        let export = export.map_err(|error| CaseFailure::failed(format!("{error:#}")))?;
        python::start("torch", LIBRARY.python(self.place)?, &MODULES, |command| {
            command.env("TORCH_WORKER_MODE", mode).env("TORCH_WORKER_DEVICE", device_kind(device));
            // It defines the modules of packaged models.
            command.env("TORCH_WORKER_EXPORT", export.parent().unwrap_or(&export));
            command.env("OMP_NUM_THREADS", threads.to_string());
            // Nothing is read from an earlier compilation, and nothing is asked of a model hub.
            command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1").env("HF_HUB_OFFLINE", "1");
            if is_profiled {
                command.env("TORCH_WORKER_PROFILED", "1");
            }
        })
    }

    fn open(&self, request: &LoadRequest<'_>, is_profiled: bool) -> Result<OutsideSession, CaseFailure> {
        OutsideSession::load(self.start(request.device, request.threads, is_profiled)?, request)
    }
}

/// The inputs of a Python file's module, or of a `.pt2`.
///
/// # Errors
/// PyTorch is not here, or the file has no module that can be called; the message says why.
pub fn inputs_of(file: &Path) -> Result<Vec<TensorSpec>, CaseFailure> {
    let is_of_torch = |name: &str| name.starts_with("torch@") || name.starts_with("torch-compile@");
    let other = || backends_in_places().into_iter().find(|(name, _)| is_of_torch(name)).map(|(_, place)| place);
    // An environment that the command names has PyTorch, where the active one may have none.
    let place = LIBRARY.python(None).is_err().then(other).flatten().map(|place| &*Box::leak(place.into_boxed_path()));
    let mut process = Torch { place, mode: Mode::Eager }.start("cpu", 1, false)?;
    let (Inputs { inputs }, _) = process.ask(&Ask::Inputs { file }, &[])?;
    inputs.iter().map(|text| text.parse().map_err(|why| CaseFailure::failed(format!("{why:#}")))).collect()
}

impl Backend for Torch {
    fn devices(&self) -> Vec<DeviceReport> {
        let report = |device: &str| DeviceReport {
            device: device.into(),
            availability: LIBRARY.python(self.place).map(|python| python.display().to_string()),
            needs_probe: true,
        };
        ["cpu", "cuda", "mps", "xpu"].map(report).into()
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        describe(&mut self.start(device, 1, false)?)?.devices[0].availability()
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        if device_kind(device) == "cuda" { cuda_environment() } else { Vec::new() }
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        self.mode != Mode::Eager
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        let version = Environment::of(&LIBRARY.python(self.place).ok()?).version("torch");
        Some(version.map_or_else(String::new, |torch| format!("torch {torch}")))
    }

    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        LIBRARY.python(self.place).ok()
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        match &model.origin {
            Origin::Packaged { quantization: Some(_), .. } | Origin::Files { quantization: Some(_), .. } => {
                Err(CaseFailure::unsupported("this variant is made from ONNX graphs, and there is no module of it"))
            }
            Origin::Files { torchscript: None, .. } => Err(CaseFailure::unsupported(
                "an ONNX file is no module: name a `.py`, a `.pt2` or a TorchScript `.pt` file",
            )),
            // A quantised archive.
            Origin::Files { .. } if dtype == model.dtype => Ok(()),
            _ if !DTYPES.contains(&dtype) => {
                Err(CaseFailure::unsupported(format!("no {dtype} of modules here; there are {}", names(&DTYPES))))
            }
            _ => Ok(()),
        }
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(self.open(request, false)?))
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        Ok(Box::new(self.open(request, true)?))
    }
}

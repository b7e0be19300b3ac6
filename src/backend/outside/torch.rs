//! PyTorch in its own Python: the module of a model's library, called as it is (eager), or compiled by `torch.compile` or AOTInductor.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::messages::Inputs;
use super::process::OutsideProcess;
use super::program::describe;
use super::python::{self, FRAMES, Library, Module, SERVING};
use super::session::OutsideSession;
use crate::backend::artifact::names;
use crate::backend::cuda::cuda_environment;
use crate::backend::installed::{environment_of, file_beginning};
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::definition::{
    CaseFailure, Dtype, MODULES, Model, Origin, Quantization, TensorSpec, backend_and_settings, backends_in_places,
    device_kind,
};
use crate::paths::{Paths, cache, is_trusted, variable, worktrees};

/// How a module is called: as it is, compiled at its first call, or compiled ahead of time.
#[derive(Clone, Copy, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    Eager,
    Compile,
    Aot,
}

/// PyTorch in the default Python, or in one Python environment.
pub struct Torch {
    pub place: Option<&'static Path>,
    /// The settings in the backend's name, separated by dots: `channels-last.max-autotune`.
    pub settings: &'static str,
    pub mode: Mode,
}

const WORKER: [Module; 8] = [
    FRAMES,
    SERVING,
    ("networks", include_str!("torch/networks.py")),
    ("files", include_str!("torch/files.py")),
    ("modes", include_str!("torch/modes.py")),
    ("profiles", include_str!("torch/profiles.py")),
    ("sessions", include_str!("torch/sessions.py")),
    ("serve", include_str!("torch/serve.py")),
];

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

const LIBRARY: Library = Library {
    name: "PyTorch",
    key: "torch",
    variable: "INFERBENCH_TORCH_PYTHON",
    packages: "torch numpy",
    files: &["torch/__init__.py"],
    // The environment of `inferbench import` has the same packages, except torchao.
    own: &["torch", "import"],
};

/// How long a file's function may take to make its module.
const PATIENCE: Duration = Duration::from_secs(600);

/// Variables with these prefixes change what Dynamo and Inductor do. They are removed, so that only a case's name sets
/// anything.
const OF_COMPILERS: [&str; 3] = ["TORCHDYNAMO_", "TORCHINDUCTOR_", "TORCH_COMPILE_"];

/// The variable with Inductor's cache folder, which is used only with the setting `cache`.
const CACHE_DIR: &str = "TORCHINDUCTOR_CACHE_DIR";

/// The variable with Triton's cache folder, by default in Inductor's. It is removed: Triton reads its cache even if
/// Inductor may not read its own.
const KERNELS: &str = "TRITON_CACHE_DIR";

/// The variable that lets operators that MPS lacks run on the CPU. It is removed: no device falls back to another.
const FALLBACK: &str = "PYTORCH_ENABLE_MPS_FALLBACK";

impl Torch {
    /// Starts Python for a device. `file` may run code when it is read, if the user trusts it.
    fn start(
        &self,
        device: &str,
        threads: usize,
        is_profiled: bool,
        file: Option<&Path>,
    ) -> Result<OutsideProcess, CaseFailure> {
        let mode: &str = self.mode.into();
        let export = Paths::find().script("scripts/export/entry.py");
        let export = export.map_err(|error| CaseFailure::failed(format!("{error:#}")))?;
        python::start("torch", LIBRARY.python(self.place)?, &WORKER, |command| {
            python::remove_variables(command, &OF_COMPILERS);
            command.env_remove(KERNELS).env_remove(FALLBACK);
            command.env("TORCH_WORKER_MODE", mode).env("TORCH_WORKER_DEVICE", device_kind(device));
            command.env("TORCH_WORKER_SETTINGS", self.settings);
            // This folder defines the modules of packaged models.
            command.env("TORCH_WORKER_EXPORT", export.parent().unwrap_or(&export));
            command.env("OMP_NUM_THREADS", threads.to_string());
            if let Some(folder) = file.and_then(folder_of_revision) {
                // Relative paths in a file of a revision refer to the revision's own files.
                command.current_dir(folder);
            }
            // No access to model hubs, and no results of earlier compilations without the setting `cache`.
            command.env("HF_HUB_OFFLINE", "1");
            if self.settings.split('.').any(|setting| setting == "cache") {
                let own = || cache().join("torchinductor").into_os_string();
                command.env(CACHE_DIR, variable(CACHE_DIR).unwrap_or_else(own));
            } else {
                command.env("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1");
            }
            if file.is_some_and(is_trusted) {
                command.env("TORCH_WORKER_TRUST", "1");
            }
            if is_profiled {
                command.env("TORCH_WORKER_PROFILED", "1");
            }
        })
    }

    fn open(&self, request: &LoadRequest<'_>, is_profiled: bool) -> Result<OutsideSession, CaseFailure> {
        let file = match &request.model.origin {
            Origin::Files { torchscript, .. } => torchscript.as_deref(),
            Origin::Packaged { .. } | Origin::Gguf { .. } => None,
        };
        OutsideSession::load(self.start(request.device, request.threads, is_profiled, file)?, request)
    }
}

/// The checked-out revision that a duel compares a file of. Each is two levels below [`worktrees`], and those of whole
/// projects have other names.
fn folder_of_revision(file: &Path) -> Option<PathBuf> {
    let worktrees = worktrees().canonicalize().ok()?;
    let file = file.canonicalize().ok()?;
    let mut names = file.strip_prefix(&worktrees).ok()?.components();
    let (of_project, revision) = (names.next()?, names.next()?);
    let is_of_files = revision.as_os_str().to_string_lossy().starts_with("files-");
    is_of_files.then(|| worktrees.join(of_project).join(revision))
}

/// The inputs of a Python file's module, or of a `.pt2`.
///
/// # Errors
/// PyTorch is not here, or the file has no module that can be called; the message says why.
pub fn inputs_of(file: &Path) -> Result<Vec<TensorSpec>, CaseFailure> {
    let is_of_torch =
        |name: &str| MODULES.contains(&backend_and_settings(name.split('@').next().unwrap_or_default()).0);
    let other = || backends_in_places().into_iter().find(|(name, _)| is_of_torch(name)).map(|(_, place)| place);
    // If there is no other PyTorch, use that of an environment in which the command runs a backend.
    let place = LIBRARY.python(None).is_err().then(other).flatten().map(|place| &*Box::leak(place.into_boxed_path()));
    let mut process = Torch { place, settings: "", mode: Mode::Eager }.start("cpu", 1, false, Some(file))?;
    let ask = json!({ "verb": "inputs", "file": file.display().to_string() });
    let Inputs { inputs } = process.ask_within(PATIENCE, &ask)?;
    inputs.iter().map(|text| text.parse().map_err(|why| CaseFailure::failed(format!("{why:#}")))).collect()
}

/// Whether PyTorch was built without a kind of device, by the names of its libraries. Starting it to ask would take
/// seconds.
fn is_built_without(kind: &str, python: &Path) -> bool {
    let Some(libraries) = environment_of(python).package("torch/lib") else { return false };
    let has =
        |name: &str| ["lib", ""].iter().any(|prefix| file_beginning(&libraries, &format!("{prefix}{name}.")).is_some());
    // Some packages have their libraries elsewhere: nothing is known about these.
    has("torch_cpu")
        && match kind {
            "cuda" => !has("torch_cuda") && !has("torch_hip"),
            "mps" => !cfg!(target_os = "macos"),
            "xpu" => !has("torch_xpu"),
            _ => false,
        }
}

impl Backend for Torch {
    fn devices(&self) -> Vec<DeviceReport> {
        let python = LIBRARY.python(self.place);
        let built_without = |kind: &str| python.as_ref().is_ok_and(|python| is_built_without(kind, python));
        let report = |report: DeviceReport| {
            let kind = report.device.clone();
            if !built_without(&kind) {
                return report;
            }
            let version = LIBRARY.version(self.place);
            let why = format!("{version} here has no {kind}: it was built without it");
            DeviceReport::certain(&kind, Err(CaseFailure::unavailable(why)))
        };
        LIBRARY.devices(self.place, ["cpu", "cuda", "mps", "xpu"]).into_iter().map(report).collect()
    }

    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        describe(&mut self.start(device, 1, false, None)?)?.availability()
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        cuda_environment(device)
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        self.mode != Mode::Eager
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        Some(LIBRARY.version(self.place))
    }

    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        LIBRARY.python(self.place).ok()
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        match &model.origin {
            _ if self.mode == Mode::Aot && model.generation.is_some() => Err(CaseFailure::unsupported(
                "AOTInductor compiles forward passes, not phases of generation: `torch-compile` compiles these",
            )),
            // torchao quantises the module.
            Origin::Packaged { quantization: Some(Quantization::Dynamic), .. } => Ok(()),
            Origin::Packaged { quantization: Some(_), .. } | Origin::Files { quantization: Some(_), .. } => {
                Err(CaseFailure::unsupported("this variant is made from ONNX graphs and has no module"))
            }
            Origin::Files { torchscript: None, .. } => Err(CaseFailure::unsupported(
                "an ONNX file is not a module: name a `.py`, a `.pt2`, a TorchScript `.pt` file or a model hub's folder",
            )),
            // Without `--trust`, a `.pt` is read only as an archive.
            Origin::Files { torchscript: Some(file), .. }
                if self.mode != Mode::Eager
                    && file.extension().is_some_and(|kind| kind == "pt")
                    && !is_trusted(file) =>
            {
                Err(CaseFailure::unsupported(
                    "torch.compile and torch.export take Python modules, and a TorchScript archive has none",
                ))
            }
            // torchao quantises a module in f32.
            Origin::Files { torchscript: Some(file), .. } if dtype == Dtype::I8 && model.dtype == Dtype::F32 => {
                let is_of_classes = file.extension().is_some_and(|kind| kind == "py" || kind == "json");
                let why = "i8 is made only from the modules of a `.py` file or a model hub's folder";
                if is_of_classes { Ok(()) } else { Err(CaseFailure::unsupported(why)) }
            }
            // A quantised archive.
            Origin::Files { .. } if dtype == model.dtype => Ok(()),
            _ if !DTYPES.contains(&dtype) => {
                Err(CaseFailure::unsupported(format!("modules run in {}, not in {dtype}", names(&DTYPES))))
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

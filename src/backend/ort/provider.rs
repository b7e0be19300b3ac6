//! ONNX Runtime's execution providers: the device of each, the shared library that contains it, and its use in a
//! session. A process loads one library; the device decides which.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, bail, ensure};
use once_cell::sync::OnceCell;
use ort::device::Device;
use ort::environment::Environment;
use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch};
use ort::logging::LogLevel;
use ort::session::builder::SessionBuilder;
use serde::Deserialize;

use super::older::{self, OLDEST, minor_of, version_of};
use crate::backend::installed::{Environment as PythonEnvironment, Installed, Origin, Search, file_beginning};
use crate::definition::{CaseFailure, Dtype, device_index, device_kind};
use crate::paths::{Paths, variable};

/// An execution provider, as `providers.toml` describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub device: String,
    pub name: String,
    package: String,
    part: Option<String>,
    plugin: Option<String>,
    pub dtypes: Vec<Dtype>,
    #[serde(default)]
    setup: bool,
}

/// All providers, one per device.
pub static PROVIDERS: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    let text = include_str!("providers.toml");
    let mut file: BTreeMap<String, Vec<Provider>> = toml::from_str(text).expect("the file is a part of the program");
    file.remove("provider").unwrap_or_default()
});

/// A provider of the default ONNX Runtime, or of the one in a Python environment.
#[derive(Clone, Copy)]
pub struct Located {
    provider: &'static Provider,
    place: Option<&'static Path>,
}

impl Deref for Located {
    type Target = Provider;

    fn deref(&self) -> &Provider {
        self.provider
    }
}

/// The provider for a device.
pub fn provider_of(device: &str, place: Option<&'static Path>) -> Result<Located, CaseFailure> {
    let found = PROVIDERS.iter().find(|provider| provider.device == device_kind(device));
    let provider = found.ok_or_else(|| CaseFailure::unavailable(format!("ort has no device {device:?}")))?;
    Ok(Located { provider, place })
}

/// Where Python's packages of ONNX Runtime have their libraries.
const PYTHON_FOLDER: &str = "onnxruntime/capi";

impl Located {
    /// How a user adds the provider.
    fn how_to_add(&self) -> String {
        let get = |part: &str| format!("get it with `{}`", Paths::find().setup_command(part));
        match self.device.as_str() {
            device if self.place.is_some() && (device == "cpu" || self.setup) => {
                format!("install the package {} there", self.package)
            }
            "cpu" => format!("{}, or by `pip install onnxruntime` in an active environment", get("ort")),
            device if self.setup => get(&format!("--device {device}")),
            _ => format!("set ORT_DYLIB_PATH to a library that was built with {}", self.name),
        }
    }

    /// The library with the provider: named by `ORT_DYLIB_PATH`, in a Python environment, or from `inferbench setup`.
    /// `None` if it has to be in one environment, and is not.
    pub fn library(&self) -> Option<Installed> {
        let has_provider = |folder: &Path| {
            let part = self.part.as_ref().map(|part| folder.join(libloading::library_filename(part)));
            part.is_none_or(|part| part.is_file())
        };
        let in_environment = |environment: &PythonEnvironment| {
            let folder = environment.package(PYTHON_FOLDER).filter(|folder| has_provider(folder))?;
            let library = if cfg!(windows) { "onnxruntime.dll" } else { "libonnxruntime." };
            // A package without a library cannot be used. Its folder is returned, so that `check` reports it.
            Some(file_beginning(&folder, library).unwrap_or(folder))
        };
        let file = libloading::library_filename("onnxruntime");
        let of_setup = || Some(Paths::find().native().join(&self.package).join(file));
        let key = format!("ort {}", self.device);
        let search = Search { key: &key, variable: Some("ORT_DYLIB_PATH"), environment: self.place };
        search.find(in_environment, of_setup)
    }

    /// The folder of the Python package with the plugin.
    fn plugin_package(&self) -> &'static str {
        if self.device == "qnn" { "onnxruntime_qnn" } else { "onnxruntime_ep_webgpu" }
    }

    /// The provider's own library, if it is a plugin. Also `None` if it has to be in one environment, and is not.
    fn plugin_library(&self) -> Option<PathBuf> {
        let plugin = self.plugin.as_ref()?;
        let (folder_of_setup, stem) = plugin.split_once('/')?;
        let file = libloading::library_filename(stem);
        let in_environment = |environment: &PythonEnvironment| {
            let folder = environment.package(self.plugin_package())?;
            Some(folder.join(&file)).filter(|file| file.is_file())
        };
        let of_setup = || Some(Paths::find().native().join(folder_of_setup).join(&file));
        let key = format!("ort plugin {}", self.device);
        let search = Search { key: &key, variable: None, environment: self.place };
        search.find(in_environment, of_setup).map(|installed| installed.path)
    }

    /// Checks that the library and the provider's plugin exist; an error says what adds them. Returns the library.
    pub fn check(&self) -> anyhow::Result<Installed> {
        if self.device == "mps" && !cfg!(target_os = "macos") {
            bail!("CoreML is a part of macOS");
        }
        let with = if self.device == "cpu" { String::new() } else { format!(" with {}", self.name) };
        let place = self.place.map_or_else(String::new, |place| place.display().to_string());
        let library = self.library();
        let library =
            library.with_context(|| format!("ONNX Runtime{with} is not in {place}; {}", self.how_to_add()))?;
        let path = &library.path;
        ensure!(
            library.origin != Origin::Variable || path.is_file(),
            "ORT_DYLIB_PATH is {}, which is not a file: it names the library of an ONNX Runtime{with}",
            path.display()
        );
        ensure!(
            !path.is_dir(),
            "the package in {} has no library of ONNX Runtime: packages for Linux have it since 1.19; install a later release there",
            path.display()
        );
        ensure!(path.is_file(), "ONNX Runtime{with} is not at {}; {}", path.display(), self.how_to_add());
        match self.plugin_library() {
            Some(plugin) if !plugin.is_file() => {
                bail!("the plugin {} is not there; {}", plugin.display(), self.how_to_add())
            }
            None if self.plugin.is_some() => {
                let package = self.plugin_package().replace('_', "-");
                bail!("{} is not in {place}; install the package {package} there", self.name)
            }
            _ => Ok(library),
        }
    }

    /// Whether a probe has to show that the provider computes: a library that is not from `inferbench setup` may be
    /// broken or too old.
    pub fn needs_probe(&self, library: &Installed) -> bool {
        self.device != "cpu" || library.origin != Origin::Setup
    }

    /// The process's only environment of ONNX Runtime, with the provider's plugin registered.
    pub fn environment(&self) -> Result<&'static Environment, CaseFailure> {
        static ENVIRONMENT: OnceCell<(Located, Environment)> = OnceCell::new();
        let open = || -> anyhow::Result<_> {
            let library = self.check()?.path;
            let version = version_of(&library)?;
            let minor = minor_of(&version).unwrap_or(u32::MAX);
            ensure!(
                minor >= OLDEST,
                "ONNX Runtime {version} at {} is too old: 1.{OLDEST} is the oldest supported version",
                library.display()
            );
            let builder = if minor < ort::MINOR_VERSION {
                older::use_library(&library, minor)?;
                ort::init()
            } else {
                ort::init_from(&library)?
            };
            let environment = builder.with_name("inferbench").with_telemetry(false).build()?;
            // Providers warn once per session, and errors are returned.
            let is_debugged = std::env::var_os(crate::backend::DEBUG).is_some();
            environment.set_log_level(if is_debugged { LogLevel::Verbose } else { LogLevel::Fatal });
            if let Some(plugin) = self.plugin_library() {
                environment.register_ep_library(&self.device, &plugin)?;
            }
            Ok((*self, environment))
        };
        let opened = ENVIRONMENT.get_or_try_init(open).map_err(|error| CaseFailure::unavailable(format!("{error:#}")));
        let (loaded, environment) = opened?;
        // Once a plugin is registered, sessions without a provider run on it too. So a process has one provider.
        if (&loaded.name, loaded.place) != (&self.name, self.place) {
            let message = format!("this process has ONNX Runtime for {}, not {}", loaded.name, self.name);
            return Err(CaseFailure::failed(message));
        }
        Ok(environment)
    }

    /// The version that the library reports; `None` if it cannot be loaded.
    pub fn library_version(&self) -> Option<String> {
        version_of(&self.check().ok()?.path).ok()
    }

    /// Makes the provider the only one of a session on `device`. `shares` are the threads of the session and the number
    /// of sessions that compute at the same time.
    pub fn register(
        &self,
        builder: SessionBuilder,
        device: &str,
        shares: (usize, usize),
        dtype: Dtype,
    ) -> Result<SessionBuilder, CaseFailure> {
        let unavailable = |error: ort::Error<SessionBuilder>| CaseFailure::unavailable(error.to_string());
        if self.plugin.is_none() {
            let index = i32::try_from(device_index(device)).unwrap_or(i32::MAX);
            let made = self.built_in(index, shares, dtype)?.ok_or_else(|| {
                let (library, name, hint) = (self.library(), &self.name, self.how_to_add());
                let library = library.map(|library| library.path.display().to_string()).unwrap_or_default();
                CaseFailure::unavailable(format!("{library} has no {name}; {hint}"))
            })?;
            return builder.with_execution_providers([made.error_on_failure()]).map_err(unavailable);
        }
        let options = if self.device == "qnn" { qnn_options() } else { Ok(BTreeMap::new()) };
        let options = options.map_err(|error| CaseFailure::unavailable(format!("{error:#}")))?;
        let options: Vec<(String, String)> =
            options.into_iter().map(|(key, value)| (format!("{}.{key}", self.name), value)).collect();
        let missing = || CaseFailure::unavailable(format!("{} finds no device here", self.name));
        let device = self.plugin_device()?.ok_or_else(missing)?;
        builder.with_devices([device], Some(&options)).map_err(unavailable)
    }

    /// A provider that is a part of the library; `None` if this library lacks it.
    fn built_in(
        &self,
        index: i32,
        (threads, instances): (usize, usize),
        dtype: Dtype,
    ) -> ort::Result<Option<ExecutionProviderDispatch>> {
        fn there<P: ExecutionProvider + Into<ExecutionProviderDispatch>>(
            provider: P,
        ) -> ort::Result<Option<ExecutionProviderDispatch>> {
            Ok(P::is_available()?.then(|| provider.into()))
        }
        match self.device.as_str() {
            "cpu" => there(ep::CPU::default().with_arena_allocator(true)),
            // With TensorFloat-32, the dtype would be f32 only by name.
            "cuda" => there(ep::CUDA::default().with_device_id(index).with_tf32(false)),
            // TensorRT computes in f32 whatever it is not allowed to compute in f16 or bf16.
            "tensorrt" => {
                let provider = ep::TensorRT::default().with_device_id(index);
                there(match dtype {
                    Dtype::F16 => provider.with_fp16(true),
                    Dtype::Bf16 => provider.with_bf16(true),
                    Dtype::F32 | Dtype::I8 => provider,
                })
            }
            "rocm" => there(ep::MIGraphX::default().with_device_id(index)),
            // CoreML's default format, a neural network, would compute f32 in f16. The Neural Engine is left out, since
            // it is not a GPU.
            "mps" => {
                let provider = ep::CoreML::default().with_model_format(ep::coreml::ModelFormat::MLProgram);
                there(provider.with_compute_units(ep::coreml::ComputeUnits::CPUAndGPU))
            }
            "openvino" => {
                let provider = ep::OpenVINO::default().with_device_type("CPU");
                there(provider.with_arbitrary_config("load_config", openvino_properties(threads, instances)))
            }
            "xnnpack" => {
                let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
                there(ep::XNNPACK::default().with_intra_op_num_threads(threads))
            }
            _ => Ok(None),
        }
    }

    /// The device type (`cpu`, `gpu` or `npu`) behind a plugin's device, and a description of it.
    pub fn hardware(&self) -> Option<(&'static str, String)> {
        self.plugin.as_ref()?;
        let device = self.plugin_device().ok()??;
        let hardware = device.hardware_device();
        let device_type = match hardware.ty() {
            ort::memory::DeviceType::CPU => "cpu",
            ort::memory::DeviceType::GPU => "gpu",
            ort::memory::DeviceType::NPU => "npu",
            _ => return None,
        };
        // Dawn chooses its adapter itself, whatever devices ONNX Runtime lists.
        let is_of_dawn = self.device == "webgpu" && cfg!(target_os = "linux");
        let is_software = chosen_driver().is_some_and(|driver| driver == SOFTWARE_DRIVER) || !has_gpu();
        let device_type = match (is_of_dawn, is_software) {
            (false, _) => device_type,
            (true, false) => "gpu",
            (true, true) => "cpu",
        };
        let vendor = hardware.vendor().unwrap_or_default();
        let words = match (self.device.as_str(), device_type) {
            ("webgpu", "cpu") => "on a software driver (CPU)".to_owned(),
            ("webgpu", _) if is_of_dawn => "on a GPU that Dawn chose".to_owned(),
            ("qnn", "cpu") => format!("on Qualcomm's emulator ({vendor} CPU)"),
            _ => format!("on a {} of {vendor}", device_type.to_uppercase()),
        };
        Some((device_type, words))
    }

    fn plugin_device(&self) -> Result<Option<Device<'static>>, CaseFailure> {
        let is_own = |device: &Device| device.ep().is_ok_and(|name| name == self.name);
        Ok(self.environment()?.devices().find(is_own))
    }
}

/// Chromium's Vulkan driver, which computes on the CPU.
pub(super) const SOFTWARE_DRIVER: &str = "/usr/lib/chromium/vk_swiftshader_icd.json";

/// The Vulkan driver that an environment variable chooses.
pub(super) fn chosen_driver() -> Option<std::ffi::OsString> {
    std::env::var_os("VK_DRIVER_FILES").or_else(|| std::env::var_os("VK_ICD_FILENAMES"))
}

/// Whether Linux has a GPU that renders. The display adapter of a server board or of a virtual machine does not.
pub(super) fn has_gpu() -> bool {
    let renders = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
    };
    std::fs::read_dir("/dev/dri").into_iter().flatten().any(renders)
}

/// The properties with which OpenVINO compiles a session's graph.
fn openvino_properties(threads: usize, instances: usize) -> serde_json::Value {
    let mut properties = serde_json::json!({
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads.to_string(),
        "NUM_STREAMS": "1",
        // Otherwise OpenVINO uses at most as many threads as there are physical cores.
        "ENABLE_HYPER_THREADING": "YES",
    });
    // Each session would pin its threads to the same processors.
    if instances > 1 {
        properties["ENABLE_CPU_PINNING"] = "NO".into();
    }
    serde_json::json!({ "CPU": properties })
}

/// The variable with the path of QNN's options.
const QNN_OPTIONS: &str = "INFERBENCH_QNN_OPTIONS";

/// QNN's options from the TOML file that [`QNN_OPTIONS`] names. There is no default chip, because the figures of
/// another chip would look like the user's.
fn qnn_options() -> anyhow::Result<BTreeMap<String, String>> {
    let path = variable(QNN_OPTIONS).with_context(|| {
        format!(
            "QNN has to know the chip: set {QNN_OPTIONS} to a TOML file with its options, such as `soc_model = \"57\"` and \
             `htp_arch = \"75\"` for Snapdragon 8 Gen 3"
        )
    })?;
    let text = fs_err::read_to_string(&path).context(QNN_OPTIONS)?;
    let mut options: BTreeMap<String, String> = toml::from_str(&text).with_context(|| path.display().to_string())?;
    // The default is Qualcomm's emulator, which is a part of the package.
    let emulator = || Paths::find().native().join("onnxruntime-qnn/libQnnHtp.so").display().to_string();
    options.entry("backend_path".into()).or_insert_with(emulator);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_environment_lacks_is_to_be_installed_there() {
        let advice = |device: &str| {
            let provider = provider_of(device, Some(Path::new("/nowhere"))).unwrap();
            provider.check().unwrap_err().to_string()
        };
        assert!(advice("cpu").ends_with("; install the package onnxruntime there"), "{}", advice("cpu"));
        assert!(advice("cuda").ends_with("; install the package onnxruntime-gpu there"), "{}", advice("cuda"));
    }

    #[test]
    fn openvino_uses_the_threads_of_its_session_and_pins_none_beside_another_session() {
        let of_cpu = |instances| openvino_properties(8, instances)["CPU"].take();
        let mut properties = serde_json::json!({ "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "8",
            "NUM_STREAMS": "1", "ENABLE_HYPER_THREADING": "YES" });
        assert_eq!(of_cpu(1), properties);
        properties["ENABLE_CPU_PINNING"] = "NO".into();
        assert_eq!(of_cpu(2), properties);
    }
}

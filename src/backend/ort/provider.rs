//! ONNX Runtime's execution providers: which device each is for, where it comes from, and how it is put into a session.

use std::collections::HashMap;

use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch};
use ort::session::builder::SessionBuilder;

use super::library;
use crate::backend::classify;
use crate::definition::{CaseFailure, Dtype, device_index, device_kind};
use crate::paths::Paths;

/// An execution provider.
pub struct Provider {
    /// The device that it is for.
    pub device: &'static str,
    /// What ONNX Runtime calls it.
    pub name: &'static str,
    /// The folder below `.native/` with the build of ONNX Runtime that has it.
    pub package: &'static str,
    /// Its library below `.native/`, where it is no part of the build.
    pub plugin: Option<&'static str>,
    /// What a session of it computes in, of the dtypes that are asked for.
    pub dtypes: &'static [Dtype],
    kind: Kind,
}

enum Kind {
    /// A part of the library: whether this build has it, and how it is made for a session.
    BuiltIn(fn() -> ort::Result<bool>, fn(&Options) -> ExecutionProviderDispatch),
    /// A plugin, with its options for a session.
    Plugin(fn() -> HashMap<&'static str, String>),
}

/// What a session of a provider is made for.
pub struct Options {
    pub index: i32,
    pub threads: usize,
}

const ALL: &[Dtype] = &Dtype::ALL;
const FLOATS: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16];

/// One for each device. (`ROCMExecutionProvider` ended with ONNX Runtime 1.22, which this crate does not load.)
pub static PROVIDERS: [Provider; 11] = [
    built_in("cpu", "CPUExecutionProvider", "onnxruntime", ALL, ep::CPU::is_available, |_| {
        ep::CPU::default().with_arena_allocator(true).build()
    }),
    built_in("cuda", "CUDAExecutionProvider", "onnxruntime-gpu", ALL, ep::CUDA::is_available, |options| {
        // TensorFloat-32 would be f32 by name only.
        ep::CUDA::default().with_device_id(options.index).with_tf32(false).build()
    }),
    built_in(
        "tensorrt",
        "TensorrtExecutionProvider",
        "onnxruntime-gpu",
        FLOATS,
        ep::TensorRT::is_available,
        |options| ep::TensorRT::default().with_device_id(options.index).build(),
    ),
    built_in(
        "rocm",
        "MIGraphXExecutionProvider",
        "onnxruntime-migraphx",
        FLOATS,
        ep::MIGraphX::is_available,
        |options| ep::MIGraphX::default().with_device_id(options.index).build(),
    ),
    built_in(
        "mps",
        "CoreMLExecutionProvider",
        "onnxruntime",
        &[Dtype::F32, Dtype::F16],
        ep::CoreML::is_available,
        |_| ep::CoreML::default().build(),
    ),
    // OpenVINO does not tell ONNX Runtime which precision it chose: only the one that is demanded here is known.
    built_in(
        "openvino",
        "OpenVINOExecutionProvider",
        "onnxruntime-openvino",
        &[Dtype::F32],
        ep::OpenVINO::is_available,
        |options| {
            let properties = serde_json::json!({ "CPU": {
                "INFERENCE_PRECISION_HINT": "f32",
                "INFERENCE_NUM_THREADS": options.threads.to_string(),
                "NUM_STREAMS": "1",
            }});
            ep::OpenVINO::default()
                .with_device_type("CPU")
                .with_arbitrary_config("load_config", properties.to_string())
                .build()
        },
    ),
    // Its floating-point unit has f16 only, whatever the graph says.
    plugin("qnn", "qnn", "onnxruntime-qnn/libonnxruntime_providers_qnn.so", &[Dtype::F16], || {
        let emulator = Paths::find().native().join("onnxruntime-qnn/libQnnHtp.so");
        // Snapdragon 8 Gen 3: the emulator's default is a chip without floating-point numbers.
        let soc = [("soc_model", "57".to_owned()), ("htp_arch", "75".to_owned())];
        let options = HashMap::from([("backend_path", emulator.display().to_string())]);
        options.into_iter().chain(soc).collect()
    }),
    plugin(
        "webgpu",
        "WebGpuExecutionProvider",
        "onnxruntime-webgpu/libonnxruntime_providers_webgpu.so",
        &[Dtype::F32, Dtype::F16],
        HashMap::new,
    ),
    built_in(
        "xnnpack",
        "XnnpackExecutionProvider",
        "onnxruntime",
        &[Dtype::F32],
        ep::XNNPACK::is_available,
        |options| {
            let threads = std::num::NonZeroUsize::new(options.threads).unwrap_or(std::num::NonZeroUsize::MIN);
            ep::XNNPACK::default().with_intra_op_num_threads(threads).build()
        },
    ),
    built_in("directml", "DmlExecutionProvider", "onnxruntime", FLOATS, ep::DirectML::is_available, |options| {
        ep::DirectML::default().with_device_id(options.index).build()
    }),
    built_in("webnn", "WebNNExecutionProvider", "onnxruntime", &[], || Ok(false), |_| ep::CPU::default().build()),
];

const fn built_in(
    device: &'static str,
    name: &'static str,
    package: &'static str,
    dtypes: &'static [Dtype],
    is_available: fn() -> ort::Result<bool>,
    make: fn(&Options) -> ExecutionProviderDispatch,
) -> Provider {
    Provider { device, name, package, plugin: None, dtypes, kind: Kind::BuiltIn(is_available, make) }
}

const fn plugin(
    device: &'static str,
    name: &'static str,
    library: &'static str,
    dtypes: &'static [Dtype],
    options: fn() -> HashMap<&'static str, String>,
) -> Provider {
    Provider { device, name, package: "onnxruntime", plugin: Some(library), dtypes, kind: Kind::Plugin(options) }
}

/// The provider for a device.
///
/// # Errors
/// There is none.
pub fn provider_of(device: &str) -> Result<&'static Provider, CaseFailure> {
    let found = PROVIDERS.iter().find(|provider| provider.device == device_kind(device));
    found.ok_or_else(|| CaseFailure::unavailable(format!("ort has no device {device:?}")))
}

impl Provider {
    /// What is seen of it without loading anything.
    ///
    /// # Errors
    /// Why it is not there.
    pub fn look(&self) -> Result<String, String> {
        match self.device {
            "mps" if !cfg!(target_os = "macos") => Err("CoreML is a part of macOS".into()),
            "directml" if !cfg!(windows) => Err("DirectML is a part of Windows".into()),
            "webnn" => Err("WebNN needs a browser worker, which there is not yet".into()),
            _ => library::check(self),
        }
    }

    /// The command that adds it.
    pub fn how_to_add(&self) -> String {
        match self.device {
            "cpu" => "get it with `scripts/setup onnxruntime`, or set ORT_DYLIB_PATH to a library of yours".into(),
            "cuda" | "tensorrt" | "rocm" | "openvino" | "qnn" | "webgpu" => {
                format!("get it with `scripts/setup --device {}`", self.device)
            }
            _ => format!("set ORT_DYLIB_PATH to a library that was built with {}", self.name),
        }
    }

    /// Puts the provider into a session, and nothing besides it.
    ///
    /// # Errors
    /// This ONNX Runtime has no such provider, or it finds no device.
    pub fn register(
        &'static self,
        builder: SessionBuilder,
        device: &str,
        threads: usize,
    ) -> Result<SessionBuilder, CaseFailure> {
        let unavailable = |error: ort::Error<SessionBuilder>| CaseFailure::unavailable(error.to_string());
        let options = Options { index: i32::try_from(device_index(device)).unwrap_or(i32::MAX), threads };
        match &self.kind {
            Kind::BuiltIn(is_available, make) => {
                if !is_available().map_err(classify)? {
                    let library = library::path(self);
                    return Err(CaseFailure::unavailable(format!(
                        "{} has no {}; {}",
                        library.display(),
                        self.name,
                        self.how_to_add()
                    )));
                }
                builder.with_execution_providers([make(&options).error_on_failure()]).map_err(unavailable)
            }
            Kind::Plugin(plugin_options) => {
                let environment = library::environment(self)?;
                let is_own = |device: &ort::device::Device| device.ep().is_ok_and(|name| name == self.name);
                let Some(device) = environment.devices().find(is_own) else {
                    return Err(CaseFailure::unavailable(format!("{} finds no device here", self.name)));
                };
                let options: Vec<(String, String)> =
                    plugin_options().into_iter().map(|(key, value)| (format!("{}.{key}", self.name), value)).collect();
                builder.with_devices([device], Some(&options)).map_err(unavailable)
            }
        }
    }

    /// What is behind a plugin's device: `cpu`, `gpu` or `npu`, and whose it is.
    pub fn hardware(&'static self) -> Option<(&'static str, String)> {
        self.plugin?;
        let environment = library::environment(self).ok()?;
        let device = environment.devices().find(|device| device.ep().is_ok_and(|name| name == self.name))?;
        let hardware = device.hardware_device();
        let device_type = match hardware.ty() {
            ort::memory::DeviceType::CPU => "cpu",
            ort::memory::DeviceType::GPU => "gpu",
            ort::memory::DeviceType::NPU => "npu",
            _ => return None,
        };
        Some((device_type, hardware.vendor().unwrap_or_default().to_owned()))
    }
}

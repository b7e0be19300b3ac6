//! ONNX Runtime's execution providers: the device of each, where it comes from, and its options.

use std::collections::BTreeMap;

use anyhow::Context;
use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch};

use crate::definition::{CaseFailure, Dtype, device_kind};
use crate::paths::{Paths, variable};

/// An execution provider.
pub struct Provider {
    /// The device that it is for.
    pub device: &'static str,
    /// ONNX Runtime's name of it.
    pub name: &'static str,
    /// The folder below `.native/` with the build of ONNX Runtime that has it.
    pub package: &'static str,
    /// Its library below `.native/`, if it is not a part of that build.
    pub plugin: Option<&'static str>,
    /// The dtypes that a session of it can compute in.
    pub dtypes: &'static [Dtype],
    /// How it comes into a session.
    pub kind: Kind,
}

/// How a provider comes into a session.
pub enum Kind {
    /// It is a part of the library: whether this build has it, and how it is made for a session.
    BuiltIn(fn() -> ort::Result<bool>, fn(&Options) -> ExecutionProviderDispatch),
    /// It is a plugin with these options for a session.
    Plugin(fn() -> anyhow::Result<BTreeMap<String, String>>),
}

/// The session that a provider is made for.
pub struct Options {
    /// The number of the device.
    pub index: i32,
    /// Threads of one call.
    pub threads: usize,
}

/// The variable with the path of QNN's options.
pub const QNN_OPTIONS: &str = "INFERBENCH_QNN_OPTIONS";

const ALL: &[Dtype] = &Dtype::ALL;
const FLOATS: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16];

/// One provider per device. (`ROCMExecutionProvider` ended with ONNX Runtime 1.22, which this crate does not load.)
pub static PROVIDERS: [Provider; 10] = [
    built_in("cpu", "CPUExecutionProvider", "onnxruntime", ALL, ep::CPU::is_available, |_| {
        ep::CPU::default().with_arena_allocator(true).build()
    }),
    built_in("cuda", "CUDAExecutionProvider", "onnxruntime-gpu", ALL, ep::CUDA::is_available, |options| {
        // With TensorFloat-32 the dtype would be f32 by name only.
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
    // Its floating-point unit computes in f16 only, whatever the graph says.
    plugin("qnn", "qnn", "onnxruntime-qnn/libonnxruntime_providers_qnn.so", &[Dtype::F16], qnn_options),
    plugin(
        "webgpu",
        "WebGpuExecutionProvider",
        "onnxruntime-webgpu/libonnxruntime_providers_webgpu.so",
        &[Dtype::F32, Dtype::F16],
        || Ok(BTreeMap::new()),
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
    options: fn() -> anyhow::Result<BTreeMap<String, String>>,
) -> Provider {
    Provider { device, name, package: "onnxruntime", plugin: Some(library), dtypes, kind: Kind::Plugin(options) }
}

/// QNN's options out of the TOML file that [`QNN_OPTIONS`] names. There is no default chip, because figures of another chip
/// than the user's would look like the user's.
fn qnn_options() -> anyhow::Result<BTreeMap<String, String>> {
    let path = variable(QNN_OPTIONS).with_context(|| {
        format!(
            "QNN has to know the chip: set {QNN_OPTIONS} to a TOML file with its options, such as `soc_model = \"57\"` and \
             `htp_arch = \"75\"` for Snapdragon 8 Gen 3"
        )
    })?;
    let text = fs_err::read_to_string(&path).context(QNN_OPTIONS)?;
    let mut options: BTreeMap<String, String> = toml::from_str(&text).with_context(|| path.display().to_string())?;
    // Without a path it is Qualcomm's emulator, which is a part of the package.
    let emulator = || Paths::find().native().join("onnxruntime-qnn/libQnnHtp.so").display().to_string();
    options.entry("backend_path".into()).or_insert_with(emulator);
    Ok(options)
}

/// The provider for a device.
///
/// # Errors
/// `unavailable`: there is none.
pub fn provider_of(device: &str) -> Result<&'static Provider, CaseFailure> {
    let found = PROVIDERS.iter().find(|provider| provider.device == device_kind(device));
    found.ok_or_else(|| CaseFailure::unavailable(format!("ort has no device {device:?}")))
}

impl Provider {
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
}

//! Puts an execution provider into a session, and says whether it is here and what is behind it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use anyhow::Context;
use ort::device::Device;
use ort::ep::{self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch};
use ort::session::builder::SessionBuilder;

use super::provider::Provider;
use crate::definition::{CaseFailure, device_index};
use crate::paths::{Paths, variable};

/// The variable with the path of QNN's options.
pub const QNN_OPTIONS: &str = "INFERBENCH_QNN_OPTIONS";

impl Provider {
    /// Puts the provider into a session on `device`, and nothing besides it.
    pub fn register(
        &'static self,
        builder: SessionBuilder,
        device: &str,
        threads: usize,
    ) -> Result<SessionBuilder, CaseFailure> {
        let unavailable = |error: ort::Error<SessionBuilder>| CaseFailure::unavailable(error.to_string());
        if self.plugin.is_none() {
            let index = i32::try_from(device_index(device)).unwrap_or(i32::MAX);
            let made = self.built_in(index, threads)?.ok_or_else(|| {
                let (library, name, hint) = (self.library(), &self.name, self.how_to_add());
                CaseFailure::unavailable(format!("{} has no {name}; {hint}", library.display()))
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
    fn built_in(&self, index: i32, threads: usize) -> ort::Result<Option<ExecutionProviderDispatch>> {
        fn there<P: ExecutionProvider + Into<ExecutionProviderDispatch>>(
            provider: P,
        ) -> ort::Result<Option<ExecutionProviderDispatch>> {
            Ok(P::is_available()?.then(|| provider.into()))
        }
        match self.device.as_str() {
            "cpu" => there(ep::CPU::default().with_arena_allocator(true)),
            // With TensorFloat-32 the dtype would be f32 by name only.
            "cuda" => there(ep::CUDA::default().with_device_id(index).with_tf32(false)),
            "tensorrt" => there(ep::TensorRT::default().with_device_id(index)),
            "rocm" => there(ep::MIGraphX::default().with_device_id(index)),
            "mps" => there(ep::CoreML::default()),
            "openvino" => {
                let properties = serde_json::json!({ "CPU": {
                    "INFERENCE_PRECISION_HINT": "f32",
                    "INFERENCE_NUM_THREADS": threads.to_string(),
                    "NUM_STREAMS": "1",
                }});
                let provider = ep::OpenVINO::default().with_device_type("CPU");
                there(provider.with_arbitrary_config("load_config", properties.to_string()))
            }
            "xnnpack" => {
                let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
                there(ep::XNNPACK::default().with_intra_op_num_threads(threads))
            }
            _ => Ok(None),
        }
    }

    /// The device type (`cpu`, `gpu` or `npu`) behind a plugin's device, and a description of it.
    pub fn hardware(&'static self) -> Option<(&'static str, String)> {
        self.plugin.as_ref()?;
        let device = self.plugin_device().ok()??;
        let hardware = device.hardware_device();
        let device_type = match hardware.ty() {
            ort::memory::DeviceType::CPU => "cpu",
            ort::memory::DeviceType::GPU => "gpu",
            ort::memory::DeviceType::NPU => "npu",
            _ => return None,
        };
        let vendor = hardware.vendor().unwrap_or_default();
        let words = match (self.device.as_str(), device_type) {
            ("webgpu", "cpu") => format!("on a software driver ({vendor} CPU)"),
            ("qnn", "cpu") => format!("on Qualcomm's emulator ({vendor} CPU)"),
            _ => format!("on a {} of {vendor}", device_type.to_uppercase()),
        };
        Some((device_type, words))
    }

    fn plugin_device(&'static self) -> Result<Option<Device<'static>>, CaseFailure> {
        let is_own = |device: &Device| device.ep().is_ok_and(|name| name == self.name);
        Ok(self.environment()?.devices().find(is_own))
    }
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

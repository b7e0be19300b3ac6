//! ONNX Runtime through the `ort` crate.
//!
//! The library is loaded at run time from `ORT_DYLIB_PATH` or `.native/onnxruntime`. Inputs and outputs are bound once
//! (`IoBinding`), so that a timed call is ONNX Runtime's own `Run` and nothing around it.

use std::ffi::CStr;
use std::path::PathBuf;

use once_cell::sync::OnceCell;
use ort::environment::Environment;
use ort::ep;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, Session as OrtRuntimeSession};
use ort::value::{DynTensor, DynValue, Tensor, TensorElementType, ValueType};

use super::{
    Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, artifact_path, check_artifact, classify,
};
use crate::definition::{Dtype, Model, Shortfall};
use crate::fixture::{HostTensor, TensorData};
use crate::places::Places;

pub struct Ort;

/// The `ort` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "2.0.0-rc.15";

fn library_path() -> PathBuf {
    let file = if cfg!(target_os = "macos") { "libonnxruntime.dylib" } else { "libonnxruntime.so" };
    match std::env::var_os("ORT_DYLIB_PATH") {
        Some(path) => PathBuf::from(path),
        None => Places::find().native().join("onnxruntime").join(file),
    }
}

fn check_library() -> Result<String, String> {
    let path = library_path();
    if path.is_file() {
        return Ok(path.display().to_string());
    }
    Err(format!(
        "ONNX Runtime is not at {}; get it with `scripts/setup onnxruntime`, or set ORT_DYLIB_PATH to a library of yours",
        path.display()
    ))
}

/// The process's one environment; a process can load only one ONNX Runtime.
fn environment() -> Result<&'static Environment, Shortfall> {
    static ENVIRONMENT: OnceCell<Environment> = OnceCell::new();
    ENVIRONMENT
        .get_or_try_init(|| {
            check_library()?;
            let builder = ort::init_from(library_path()).map_err(|error| error.to_string())?;
            builder.with_name("inferbench").with_telemetry(false).build().map_err(|error| error.to_string())
        })
        .map_err(|error: String| Shortfall::unavailable(error))
}

fn library_version() -> Option<String> {
    environment().ok()?;
    // SAFETY: the library that `environment` has loaded is loaded once more, which adds a reference and runs nothing;
    // the symbol and both fields are ONNX Runtime's stable C entry point, and the string is static.
    unsafe {
        let library = libloading::Library::new(library_path()).ok()?;
        let entry: libloading::Symbol<unsafe extern "C" fn() -> *const ort::sys::OrtApiBase> =
            library.get(b"OrtGetApiBase").ok()?;
        let base = entry().as_ref()?;
        Some(CStr::from_ptr((base.GetVersionString)()).to_string_lossy().into_owned())
    }
}

impl Backend for Ort {
    fn name(&self) -> &'static str {
        "ort"
    }

    fn framework(&self) -> &'static str {
        "onnxruntime"
    }

    fn devices(&self) -> Vec<DeviceReport> {
        vec![DeviceReport { device: "cpu".into(), availability: check_library() }]
    }

    fn versions(&self) -> Versions {
        Versions { backend: CRATE_VERSION.into(), library: library_version().unwrap_or_default() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), Shortfall> {
        check_artifact(model, dtype, Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, Shortfall> {
        let path = artifact_path(&request.artifacts.onnx, "ONNX")?;
        let provider = match request.device {
            "cpu" => ep::CPU::default().with_arena_allocator(true).build().error_on_failure(),
            other => return Err(Shortfall::unavailable(format!("ort has no device {other:?}"))),
        };
        let session = OrtRuntimeSession::builder(environment()?)
            .and_then(|builder| Ok(builder.with_intra_threads(request.threads)?))
            .and_then(|builder| Ok(builder.with_inter_threads(1)?))
            .and_then(|builder| Ok(builder.with_execution_providers([provider])?))
            .and_then(|mut builder| builder.commit_from_file(path))
            .map_err(classify)?;
        let output_memory = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::CPUOutput)
            .map_err(classify)?;
        let placement = Placement {
            effective_device: "cpu".into(),
            effective_dtype: Some(Dtype::F32),
            providers: "CPUExecutionProvider".into(),
            threads: Some(request.threads),
            artifact: Some(path.to_owned()),
            executor: None,
        };
        // The model's own input order may differ from the session's; binding is by name.
        let input_names = request.model.inputs.iter().map(|input| input.name.clone()).collect();
        let output_names: Vec<String> = match request.model.outputs.as_slice() {
            [] => session.outputs().iter().map(|output| output.name().to_owned()).collect(),
            outputs => outputs.iter().map(|output| output.name.clone()).collect(),
        };
        Ok(Box::new(OrtSession { session, bindings: Vec::new(), input_names, output_names, output_memory, placement }))
    }
}

struct OrtSession {
    session: OrtRuntimeSession,
    bindings: Vec<IoBinding>,
    input_names: Vec<String>,
    output_names: Vec<String>,
    output_memory: MemoryInfo<'static>,
    placement: Placement,
}

impl Session for OrtSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, Shortfall> {
        let mut binding = self.session.create_binding().map_err(classify)?;
        for (name, input) in self.input_names.iter().zip(inputs) {
            let value = to_value(input).map_err(classify)?;
            binding.bind_input(name, &value).map_err(classify)?;
        }
        for name in &self.output_names {
            binding.bind_output_to_device(name, &self.output_memory).map_err(classify)?;
        }
        self.bindings.push(binding);
        Ok(self.bindings.len() - 1)
    }

    fn run(&mut self, binding: usize) -> Result<(), Shortfall> {
        self.session.run_binding(&self.bindings[binding]).map(drop).map_err(classify)
    }

    fn sync(&mut self) -> Result<(), Shortfall> {
        // ONNX Runtime's `Run` returns when the outputs are there.
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, Shortfall> {
        let outputs = self.session.run_binding(&self.bindings[binding]).map_err(classify)?;
        self.output_names
            .iter()
            .map(|name| {
                let value = outputs.get(name).ok_or_else(|| Shortfall::failed(format!("no output {name:?}")))?;
                to_host(value)
            })
            .collect()
    }

    fn placement(&self) -> Placement {
        self.placement.clone()
    }
}

fn to_value(tensor: &HostTensor) -> ort::Result<DynTensor> {
    let shape = tensor.shape.clone();
    Ok(match &tensor.data {
        TensorData::F32(values) => Tensor::from_array((shape, values.clone()))?.upcast(),
        TensorData::F64(values) => Tensor::from_array((shape, values.clone()))?.upcast(),
        TensorData::I32(values) => Tensor::from_array((shape, values.clone()))?.upcast(),
        TensorData::I64(values) => Tensor::from_array((shape, values.clone()))?.upcast(),
        TensorData::U8(values) => Tensor::from_array((shape, values.clone()))?.upcast(),
        TensorData::Bool(values) => Tensor::from_array((shape, values.clone()))?.upcast(),
    })
}

fn to_host(value: &DynValue) -> Result<HostTensor, Shortfall> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(Shortfall::unsupported(format!("an output is {} and not a tensor", value.dtype())));
    };
    macro_rules! extract {
        ($element:ty, $variant:ident, $convert:expr) => {{
            let (shape, values) = value.try_extract_tensor::<$element>().map_err(classify)?;
            let shape = shape.iter().map(|&size| size.max(0) as usize).collect();
            HostTensor { shape, data: TensorData::$variant(values.iter().map($convert).collect()) }
        }};
    }
    Ok(match ty {
        TensorElementType::Float32 => extract!(f32, F32, |&value| value),
        TensorElementType::Float16 => extract!(half::f16, F32, |value| value.to_f32()),
        TensorElementType::Bfloat16 => extract!(half::bf16, F32, |value| value.to_f32()),
        TensorElementType::Float64 => extract!(f64, F64, |&value| value),
        TensorElementType::Int32 => extract!(i32, I32, |&value| value),
        TensorElementType::Int64 => extract!(i64, I64, |&value| value),
        TensorElementType::Uint8 => extract!(u8, U8, |&value| value),
        TensorElementType::Bool => extract!(bool, Bool, |&value| value),
        other => return Err(Shortfall::unsupported(format!("an output has the element type {other}"))),
    })
}

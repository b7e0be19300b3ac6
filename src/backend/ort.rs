//! ONNX Runtime through the `ort` crate.
//!
//! The library is loaded at run time from `ORT_DYLIB_PATH` or `.native/onnxruntime`. A timed call is ONNX Runtime's own
//! `Run` on tensors that are there already, and what generation needs around it.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use once_cell::sync::OnceCell;
use ort::environment::Environment;
use ort::ep;
use ort::session::{Session as OrtRuntimeSession, SessionInputValue};
use ort::value::{DynTensor, DynValue, Tensor, TensorElementType, ValueType};

use super::graphs::{Runtime, largest_of_rows, open_session, parts_of};
use super::{Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, check_artifact, classify};
use crate::definition::{Dtype, Model, Part, Shortfall};
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
        if request.device != "cpu" {
            return Err(Shortfall::unavailable(format!("ort has no device {:?}", request.device)));
        }
        let parts = parts_of(request, Format::Onnx)?;
        let graphs = parts.iter().map(|(part, file)| OrtGraph::load(part, file, request.threads));
        let graphs = graphs.collect::<Result<_, _>>()?;
        let placement = Placement {
            effective_device: "cpu".into(),
            effective_dtype: Some(Dtype::F32),
            providers: "CPUExecutionProvider".into(),
            threads: Some(request.threads),
            ..Placement::default()
        };
        open_session(request, OrtRuntime, &parts, graphs, placement)
    }
}

struct OrtRuntime;

struct OrtGraph {
    session: OrtRuntimeSession,
    /// For each input of the session, its place in the part's definition.
    inputs: Vec<usize>,
    /// For each output of the part's definition, its place in the session.
    outputs: Vec<usize>,
}

impl OrtGraph {
    fn load(part: &Part, path: &Path, threads: usize) -> Result<Self, Shortfall> {
        let provider = ep::CPU::default().with_arena_allocator(true).build().error_on_failure();
        let session = OrtRuntimeSession::builder(environment()?)
            .and_then(|builder| Ok(builder.with_intra_threads(threads)?))
            .and_then(|builder| Ok(builder.with_inter_threads(1)?))
            .and_then(|builder| Ok(builder.with_execution_providers([provider])?))
            .and_then(|mut builder| builder.commit_from_file(path))
            .map_err(classify)?;
        let place = |names: &[&str], name: &str| {
            let missing = || Shortfall::failed(format!("{}: no {name:?} among {}", path.display(), names.join(", ")));
            names.iter().position(|known| *known == name).ok_or_else(missing)
        };
        let defined: Vec<&str> = part.inputs.iter().map(|input| input.name.as_str()).collect();
        let inputs = session.inputs().iter().map(|input| place(&defined, input.name())).collect::<Result<_, _>>()?;
        let named: Vec<&str> = session.outputs().iter().map(|output| output.name()).collect();
        let outputs = match part.outputs.as_slice() {
            [] => (0..named.len()).collect(),
            outputs => outputs.iter().map(|output| place(&named, &output.name)).collect::<Result<_, _>>()?,
        };
        Ok(OrtGraph { session, inputs, outputs })
    }
}

impl Runtime for OrtRuntime {
    type Graph = OrtGraph;
    type Value = Rc<DynValue>;

    fn upload(&self, tensor: &HostTensor) -> Result<Rc<DynValue>, Shortfall> {
        to_value(tensor).map(|value| Rc::new(value.into_dyn())).map_err(classify)
    }

    fn download(&self, value: &Rc<DynValue>) -> Result<HostTensor, Shortfall> {
        to_host(value)
    }

    fn run(&self, graph: &mut OrtGraph, inputs: &[&Rc<DynValue>]) -> Result<Vec<Rc<DynValue>>, Shortfall> {
        let inputs: Vec<SessionInputValue> = graph.inputs.iter().map(|&place| (&**inputs[place]).into()).collect();
        let computed = graph.session.run(inputs.as_slice()).map_err(classify)?;
        let computed: Vec<Rc<DynValue>> = computed.into_iter().map(|(_, value)| Rc::new(value)).collect();
        Ok(graph.outputs.iter().map(|&place| Rc::clone(&computed[place])).collect())
    }

    fn greedy(&self, logits: &Rc<DynValue>) -> Result<Rc<DynValue>, Shortfall> {
        let (shape, values) = logits.try_extract_tensor::<f32>().map_err(classify)?;
        let rows = shape.first().map_or(1, |&rows| rows.max(0) as usize);
        self.upload(&HostTensor { shape: vec![rows, 1], data: TensorData::I64(largest_of_rows(values, rows)) })
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

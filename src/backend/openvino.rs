//! OpenVINO through the `openvino` crate: ONNX graphs, read and compiled by OpenVINO itself.
//!
//! The library is loaded at run time from `INFERBENCH_OPENVINO_LIBRARY` or `.native/openvino`. A graph is compiled with
//! the shapes that its file leaves open, for one stream of so many threads, and in the precision of the case: left to
//! itself OpenVINO takes a reduced one where the processor is faster with it. What it then says of the compiled graph
//! is what the record says.
//!
//! Outputs stay in the request that computed them, and another request of the graph is run for as long as somebody
//! holds them; so nothing is copied when the keys and values of one step are the inputs of the next.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use once_cell::sync::OnceCell;
use openvino::{
    CompiledModel, Core, DeviceType, ElementType, InferRequest, InferenceError, PropertyKey, RwPropertyKey, Shape,
    Tensor,
};

use super::graphs::{Runtime, largest_of_rows, open_session, parts_of};
use super::{Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, check_artifact, classify};
use crate::definition::{Dtype, Model, Part, Shortfall};
use crate::fixture::{HostTensor, TensorData};
use crate::places::Places;

pub struct OpenVino;

/// The `openvino` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "0.11.1";

/// The library of the release that `scripts/setup` pins.
const LIBRARY: &str = "libopenvino_c.so.2641";

/// The oldest release whose numbers of element types are the crate's.
const OLDEST: (u32, u32) = (2025, 1);

/// OpenVINO's devices, as case ids name them.
const DEVICES: [&str; 3] = ["cpu", "gpu", "npu"];

fn library_path() -> PathBuf {
    match std::env::var_os("INFERBENCH_OPENVINO_LIBRARY") {
        Some(path) => PathBuf::from(path),
        None => Places::find().native().join("openvino").join(LIBRARY),
    }
}

/// OpenVINO's build number, such as `2026.4.1-22982-…`, once the library is seen to be one that the crate can load.
fn build_number() -> Result<&'static str, String> {
    static BUILD_NUMBER: OnceCell<String> = OnceCell::new();
    BUILD_NUMBER.get_or_try_init(|| read_build_number(&library_path())).map(String::as_str)
}

fn read_build_number(path: &Path) -> Result<String, String> {
    if !path.is_file() {
        return Err(format!(
            "OpenVINO is not at {}; get it with `scripts/setup openvino`, or set INFERBENCH_OPENVINO_LIBRARY to a \
             libopenvino_c of yours",
            path.display()
        ));
    }
    let broken = |error: libloading::Error| format!("{}: {error}", path.display());
    // SAFETY: loading OpenVINO runs no code but its initialisers; both functions are its stable C entry points, the
    // struct is theirs, and what the first has allocated goes back through the second. The crate looks neither for
    // missing functions nor for another form of the number: it panics.
    let number = unsafe {
        let library = libloading::Library::new(path).map_err(broken)?;
        type Entry = unsafe extern "C" fn(*mut openvino_sys::ov_version_t) -> openvino_sys::ov_status_e;
        type Free = unsafe extern "C" fn(*mut openvino_sys::ov_version_t);
        let entry: libloading::Symbol<Entry> = library.get(b"ov_get_openvino_version").map_err(broken)?;
        let free: libloading::Symbol<Free> = library.get(b"ov_version_free").map_err(broken)?;
        let mut version = openvino_sys::ov_version_t { buildNumber: std::ptr::null(), description: std::ptr::null() };
        if entry(&mut version) != openvino_sys::ov_status_e::OK || version.buildNumber.is_null() {
            return Err(format!("{} does not say its version", path.display()));
        }
        let number = CStr::from_ptr(version.buildNumber).to_string_lossy().into_owned();
        free(&mut version);
        number
    };
    let mut parts = number.split(['.', '-']).map_while(|part| part.parse().ok());
    match (parts.next(), parts.next()) {
        (Some(year), Some(minor)) if (year, minor) >= OLDEST => Ok(number),
        _ => Err(format!("{} is OpenVINO {number}; the oldest that can be used is 2025.1", path.display())),
    }
}

/// The process's one `Core`.
fn core() -> Result<MutexGuard<'static, Core>, String> {
    static CORE: OnceCell<Mutex<Core>> = OnceCell::new();
    let core = CORE.get_or_try_init(|| {
        build_number()?;
        openvino_sys::library::load_from(library_path())?;
        Core::new().map(Mutex::new).map_err(|error| error.to_string())
    })?;
    Ok(core.lock().unwrap_or_else(PoisonError::into_inner))
}

fn find_devices() -> Vec<DeviceReport> {
    let listed = core().and_then(|core| {
        let devices = core.available_devices().map_err(|error| failed(error).message)?;
        let full_name = |device: &DeviceType| core.get_property(device, &PropertyKey::DeviceFullName);
        let named = devices.iter().map(|device| (case_device(device.as_ref()), full_name(device)));
        Ok(named.map(|(device, name)| (device, name.unwrap_or_default().trim().to_owned())).collect::<Vec<_>>())
    });
    let availability = |device: &str| {
        let devices = listed.as_ref().map_err(Clone::clone)?;
        let found = devices.iter().find(|(name, _)| name == device);
        found.map(|(_, description)| description.clone()).ok_or_else(|| match device {
            "gpu" => "OpenVINO finds no Intel GPU here; it needs Intel's OpenCL driver".to_owned(),
            _ => format!("OpenVINO finds no Intel {} here; it needs Intel's driver", device.to_uppercase()),
        })
    };
    DEVICES.iter().map(|&device| DeviceReport { device: device.into(), availability: availability(device) }).collect()
}

/// `gpu` of OpenVINO's `GPU` or `GPU.0`, which are the same.
fn case_device(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_suffix(".0").map_or_else(|| name.clone(), str::to_owned)
}

impl Backend for OpenVino {
    fn name(&self) -> &'static str {
        "openvino"
    }

    fn framework(&self) -> &'static str {
        "openvino"
    }

    fn devices(&self) -> Vec<DeviceReport> {
        static DEVICES: OnceCell<Vec<DeviceReport>> = OnceCell::new();
        DEVICES.get_or_init(find_devices).clone()
    }

    fn versions(&self) -> Versions {
        let release = build_number().ok().and_then(|number| number.split('-').next()).unwrap_or_default();
        Versions { backend: CRATE_VERSION.into(), library: release.into() }
    }

    /// OpenVINO makes the other precisions out of the f32 graph.
    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), Shortfall> {
        if dtype == Dtype::I8 {
            return Err(Shortfall::unsupported("OpenVINO computes in f32, f16 or bf16, as it is told"));
        }
        check_artifact(model, Dtype::F32, Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, Shortfall> {
        if !DEVICES.contains(&request.device) {
            return Err(Shortfall::unavailable(format!("openvino has no device {:?}", request.device)));
        }
        let mut core = core().map_err(Shortfall::unavailable)?;
        configure(&mut core, request)?;
        let parts = parts_of(request, Format::Onnx)?;
        let graphs = parts.iter().map(|(part, file)| Graph::load(&mut core, part, file, request.device));
        let graphs = graphs.collect::<Result<Vec<_>, _>>()?;
        let placements = graphs.iter().map(|graph| graph.placement()).collect::<Result<Vec<_>, _>>()?;
        let is_as_asked = |placement: &&Placement| {
            placement.effective_device == request.device && placement.effective_dtype == Some(request.dtype)
        };
        // One part that is not as asked makes the case so.
        let placement = placements.iter().find(|placement| !is_as_asked(placement)).or(placements.first());
        open_session(request, OpenVinoRuntime, &parts, graphs, placement.cloned().unwrap_or_default())
    }
}

/// Tells the device how to compile and run graphs from now on.
fn configure(core: &mut Core, request: &LoadRequest<'_>) -> Result<(), Shortfall> {
    let threads = request.threads.to_string();
    let mut properties = vec![
        (RwPropertyKey::HintPerformanceMode, "LATENCY"),
        (RwPropertyKey::HintInferencePrecision, request.dtype.name()),
        (RwPropertyKey::NumStreams, "1"),
    ];
    if request.device == "cpu" {
        properties.push((RwPropertyKey::InferenceNumThreads, threads.as_str()));
        // The number of threads would otherwise be cut to that of physical cores.
        properties.push((RwPropertyKey::HintEnableHyperThreading, "YES"));
    }
    let name = request.device.to_uppercase();
    let device = DeviceType::from(name.as_str());
    for (key, value) in properties {
        core.set_property(&device, &key, value).map_err(|error| {
            let Shortfall { message, .. } = failed(error);
            Shortfall::unsupported(format!("OpenVINO refuses {}={value} on {name}: {message}", key.as_ref()))
        })?;
    }
    Ok(())
}

/// OpenVINO's errors begin with the places in its source that they came through.
fn failed(error: InferenceError) -> Shortfall {
    let message = error.message.filter(|message| !message.trim().is_empty()).unwrap_or_else(|| error.kind.to_string());
    let is_place = |line: &&str| {
        line.is_empty() || line.starts_with("Exception from ") || (line.starts_with("Check '") && line.ends_with(':'))
    };
    let told: Vec<&str> = message.lines().map(str::trim).filter(|line| !is_place(line)).collect();
    let message = if told.is_empty() { message } else { told.join("\n") };
    let is_missing = ["does not support", "No conversion rule found"].iter().any(|part| message.contains(part));
    if is_missing { Shortfall::unsupported(message) } else { classify(message) }
}

struct OpenVinoRuntime;

struct Graph {
    compiled: CompiledModel,
    /// Those that have run so far. A request is run again when nobody else holds it.
    requests: Vec<Rc<InferRequest>>,
    /// For each input of the compiled graph, its place in the part's definition.
    inputs: Vec<usize>,
    /// For each output of the part's definition, its place in the compiled graph.
    outputs: Vec<usize>,
}

#[derive(Clone)]
enum Value {
    Own(Rc<Tensor>),
    /// An output of a request, by its place.
    Output(Rc<InferRequest>, usize),
}

impl Value {
    /// What `read` makes of the tensor.
    fn with<T>(&self, read: impl FnOnce(&Tensor) -> Result<T, Shortfall>) -> Result<T, Shortfall> {
        match self {
            Value::Own(tensor) => read(tensor),
            Value::Output(request, place) => read(&request.get_output_tensor_by_index(*place).map_err(failed)?),
        }
    }
}

impl Graph {
    fn load(core: &mut Core, part: &Part, path: &Path, device: &str) -> Result<Self, Shortfall> {
        let in_file = |error| {
            let Shortfall { status, message } = failed(error);
            Shortfall::new(status, format!("{}: {message}", path.display()))
        };
        let file = path.to_str().ok_or_else(|| Shortfall::failed(format!("{} is not UTF-8", path.display())))?;
        // The crate makes C strings of names, and panics where that cannot be.
        if part.inputs.iter().chain(&part.outputs).any(|tensor| tensor.name.contains('\0')) {
            return Err(Shortfall::unsupported(format!("{}: a name holds a zero byte", path.display())));
        }
        let model = core.read_model_from_file(file, "").map_err(in_file)?;
        let compiled = core.compile_model(&model, DeviceType::from(device.to_uppercase().as_str())).map_err(in_file)?;

        // A tensor may have several names, of which OpenVINO gives any, but the same one each time.
        let inputs = (0..compiled.get_input_size().map_err(in_file)?).map(|index| compiled.get_input_by_index(index));
        let inputs = inputs.map(|node| node?.get_name()).collect::<Result<Vec<String>, _>>().map_err(in_file)?;
        // An input that the graph has no use for may be gone.
        let own_name = |name: &str| compiled.get_input_by_name(name).and_then(|node| node.get_name()).ok();
        let defined: Vec<Option<String>> = part.inputs.iter().map(|input| own_name(&input.name)).collect();
        let missing = |name: &str| Shortfall::failed(format!("{}: nothing gives {name:?}", path.display()));
        let place = |name: &String| defined.iter().position(|known| known.as_ref() == Some(name));
        let inputs = inputs.iter().map(|name| place(name).ok_or_else(|| missing(name))).collect::<Result<_, _>>()?;

        let outputs =
            (0..compiled.get_output_size().map_err(in_file)?).map(|index| compiled.get_output_by_index(index));
        let outputs = outputs.map(|node| node?.get_name()).collect::<Result<Vec<String>, _>>().map_err(in_file)?;
        let missing =
            |name: &str| Shortfall::failed(format!("{}: no {name:?} among {}", path.display(), outputs.join(", ")));
        let place = |name: &str| {
            let known = compiled.get_output_by_name(name).and_then(|node| node.get_name());
            let known = known.map_err(|_| missing(name))?;
            outputs.iter().position(|output| *output == known).ok_or_else(|| missing(name))
        };
        let outputs = match part.outputs.as_slice() {
            [] => (0..outputs.len()).collect(),
            defined => defined.iter().map(|output| place(&output.name)).collect::<Result<_, _>>()?,
        };
        Ok(Graph { compiled, requests: Vec::new(), inputs, outputs })
    }

    /// Where and how OpenVINO says that it runs the graph.
    fn placement(&self) -> Result<Placement, Shortfall> {
        let property = |key| self.compiled.get_property(&key).map_err(failed);
        let devices = property(PropertyKey::Other("EXECUTION_DEVICES".into()))?;
        let precision = property(RwPropertyKey::HintInferencePrecision.into())?;
        let unknown = |_| Shortfall::unsupported(format!("OpenVINO says that it computes in {precision:?}"));
        let dtype = precision.parse::<Dtype>().map_err(unknown)?;
        // Devices other than the CPU have no such property.
        let threads = property(RwPropertyKey::InferenceNumThreads.into()).ok().and_then(|count| count.parse().ok());
        Ok(Placement {
            effective_device: case_device(devices.trim()),
            effective_dtype: Some(dtype),
            providers: devices.trim().to_owned(),
            threads,
            ..Placement::default()
        })
    }

    /// The place of a request whose outputs nobody holds.
    fn free_request(&mut self) -> Result<usize, Shortfall> {
        if let Some(place) = self.requests.iter().position(|request| Rc::strong_count(request) == 1) {
            return Ok(place);
        }
        self.requests.push(Rc::new(self.compiled.create_infer_request().map_err(failed)?));
        Ok(self.requests.len() - 1)
    }
}

impl Runtime for OpenVinoRuntime {
    type Graph = Graph;
    type Value = Value;

    fn upload(&self, tensor: &HostTensor) -> Result<Value, Shortfall> {
        to_tensor(tensor).map(|tensor| Value::Own(Rc::new(tensor)))
    }

    fn download(&self, value: &Value) -> Result<HostTensor, Shortfall> {
        value.with(to_host)
    }

    fn run(&self, graph: &mut Graph, inputs: &[&Value]) -> Result<Vec<Value>, Shortfall> {
        let place = graph.free_request()?;
        let held = || Shortfall::failed("a request whose outputs are still held");
        let request = Rc::get_mut(&mut graph.requests[place]).ok_or_else(held)?;
        for (index, &input) in graph.inputs.iter().enumerate() {
            inputs[input].with(|tensor| request.set_input_tensor_by_index(index, tensor).map_err(failed))?;
        }
        request.infer().map_err(failed)?;
        let request = &graph.requests[place];
        Ok(graph.outputs.iter().map(|&output| Value::Output(Rc::clone(request), output)).collect())
    }

    fn greedy(&self, logits: &Value) -> Result<Value, Shortfall> {
        let HostTensor { shape, data } = logits.with(to_host)?;
        let TensorData::F32(values) = data else { return Err(Shortfall::failed("logits that are not f32")) };
        let rows = shape.first().copied().unwrap_or(1);
        self.upload(&HostTensor { shape: vec![rows, 1], data: TensorData::I64(largest_of_rows(&values, rows)) })
    }
}

fn to_tensor(tensor: &HostTensor) -> Result<Tensor, Shortfall> {
    let dimensions: Vec<i64> = tensor.shape.iter().map(|&size| size as i64).collect();
    let shape = Shape::new(&dimensions).map_err(failed)?;
    macro_rules! fill {
        ($element:ident, $values:expr) => {{
            let mut made = Tensor::new(ElementType::$element, &shape).map_err(failed)?;
            // An empty tensor may have no memory that a slice could point to.
            if !$values.is_empty() {
                made.get_data_mut().map_err(failed)?.copy_from_slice($values);
            }
            made
        }};
    }
    Ok(match &tensor.data {
        TensorData::F32(values) => fill!(F32, values),
        TensorData::F64(values) => fill!(F64, values),
        TensorData::I32(values) => fill!(I32, values),
        TensorData::I64(values) => fill!(I64, values),
        TensorData::U8(values) => fill!(U8, values),
        TensorData::Bool(values) => fill!(Boolean, &values.iter().map(|&value| u8::from(value)).collect::<Vec<_>>()),
    })
}

fn to_host(tensor: &Tensor) -> Result<HostTensor, Shortfall> {
    let shape = tensor.get_shape().map_err(failed)?;
    let shape: Vec<usize> = shape.get_dimensions().iter().map(|&size| size.max(0) as usize).collect();
    let is_empty = shape.contains(&0);
    macro_rules! extract {
        ($element:ty, $variant:ident, $convert:expr) => {{
            let values: &[$element] = if is_empty { &[] } else { tensor.get_data().map_err(failed)? };
            TensorData::$variant(values.iter().map($convert).collect())
        }};
    }
    let data = match tensor.get_element_type().map_err(failed)? {
        ElementType::F32 => extract!(f32, F32, |&value| value),
        ElementType::F16 => extract!(half::f16, F32, |value| value.to_f32()),
        ElementType::Bf16 => extract!(half::bf16, F32, |value| value.to_f32()),
        ElementType::F64 => extract!(f64, F64, |&value| value),
        ElementType::I32 => extract!(i32, I32, |&value| value),
        ElementType::I64 => extract!(i64, I64, |&value| value),
        ElementType::U8 => extract!(u8, U8, |&value| value),
        ElementType::Boolean => extract!(u8, Bool, |&value| value != 0),
        other => return Err(Shortfall::unsupported(format!("an output has the element type {other}"))),
    };
    Ok(HostTensor { shape, data })
}

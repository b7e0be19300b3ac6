//! candle, pure Rust: ONNX graphs through `candle-onnx`.
//!
//! `candle-onnx` evaluates the graph node by node. It decodes every initializer on every evaluation and knows no
//! external data, so the initializers are decoded once here and passed as values; and what depends on them alone, such
//! as a transposed weight, is computed once, as the other runtimes do when they load a graph.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_onnx::onnx::{GraphProto, ModelProto, TensorProto, ValueInfoProto};

use super::{
    Backend, DeviceReport, Format, LoadRequest, Placement, Session, Versions, artifact_path, check_artifact, classify,
};
use crate::definition::{Dtype, Model, Shortfall};
use crate::fixture::{HostTensor, TensorData};

pub struct Candle;

/// The `candle-core` and `candle-onnx` release in `Cargo.toml`, which is pinned there.
const CRATE_VERSION: &str = "0.11.1";

impl Backend for Candle {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn framework(&self) -> &'static str {
        "candle"
    }

    fn devices(&self) -> Vec<DeviceReport> {
        vec![DeviceReport { device: "cpu".into(), availability: Ok("pure Rust".into()) }]
    }

    fn versions(&self) -> Versions {
        Versions { backend: CRATE_VERSION.into(), library: CRATE_VERSION.into() }
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), Shortfall> {
        check_artifact(model, dtype, Format::Onnx)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, Shortfall> {
        let path = artifact_path(&request.artifacts.onnx, "ONNX")?;
        if request.device != "cpu" {
            return Err(Shortfall::unavailable(format!("candle has no device {:?}", request.device)));
        }
        let mut graph = candle_onnx::read_file(path).map_err(classify)?;
        let mut weights = take_initializers(&mut graph, path)?;
        fold_constants(&mut graph, &mut weights)?;
        Ok(Box::new(CandleSession {
            graph,
            weights,
            input_names: request.model.inputs.iter().map(|input| input.name.clone()).collect(),
            output_names: request.model.outputs.iter().map(|output| output.name.clone()).collect(),
            bound: Vec::new(),
            artifact: path.to_owned(),
        }))
    }
}

/// Moves the initializers out of the graph, decoded. Those in another file are read from there.
fn take_initializers(graph: &mut ModelProto, path: &Path) -> Result<HashMap<String, Tensor>, Shortfall> {
    const EXTERNAL: i32 = 1;
    let graph = graph.graph.as_mut().ok_or_else(|| Shortfall::failed("an ONNX model without a graph"))?;
    let mut files: HashMap<String, memmap2::Mmap> = HashMap::new();
    let mut tensors = HashMap::new();
    for initializer in std::mem::take(&mut graph.initializer) {
        let tensor = if initializer.data_location == EXTERNAL {
            read_external(&initializer, path, &mut files)?
        } else {
            candle_onnx::eval::get_tensor(&initializer, &initializer.name).map_err(classify)?
        };
        tensors.insert(initializer.name, tensor);
    }
    // Older exporters list initializers among the inputs too.
    graph.input.retain(|input| !tensors.contains_key(&input.name));
    Ok(tensors)
}

/// Evaluates the nodes whose inputs are all constant, and drops the constants that nothing else needs.
fn fold_constants(model: &mut ModelProto, constants: &mut HashMap<String, Tensor>) -> Result<(), Shortfall> {
    let Some(graph) = model.graph.as_mut() else { return Ok(()) };
    let (mut kept, mut folded) = (Vec::new(), 0);
    for node in std::mem::take(&mut graph.node) {
        let has_subgraph = node.attribute.iter().any(|attribute| attribute.g.is_some());
        let is_constant = node.input.iter().all(|input| input.is_empty() || constants.contains_key(input));
        if has_subgraph || !is_constant || node.op_type.starts_with("Random") {
            kept.push(node);
            continue;
        }
        let inputs = node.input.iter().filter_map(|input| Some((input.clone(), constants.get(input)?.clone())));
        let inputs: HashMap<String, Tensor> = inputs.collect();
        let outputs = node.output.iter().filter(|output| !output.is_empty());
        let outputs = outputs.map(|name| ValueInfoProto { name: name.clone(), ..ValueInfoProto::default() }).collect();
        let alone = GraphProto { node: vec![node], output: outputs, ..GraphProto::default() };
        let alone = ModelProto { graph: Some(alone), ..ModelProto::default() };
        constants.extend(candle_onnx::simple_eval(&alone, inputs).map_err(classify)?);
        folded += 1;
    }
    graph.node = kept;
    // A subgraph may use any value of the graph around it.
    let has_subgraphs = graph.node.iter().flat_map(|node| &node.attribute).any(|attribute| attribute.g.is_some());
    if folded > 0 && !has_subgraphs {
        let inputs = graph.node.iter().flat_map(|node| &node.input);
        let needed: HashSet<&String> = inputs.chain(graph.output.iter().map(|output| &output.name)).collect();
        constants.retain(|name, _| needed.contains(name));
    }
    Ok(())
}

fn read_external(
    initializer: &TensorProto,
    graph_path: &Path,
    files: &mut HashMap<String, memmap2::Mmap>,
) -> Result<Tensor, Shortfall> {
    let failed = |reason: &str| Shortfall::failed(format!("external data of {:?}: {reason}", initializer.name));
    let entry = |key: &str| initializer.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let number = |key: &str| entry(key).and_then(|value| value.parse::<usize>().ok());
    let location = entry("location").ok_or_else(|| failed("no location"))?;
    if Path::new(location).is_absolute() || location.split(['/', '\\']).any(|part| part == "..") {
        return Err(failed("the location leaves the model's folder"));
    }
    if !files.contains_key(location) {
        let file = std::fs::File::open(graph_path.with_file_name(location))
            .map_err(|error| failed(&format!("{location}: {error}")))?;
        // SAFETY: the map is read only, and everything is copied out of it before this function's caller returns.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| failed(&error.to_string()))?;
        files.insert(location.to_owned(), map);
    }
    let bytes = &files[location];
    let shape: Vec<usize> = initializer.dims.iter().map(|&size| size.max(0) as usize).collect();
    let data_type = candle_onnx::onnx::tensor_proto::DataType::try_from(initializer.data_type)
        .map_err(|_| failed("unknown element type"))?;
    let dtype = candle_onnx::eval::dtype(data_type)
        .ok_or_else(|| Shortfall::unsupported(format!("element type {data_type:?} of {:?}", initializer.name)))?;
    let offset = number("offset").unwrap_or(0);
    let length = number("length").unwrap_or_else(|| bytes.len().saturating_sub(offset));
    let end = offset.checked_add(length).filter(|&end| end <= bytes.len()).ok_or_else(|| failed("beyond the file"))?;
    let data = &bytes[offset..end];
    if data.len() != shape.iter().product::<usize>() * dtype.size_in_bytes() {
        return Err(failed("its length does not fit its shape"));
    }
    Tensor::from_raw_buffer(data, dtype, &shape, &Device::Cpu).map_err(classify)
}

struct CandleSession {
    graph: ModelProto,
    weights: HashMap<String, Tensor>,
    input_names: Vec<String>,
    output_names: Vec<String>,
    bound: Vec<Vec<(String, Tensor)>>,
    artifact: std::path::PathBuf,
}

impl CandleSession {
    fn forward(&self, binding: usize) -> Result<HashMap<String, Tensor>, Shortfall> {
        let mut values = self.weights.clone();
        values.extend(self.bound[binding].iter().cloned());
        candle_onnx::simple_eval(&self.graph, values).map_err(classify)
    }
}

impl Session for CandleSession {
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, Shortfall> {
        let tensors: Result<Vec<_>, Shortfall> =
            self.input_names.iter().zip(inputs).map(|(name, input)| Ok((name.clone(), to_tensor(input)?))).collect();
        self.bound.push(tensors?);
        Ok(self.bound.len() - 1)
    }

    fn run(&mut self, binding: usize) -> Result<(), Shortfall> {
        self.forward(binding).map(|outputs| drop(black_box(outputs)))
    }

    fn sync(&mut self) -> Result<(), Shortfall> {
        // candle computes on the CPU before it returns.
        Ok(())
    }

    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, Shortfall> {
        let outputs = self.forward(binding)?;
        self.output_names
            .iter()
            .map(|name| to_host(outputs.get(name).ok_or_else(|| Shortfall::failed(format!("no output {name:?}")))?))
            .collect()
    }

    fn placement(&self) -> Placement {
        let weight_dtype = self.weights.values().map(Tensor::dtype).find(DType::is_float);
        Placement {
            effective_device: "cpu".into(),
            effective_dtype: match weight_dtype {
                Some(DType::F32) | None => Some(Dtype::F32),
                Some(DType::F16) => Some(Dtype::F16),
                Some(DType::BF16) => Some(Dtype::Bf16),
                Some(_) => None,
            },
            providers: "candle".into(),
            threads: Some(candle_core::utils::get_num_threads()),
            artifact: Some(self.artifact.clone()),
            executor: Some("candle-onnx".into()),
        }
    }
}

fn to_tensor(tensor: &HostTensor) -> Result<Tensor, Shortfall> {
    let shape = tensor.shape.as_slice();
    let unsupported = |element: &str| Err(Shortfall::unsupported(format!("candle has no {element} tensors")));
    match &tensor.data {
        TensorData::F32(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::F64(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::I64(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::U8(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::I32(values) => Tensor::from_slice(values, shape, &Device::Cpu),
        TensorData::Bool(_) => return unsupported("bool"),
    }
    .map_err(classify)
}

fn to_host(tensor: &Tensor) -> Result<HostTensor, Shortfall> {
    let shape = tensor.dims().to_vec();
    let flat = tensor.flatten_all().map_err(classify)?;
    let data = match tensor.dtype() {
        DType::F32 => flat.to_vec1().map(TensorData::F32),
        DType::F16 | DType::BF16 => flat.to_dtype(DType::F32).and_then(|flat| flat.to_vec1()).map(TensorData::F32),
        DType::F64 => flat.to_vec1().map(TensorData::F64),
        DType::I64 => flat.to_vec1().map(TensorData::I64),
        DType::U8 => flat.to_vec1().map(TensorData::U8),
        other => return Err(Shortfall::unsupported(format!("an output has the element type {other:?}"))),
    };
    Ok(HostTensor { shape, data: data.map_err(classify)? })
}

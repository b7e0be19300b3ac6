//! Reads an ONNX file as a graph and its constants.
//!
//! It decodes the initializers, also those in another file, and computes the values that depend on constants alone, such as
//! a transposed weight.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use candle_core::{Device, Tensor};
use candle_onnx::onnx::{GraphProto, ModelProto, TensorProto, ValueInfoProto};

use crate::definition::CaseFailure;

/// The graph of an ONNX file without its initializers, and the constants that its nodes need, by name.
///
/// # Errors
/// The file or its external data cannot be read, or a constant node cannot be evaluated.
pub fn read(path: &Path) -> Result<(GraphProto, HashMap<String, Tensor>), CaseFailure> {
    let model = candle_onnx::read_file(path)?;
    let mut graph = model.graph.ok_or_else(|| CaseFailure::failed("an ONNX model without a graph"))?;
    let mut constants = take_initializers(&mut graph, path)?;
    fold_constants(&mut graph, &mut constants)?;
    Ok((graph, constants))
}

/// Takes the initializers out of the graph and decodes them, also those in another file.
fn take_initializers(graph: &mut GraphProto, path: &Path) -> Result<HashMap<String, Tensor>, CaseFailure> {
    const EXTERNAL: i32 = 1;
    let mut files: HashMap<String, memmap2::Mmap> = HashMap::new();
    let mut tensors = HashMap::new();
    for initializer in std::mem::take(&mut graph.initializer) {
        let tensor = if initializer.data_location == EXTERNAL {
            read_external(&initializer, path, &mut files)?
        } else {
            candle_onnx::eval::get_tensor(&initializer, &initializer.name)?
        };
        tensors.insert(initializer.name, tensor);
    }
    // Older exporters list initializers among the inputs too.
    graph.input.retain(|input| !tensors.contains_key(&input.name));
    Ok(tensors)
}

/// Evaluates the nodes whose inputs are all constant, and drops the constants that nothing else needs.
fn fold_constants(graph: &mut GraphProto, constants: &mut HashMap<String, Tensor>) -> Result<(), CaseFailure> {
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
        constants.extend(candle_onnx::simple_eval(&alone, inputs)?);
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
) -> Result<Tensor, CaseFailure> {
    let failed = |reason: &str| CaseFailure::failed(format!("external data of {:?}: {reason}", initializer.name));
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
        .ok_or_else(|| CaseFailure::unsupported(format!("element type {data_type:?} of {:?}", initializer.name)))?;
    let offset = number("offset").unwrap_or(0);
    let length = number("length").unwrap_or_else(|| bytes.len().saturating_sub(offset));
    let end = offset.checked_add(length).filter(|&end| end <= bytes.len()).ok_or_else(|| failed("beyond the file"))?;
    let data = &bytes[offset..end];
    if data.len() != shape.iter().product::<usize>() * dtype.size_in_bytes() {
        return Err(failed("its length does not fit its shape"));
    }
    Ok(Tensor::from_raw_buffer(data, dtype, &shape, &Device::Cpu)?)
}

//! Reads an ONNX file as a graph and its constants.
//!
//! It decodes the initializers, also those in another file, and computes the values that depend on constants alone, such as
//! a transposed weight.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use candle_onnx::onnx::tensor_proto::{DataLocation, DataType};
use candle_onnx::onnx::{GraphProto, ModelProto, ValueInfoProto};

use crate::definition::CaseFailure;
use crate::onnx::{Source, proto};

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
    let source = Source::read(path)?;
    let mut tensors = HashMap::new();
    for (initializer, same) in std::mem::take(&mut graph.initializer).into_iter().zip(&source.graph.initializers) {
        let tensor = match initializer.data_location() {
            DataLocation::External => read_external(&source, same)?,
            DataLocation::Default => candle_onnx::eval::get_tensor(&initializer, &initializer.name)?,
        };
        tensors.insert(initializer.name, tensor);
    }
    // Older exporters list initializers among the inputs too.
    graph.input.retain(|input| !tensors.contains_key(&input.name));
    Ok(tensors)
}

/// Evaluates the nodes whose inputs are all constant.
fn fold_constants(graph: &mut GraphProto, constants: &mut HashMap<String, Tensor>) -> Result<(), CaseFailure> {
    let mut kept = Vec::new();
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
    }
    graph.node = kept;
    Ok(())
}

fn read_external(source: &Source, initializer: &proto::TensorProto) -> Result<Tensor, CaseFailure> {
    let data_type = DataType::try_from(initializer.data_type).ok();
    let dtype = data_type.and_then(candle_onnx::eval::dtype).ok_or_else(|| {
        let (element, name) = (initializer.data_type, &initializer.name);
        CaseFailure::unsupported(format!("ONNX's element type {element} of {name:?}"))
    })?;
    let shape: Vec<usize> = initializer.dims.iter().map(|&size| size.max(0) as usize).collect();
    Ok(Tensor::from_raw_buffer(&source.bytes(initializer)?, dtype, &shape, &Device::Cpu)?)
}

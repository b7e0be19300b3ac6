//! Converts an f32 graph to another dtype, with the same weights and without a runtime.
//!
//! It takes an ONNX graph of f32. It gives the graph in another dtype, or the reason why there is none. Running either
//! graph is up to the caller; so is the error that the dtype brings (`fixture`).
//!
//! For f16 and bf16, the weights and the operators have that type (`narrow`). For i8, the products with weights use
//! integers, and the ranges of their activations come from each call (`integer`) or from a calibration (`calibrated`);
//! or only the weights are in blocks of few bits (`blocks`).
//! Inputs and outputs stay as they are, so that a model is called and verified in the same way in each dtype.

mod blocks;
mod calibrated;
mod calibration;
mod draft;
mod integer;
mod narrow;
mod precision;
mod products;
mod quantised;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
pub use blocks::{Share, dequantise};
pub use calibration::{Calibration, write_with_ranged_values};
use draft::Draft;

use crate::definition::{Blocks, CaseFailure, Dtype};
use crate::onnx::proto::{AttributeProto, GraphProto, NodeProto, TensorProto, element};
use crate::onnx::{OLDEST_OPSET, Source};

/// The form that an f32 graph is converted to.
#[derive(Clone, Debug)]
pub enum Form {
    /// This dtype; for i8, the ranges of activations are found in each call.
    Dtype(Dtype),
    /// i8 with the ranges of activations of a calibration: static quantisation.
    Static(Calibration),
    /// Weights in blocks, and activations of this dtype: i8 or f32.
    Blocks(Blocks, Dtype),
}

impl Form {
    /// The name of the folder for graphs of this form.
    pub fn name(&self) -> String {
        match self {
            Form::Dtype(dtype) => dtype.to_string(),
            Form::Static(_) => "i8-static".to_owned(),
            Form::Blocks(blocks, dtype) => format!("{blocks}-{dtype}"),
        }
    }
}

/// Writes `source`, an ONNX file of f32 whose initializers may be external data, in another form.
///
/// Initializers of more than 1 KiB go to `<stem>.data` beside `destination`.
///
/// # Errors
/// The source or its data cannot be read or are not whole, the graph has something that has no such form, the
/// calibration is of another graph, or the files cannot be written; an incomplete file may be left then.
pub fn convert(source: &Path, form: &Form, destination: &Path) -> Result<()> {
    rewrite(source, form, Some(destination)).map(drop)
}

/// Bytes of the weights that [`convert`] would write; the source's data need not exist yet.
///
/// # Errors
/// As for [`convert`], except for the data.
pub fn converted_bytes(source: &Path, form: &Form) -> Result<u64> {
    // Weights are not read here, so a refusal means that the graph has no such form.
    rewrite(source, form, None).map_err(|why| CaseFailure::unsupported(format!("{why:#}")).into())
}

fn rewrite(path: &Path, form: &Form, destination: Option<&Path>) -> Result<u64> {
    let mut source = Source::read(path)?;
    let mut rewritten = || -> Result<u64> {
        let opset = source.opset();
        ensure!(
            opset >= OLDEST_OPSET,
            "its operator set {opset} is older than {OLDEST_OPSET}; export it with a newer one"
        );
        if matches!(form, Form::Static(_)) {
            source.raise_opset()?;
        }
        ensure!(source.model.functions.is_empty(), "it defines operators of its own (functions); export it without");
        make_constants_initializers(&mut source.graph);
        let draft = Draft::new(&source, destination);
        match form {
            Form::Dtype(Dtype::F32) => bail!("it is f32 already"),
            Form::Dtype(dtype @ (Dtype::F16 | Dtype::Bf16)) => narrow::rewrite(draft, *dtype),
            Form::Dtype(Dtype::I8) => integer::rewrite(draft),
            Form::Static(calibration) => calibrated::rewrite(draft, calibration),
            Form::Blocks(blocks, dtype) => blocks::rewrite(draft, *blocks, *dtype),
        }
    };
    rewritten().with_context(|| format!("{}: cannot be converted to {}", path.display(), form.name()))
}

/// Turns float constants that are nodes into initializers, so that one rule converts both.
fn make_constants_initializers(graph: &mut GraphProto) {
    let mut kept = Vec::with_capacity(graph.nodes.len());
    for mut node in std::mem::take(&mut graph.nodes) {
        let is_constant = node.op_type == "Constant" && node.is_standard() && node.outputs.len() == 1;
        match if is_constant { float_constant(&mut node.attributes) } else { None } {
            Some(value) => graph.initializers.push(TensorProto { name: node.outputs[0].clone(), ..value }),
            None => kept.push(node),
        }
    }
    graph.nodes = kept;
    name_weights_once(graph);
}

/// Replaces the output of an `Identity` of an initializer by the initializer: exporters write equal weights only once.
fn name_weights_once(graph: &mut GraphProto) {
    let mut own: HashMap<String, String> =
        graph.initializers.iter().map(|tensor| (tensor.name.clone(), tensor.name.clone())).collect();
    let outputs: HashSet<&str> = graph.outputs.iter().map(|output| output.name.as_str()).collect();
    // Graphs inside nodes may use the name.
    let has_subgraph = graph.nodes.iter().any(NodeProto::has_subgraph);
    graph.nodes.retain_mut(|node| {
        for input in &mut node.inputs {
            if let Some(name) = own.get(input) {
                input.clone_from(name);
            }
        }
        let ([input], [output]) = (node.inputs.as_slice(), node.outputs.as_slice()) else { return true };
        let is_identity = node.op_type == "Identity" && node.is_standard();
        let Some(name) = own.get(input).filter(|_| is_identity).cloned() else { return true };
        own.insert(output.clone(), name);
        has_subgraph || outputs.contains(output.as_str())
    });
}

fn float_constant(attributes: &mut [AttributeProto]) -> Option<TensorProto> {
    let [attribute] = attributes else { return None };
    let of_floats = |dims: Vec<i64>, float_data: Vec<f32>| TensorProto {
        dims,
        data_type: element::FLOAT,
        float_data,
        ..TensorProto::default()
    };
    match attribute.name.as_str() {
        "value" if attribute.t.as_ref()?.data_type == element::FLOAT => attribute.t.take(),
        "value_float" => Some(of_floats(Vec::new(), vec![attribute.f.unwrap_or_default()])),
        "value_floats" => Some(of_floats(vec![attribute.floats.len() as i64], attribute.floats.clone())),
        _ => None,
    }
}

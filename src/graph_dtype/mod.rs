//! Makes a graph that computes in another type from a graph of f32, with the same weights and no runtime.
//!
//! For f16 and bf16 the weights and the operators are of that type (`narrow`); for i8 the products with weights are of
//! integers, with the ranges of their activations from each call (`integer`) or from a calibration (`calibrated`). Inputs
//! and outputs stay what they are, so that a model is called and checked alike in each.

mod calibrated;
mod calibration;
mod element_types;
mod integer;
mod names;
mod narrow;
mod operators;
mod planned;
mod precision;
mod products;
mod quantised;
#[cfg(test)]
mod tests;
mod uses;
mod write;

use std::path::Path;

pub use calibration::Calibration;
use planned::Planned;

use crate::definition::Dtype;
use crate::onnx::Source;
use crate::onnx::proto::GraphProto;

/// What a conversion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// f16 and bf16: nodes that compute in it. i8: products with quantised weights.
    pub converted: usize,
    /// f16 and bf16: nodes left in f32 because their operator has no such form. i8: products left in f32, which have no
    /// constant weights, are of groups of channels or, where ranges are given, have none.
    pub left: usize,
}

/// A graph whose initializers are still to be written.
struct Rewritten {
    graph: GraphProto,
    initializers: Vec<Planned>,
    summary: Summary,
}

/// The oldest operator set whose operators have the forms that are written here.
const OLDEST_OPSET: i64 = 11;

const NOTHING_TO_QUANTISE: &str =
    "it has no product with constant f32 weights (MatMul, Gemm or Conv): nothing to quantise";

/// Writes `source`, an ONNX file of f32 whose initializers may be external data, as a graph that computes in `dtype`.
///
/// Initializers of more than 1 KiB go to `<stem>.data` beside `destination`. Both files are written under another name
/// and renamed when they are whole.
///
/// # Errors
/// The source or its data cannot be read or are not whole, the graph has something that has no form in `dtype`, or the
/// files cannot be written.
pub fn convert(source: &Path, dtype: Dtype, destination: &Path) -> Result<Summary, String> {
    let mut read = Source::read(source)?;
    let Rewritten { graph, initializers, summary } = rewrite(&mut read, source, dtype)?;
    write::write(&read, graph, &initializers, destination)?;
    Ok(summary)
}

/// Bytes of the weights that [`convert`] would write; the source's data need not be there yet.
///
/// # Errors
/// As [`convert`], but for the data.
pub fn converted_bytes(source: &Path, dtype: Dtype) -> Result<u64, String> {
    let mut read = Source::read(source)?;
    let rewritten = rewrite(&mut read, source, dtype)?;
    Ok(rewritten.initializers.iter().filter_map(|planned| planned.size_bytes(&read)).sum())
}

/// Writes `source`, as [`convert`] takes it, with its products in eight-bit integers and the ranges of their activations
/// those of `calibration`: static quantisation.
///
/// # Errors
/// As [`convert`], or the calibration is of another graph.
pub fn quantize_static(source: &Path, calibration: &Calibration, destination: &Path) -> Result<Summary, String> {
    let read = Source::read(source)?;
    let Rewritten { graph, initializers, summary } = rewrite_static(&read, source, calibration)?;
    write::write(&read, graph, &initializers, destination)?;
    Ok(summary)
}

/// Bytes of the weights that [`quantize_static`] would write; the source's data need not be there yet.
///
/// # Errors
/// As [`quantize_static`], but for the data.
pub fn quantized_static_bytes(source: &Path, calibration: &Calibration) -> Result<u64, String> {
    let read = Source::read(source)?;
    let rewritten = rewrite_static(&read, source, calibration)?;
    Ok(rewritten.initializers.iter().filter_map(|planned| planned.size_bytes(&read)).sum())
}

fn rewrite(read: &mut Source, path: &Path, dtype: Dtype) -> Result<Rewritten, String> {
    let refused = |reason: String| format!("{}: cannot be converted to {dtype}: {reason}", path.display());
    check_form(read, OLDEST_OPSET).map_err(refused)?;
    match dtype {
        Dtype::F32 => Err(refused("it is f32 already".into())),
        Dtype::F16 | Dtype::Bf16 => narrow::rewrite(read, dtype).map_err(refused),
        Dtype::I8 => integer::rewrite(read).map_err(refused),
    }
}

fn rewrite_static(read: &Source, path: &Path, calibration: &Calibration) -> Result<Rewritten, String> {
    check_form(read, calibrated::OLDEST_OPSET)
        .and_then(|()| calibrated::rewrite(read, calibration))
        .map_err(|reason| format!("{}: cannot be quantised: {reason}", path.display()))
}

fn check_form(read: &Source, oldest_opset: i64) -> Result<(), String> {
    let opset = read.opset();
    if opset < oldest_opset {
        return Err(format!("its operator set {opset} is older than {oldest_opset}; export it with a newer one"));
    }
    if !read.model.functions.is_empty() {
        return Err("it defines operators of its own (functions); export it without".into());
    }
    Ok(())
}

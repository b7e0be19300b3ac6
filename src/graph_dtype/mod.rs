//! Converts a graph of f32 to another dtype, with the same weights and without a runtime.
//!
//! For f16 and bf16 the weights and the operators are of that type (`narrow`). For i8 the products with weights are of
//! integers, and the ranges of their activations come from each call (`integer`) or from a calibration (`calibrated`).
//! Inputs and outputs stay as they are, so that a model is called and verified in the same way in each dtype.

mod calibrated;
mod calibration;
mod draft;
mod element_types;
mod integer;
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

use anyhow::{Context, Result, bail, ensure};
pub use calibration::Calibration;
use planned::Planned;

use crate::definition::Dtype;
use crate::onnx::Source;
use crate::onnx::proto::GraphProto;

/// The form that a graph of f32 is converted to.
#[derive(Clone, Debug)]
pub enum Form {
    /// This dtype; for i8, the ranges of activations are found in each call.
    Dtype(Dtype),
    /// i8 with the ranges of activations of a calibration: static quantisation.
    Static(Calibration),
}

impl Form {
    /// The name of the folder for graphs of this form.
    pub fn name(&self) -> &'static str {
        match self {
            Form::Dtype(dtype) => dtype.name(),
            Form::Static(_) => "i8-static",
        }
    }
}

/// A graph whose initializers are still to be written.
struct Rewritten {
    graph: GraphProto,
    initializers: Vec<Planned>,
}

/// The oldest operator set whose operators have the forms that are written here.
const OLDEST_OPSET: i64 = 11;

const NOTHING_TO_QUANTISE: &str =
    "it has no product with constant f32 weights (MatMul, Gemm or Conv): nothing to quantise";

/// Writes `source`, an ONNX file of f32 whose initializers may be external data, in another form.
///
/// Initializers of more than 1 KiB go to `<stem>.data` beside `destination`.
///
/// # Errors
/// The source or its data cannot be read or are not whole, the graph has something that has no such form, the calibration
/// is of another graph, or the files cannot be written; an incomplete file may be left then.
pub fn convert(source: &Path, form: &Form, destination: &Path) -> Result<()> {
    let mut read = Source::read(source)?;
    let rewritten = rewrite(&mut read, source, form)?;
    write::write(&read, rewritten, destination)
}

/// Bytes of the weights that [`convert`] would write; the source's data need not exist yet.
///
/// # Errors
/// As [`convert`], but for the data.
pub fn converted_bytes(source: &Path, form: &Form) -> Result<u64> {
    let mut read = Source::read(source)?;
    let rewritten = rewrite(&mut read, source, form)?;
    Ok(rewritten.initializers.iter().filter_map(Planned::size_bytes).sum())
}

fn rewrite(read: &mut Source, path: &Path, form: &Form) -> Result<Rewritten> {
    let oldest = if matches!(form, Form::Static(_)) { calibrated::OLDEST_OPSET } else { OLDEST_OPSET };
    let rewritten = check_form(read, oldest).and_then(|()| match form {
        Form::Dtype(Dtype::F32) => bail!("it is f32 already"),
        Form::Dtype(dtype @ (Dtype::F16 | Dtype::Bf16)) => narrow::rewrite(read, *dtype),
        Form::Dtype(Dtype::I8) => integer::rewrite(read),
        Form::Static(calibration) => calibrated::rewrite(read, calibration),
    });
    rewritten.with_context(|| match form {
        Form::Dtype(dtype) => format!("{}: cannot be converted to {dtype}", path.display()),
        Form::Static(_) => format!("{}: cannot be quantised", path.display()),
    })
}

fn check_form(read: &Source, oldest_opset: i64) -> Result<()> {
    let opset = read.opset();
    ensure!(opset >= oldest_opset, "its operator set {opset} is older than {oldest_opset}; export it with a newer one");
    ensure!(read.model.functions.is_empty(), "it defines operators of its own (functions); export it without");
    Ok(())
}

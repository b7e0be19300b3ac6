//! Reads ONNX and TorchScript files without a runtime: inputs and outputs, parameters, and the cost of a call.
//!
//! It takes the bytes of a file, which may be hostile. It gives a summary, or one sentence about what is wrong. It
//! changes no graph (`graph_dtype`) and runs none (`backend`).

mod cost;
mod flat;
mod newer;
mod parameters;
pub(crate) mod proto;
mod source;
mod summary;
mod torchscript;

pub(crate) use cost::{BIAS, BRANCH, KEPT, MASKS, PLACES, POSITIONS, is_made, made_inputs};
pub use cost::{cost, count, node_costs};
pub(crate) use newer::OLDEST_OPSET;
pub(crate) use parameters::{Numbers, Parameters};
pub(crate) use source::{Source, map_file};
pub use summary::{OnnxSummary, outputs_left_out, outputs_of_sigmoids, read_summary};
pub(crate) use torchscript::{read_dtype, read_inputs};

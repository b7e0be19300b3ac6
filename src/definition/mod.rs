//! What to run: model and suite files → validated cases, and the reason for each that cannot run here.

mod case;
mod catalogue;
mod cost;
mod data_source;
mod device;
mod model;
mod named_files;
mod onnx;
pub(crate) mod onnx_proto;
pub(crate) mod parameters;
mod plan;
mod quantization;
mod status;
mod suite;
mod suite_arguments;
mod suite_models;
mod suite_tables;
mod tensor_spec;
mod torchscript;
mod user_files;

pub use case::{BenchmarkId, Boundary, Case, Dtype, ORIGINAL, Phase, check_component};
pub use catalogue::{Entry, Place, read_catalogue};
pub use cost::{Cost, cost};
pub use data_source::{DataSource, ImageFolderSettings, picture_size};
pub use device::{AUTO, PREFERRED, check_device, device_index, device_kind, device_type, own_dtype};
pub use model::{CALIBRATION, Generation, Model, Origin, Part, PhasePlan, REFERENCE, Tolerance, WHOLE, whole};
pub use onnx::{OnnxSummary, read_input_symbols, read_summary};
pub use plan::{Capabilities, PlannedCase, plan};
pub use quantization::Quantization;
pub use status::{CaseFailure, Status};
pub use suite::{Effort, Suite, SuiteModel, read_suite};
pub use suite_arguments::{EffortArguments, Selection};
pub use suite_models::add_models_of_suite;
pub use tensor_spec::{BATCH, Dimension, ElementType, SEQUENCE, Sizes, TensorSpec};

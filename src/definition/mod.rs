//! The types of what is measured: models, suites, cases and what became of them. Nothing here reads a file.

mod backend_name;
mod case;
mod cost;
mod data_source;
mod device;
mod dtype;
mod model;
mod quantization;
mod status;
mod suite;
mod tensor_spec;

pub use backend_name::{NULL, backend_name};
pub use case::{BenchmarkId, Boundary, Case, ORIGINAL, Phase, check_component, usable_name};
pub use cost::Cost;
pub use data_source::{DataSource, ImageFolderSettings};
pub use device::{AUTO, PREFERRED, device_index, device_kind, device_type, own_dtype, parse_device};
pub use dtype::Dtype;
pub use model::{
    CALIBRATION, Generation, Model, Origin, Part, PhasePlan, REFERENCE, Tolerance, WHOLE, value_name, whole,
};
pub use quantization::Quantization;
pub use status::{CaseFailure, Status};
pub use suite::{Effort, Suite, SuiteModel};
pub use tensor_spec::{
    ANY_SHAPE, BATCH, Dimension, ElementType, GivenInput, SEQUENCE, Sizes, TensorSpec, with_dimensions,
};

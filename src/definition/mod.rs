//! The types of what is measured: models, suites, cases and what became of them. Nothing here reads a file.
//!
//! It takes nothing from other rooms. It gives the types that all of them speak in: model, suite, case, status,
//! failure. What reads a file, asks a machine or computes is elsewhere.

mod case;
mod data_source;
mod dims;
mod dtype;
mod judge;
mod model;
mod names;
mod shard;
mod status;
mod suite;
mod tensor_spec;
mod text_inputs;

pub use case::{
    BenchmarkId, Boundary, Case, Cost, ORIGINAL, Phase, TimedOn, check_component, is_shortened, usable_name,
};
pub use data_source::{DataSource, ImageFolderSettings};
pub use dims::{Dims, Sweep};
pub(crate) use dtype::least_share;
pub use dtype::{Blocks, Dtype, Quantization, Scheme};
pub use judge::{Judge, is_embedding, is_scores};
pub use model::{
    CALIBRATION, Generation, Model, Origin, Part, PhasePlan, REFERENCE, Tolerance, WHOLE, value_name, whole,
};
pub use names::{
    AUTO, CLOSURE, MODULES, NULL, PREFERRED, TORCHSCRIPT, backend_and_settings, backend_name, backend_of_flag,
    backends_in_places, device_index, device_kind, device_type, own_dtype, parse_device, usual_backend, with_settings,
};
pub use shard::{Fingerprint, PartNumber, Shard, ShardCases};
pub use status::{CaseFailure, Status};
pub use suite::{Effort, Suite, SuiteModel, TokenTests};
pub use tensor_spec::{ANY_SHAPE, BATCH, Dimension, ElementType, SEQUENCE, Sizes, TensorSpec, with_dimensions};
pub use text_inputs::TextInput;

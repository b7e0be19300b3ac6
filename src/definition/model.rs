//! A model's definition: what it is, its inputs and outputs, and where its artifacts come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::case::{Dtype, ORIGINAL};
use super::tensor_spec::TensorSpec;

/// A model that can be made into cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    pub variant: String,
    pub family: String,
    pub modality: String,
    /// Trainable parameters; unknown for a file that does not say.
    pub parameters: Option<u64>,
    pub inputs: Vec<TensorSpec>,
    pub outputs: Vec<TensorSpec>,
    /// Lengths for which there is a reference; empty for a model without a sequence dimension.
    pub sequence_lengths: Vec<usize>,
    pub tolerance: Tolerance,
    pub origin: Origin,
}

/// Where a model's artifacts come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Origin {
    /// A graph without weights from `models/zoo`, with seeded weights, or with those of a safetensors file.
    Packaged {
        folder: PathBuf,
        weights: Option<PathBuf>,
        /// Whether the committed reference outputs belong to these weights.
        has_reference: bool,
    },
    /// Files that a user put into `models/`, with their weights inside.
    Files { onnx: Option<PathBuf>, torchscript: Option<PathBuf> },
}

/// The largest absolute error of an output, relative to the largest absolute reference value, that counts as right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tolerance(BTreeMap<Dtype, f64>);

impl Tolerance {
    /// The tolerance of `dtype`; 1e-3 for f32, 1e-2 for f16, 5e-2 for bf16 and 1e-1 for i8 where the model says none.
    pub fn of(&self, dtype: Dtype) -> f64 {
        self.0.get(&dtype).copied().unwrap_or(match dtype {
            Dtype::F32 => 1e-3,
            Dtype::F16 => 1e-2,
            Dtype::Bf16 => 5e-2,
            Dtype::I8 => 1e-1,
        })
    }
}

impl Model {
    /// Whether a case of the model has a sequence length.
    pub fn has_sequence(&self) -> bool {
        self.inputs.iter().any(TensorSpec::has_sequence)
    }

    /// The folder below `.prepared/` that holds the model's weights and graphs.
    pub fn artifact_folder_name(&self) -> String {
        if self.variant == ORIGINAL { self.name.clone() } else { format!("{}.{}", self.name, self.variant) }
    }
}

/// `models/zoo/<name>/model.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackagedToml {
    family: String,
    modality: String,
    /// Where the architecture comes from; for readers.
    #[serde(rename = "source")]
    _source: String,
    #[serde(rename = "license")]
    _license: String,
    /// How the weights were trained; for readers.
    #[serde(rename = "trained")]
    _trained: Option<String>,
    #[serde(rename = "classes")]
    _classes: Option<usize>,
    parameters: u64,
    weights: Option<PathBuf>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    #[serde(default)]
    sequence_lengths: Vec<usize>,
    #[serde(default)]
    tolerance: Tolerance,
}

/// Reads a packaged model from its folder `models/zoo/<name>`.
///
/// # Errors
/// `model.toml` is missing, is not TOML, or lacks or has a field it should not.
pub fn read_packaged(folder: &Path) -> Result<Model, String> {
    let path = folder.join("model.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let toml: PackagedToml = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Model {
        name,
        variant: ORIGINAL.into(),
        family: toml.family,
        modality: toml.modality,
        parameters: Some(toml.parameters),
        inputs: toml.inputs,
        outputs: toml.outputs,
        sequence_lengths: toml.sequence_lengths,
        tolerance: toml.tolerance,
        origin: Origin::Packaged {
            folder: folder.to_owned(),
            weights: toml.weights.map(|weights| folder.join(weights)),
            has_reference: true,
        },
    })
}

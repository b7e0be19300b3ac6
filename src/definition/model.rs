//! A model's definition: what it is, its inputs and outputs, and where its artifacts come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::case::{Dtype, ORIGINAL, Phase};
use super::tensor_spec::{Dimension, TensorSpec};

/// A model that can be made into cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    pub variant: String,
    pub family: String,
    pub modality: String,
    /// Trainable parameters; unknown for a file that does not say.
    pub parameters: Option<u64>,
    /// What a user gives it.
    pub inputs: Vec<TensorSpec>,
    /// Its graphs; a model that is not generative has one.
    pub parts: Vec<Part>,
    pub phases: Vec<PhasePlan>,
    /// How it makes tokens, where it does.
    pub generation: Option<Generation>,
    /// Lengths for which there is a reference; empty for a model without a sequence dimension.
    pub sequence_lengths: Vec<usize>,
    pub tolerance: Tolerance,
    pub origin: Origin,
}

/// One graph of a model: `<name>.onnx` and `<name>.pt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub name: String,
    pub inputs: Vec<TensorSpec>,
    /// Empty for a file whose outputs are not known before it is loaded.
    pub outputs: Vec<TensorSpec>,
}

/// The name of the only part of a model that is not generative.
pub const WHOLE: &str = "model";

/// What one call of a phase runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasePlan {
    #[serde(rename = "name")]
    pub phase: Phase,
    /// Names of parts, in the order in which they run.
    pub parts: Vec<String>,
    /// The outputs that are compared; for `prefill` and `decode` these are the tokens and their logits.
    #[serde(default)]
    pub outputs: Vec<TensorSpec>,
}

/// How a generative model makes tokens.
///
/// A part's input takes the value of its name: an input of the model, or an output of a part before it. Output
/// `present.X` becomes input `past.X` of the next step, which is empty at the start. Inputs `position_ids` and
/// `attention_bias` are made for the call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// The input that takes the prompt's tokens and then each new one.
    pub tokens: String,
    /// Positions that other inputs take before the prompt, such as those of a picture.
    #[serde(default)]
    pub prefix_positions: usize,
    /// Inputs of parts that are empty after the prefill.
    #[serde(default)]
    pub once: Vec<String>,
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
    /// The tolerance of `dtype`; 1e-3 for f32, 2e-2 for f16, 1e-1 for bf16 and 2e-1 for i8 where the model says none. The
    /// last three are about twice what ONNX Runtime's own arithmetic gave for most of the packaged models.
    pub fn of(&self, dtype: Dtype) -> f64 {
        self.0.get(&dtype).copied().unwrap_or(match dtype {
            Dtype::F32 => 1e-3,
            Dtype::F16 => 2e-2,
            Dtype::Bf16 => 1e-1,
            Dtype::I8 => 2e-1,
        })
    }
}

impl Model {
    /// What one call of the phase runs, if the model has that phase.
    pub fn phase(&self, phase: Phase) -> Option<&PhasePlan> {
        self.phases.iter().find(|plan| plan.phase == phase)
    }

    /// The names of the outputs that a call of the phase is judged by.
    pub fn output_names(&self, phase: Phase) -> Vec<String> {
        let fixed = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        match phase {
            Phase::Prefill => fixed(["token", "logits"]),
            Phase::Decode => fixed(["tokens", "logits"]),
            Phase::Forward | Phase::Encoder => {
                let outputs = self.phase(phase).map(|plan| plan.outputs.as_slice()).unwrap_or_default();
                outputs.iter().map(|output| output.name.clone()).collect()
            }
        }
    }

    /// Tokens that the decoder has read when the first new one is there: those of the prompt and of what comes before.
    pub fn prompt_positions(&self, sequence: Option<usize>) -> Option<usize> {
        let generation = self.generation.as_ref()?;
        let prompt = self.inputs.iter().find(|input| input.name == generation.tokens)?;
        let length = match prompt.shape.get(1)? {
            Dimension::Fixed(length) => *length,
            Dimension::Symbol(_) => sequence?,
        };
        Some(generation.prefix_positions + length)
    }

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
    /// Other forms of the model, such as those in eight-bit integers.
    #[serde(rename = "variants", default)]
    _variants: Vec<toml::Table>,
    inputs: Vec<TensorSpec>,
    /// Of a model that is not generative.
    outputs: Option<Vec<TensorSpec>>,
    /// Of a generative model.
    generation: Option<Generation>,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    phases: Vec<PhasePlan>,
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
    let (parts, phases) = match toml.outputs {
        Some(outputs) => whole(&toml.inputs, outputs),
        None => (toml.parts, toml.phases),
    };
    check_phases(&parts, &phases).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Model {
        name,
        variant: ORIGINAL.into(),
        family: toml.family,
        modality: toml.modality,
        parameters: Some(toml.parameters),
        inputs: toml.inputs,
        parts,
        phases,
        generation: toml.generation,
        sequence_lengths: toml.sequence_lengths,
        tolerance: toml.tolerance,
        origin: Origin::Packaged {
            folder: folder.to_owned(),
            weights: toml.weights.map(|weights| folder.join(weights)),
            has_reference: true,
        },
    })
}

/// The one part and the one phase of a model that is not generative.
pub fn whole(inputs: &[TensorSpec], outputs: Vec<TensorSpec>) -> (Vec<Part>, Vec<PhasePlan>) {
    let part = Part { name: WHOLE.into(), inputs: inputs.to_vec(), outputs: outputs.clone() };
    (vec![part], vec![PhasePlan { phase: Phase::Forward, parts: vec![WHOLE.into()], outputs }])
}

fn check_phases(parts: &[Part], phases: &[PhasePlan]) -> Result<(), String> {
    if phases.is_empty() {
        return Err("neither `outputs` nor `phases`".into());
    }
    for plan in phases {
        if plan.parts.is_empty() || (matches!(plan.phase, Phase::Forward | Phase::Encoder) && plan.parts.len() != 1) {
            return Err(format!(
                "phase {} has {} parts: `forward` and `encoder` have one",
                plan.phase,
                plan.parts.len()
            ));
        }
        if let Some(name) = plan.parts.iter().find(|name| !parts.iter().any(|part| part.name == **name)) {
            return Err(format!("phase {} names a part {name:?} that there is not", plan.phase));
        }
    }
    Ok(())
}

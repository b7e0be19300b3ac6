//! Reads the definition of a packaged model: `models/zoo/<name>/model.toml`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::user_files::read_toml;
use crate::definition::{
    DataSource, Dtype, Generation, Model, Origin, Part, PhasePlan, Quantization, REFERENCE, TensorSpec, Tolerance,
    check_component, whole,
};

/// `models/zoo/<name>/model.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackagedToml {
    family: String,
    modality: String,
    /// Where the architecture comes from. For a model of the hub, it ends with `configuration of` and the hub id.
    source: String,
    #[serde(rename = "license")]
    _license: String,
    /// How the weights were trained; for readers.
    #[serde(rename = "trained")]
    _trained: Option<String>,
    #[serde(rename = "classes")]
    _classes: Option<usize>,
    parameters: u64,
    /// The packaged model with whose weights an imported state dict was compared; PyTorch's worker reads it.
    #[serde(rename = "architecture")]
    _architecture: Option<String>,
    weights: Option<PathBuf>,
    #[serde(default)]
    data_source: DataSource,
    inputs: Vec<TensorSpec>,
    /// The outputs of a model that is not generative.
    outputs: Option<Vec<TensorSpec>>,
    /// How a generative model makes tokens.
    generation: Option<Generation>,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    phases: Vec<PhasePlan>,
    #[serde(default)]
    sequence_lengths: Vec<usize>,
    #[serde(default)]
    tolerance: Tolerance,
    /// The other variants of the model.
    #[serde(default)]
    variants: Vec<VariantToml>,
}

/// A variant of a packaged model: a folder with graphs and weights of its own, files in either format, or a
/// quantisation of the model's own weights.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantToml {
    name: String,
    /// The dtype that its files compute in.
    dtype: Option<Dtype>,
    folder: Option<PathBuf>,
    weights: Option<PathBuf>,
    onnx: Option<PathBuf>,
    torchscript: Option<PathBuf>,
    #[serde(rename = "quantize")]
    quantization: Option<Quantization>,
    parameters: Option<u64>,
    /// The tolerance for its dtype.
    tolerance: Option<f64>,
    /// How it was made; for readers.
    #[serde(rename = "made")]
    _made: Option<String>,
}

impl VariantToml {
    fn model(self, original: &Model, folder: &Path) -> Result<Model> {
        check_component(&self.name)?;
        let path = |path: Option<PathBuf>| path.map(|path| folder.join(path));
        let origin = match (self.folder, self.quantization, &original.origin) {
            (Some(own), None, _) => Origin::Packaged {
                folder: folder.join(own),
                weights: path(self.weights),
                has_reference: true,
                quantization: None,
            },
            (None, Some(quantization), Origin::Packaged { folder, weights, has_reference, .. }) => Origin::Packaged {
                folder: folder.clone(),
                weights: weights.clone(),
                has_reference: *has_reference,
                quantization: Some(quantization),
            },
            (None, None, _) if self.onnx.is_some() || self.torchscript.is_some() => {
                let reference = Some(folder.join(REFERENCE));
                Origin::Files {
                    onnx: path(self.onnx),
                    torchscript: path(self.torchscript),
                    reference,
                    quantization: None,
                }
            }
            _ => bail!("variant {:?} needs one of `folder`, `quantize`, and `onnx` or `torchscript`", self.name),
        };
        let dtype = self.dtype.unwrap_or(original.dtype);
        let tolerance =
            self.tolerance.map_or_else(|| original.tolerance.clone(), |own| original.tolerance.with(dtype, own));
        let parameters = self.parameters.or(original.parameters);
        Ok(Model { variant: self.name, parameters, tolerance, dtype, origin, ..original.clone() })
    }
}

/// A packaged model with all its variants.
pub(super) struct Packaged {
    /// The original, and then its variants.
    pub models: Vec<Model>,
    /// The model of the Hugging Face hub with this architecture, if there is one.
    pub hub_id: Option<String>,
}

/// Reads a packaged model from its folder `models/zoo/<name>`.
///
/// # Errors
/// `model.toml` is missing, is not TOML, or lacks a field or has an unknown one; or a variant has no source.
pub(super) fn read_packaged(folder: &Path) -> Result<Packaged> {
    let path = folder.join("model.toml");
    packaged(read_toml(&path)?, folder).with_context(|| path.display().to_string())
}

/// The number of positions of a decoder of the library transformers, by the configuration in its folder: the length of
/// its table of embeddings or rotations. Returns `None` for other architectures.
fn table_of_positions(folder: &Path) -> Option<usize> {
    #[derive(Deserialize)]
    struct Config {
        model_type: Option<String>,
        n_positions: Option<usize>,
        max_target_positions: Option<usize>,
        max_position_embeddings: Option<usize>,
    }
    let config: Config = serde_json::from_slice(&fs_err::read(folder.join("config.json")).ok()?).ok()?;
    match config.model_type.as_deref() {
        Some("gpt2") => config.n_positions,
        Some("whisper") => config.max_target_positions,
        Some("llama" | "qwen2" | "qwen3") => config.max_position_embeddings,
        _ => None,
    }
}

fn packaged(toml: PackagedToml, folder: &Path) -> Result<Packaged> {
    let (parts, phases) = match toml.outputs {
        Some(outputs) => whole(&toml.inputs, outputs),
        None => (toml.parts, toml.phases),
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let original = Model {
        family: toml.family,
        modality: toml.modality,
        parameters: Some(toml.parameters),
        parts,
        phases,
        generation: toml
            .generation
            .map(|own| Generation { positions: own.positions.or_else(|| table_of_positions(folder)), ..own }),
        sequence_lengths: toml.sequence_lengths,
        tolerance: toml.tolerance,
        data_source: toml.data_source.relative_to(folder),
        origin: Origin::Packaged {
            folder: folder.to_owned(),
            weights: toml.weights.map(|weights| folder.join(weights)),
            has_reference: true,
            quantization: None,
        },
        ..Model::of_tensors(name, toml.inputs, Vec::new())
    };
    let variants = toml.variants.into_iter().map(|variant| variant.model(&original, folder));
    let models = std::iter::once(Ok(original.clone())).chain(variants).collect::<Result<_>>()?;
    let hub_id = toml.source.split_once("configuration of ").map(|(_, hub_id)| hub_id.to_owned());
    Ok(Packaged { models, hub_id })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::definition::Phase;

    #[test]
    fn each_phase_of_a_packaged_model_has_its_parts_and_decoders_have_their_positions() {
        let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/zoo");
        let mut of_models = BTreeMap::new();
        for folder in fs_err::read_dir(zoo).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
            for Model { name, parts, phases, generation, .. } in read_packaged(&folder).unwrap().models {
                assert!(!phases.is_empty(), "{name}");
                let positions = generation.and_then(|generation| generation.positions);
                of_models.extend(positions.map(|positions| (name.clone(), positions)));
                for PhasePlan { phase, parts: names, .. } in phases {
                    let has_one = matches!(phase, Phase::Forward | Phase::Encoder);
                    assert!(!names.is_empty() && (names.len() == 1 || !has_one), "{name} {phase}: {names:?}");
                    let is_known = |name: &String| parts.iter().any(|part| part.name == *name);
                    assert!(names.iter().all(is_known), "{name} {phase}: {names:?}");
                }
            }
        }
        let known = ["gpt2-tiny", "llama-small", "qwen3-0.6b"].map(|name| of_models.get(name).copied());
        assert_eq!(known, [Some(256), Some(2048), Some(40_960)]);
    }
}

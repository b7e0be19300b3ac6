//! Reads the definition of a packaged model: `models/zoo/<name>/model.toml`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::definition::{
    DataSource, Dtype, Generation, Model, ORIGINAL, Origin, Part, Phase, PhasePlan, Quantization, REFERENCE,
    TensorSpec, Tolerance, check_component, whole,
};

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
    #[serde(default)]
    data_source: DataSource,
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
    /// Its other forms.
    #[serde(default)]
    variants: Vec<VariantToml>,
}

/// A form of a packaged model: a folder with graphs and weights of its own, a file of either format, or what is made of
/// the model's own weights.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantToml {
    name: String,
    /// What its files compute in.
    dtype: Option<Dtype>,
    folder: Option<PathBuf>,
    weights: Option<PathBuf>,
    onnx: Option<PathBuf>,
    torchscript: Option<PathBuf>,
    #[serde(rename = "quantize")]
    quantization: Option<Quantization>,
    parameters: Option<u64>,
    /// Of its dtype.
    tolerance: Option<f64>,
    /// How it was made; for readers.
    #[serde(rename = "made")]
    _made: Option<String>,
}

impl VariantToml {
    fn model(self, original: &Model, folder: &Path) -> Result<Model, String> {
        check_component(&self.name)?;
        let path = |path: Option<PathBuf>| path.map(|path| folder.join(path));
        let origin = match (self.folder, self.quantization, &original.origin) {
            (Some(own), None, _) if self.onnx.is_none() && self.torchscript.is_none() => Origin::Packaged {
                folder: folder.join(own),
                weights: path(self.weights),
                has_reference: true,
                quantization: None,
            },
            (None, Some(quantization), Origin::Packaged { folder, weights, has_reference, .. })
                if self.onnx.is_none() && self.torchscript.is_none() && self.weights.is_none() =>
            {
                Origin::Packaged {
                    folder: folder.clone(),
                    weights: weights.clone(),
                    has_reference: *has_reference,
                    quantization: Some(quantization),
                }
            }
            (None, None, _) if (self.onnx.is_some() || self.torchscript.is_some()) && self.weights.is_none() => {
                let reference = Some(folder.join(REFERENCE));
                Origin::Files { onnx: path(self.onnx), torchscript: path(self.torchscript), reference }
            }
            _ => {
                return Err(format!(
                    "variant {:?} needs one of `folder`, `quantize`, and `onnx` or `torchscript`",
                    self.name
                ));
            }
        };
        let dtype = self.dtype.unwrap_or(original.dtype);
        let tolerance =
            self.tolerance.map_or_else(|| original.tolerance.clone(), |own| original.tolerance.with(dtype, own));
        let parameters = self.parameters.or(original.parameters);
        Ok(Model { variant: self.name, parameters, tolerance, dtype, origin, ..original.clone() })
    }
}

/// Reads a packaged model from its folder `models/zoo/<name>`: the original, and then its variants.
///
/// # Errors
/// `model.toml` is missing, is not TOML, or lacks or has a field it should not.
pub fn read_packaged(folder: &Path) -> Result<Vec<Model>, String> {
    let path = folder.join("model.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let toml: PackagedToml = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (parts, phases) = match toml.outputs {
        Some(outputs) => whole(&toml.inputs, outputs),
        None => (toml.parts, toml.phases),
    };
    check_phases(&parts, &phases).map_err(|error| format!("{}: {error}", path.display()))?;
    let original = Model {
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
        dtype: Dtype::F32,
        data_source: toml.data_source.relative_to(folder),
        origin: Origin::Packaged {
            folder: folder.to_owned(),
            weights: toml.weights.map(|weights| folder.join(weights)),
            has_reference: true,
            quantization: None,
        },
    };
    let named = |error: String| format!("{}: {error}", path.display());
    let variants = toml.variants.into_iter().map(|variant| variant.model(&original, folder).map_err(named));
    std::iter::once(Ok(original.clone())).chain(variants).collect()
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

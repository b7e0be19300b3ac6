//! A model's definition: what it is, its inputs and outputs, and where its artifacts come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator;

use super::case::{ORIGINAL, Phase};
use super::data_source::DataSource;
use super::dtype::{Blocks, Dtype, Quantization, Scheme};
use super::judge::Judge;
use super::tensor_spec::{BATCH, Dimension, ElementType, SEQUENCE, TensorSpec};

/// A model that can be made into cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub name: String,
    pub variant: String,
    pub family: String,
    pub modality: String,
    /// The number of trainable parameters, if the file says it.
    pub parameters: Option<u64>,
    /// The inputs that a user gives.
    pub inputs: Vec<TensorSpec>,
    /// The only batch size, if it is known from dimensions that were open: a length among them is no batch.
    #[serde(default)]
    pub batch_of_sizes: Option<usize>,
    /// The graphs; a model that is not generative has one.
    pub parts: Vec<Part>,
    pub phases: Vec<PhasePlan>,
    /// How a generative model makes tokens.
    pub generation: Option<Generation>,
    /// The default sequence lengths, for which a packaged model has references; empty for a model without a sequence
    /// dimension. If texts are timed, the lengths into which they are sorted.
    pub sequence_lengths: Vec<usize>,
    pub tolerance: Tolerance,
    /// The dtype that the files compute in. Other dtypes are made from f32 only.
    pub dtype: Dtype,
    /// The samples on which the accuracy is evaluated.
    pub data_source: DataSource,
    /// How its answers are judged. `None` if the family and the outputs decide.
    pub judge: Option<Judge>,
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

/// The parts that one call of a phase runs.
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
/// An input of a part takes the value of its own name, or of the name in `takes`: an input of the model, or an output
/// of an earlier part. Output `present.X` becomes input `past.X` or `past_key_values.X` of the next step. A value that
/// a part both takes and gives is a cache, which is empty at the start. Inputs such as `position_ids` and
/// `attention_mask` are made for each call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// The input that takes the prompt's tokens and then each new one.
    pub tokens: String,
    /// Positions that other inputs take before the prompt, such as those of an image.
    #[serde(default)]
    pub prefix_positions: usize,
    /// Inputs of parts that are empty after the prefill.
    #[serde(default)]
    pub once: Vec<String>,
    /// The names of the values that inputs take instead of their own names, by `part.input`.
    #[serde(default)]
    pub takes: BTreeMap<String, String>,
    /// New tokens after a prompt, before decoding begins again after it. `None` for the number of the reference.
    pub new_tokens: Option<usize>,
    /// The number of positions that the model has, if that is limited.
    pub positions: Option<usize>,
}

impl Generation {
    /// The name of the value that an input of a part takes.
    pub fn value_of(&self, part: &str, input: &str) -> String {
        value_name(self.takes.get(&format!("{part}.{input}")).map_or(input, String::as_str))
    }

    /// Whether the input of a part is a cache: what the part also gives, for its next call.
    pub fn is_cache(&self, part: &Part, input: &str) -> bool {
        let value = self.value_of(&part.name, input);
        part.outputs.iter().any(|output| value_name(&output.name) == value)
    }
}

/// The name of the value of an input or output. An output `present.X` of one step and an input `past.X`,
/// `past_key_values.X` or `past_X` of the next have one name.
pub fn value_name(name: &str) -> String {
    let rest = name.strip_prefix("present").or_else(|| name.strip_prefix("past"));
    let rest = rest.map(|rest| rest.strip_prefix("_key_values").unwrap_or(rest));
    match rest.and_then(|rest| rest.strip_prefix(['.', '_'])) {
        Some(rest) => format!("past.{rest}"),
        None => name.to_owned(),
    }
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
        /// How matrix products are quantised during preparation; `None` for most models.
        quantization: Option<Quantization>,
    },
    /// Files with their weights inside: files of a user, or the quantised files of a packaged model.
    Files {
        onnx: Option<PathBuf>,
        /// What only PyTorch runs: a TorchScript archive, a `.pt2`, or a `.py` with a function that makes a module.
        torchscript: Option<PathBuf>,
        reference: Option<PathBuf>,
        /// How matrix products of the ONNX file are quantised during preparation; `None` for the file as it is.
        quantization: Option<Quantization>,
    },
    /// A user's GGUF file of a language model.
    Gguf { file: PathBuf },
}

impl Origin {
    /// The files that contain the weights, the graph first. For a packaged model, its file of weights, if it has one.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let files = match self {
            Origin::Packaged { weights, .. } => [weights.as_ref(), None],
            Origin::Files { onnx, torchscript, .. } => [onnx.as_ref(), torchscript.as_ref()],
            Origin::Gguf { file } => [Some(file), None],
        };
        files.into_iter().flatten()
    }
}

/// The error of an output that is always accepted, per dtype, as a fraction of how much the outputs of samples differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tolerance(BTreeMap<Dtype, f64>);

impl Tolerance {
    /// The same tolerances, except for `dtype`.
    pub fn with(&self, dtype: Dtype, tolerance: f64) -> Self {
        let mut changed = self.clone();
        changed.0.insert(dtype, tolerance);
        changed
    }

    /// These tolerances, completed by those of `other`.
    pub fn or(&self, other: &Self) -> Self {
        let mut all = other.clone();
        all.0.extend(&self.0);
        all
    }

    /// # Errors
    /// A tolerance is negative, infinite or not a number.
    pub fn check(&self) -> anyhow::Result<()> {
        let is_right = |tolerance: &f64| tolerance.is_finite() && *tolerance >= 0.0;
        anyhow::ensure!(self.0.values().all(is_right), "a tolerance is a number from 0 on");
        Ok(())
    }

    /// The tolerance of `dtype`, if the description gives one.
    pub fn of(&self, dtype: Dtype) -> Option<f64> {
        self.0.get(&dtype).copied()
    }
}

/// Returns true if an input of this type can take images.
fn is_of_pictures(dtype: ElementType) -> bool {
    matches!(dtype, ElementType::F32 | ElementType::F16 | ElementType::Bf16)
}

impl Model {
    /// A model of which only inputs and outputs are known: an f32 network in one part.
    pub(crate) fn of_tensors(name: impl Into<String>, inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> Self {
        let (parts, phases) = whole(&inputs, outputs);
        Model {
            name: name.into(),
            variant: ORIGINAL.into(),
            family: String::new(),
            modality: String::new(),
            parameters: None,
            inputs,
            batch_of_sizes: None,
            parts,
            phases,
            generation: None,
            sequence_lengths: Vec::new(),
            tolerance: Tolerance::default(),
            dtype: Dtype::F32,
            data_source: DataSource::Synthetic,
            judge: None,
            origin: Origin::Files { onnx: None, torchscript: None, reference: None, quantization: None },
        }
    }

    /// The plan of a phase. Returns `None` if the model has no such phase.
    pub fn phase(&self, phase: Phase) -> Option<&PhasePlan> {
        self.phases.iter().find(|plan| plan.phase == phase)
    }

    /// How the answers to samples are judged: as the definition says, or else by the family and the outputs.
    pub(crate) fn judged_by(&self) -> Judge {
        let outputs = self.phase(Phase::Forward).map(|plan| plan.outputs.as_slice()).unwrap_or_default();
        self.judge.unwrap_or_else(|| Judge::usual(&self.family, &self.modality, self.generation.is_some(), outputs))
    }

    /// The names of the outputs of a phase that are compared.
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

    /// The number of positions that the decoder has read before the first new token: the prompt and its prefix.
    pub(crate) fn prompt_positions(&self, sequence: Option<usize>) -> Option<usize> {
        let generation = self.generation.as_ref()?;
        let prompt = self.inputs.iter().find(|input| input.name == generation.tokens)?;
        let length = prompt.shape.get(1)?.fixed().or(sequence)?;
        Some(generation.prefix_positions + length)
    }

    /// The same model with other inputs.
    #[must_use]
    pub(crate) fn with_inputs(self, inputs: Vec<TensorSpec>) -> Self {
        if self.generation.is_some() {
            return Model { inputs, ..self };
        }
        let batch = Dimension::Symbol(BATCH.into());
        let given = self.inputs.iter().zip(&inputs).find_map(|(own, new)| {
            let place = own.shape.iter().position(|size| *size == batch)?;
            new.shape.get(place)?.fixed()
        });
        let is_length_first = self.rows().is_some_and(|size| size.fixed().is_none() && *size != batch);
        let batch_of_sizes = given.or(self.batch_of_sizes).or(is_length_first.then_some(1));
        let parts = self.parts.into_iter().map(|part| Part { inputs: inputs.clone(), ..part }).collect();
        Model { inputs, parts, batch_of_sizes, ..self }
    }

    /// The original ONNX file of a part. If a user's model has several parts, they are beside the file that was named.
    pub(crate) fn onnx_file(&self, part: &Part) -> Option<PathBuf> {
        let file = format!("{}.onnx", part.name);
        match &self.origin {
            Origin::Packaged { folder, .. } => Some(folder.join(file)),
            Origin::Files { onnx, .. } if part.name == WHOLE => onnx.clone(),
            Origin::Files { onnx, .. } => onnx.as_ref().map(|named| named.with_file_name(file)),
            Origin::Gguf { .. } => None,
        }
    }

    /// The names of the dimensions of a user's file that have no size yet, in order, each once. The batch has its size from
    /// the case, and so has the sequence if the case says its length.
    pub(crate) fn open_dimensions(&self, sequence: Option<usize>) -> Vec<&str> {
        let mut open: Vec<&str> = Vec::new();
        if matches!(self.origin, Origin::Packaged { .. }) {
            return open;
        }
        for dimension in self.inputs.iter().flat_map(|input| &input.shape) {
            if let Dimension::Symbol(name) = dimension
                && name != BATCH
                && !(name == SEQUENCE && sequence.is_some())
                && !open.contains(&name.as_str())
            {
                open.push(name);
            }
        }
        open
    }

    /// The only batch size that the model takes: the size that its batch was given, or else its first dimension, or 1
    /// if that is a length, or if all inputs are single numbers or lists. Returns `None` if its inputs leave the batch
    /// open, or if nothing is known about their shapes.
    pub(crate) fn fixed_batch(&self) -> Option<usize> {
        let batch = Dimension::Symbol(BATCH.into());
        let is_unknown = self.rows().is_none() && self.inputs.iter().any(TensorSpec::has_any_shape);
        if is_unknown || self.inputs.iter().any(|input| input.shape.contains(&batch)) {
            return None;
        }
        // The input of a recurrent network may have its steps first.
        let is_state_of_one = |input: &TensorSpec| {
            let is_zero = input.dtype.is_floating() && input.constant == Some(0.0);
            is_zero && matches!(input.shape[..], [_, Dimension::Fixed(1), _])
        };
        if self.inputs.len() > 1 && self.inputs.iter().any(is_state_of_one) {
            return Some(1);
        }
        Some(self.batch_of_sizes.or_else(|| self.rows()?.fixed()).unwrap_or(1))
    }

    /// Whether the only batch is 1 because another dimension, which was open, is in front.
    pub(crate) fn has_length_first(&self) -> bool {
        self.batch_of_sizes == Some(1) && self.rows().and_then(Dimension::fixed) != Some(1)
    }

    /// The first dimension of the first input of floating-point numbers, or else of the first input, that is neither a
    /// single number nor a list.
    fn rows(&self) -> Option<&Dimension> {
        // An integer input may hold pairs of a graph's nodes, `[2, edges]`, which are not a batch of two.
        let mut tables = self.inputs.iter().filter(|input| input.shape.len() > 1);
        let first = tables.clone().find(|input| input.dtype.is_floating()).or_else(|| tables.next());
        first.map(|input| &input.shape[0])
    }

    /// Whether a case of the model has a sequence length.
    pub fn has_sequence(&self) -> bool {
        self.inputs.iter().any(TensorSpec::has_sequence)
    }

    /// Height and width of the images that the model takes as its only input, `[batch, 3, height, width]`. Returns
    /// `None` if the model takes anything else, or leaves them open.
    pub(crate) fn picture_size(&self) -> Option<[usize; 2]> {
        let [input] = self.inputs.as_slice() else { return None };
        let [_, Dimension::Fixed(3), Dimension::Fixed(height), Dimension::Fixed(width)] = input.shape[..] else {
            return None;
        };
        is_of_pictures(input.dtype).then_some([height, width])
    }

    /// Whether its only input is an image, whose height and width may be open.
    pub(crate) fn may_take_pictures(&self) -> bool {
        let [input] = self.inputs.as_slice() else { return false };
        matches!(input.shape[..], [_, Dimension::Fixed(3), _, _]) && is_of_pictures(input.dtype)
    }

    /// Whether there may be a reference for its outputs.
    pub(crate) fn has_reference(&self) -> bool {
        match &self.origin {
            _ if self.gguf_scheme().is_some() || self.blocks().is_some() => false,
            Origin::Packaged { has_reference, .. } => *has_reference,
            Origin::Files { reference, .. } => reference.is_some(),
            Origin::Gguf { .. } => false,
        }
    }

    /// The folder below `.prepared/` that holds the model's weights and graphs. A model that is quantised during
    /// preparation is in the folder of the weights that it is made from.
    pub(crate) fn artifact_folder_name(&self) -> String {
        let of_weights = match &self.origin {
            Origin::Packaged { weights: Some(weights), has_reference: false, .. } => {
                let stem = weights.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                format!("{}@{stem}", self.name)
            }
            _ => self.name.clone(),
        };
        let is_quantised = matches!(self.origin, Origin::Packaged { quantization: Some(_), .. });
        if self.variant == ORIGINAL || is_quantised { of_weights } else { format!("{of_weights}.{}", self.variant) }
    }

    /// The scheme of the GGUF file that is made from the model. Returns `None` if none is made.
    pub(crate) fn gguf_scheme(&self) -> Option<Scheme> {
        match self.origin {
            Origin::Packaged { quantization: Some(Quantization::Gguf(scheme)), .. } => Some(scheme),
            _ => None,
        }
    }

    /// Whether the model is a GGUF file, or is made into one.
    pub(crate) fn is_gguf(&self) -> bool {
        matches!(self.origin, Origin::Gguf { .. }) || self.gguf_scheme().is_some()
    }

    /// The blocks of the weights in its ONNX graphs. Returns `None` if its weights are not in blocks.
    pub(crate) fn blocks(&self) -> Option<Blocks> {
        match self.origin {
            Origin::Packaged { quantization: Some(Quantization::Blocks(blocks)), .. }
            | Origin::Files { quantization: Some(Quantization::Blocks(blocks)), .. } => Some(blocks),
            _ => None,
        }
    }

    /// The dtypes in which it computes, the usual one first: weights in blocks take activations in i8 or in f32.
    pub(crate) fn own_dtypes(&self) -> &[Dtype] {
        match self.dtype {
            Dtype::I8 if self.blocks().is_some() => &[Dtype::I8, Dtype::F32],
            _ => std::slice::from_ref(&self.dtype),
        }
    }

    /// The variants of an f32 model whose weights are in blocks. They have no reference.
    pub(crate) fn block_variants(&self) -> Vec<Model> {
        let has_graph = matches!(
            self.origin,
            Origin::Packaged { quantization: None, .. } | Origin::Files { onnx: Some(_), quantization: None, .. }
        );
        if !has_graph || self.variant != ORIGINAL || self.dtype != Dtype::F32 {
            return Vec::new();
        }
        let form = |blocks: Blocks| self.form(blocks.name(), Dtype::I8, Some(Quantization::Blocks(blocks)));
        Blocks::iter().map(form).collect()
    }

    /// The variants of a packaged or imported language model that are made as GGUF files. They have no reference.
    pub(crate) fn gguf_variants(&self) -> Vec<Model> {
        let is_packaged = matches!(self.origin, Origin::Packaged { quantization: None, .. });
        if !is_packaged || self.variant != ORIGINAL || self.generation.is_none() {
            return Vec::new();
        }
        let form = |scheme: Scheme| self.form(scheme.name(), Dtype::I8, Some(Quantization::Gguf(scheme)));
        Scheme::iter().map(form).collect()
    }

    /// The other variants that are made from a user's f32 ONNX file: in f16, and in i8 with ranges of activations that
    /// are found in each call, or measured on samples in advance.
    pub(crate) fn derived_variants(&self) -> Vec<Model> {
        let is_file = matches!(self.origin, Origin::Files { onnx: Some(_), quantization: None, .. });
        if !is_file || self.variant != ORIGINAL || self.dtype != Dtype::F32 || self.generation.is_some() {
            return Vec::new();
        }
        vec![
            self.form("f16", Dtype::F16, None),
            self.form("int8-dynamic", Dtype::I8, Some(Quantization::Dynamic)),
            self.form("int8-static", Dtype::I8, Some(Quantization::Static)),
        ]
    }

    /// The variant of this name, which preparation makes. Files that only PyTorch runs are not quantised.
    fn form(&self, variant: &str, dtype: Dtype, made: Option<Quantization>) -> Model {
        let mut model = Model { variant: variant.into(), dtype, ..self.clone() };
        match &mut model.origin {
            Origin::Packaged { quantization, .. } => *quantization = made,
            Origin::Files { quantization, torchscript, .. } => {
                *torchscript = torchscript.take().filter(|_| made.is_none());
                *quantization = made;
            }
            Origin::Gguf { .. } => {}
        }
        model
    }

    /// The same model with the weights of a file, for which there is no reference. The labels of its samples stay valid.
    ///
    /// Returns `None` for a variant that exists only for the model's own weights.
    pub(crate) fn with_weights(&self, file: &Path) -> Option<Model> {
        let mut model = self.clone();
        let Origin::Packaged { weights, has_reference, quantization, .. } = &mut model.origin else { return None };
        if (self.variant != ORIGINAL && quantization.is_none()) || *quantization == Some(Quantization::Static) {
            return None;
        }
        (*weights, *has_reference) = (Some(file.to_owned()), false);
        Some(model)
    }
}

/// The file with the outputs of PyTorch for the samples of the input pool, in a packaged model's folder.
pub const REFERENCE: &str = "reference.safetensors";

/// The file with the ranges of a model's activations, for its static quantisation: in a packaged model's folder, or in
/// the folder of prepared files of a user's model.
pub const CALIBRATION: &str = "calibration.toml";

/// The one part and the one phase of a model that is not generative.
pub fn whole(inputs: &[TensorSpec], outputs: Vec<TensorSpec>) -> (Vec<Part>, Vec<PhasePlan>) {
    let part = Part { name: WHOLE.into(), inputs: inputs.to_vec(), outputs: outputs.clone() };
    (vec![part], vec![PhasePlan { phase: Phase::Forward, parts: vec![WHOLE.into()], outputs }])
}

#[cfg(test)]
mod tests {
    use super::super::tensor_spec::with_dimensions;
    use super::*;

    #[test]
    fn a_length_that_gets_a_size_is_no_batch() {
        let sized = |input: &str, sizes: &[(&str, usize)]| {
            let model = Model::of_tensors("m", vec![input.parse().unwrap()], Vec::new());
            let sizes = sizes.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
            let inputs = with_dimensions(model.inputs.clone(), &sizes);
            model.with_inputs(inputs)
        };
        let fixed = |input: &str, sizes: &[(&str, usize)]| sized(input, sizes).fixed_batch();
        assert!(sized("x:f32[frames,80]", &[("frames", 128)]).has_length_first());
        assert!(!sized("x:f32[batch,16]", &[("batch", 1)]).has_length_first());
        assert_eq!(fixed("x:f32[frames,80]", &[("frames", 128)]), Some(1));
        assert_eq!(fixed("x:f32[steps,batch,16]", &[("steps", 64), ("batch", 4)]), Some(4));
        assert_eq!(fixed("x:f32[steps,batch,16]", &[("steps", 64)]), None);
        assert_eq!(fixed("x:f32[batch,16]", &[("batch", 4)]), Some(4));
        assert_eq!(fixed("x:f32[4,16]", &[]), Some(4));
        // An input without a known shape may have a batch.
        assert_eq!(fixed("x:f32[...]", &[]), None);
    }
}

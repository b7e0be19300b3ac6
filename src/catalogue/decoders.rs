//! Language models in ONNX files: decoders with a cache of keys and values, alone or after an encoder.
//!
//! They are recognised by the names that optimum gives to files, inputs and outputs, or a `[generation]` table says what
//! the files are. Either way they get the description that packaged decoders have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::usual_sizes::with_usual_values;
use crate::definition::{
    BATCH, Dimension, ElementType, Generation, Model, Origin, Part, Phase, PhasePlan, SEQUENCE, TensorSpec, value_name,
};
use crate::onnx::{self, BIAS, BRANCH, OnnxSummary, is_made};

const MERGED: &str = "decoder_model_merged";
const WITH_PAST: &str = "decoder_with_past_model";
const DECODER: &str = "decoder_model";
const ENCODER: &str = "encoder_model";

/// The default numbers of tokens of a prompt and of new tokens after it.
const PROMPT: usize = 128;
pub(super) const NEW_TOKENS: usize = 256;

const LOGITS: &str = "logits";
/// The tokens of a decoder after an encoder; `input_ids` are those of the encoder.
const DECODER_TOKENS: &str = "decoder_input_ids";
/// Inputs of a decoder after an encoder, each with the name of the value that it takes.
const AFTER_ENCODER: [(&str, &str); 4] = [
    ("input_ids", DECODER_TOKENS),
    ("attention_mask", "decoder_attention_mask"),
    ("encoder_attention_mask", "attention_mask"),
    ("encoder_hidden_states", "last_hidden_state"),
];
/// The dimension of a cache that grows with the positions.
const PAST: &str = "past";
/// Words in the names of caches that do not grow, because they hold an encoder's states.
const OF_ENCODER: [&str; 2] = ["encoder", "cross"];

/// The file of a language model to which optimum gives this stem, and the rest of the stem, such as `_quantized`.
pub(super) fn file_kind(stem: &str) -> Option<(&'static str, &str)> {
    [MERGED, WITH_PAST, DECODER, ENCODER].into_iter().find_map(|kind| {
        let rest = stem.strip_prefix(kind)?;
        (rest.is_empty() || rest.starts_with(['_', '.'])).then_some((kind, rest))
    })
}

/// Returns true if the two files are parts of one language model.
pub(super) fn are_of_one_model(one: &Path, other: &Path) -> bool {
    let suffix = |path: &Path| Some(file_kind(&path.file_stem()?.to_string_lossy())?.1.to_owned());
    one.parent() == other.parent() && suffix(one).is_some() && suffix(one) == suffix(other)
}

/// How tokens are made, and which files run in which phase.
type Layout = (Generation, Vec<PhasePlan>);

/// Makes the model a language model if its file is one, or if a TOML file says how it makes tokens (`said`). Other
/// models are returned unchanged. The parts are the files beside `file` that the phases name.
///
/// # Errors
/// A part cannot be read, or an input of a part has no source, or a source of another shape or type.
pub(super) fn as_language_model(
    model: Model,
    file: &Path,
    summary: &OnnxSummary,
    said: Option<Layout>,
) -> Result<Model> {
    let is_said = said.is_some();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let layout = said.or_else(|| layout_of_files(file, &stem, summary));
    let Some((mut generation, phases)) = layout else { return Ok(model) };
    let alone = || phases_of(vec![stem.to_string()], stem.to_string());
    let phases = if phases.is_empty() { alone() } else { phases };
    let mut parts: Vec<Part> = Vec::new();
    let mut parameters: u64 = 0;
    for name in phases.iter().flat_map(|plan| &plan.parts) {
        if !parts.iter().any(|part| part.name == *name) {
            let summary = onnx::read_summary(&file.with_file_name(format!("{name}.onnx")))?;
            let mut part = Part { name: name.clone(), inputs: summary.inputs, outputs: summary.outputs };
            name_lengths_of_caches(&mut part, &generation)?;
            parts.push(part);
            let is_first = |plan: &PhasePlan| plan.phase == Phase::Prefill && plan.parts.contains(name);
            if phases.iter().any(is_first) {
                parameters = parameters.saturating_add(summary.parameters);
            }
        }
    }
    let inputs = inputs_of(&parts, &phases, &generation, is_said, first_token(file))?;
    let of_positions = |part: &Part| part.inputs.iter().find(|input| input.name == "position_ids")?.below;
    let limit = parts.iter().filter_map(of_positions).min().and_then(|rows| usize::try_from(rows).ok());
    generation.positions = generation.positions.or(limit);
    generation.new_tokens = generation.new_tokens.or(Some(NEW_TOKENS));
    let prompt = usual_prompt(generation.positions);
    let has_sequence = inputs.iter().any(TensorSpec::has_sequence);
    let Origin::Files { onnx, .. } = model.origin else { bail!("a language model of files is ONNX files") };
    Ok(Model {
        parameters: Some(parameters),
        inputs,
        parts,
        phases,
        generation: Some(generation),
        sequence_lengths: if has_sequence { vec![prompt] } else { Vec::new() },
        origin: Origin::Files { onnx, torchscript: None, reference: None, quantization: None },
        ..model
    })
}

/// The default number of tokens of a prompt, for a model with this number of positions.
pub(super) fn usual_prompt(positions: Option<usize>) -> usize {
    positions.map_or(PROMPT, |positions| PROMPT.min(positions / 2)).max(1)
}

pub(super) fn phases_of(prefill: Vec<String>, decode: String) -> Vec<PhasePlan> {
    let plan = |phase, parts| PhasePlan { phase, parts, outputs: Vec::new() };
    vec![plan(Phase::Prefill, prefill), plan(Phase::Decode, vec![decode])]
}

/// The first token of a decoder after an encoder. The configuration beside the file, or beside its folder `onnx`, gives
/// it; the default is 0.
fn first_token(file: &Path) -> f64 {
    let folder = file.parent().unwrap_or(Path::new(""));
    let above = folder.parent().filter(|_| folder.file_name().is_some_and(|name| name == "onnx"));
    let said = |path: PathBuf| {
        let said: Value = serde_json::from_slice(&fs_err::read(path).ok()?).ok()?;
        let token = said.get("decoder_start_token_id")?;
        token.get(0).unwrap_or(token).as_f64()
    };
    let names = ["generation_config.json", "config.json"];
    let mut files = [Some(folder), above].into_iter().flatten().flat_map(|folder| names.map(|name| folder.join(name)));
    files.find_map(said).unwrap_or(0.0)
}

/// The layout, by the names: a file with caches and logits is a decoder, and so is a file of [`file_kind`] that has its
/// counterparts beside it. Returns `None` for all other files.
fn layout_of_files(file: &Path, stem: &str, summary: &OnnxSummary) -> Option<Layout> {
    let beside = |kind: &str, suffixes: &[&str]| {
        let mut stems = suffixes.iter().map(|suffix| format!("{kind}{suffix}"));
        stems.find(|stem| file.with_file_name(format!("{stem}.onnx")).is_file())
    };
    let (kind, suffix) = file_kind(stem).unzip();
    let merged = || beside(MERGED, &[suffix?]).map(|merged| [merged.clone(), merged]);
    let pair = || Some([beside(DECODER, &[suffix?])?, beside(WITH_PAST, &[suffix?])?]);
    // Not every library can run the branch in a merged file, so it is used only if it is named, or if there is no pair.
    let both = if kind == Some(MERGED) { merged() } else { pair().or_else(merged) };
    let has_cache = summary.inputs.iter().any(|input| value_name(&input.name) != input.name);
    let is_decoder = has_cache && summary.outputs.iter().any(|output| output.name == LOGITS);
    let alone = || is_decoder.then(|| [stem.to_owned(), stem.to_owned()]);
    let [first, next] = both.or_else(alone)?;
    let encoder = suffix.and_then(|suffix| beside(ENCODER, &[suffix, ""]));
    let mut generation = Generation { tokens: "input_ids".into(), ..Generation::default() };
    if encoder.is_some() {
        generation.tokens = DECODER_TOKENS.into();
        for name in [&first, &next] {
            let takes = AFTER_ENCODER.map(|(input, value)| (format!("{name}.{input}"), value.to_owned()));
            generation.takes.extend(takes);
        }
    }
    Some((generation, phases_of(encoder.into_iter().chain([first]).collect(), next)))
}

/// Names the length of each cache of a part [`PAST`], except in caches of an encoder's states.
///
/// # Errors
/// A cache has no open size, or several.
fn name_lengths_of_caches(part: &mut Part, generation: &Generation) -> Result<()> {
    let is_of_encoder = |input: &TensorSpec| OF_ENCODER.iter().any(|word| input.name.contains(word));
    let mut inputs = std::mem::take(&mut part.inputs);
    for input in inputs.iter_mut().filter(|input| !is_of_encoder(input) && generation.is_cache(part, &input.name)) {
        let text = input.to_string();
        let is_open = |size: &&mut Dimension| matches!(size, Dimension::Symbol(name) if name != BATCH);
        let mut open = input.shape.iter_mut().filter(is_open);
        let (Some(length), None) = (open.next(), open.next()) else {
            bail!(
                "{}.onnx: its cache {text} needs exactly one open size besides the batch, the number of positions so far",
                part.name
            );
        };
        *length = Dimension::Symbol(PAST.into());
    }
    part.inputs = inputs;
    Ok(())
}

/// The inputs that a user gives: neither another part nor the call provides them.
///
/// # Errors
/// An input has no source, or a source of another shape or type; a phase has no logits; or an input of tokens,
/// positions or a mask is not i64.
fn inputs_of(
    parts: &[Part],
    phases: &[PhasePlan],
    generation: &Generation,
    is_said: bool,
    first_token: f64,
) -> Result<Vec<TensorSpec>> {
    let mut inputs: Vec<TensorSpec> = Vec::new();
    let mut known: BTreeMap<String, TensorSpec> = BTreeMap::new();
    let mut is_first_part = true;
    for phase in [Phase::Prefill, Phase::Decode] {
        let plan = phases.iter().find(|plan| plan.phase == phase).with_context(|| format!("no phase {phase}"))?;
        known.remove(LOGITS);
        for part in plan.parts.iter().filter_map(|name| parts.iter().find(|part| part.name == *name)) {
            let file = format!("{}.onnx", part.name);
            let gives_logits = part.outputs.iter().any(|output| output.name == LOGITS);
            for input in &part.inputs {
                let value = generation.value_of(&part.name, &input.name);
                let own = part.outputs.iter().find(|output| value_name(&output.name) == value);
                for given in known.get(&value).into_iter().chain(own) {
                    ensure!(fit(given, input), "{file}: its input {input} takes {given}, which does not fit");
                }
                let is_there = known.contains_key(&value) || own.is_some();
                let is_made = !is_there && gives_logits && is_made(&value);
                let is_tokens = value == generation.tokens;
                let is_of_integers = is_tokens || is_made && ![BIAS, BRANCH].contains(&value.as_str());
                ensure!(
                    !is_of_integers || input.dtype == ElementType::I64,
                    "{file}: its input {input} has to be of i64, as tokens, positions and masks are: export the file with \
                     int64 inputs"
                );
                if is_there || is_made {
                    continue;
                }
                let is_given = phase == Phase::Prefill && (is_tokens || !gives_logits || is_said);
                ensure!(
                    is_given,
                    "{file}: nothing gives its input {input}; a TOML file with [generation] can say what does"
                );
                let named = TensorSpec { name: value.clone(), ..input.clone() };
                let mut given = with_usual_values(named, part.inputs.len() == 1);
                if is_tokens && !is_first_part {
                    // A decoder after an encoder begins with one token.
                    given.constant = Some(first_token);
                    given.shape = given.shape.into_iter().take(1).chain([Dimension::Fixed(1)]).collect();
                }
                known.insert(value, given.clone());
                inputs.push(given);
            }
            known.extend(part.outputs.iter().map(|output| (value_name(&output.name), output.clone())));
            is_first_part = false;
        }
        ensure!(known.contains_key(LOGITS), "no part of phase {phase} has an output {LOGITS:?}");
    }
    let vocabulary = known[LOGITS].shape.last().and_then(Dimension::fixed);
    let tokens = inputs.iter_mut().find(|input| input.name == generation.tokens);
    let tokens = tokens.with_context(|| format!("no part takes the tokens {:?}", generation.tokens))?;
    tokens.below = tokens.below.or(vocabulary.map(|size| size as u64));
    let is_whole = |input: &&TensorSpec| matches!(input.dtype, ElementType::I32 | ElementType::I64);
    let text =
        inputs.iter().filter(is_whole).filter_map(|input| input.shape.get(1)).find(|size| size.fixed().is_none());
    if let Some(length) = text.cloned() {
        let sizes = inputs.iter_mut().flat_map(|input| &mut input.shape).filter(|size| **size == length);
        sizes.for_each(|size| *size = Dimension::Symbol(SEQUENCE.into()));
    }
    Ok(inputs)
}

/// Whether a tensor can be passed as another, as far as their sizes are known.
fn fit(given: &TensorSpec, taken: &TensorSpec) -> bool {
    let is_same = |(a, b): (&Dimension, &Dimension)| a.fixed().zip(b.fixed()).is_none_or(|(a, b)| a == b);
    let is_shape_same = given.shape.len() == taken.shape.len() && given.shape.iter().zip(&taken.shape).all(is_same);
    given.dtype == taken.dtype && (is_shape_same || given.has_any_shape() || taken.has_any_shape())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_positions_that_are_not_of_i64_are_refused() {
        let inputs = |tokens: &str, positions: &str| {
            let input = |name: &str, dtype: &str| format!("{name}:{dtype}[batch,n]").parse().unwrap();
            let inputs = vec![input("input_ids", tokens), input("position_ids", positions)];
            let outputs = vec!["logits:f32[batch,n,11]".parse().unwrap()];
            let part = Part { name: "net".into(), inputs, outputs };
            let generation = Generation { tokens: "input_ids".into(), ..Generation::default() };
            let phases = phases_of(vec!["net".into()], "net".into());
            inputs_of(&[part], &phases, &generation, false, 0.0).map_err(|why| why.to_string())
        };
        assert_eq!(inputs("i64", "i64").unwrap()[0].to_string(), "input_ids:i64[batch,sequence]<11");
        for (tokens, positions, name) in [("i32", "i64", "input_ids:i32"), ("i64", "i32", "position_ids:i32")] {
            let why = inputs(tokens, positions).unwrap_err();
            assert!(why.contains(name) && why.contains("export the file with int64 inputs"), "{why}");
        }
    }
}

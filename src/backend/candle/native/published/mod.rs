//! The modules of published networks, as `candle-transformers` has them.

mod clip;
mod decoders;

use std::path::Path;

use anyhow::Context;
use candle_core::{IndexOp, Module, bail};
use candle_nn::VarBuilder;
use candle_transformers::models::clip::div_l2_norm;
use candle_transformers::models::{bert, resnet, vit};
use serde::de::DeserializeOwned;

use self::decoders::{load_llama, load_qwen2};
use super::{Weights, of_module, of_pictures};
use crate::backend::candle::tensor::{Forward, Place};
use crate::backend::generation::GenerationSession;
use crate::backend::interface::{LoadRequest, Placement, Session};
use crate::definition::{CaseFailure, Phase};

/// A session of the model's module; `config` is the file with its configuration, if it has one. Returns `None` if there
/// is no module.
pub fn open_session(
    request: &LoadRequest<'_>,
    place: Place,
    placement: Placement,
    config: &Path,
    weights: &Weights<'_>,
) -> Result<Option<Box<dyn Session>>, CaseFailure> {
    // The number of classes is that of the last layer's biases.
    let with_classes = |bias: &str| -> Result<_, CaseFailure> {
        let weights = weights()?;
        Ok((weights.get_unchecked(bias)?.dim(0)?, weights))
    };
    let module = match (request.model.family.as_str(), request.phase, config.is_file()) {
        ("bert", Phase::Forward, true) => {
            let outputs = request.model.output_names(request.phase);
            load_bert(read(config)?, weights()?, outputs.first().map(String::as_str).unwrap_or_default())?
        }
        ("clip", Phase::Forward, true) => clip::load(&read(config)?, weights()?)?,
        ("vit", Phase::Forward, true) => {
            let (classes, weights) = with_classes("classifier.bias")?;
            let model = vit::Model::new(&read(config)?, classes, weights)?;
            of_pictures(move |pictures| model.forward(pictures))
        }
        ("resnet", Phase::Forward, false) => {
            let (classes, weights) = with_classes("fc.bias")?;
            let model = resnet::resnet50(classes, weights)?;
            of_pictures(move |pictures| model.forward(pictures))
        }
        ("llama", Phase::Prefill | Phase::Decode, true) => {
            let decoder = load_llama(read(config)?, weights()?)?;
            return Ok(Some(Box::new(GenerationSession::new(request, place, decoder, placement)?)));
        }
        ("qwen2", Phase::Prefill | Phase::Decode, true) => {
            let decoder = load_qwen2(read(config)?, weights()?)?;
            return Ok(Some(Box::new(GenerationSession::new(request, place, decoder, placement)?)));
        }
        _ => return Ok(None),
    };
    of_module(request, place, module, placement).map(Some)
}

/// Reads a module's configuration.
fn read<C: DeserializeOwned>(config: &Path) -> anyhow::Result<C> {
    serde_json::from_str(&fs_err::read_to_string(config)?).with_context(|| config.display().to_string())
}

/// transformers' `BertModel`: tokens and mask, both `[batch, sequence]`, to `[batch, hidden]`: by the name of the
/// output, the pooled state of the first token, the mean of the states of all tokens, or this mean with length 1, as
/// sentence-transformers has it. `candle-transformers` lacks all three.
fn load_bert(config: bert::Config, weights: VarBuilder, output: &str) -> candle_core::Result<Forward> {
    let is_unit = match output {
        "pooler_output" | "mean_state" => false,
        "sentence_embedding" => true,
        other => bail!("the output {other} is not supported with candle's bert"),
    };
    let dense = || candle_nn::linear(config.hidden_size, config.hidden_size, weights.pp("pooler.dense"));
    let pooler = (output == "pooler_output").then(dense).transpose()?;
    let model = bert::BertModel::load(weights, &config)?;
    Ok(Box::new(move |inputs| {
        let [tokens, mask] = inputs else { bail!("{} inputs instead of 2", inputs.len()) };
        let states = model.forward(tokens, &tokens.zeros_like()?, Some(mask))?;
        if let Some(pooler) = &pooler {
            return Ok(vec![states.i((.., 0))?.contiguous()?.apply(pooler)?.tanh()?]);
        }
        let tokens = mask.to_dtype(states.dtype())?.unsqueeze(2)?;
        let mean = states.broadcast_mul(&tokens)?.sum(1)?.broadcast_div(&tokens.sum(1)?)?;
        Ok(vec![if is_unit { div_l2_norm(&mean)? } else { mean }])
    }))
}

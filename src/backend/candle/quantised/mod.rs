//! Language models of GGUF files: Llama, Qwen2, Qwen3 and Gemma 3 on candle's quantised products.
//!
//! The modules of `candle-transformers` take only batches of one, so this package has its own module for the same
//! architectures. candle computes the products with quantised weights; norms, rotations and attention are computed in
//! f32.

mod decoder;
mod weights;

use std::path::{Path, PathBuf};

use candle_core::{DType, Device};

use self::weights::Weights;
use super::tensor::{Place, placement};
use crate::backend::generation::GenerationSession;
use crate::backend::interface::{LoadRequest, Placement, Session};
use crate::backend::recorder::Recorder;
use crate::definition::{CaseFailure, Dtype};
use crate::gguf::{Header, Value};

/// Keys of features that are not computed here. 0 and `false` mean that the model does not have the feature.
const NOT_COMPUTED: &str = "expert_count attention.scale attention.clamp_kqv attention.max_alibi_bias attention.temperature_scale \
    attention.temperature_length logit_scale embedding_scale residual_scale attn_logit_softcapping final_logit_softcapping \
    use_parallel_residual";

/// The architectures that are computed here.
pub const ARCHITECTURES: [&str; 4] = ["llama", "qwen2", "qwen3", "gemma3"];

/// A session of a GGUF file. With `is_exact`, its weights are dequantised, and everything is computed in f32. `tape`
/// notes its operators, if there is one.
///
/// # Errors
/// The file cannot be read, is of an architecture that is not computed here, or has tensors that candle does not know.
pub fn open_session(
    request: &LoadRequest<'_>,
    device: &Device,
    file: &Path,
    is_exact: bool,
    tape: Option<Recorder>,
) -> Result<Box<dyn Session>, CaseFailure> {
    let header = Header::read(file)?;
    let decoder = decoder::load(&Weights::open(file, &header, device, is_exact, tape)?)?;
    // candle converts weights in f16 and bf16 to f32 when it loads them.
    let dtype = if header.dtype() == Dtype::I8 && !is_exact { Dtype::I8 } else { Dtype::F32 };
    let executor = format!("candle's quantised products ({})", header.kinds_in_words());
    let placement = Placement {
        artifacts: vec![PathBuf::from(file)],
        parameters: Some(header.parameters()),
        gguf_scheme: Some(header.scheme().to_owned()),
        ..placement(request, Some(dtype), executor)
    };
    let place = Place { device: device.clone(), dtype: DType::F32 };
    Ok(Box::new(GenerationSession::new(request, place, decoder, placement)?))
}

/// The first key of a file that asks for something that is not computed here. Scaled rotations are computed only if the
/// tensor `rope_freqs` scales them.
fn not_computed<'a>(header: &'a Header, architecture: &str) -> Option<&'a str> {
    let scaling = header.text(&format!("{architecture}.rope.scaling.type"));
    let is_none = |value: &Value| match value {
        Value::Integer(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        Value::Bool(is_on) => !is_on,
        _ => false,
    };
    let is_one = |value: &Value| *value == Value::Integer(1) || *value == Value::Float(1.0);
    let is_not_computed = |(key, value): &(&'a String, &'a Value)| {
        let Some(key) = key.strip_prefix(architecture).and_then(|key| key.strip_prefix('.')) else { return false };
        match key {
            "rope.scaling.type" => !matches!(scaling, Some("none" | "linear")),
            // They say how the model was trained, and do not change the result.
            "rope.scaling.original_context_length" | "rope.scaling.finetuned" => false,
            "rope.scale_linear" | "rope.scaling.factor" => scaling != Some("none") && !is_one(value) && !is_none(value),
            "rope.scaling.attn_factor" => !is_one(value) && !is_none(value),
            "attention.causal" => *value != &Value::Bool(true),
            "attention.sliding_window" => architecture != "gemma3" && !is_none(value),
            _ if NOT_COMPUTED.split(' ').any(|own| own == key) => !is_none(value),
            // A list has one value per layer, but here all layers have the same.
            "attention.head_count"
            | "attention.head_count_kv"
            | "feed_forward_length"
            | "attention.sliding_window_pattern" => matches!(value, Value::List(_)),
            _ => key.starts_with("rope.scaling.") || key.starts_with("rope.dimension_sections"),
        }
    };
    header.values.iter().find(is_not_computed).map(|(key, _)| key.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn keys_that_the_module_does_not_compute_are_found() {
        let found = |keys: &[(&str, Value)]| {
            let values: BTreeMap<String, Value> =
                keys.iter().map(|(key, value)| (format!("llama.{key}"), value.clone())).collect();
            let header = Header { values, tensors: Vec::new(), file_bytes: 0 };
            not_computed(&header, "llama").map(str::to_owned)
        };
        let (text, float) = (|text: &str| Value::Text(text.into()), Value::Float);
        for right in [
            vec![("rope.scaling.type", text("none")), ("rope.scaling.factor", float(4.0))],
            vec![("rope.scaling.type", text("linear")), ("rope.scaling.factor", float(1.0))],
            vec![("rope.scaling.original_context_length", Value::Integer(8192)), ("rope.freq_base", float(5e5))],
            vec![("expert_count", Value::Integer(0)), ("attention.scale", float(0.0))],
        ] {
            assert_eq!(found(&right), None, "{right:?}");
        }
        for (key, value) in [
            ("rope.scaling.type", text("yarn")),
            ("rope.scaling.factor", float(8.0)),
            ("rope.scale_linear", float(2.0)),
            ("rope.scaling.yarn_log_multiplier", float(0.1)),
            ("rope.scaling.attn_factor", float(1.2)),
            ("attention.sliding_window", Value::Integer(4096)),
            ("attention.scale", float(0.0156)),
            ("attention.head_count_kv", Value::List(4)),
            ("expert_count", Value::Integer(8)),
        ] {
            let own = format!("llama.{key}");
            assert_eq!(found(&[(key, value)]), Some(own));
        }
        let linear = [("rope.scaling.type", text("linear")), ("rope.scaling.factor", float(2.0))];
        assert_eq!(found(&linear).as_deref(), Some("llama.rope.scaling.factor"));
    }
}

//! A decoder of Llama's kind: how it is made from the weights of a file, and what it computes.

use std::rc::Rc;

use candle_core::quantized::QMatMul;
use candle_core::{D, DType, Device, Result, Tensor, bail};
use candle_nn::ops::{silu, softmax_last_dim};
use candle_nn::rotary_emb::{rope, rope_i};

use super::weights::{Linear, Norm, Note, Weights};
use super::{ARCHITECTURES, not_computed};
use crate::backend::candle::tensor::Decoder;
use crate::definition::CaseFailure;
use crate::gguf::TensorInfo;

/// The most elements of a head: a table of rotations has half as many numbers for each position.
const MOST_OF_HEAD: usize = 1024;

/// In Gemma 3, only the last of this many layers sees all tokens.
const GEMMA_PERIOD: usize = 6;
/// The base of the rotations in Gemma 3's other layers.
const GEMMA_NEAR_BASE: f64 = 1e4;
/// The number of layers of the largest Gemma 3, which scales scores by another size.
const GEMMA_LARGEST: usize = 62;

struct Layer {
    attention_norm: Norm,
    query: Linear,
    key: Linear,
    value: Linear,
    /// The norms of the queries and of the keys of each head, which Qwen3 and Gemma 3 have.
    head_norms: Option<(Norm, Norm)>,
    /// The cosines and sines of the rotations, each `[positions, head size / 2]`.
    rotations: [Tensor; 2],
    /// How many tokens a token sees at most, itself included.
    window: Option<usize>,
    output: Linear,
    attended_norm: Option<Norm>,
    feed_forward_norm: Norm,
    gate: Linear,
    up: Linear,
    down: Linear,
    fed_norm: Option<Norm>,
    attention: Note,
    gating: Note,
}

/// What a decoder of Llama's kind computes with.
struct Network {
    embeddings: QMatMul,
    embedding: Note,
    /// Embeddings are multiplied by this number.
    scale: f64,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    /// The positions of the tables of rotations.
    positions: usize,
    /// Scores are divided by this number.
    divisor: f64,
    /// Whether the pairs that are rotated lie side by side.
    is_interleaved: bool,
    /// Whether gates use GELU instead of SiLU.
    has_gelu: bool,
    device: Device,
}

/// Keys and values of each layer, `[batch, kv heads, positions, head size]`; clones share them.
type Cache = Vec<Option<(Tensor, Tensor)>>;

/// The decoder of a file.
///
/// # Errors
/// As [`open_session`](super::open_session).
pub fn load(weights: &Weights<'_>) -> std::result::Result<Decoder<Rc<Cache>>, CaseFailure> {
    let header = weights.header;
    let architecture = header.architecture()?;
    if !ARCHITECTURES.contains(&architecture) {
        return Err(CaseFailure::unsupported(format!(
            "candle computes GGUF files of the architectures {}, and this file's is {architecture}",
            ARCHITECTURES.join(", ")
        )));
    }
    let refused = |what: String| CaseFailure::unsupported(format!("candle does not support {what}"));
    if let Some(key) = not_computed(header, architecture) {
        return Err(refused(format!("the file's {key}")));
    }
    let network = Network::of_weights(weights, architecture)?;
    let used = weights.used.take();
    if let Some(TensorInfo { name, .. }) = header.tensors.iter().find(|tensor| !used.contains(&tensor.name)) {
        return Err(refused(format!("the file's tensor {name:?}")));
    }
    let empty: Rc<Cache> = Rc::new(vec![None; network.layers.len()]);
    let forward = move |tokens: &Tensor, position: usize, cache: &mut Rc<Cache>| {
        network.forward(tokens, position, Rc::make_mut(cache))
    };
    Ok(Decoder { empty, forward: Box::new(forward) })
}

impl Network {
    fn of_weights(weights: &Weights<'_>, architecture: &str) -> Result<Self> {
        let Weights { header, device, .. } = weights;
        let number = |key: &str| match header.of_architecture(key) {
            Some(number) => Ok(number as usize),
            None => bail!("the file does not say {architecture}.{key}"),
        };
        let (width, heads, layers) =
            (number("embedding_length")?, number("attention.head_count")?, number("block_count")?);
        let kv_heads = number("attention.head_count_kv").unwrap_or(heads);
        if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) || layers > header.tensors.len() {
            bail!("the file says {heads} heads, {kv_heads} of them for keys, and {layers} layers, which is impossible")
        }
        let head_size = number("attention.key_length").unwrap_or(width / heads);
        // The tables below have the size of a head, and a file may claim any size. Its weights show the real one.
        for (part, heads) in [("q", heads), ("k", kv_heads), ("v", kv_heads)] {
            let name = &*format!("blk.0.attn_{part}.weight");
            let rows = weights.info(name)?.sizes.get(1).copied().unwrap_or(0);
            if heads.checked_mul(head_size).is_none_or(|size| size as u64 != rows) {
                bail!("the file says {heads} heads of {head_size} elements, and {name} has {rows} rows")
            }
        }
        let float = |key: &str| header.float(&format!("{architecture}.{key}"));
        let Some(epsilon) = float("attention.layer_norm_rms_epsilon") else {
            bail!("the file does not say {architecture}.attention.layer_norm_rms_epsilon")
        };
        let epsilon = epsilon as f32;
        let base = float("rope.freq_base").unwrap_or(1e4) as f32;
        let rotated = number("rope.dimension_count").unwrap_or(head_size);
        if rotated != head_size || !(2..=MOST_OF_HEAD).contains(&head_size) || !head_size.is_multiple_of(2) {
            bail!("a rotation of {rotated} of the {head_size} elements of a head is not supported by this module")
        }
        let positions = number("context_length")?.clamp(1, 1 << 17);
        let factors: Vec<f32> = if weights.has("rope_freqs.weight") {
            weights.plain("rope_freqs.weight")?.flatten_all()?.to_vec1()?
        } else {
            Vec::new()
        };
        let places = Tensor::arange(0, positions as u32, device)?.to_dtype(DType::F32)?.reshape((positions, 1))?;
        let rotations = |base: f32| -> Result<[Tensor; 2]> {
            let mut frequencies: Vec<f32> =
                (0..head_size).step_by(2).map(|place| 1.0 / base.powf(place as f32 / head_size as f32)).collect();
            frequencies.iter_mut().zip(&factors).for_each(|(frequency, factor)| *frequency /= factor);
            let angles = places.matmul(&Tensor::from_vec(frequencies, (1, head_size / 2), device)?)?;
            Ok([angles.cos()?, angles.sin()?])
        };
        let is_gemma = architecture == "gemma3";
        let has_head_norms = is_gemma || architecture == "qwen3";
        let window = number("attention.sliding_window").ok().filter(|window| is_gemma && *window > 0);
        let period = number("attention.sliding_window_pattern").unwrap_or(GEMMA_PERIOD);
        let far = rotations(base)?;
        let near = match window {
            Some(_) => rotations(float("rope.freq_base_swa").unwrap_or(GEMMA_NEAR_BASE) as f32)?,
            None => far.clone(),
        };
        let layer = |number: usize| -> Result<Layer> {
            let name = |part: &str| format!("blk.{number}.{part}");
            let linear = |part: &str| weights.linear(&name(part));
            let norm = |part: &str| weights.norm(&name(part), epsilon);
            let own = |is_there: bool, part: &str| if is_there { norm(part).map(Some) } else { Ok(None) };
            let is_near = window.is_some() && (period == 0 || number % period < period - 1);
            Ok(Layer {
                attention_norm: norm("attn_norm")?,
                query: linear("attn_q")?,
                key: linear("attn_k")?,
                value: linear("attn_v")?,
                head_norms: own(has_head_norms, "attn_q_norm")?.zip(own(has_head_norms, "attn_k_norm")?),
                rotations: if is_near { near.clone() } else { far.clone() },
                window: window.filter(|_| is_near),
                output: linear("attn_output")?,
                attended_norm: own(is_gemma, "post_attention_norm")?,
                feed_forward_norm: norm("ffn_norm")?,
                gate: linear("ffn_gate")?,
                up: linear("ffn_up")?,
                down: linear("ffn_down")?,
                fed_norm: own(is_gemma, "post_ffw_norm")?,
                attention: weights.note(&name("attn"), "attention"),
                gating: weights.note(&name("ffn_act"), if is_gemma { "gelu" } else { "silu" }),
            })
        };
        let embeddings = weights.product("token_embd.weight")?;
        let head = if weights.has("output.weight") {
            weights.linear("output")?
        } else {
            weights.linear_of("token_embd", embeddings.clone(), None)?
        };
        let divides_by = if is_gemma && layers == GEMMA_LARGEST { width / heads } else { head_size };
        Ok(Network {
            embeddings,
            embedding: weights.note("token_embd", "embedding"),
            scale: if is_gemma { (width as f64).sqrt() } else { 1.0 },
            layers: (0..layers).map(layer).collect::<Result<_>>()?,
            norm: weights.norm("output_norm", epsilon)?,
            head,
            heads,
            kv_heads,
            head_size,
            positions,
            divisor: (divides_by as f64).sqrt(),
            is_interleaved: architecture == "llama",
            has_gelu: is_gemma,
            device: (*device).clone(),
        })
    }

    /// The logits `[batch, vocabulary]` after tokens, i64 `[batch, length]`, whose first is at `position`.
    fn forward(&self, tokens: &Tensor, position: usize, cache: &mut Cache) -> Result<Tensor> {
        let (batch, length) = tokens.dims2()?;
        let (end, positions) = (position + length, self.positions);
        if end > positions {
            bail!("a text of {end} positions is not supported by this module, which has {positions} at most")
        }
        let mut states = self.embedding.around(|| self.embeddings.embedding(&tokens.to_dtype(DType::U32)?))?;
        if self.scale != 1.0 {
            states = (states * self.scale)?;
        }
        let far = self.mask(length, position, None)?;
        let window = self.layers.iter().find_map(|layer| layer.window);
        let near = if window.is_some() { self.mask(length, position, window)? } else { None };
        for (layer, cache) in self.layers.iter().zip(cache) {
            let normed = layer.attention_norm.forward(&states)?;
            let mask = if layer.window.is_some() { &near } else { &far };
            let attended = self.attend(layer, &normed, (batch, length, position), mask.as_ref(), cache)?;
            states = (states + renormed(layer.attended_norm.as_ref(), attended)?)?;
            let normed = layer.feed_forward_norm.forward(&states)?;
            let (gate, up) = (layer.gate.forward(&normed)?, layer.up.forward(&normed)?);
            let gated = layer.gating.around(|| (if self.has_gelu { gate.gelu() } else { silu(&gate) })? * up)?;
            states = (states + renormed(layer.fed_norm.as_ref(), layer.down.forward(&gated)?)?)?;
        }
        let last = states.narrow(1, length - 1, 1)?;
        self.head.forward(&self.norm.forward(&last)?)?.squeeze(1)
    }

    fn attend(
        &self,
        layer: &Layer,
        states: &Tensor,
        (batch, length, position): (usize, usize, usize),
        mask: Option<&Tensor>,
        cache: &mut Option<(Tensor, Tensor)>,
    ) -> Result<Tensor> {
        let (heads, kv_heads, size) = (self.heads, self.kv_heads, self.head_size);
        let by_head =
            |states: Tensor, heads: usize| states.reshape((batch, length, heads, size))?.transpose(1, 2)?.contiguous();
        let [cos, sin] = layer.rotations.each_ref().map(|table| table.narrow(0, position, length));
        let (cos, sin) = (cos?, sin?);
        let rotated = |states: Tensor| {
            if self.is_interleaved { rope_i(&states, &cos, &sin) } else { rope(&states, &cos, &sin) }
        };
        let (mut query, mut key) =
            (by_head(layer.query.forward(states)?, heads)?, by_head(layer.key.forward(states)?, kv_heads)?);
        if let Some((of_query, of_key)) = &layer.head_norms {
            (query, key) = (of_query.forward(&query)?, of_key.forward(&key)?);
        }
        let value = by_head(layer.value.forward(states)?, kv_heads)?;
        let attended = layer.attention.around(|| {
            let (query, key) = (rotated(query)?, rotated(key)?);
            let (key, value) = match cache.as_ref() {
                Some((keys, values)) => (Tensor::cat(&[keys, &key], 2)?, Tensor::cat(&[values, &value], 2)?),
                None => (key, value),
            };
            *cache = Some((key.clone(), value.clone()));
            // The query heads of one key head lie side by side, and become more rows of the same product.
            let rows = heads / kv_heads * length;
            let query = (query.reshape((batch, kv_heads, rows, size))? / self.divisor)?;
            let scores = query.matmul(&key.t()?)?;
            let all = scores.dim(D::Minus1)?;
            let scores = match mask {
                Some(mask) => scores
                    .reshape((batch, heads, length, all))?
                    .broadcast_add(mask)?
                    .reshape((batch, kv_heads, rows, all))?,
                None => scores,
            };
            let attended = softmax_last_dim(&scores)?.matmul(&value)?;
            let attended = attended.reshape((batch, heads, length, size))?.transpose(1, 2)?;
            attended.reshape((batch, length, heads * size))
        })?;
        layer.output.forward(&attended)
    }

    /// The mask that is added to scores, `[1, 1, length, positions]`. With it, a token sees only itself and earlier
    /// tokens, within the window if there is one. Returns `None` if it sees all.
    fn mask(&self, length: usize, position: usize, window: Option<usize>) -> Result<Option<Tensor>> {
        let all = position + length;
        if length == 1 && window.is_none_or(|window| all <= window) {
            return Ok(None);
        }
        let value = |place: usize| {
            let (key, query) = (place % all, position + place / all);
            let is_hidden = key > query || window.is_some_and(|window| query - key >= window);
            if is_hidden { f32::NEG_INFINITY } else { 0.0 }
        };
        let values = (0..length * all).map(value).collect::<Vec<f32>>();
        Ok(Some(Tensor::from_vec(values, (1, 1, length, all), &self.device)?))
    }
}

fn renormed(norm: Option<&Norm>, states: Tensor) -> Result<Tensor> {
    norm.map_or(Ok(states.clone()), |norm| norm.forward(&states))
}

//! Language models of GGUF files: Llama, Qwen2, Qwen3 and Gemma 3 on candle's quantised products.
//!
//! The modules of `candle-transformers` take batches of one only, so this one is of the package's own, after the same architectures. Products of
//! quantised weights are candle's; norms, rotations and attention are of f32.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{D, DType, Device, Module, Result, Tensor, bail};
use candle_nn::ops::{rms_norm, silu, softmax_last_dim};
use candle_nn::rotary_emb::{rope, rope_i};
use memmap2::Mmap;

use super::tensor::{Place, placement};
use crate::backend::generation::{GenerationSession, Generator};
use crate::backend::interface::{LoadRequest, Placement, Session};
use crate::backend::recorder::Recorder;
use crate::backend::runtime::Runtime;
use crate::definition::{CaseFailure, Dtype};
use crate::fixture::HostTensor;
use crate::gguf::{ElementKind, Header, TensorInfo, Value};
use crate::run_data::OperatorCall;

/// The most elements of a head: a table of rotations has half as many numbers for each position.
const MOST_OF_HEAD: usize = 1024;

/// The architectures that are computed here.
pub const ARCHITECTURES: [&str; 4] = ["llama", "qwen2", "qwen3", "gemma3"];

/// Gemma 3's own: layers of a period of which the last sees all tokens, the base of the others' rotations, and how many layers its largest model has,
/// which scales scores by another size.
const GEMMA_PERIOD: usize = 6;
const GEMMA_NEAR_BASE: f64 = 1e4;
const GEMMA_LARGEST: usize = 62;

/// A session of a GGUF file. With `is_exact`, its weights are dequantised, and all is computed in f32. Its operators are noted on a tape, if there is
/// one.
///
/// # Errors
/// The file cannot be read, is of an architecture that is not computed here, or has tensors that candle does not know.
pub fn open_session(
    request: &LoadRequest<'_>,
    device: &Device,
    file: &Path,
    is_exact: bool,
    tape: Option<Recorder>,
) -> std::result::Result<Box<dyn Session>, CaseFailure> {
    let header = Header::read(file)?;
    let decoder = Decoder::load(file, &header, device, is_exact, tape)?;
    let dtype = if is_exact { Dtype::F32 } else { header.dtype() };
    // candle makes f32 of these when it loads them, and computes in f32.
    let dtype = if matches!(dtype, Dtype::F16 | Dtype::Bf16) { Dtype::F32 } else { dtype };
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

/// The tensors of a file.
struct Weights<'a> {
    header: &'a Header,
    map: Mmap,
    device: &'a Device,
    is_exact: bool,
    tape: Option<Recorder>,
    /// The names of the tensors that were taken.
    used: RefCell<HashSet<String>>,
}

/// The first key of a file that says what is not computed here. Of scaled rotations, those of the tensor `rope_freqs` are.
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
            // The lengths that it was made for.
            "rope.scaling.original_context_length" | "rope.scaling.finetuned" => false,
            "rope.scale_linear" | "rope.scaling.factor" => scaling != Some("none") && !is_one(value) && !is_none(value),
            "rope.scaling.attn_factor" => !is_one(value) && !is_none(value),
            "attention.causal" => *value != &Value::Bool(true),
            "attention.sliding_window" => architecture != "gemma3" && !is_none(value),
            "expert_count"
            | "attention.scale"
            | "attention.clamp_kqv"
            | "logit_scale"
            | "attention.max_alibi_bias"
            | "embedding_scale"
            | "residual_scale"
            | "attn_logit_softcapping"
            | "final_logit_softcapping"
            | "attention.temperature_scale"
            | "attention.temperature_length"
            | "use_parallel_residual" => !is_none(value),
            // By layer: what is computed here is the same in all of them.
            "attention.head_count"
            | "attention.head_count_kv"
            | "feed_forward_length"
            | "attention.sliding_window_pattern" => matches!(value, Value::List(_)),
            _ => key.starts_with("rope.scaling.") || key.starts_with("rope.dimension_sections"),
        }
    };
    header.values.iter().find(is_not_computed).map(|(key, _)| key.as_str())
}

impl Weights<'_> {
    fn has(&self, name: &str) -> bool {
        self.header.tensors.iter().any(|tensor| tensor.name == name)
    }

    fn info(&self, name: &str) -> Result<&TensorInfo> {
        match self.header.tensors.iter().find(|tensor| tensor.name == name) {
            Some(tensor) => Ok(tensor),
            None => bail!("the file has no tensor {name:?}"),
        }
    }

    fn quantised(&self, name: &str) -> Result<QTensor> {
        let tensor = self.info(name)?;
        self.used.borrow_mut().insert(name.to_owned());
        let Some(kind) = ggml_dtype(tensor.kind) else {
            bail!("tensor {name:?} is of type {}, which is not supported by candle", tensor.kind.name())
        };
        let (begin, bytes) = (tensor.begin as usize, tensor.bytes as usize);
        let shape = tensor.sizes.iter().rev().map(|&size| size as usize).collect();
        qtensor_from_ggml(kind, &self.map[begin..begin + bytes], shape, self.device)
    }

    fn product(&self, name: &str) -> Result<QMatMul> {
        let tensor = self.quantised(name)?;
        if self.is_exact {
            return Ok(QMatMul::Tensor(tensor.dequantize(self.device)?));
        }
        QMatMul::from_qtensor(tensor)
    }

    fn plain(&self, name: &str) -> Result<Tensor> {
        self.quantised(name)?.dequantize(self.device)
    }

    fn linear(&self, name: &str) -> Result<Linear> {
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.plain(&bias)?) } else { None };
        let weight = format!("{name}.weight");
        let operator = format!("QMatMul {}", self.info(&weight)?.kind.name());
        Ok(Linear { weight: self.product(&weight)?, bias, note: self.note(name, &operator) })
    }

    fn norm(&self, name: &str, epsilon: f32) -> Result<Norm> {
        let weight = self.plain(&format!("{name}.weight"))?;
        Ok(Norm { weight, epsilon, note: self.note(name, "rms_norm") })
    }

    fn note(&self, name: &str, operator: &str) -> Note {
        Note { tape: self.tape.clone(), name: name.into(), operator: operator.into() }
    }
}

fn ggml_dtype(kind: ElementKind) -> Option<GgmlDType> {
    Some(match kind.name() {
        "F32" => GgmlDType::F32,
        "F16" => GgmlDType::F16,
        "BF16" => GgmlDType::BF16,
        "Q4_0" => GgmlDType::Q4_0,
        "Q4_1" => GgmlDType::Q4_1,
        "Q5_0" => GgmlDType::Q5_0,
        "Q5_1" => GgmlDType::Q5_1,
        "Q8_0" => GgmlDType::Q8_0,
        "Q2_K" => GgmlDType::Q2K,
        "Q3_K" => GgmlDType::Q3K,
        "Q4_K" => GgmlDType::Q4K,
        "Q5_K" => GgmlDType::Q5K,
        "Q6_K" => GgmlDType::Q6K,
        _ => return None,
    })
}

/// The tape that times an operator, and the names under which it does so.
struct Note {
    tape: Option<Recorder>,
    name: String,
    operator: String,
}

impl Note {
    fn around<O>(&self, run: impl FnOnce() -> O) -> O {
        let Some(tape) = &self.tape else { return run() };
        let call = || {
            // The block: `blk.3` of `blk.3.attn_q`.
            let module = self.name.rsplit_once('.').map(|(block, _)| block.to_owned());
            OperatorCall { node: self.name.clone(), operator: self.operator.clone(), module, ..OperatorCall::default() }
        };
        tape.time(call, run)
    }
}

struct Linear {
    weight: QMatMul,
    bias: Option<Tensor>,
    note: Note,
}

impl Linear {
    fn forward(&self, states: &Tensor) -> Result<Tensor> {
        self.note.around(|| {
            let product = self.weight.forward(states)?;
            match &self.bias {
                Some(bias) => product.broadcast_add(bias),
                None => Ok(product),
            }
        })
    }
}

struct Norm {
    weight: Tensor,
    epsilon: f32,
    note: Note,
}

impl Norm {
    fn forward(&self, states: &Tensor) -> Result<Tensor> {
        self.note.around(|| rms_norm(&states.contiguous()?, &self.weight, self.epsilon))
    }
}

struct Layer {
    attention_norm: Norm,
    query: Linear,
    key: Linear,
    value: Linear,
    /// The norms of the queries and of the keys of each head, which Qwen3 and Gemma 3 have.
    head_norms: Option<(Norm, Norm)>,
    /// The cosines of the rotations, `[positions, head size / 2]`; `sin` has the sines.
    cos: Tensor,
    sin: Tensor,
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

/// A decoder of Llama's kind.
struct Decoder {
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
    /// Scores are divided by this number.
    divisor: f64,
    /// Whether the pairs that are rotated lie side by side.
    is_interleaved: bool,
    /// Whether gates are GELU's, and not SiLU's.
    has_gelu: bool,
    device: Device,
}

/// Keys and values of each layer, `[batch, kv heads, positions, head size]`; clones share them.
type Cache = Vec<Option<(Tensor, Tensor)>>;

impl Decoder {
    fn load(
        file: &Path,
        header: &Header,
        device: &Device,
        is_exact: bool,
        tape: Option<Recorder>,
    ) -> std::result::Result<Self, CaseFailure> {
        let architecture = header.architecture()?;
        if !ARCHITECTURES.contains(&architecture) {
            return Err(CaseFailure::unsupported(format!(
                "candle computes the architectures {} of GGUF files here, and not {architecture}",
                ARCHITECTURES.join(", ")
            )));
        }
        if let Some(key) = not_computed(header, architecture) {
            return Err(CaseFailure::unsupported(format!(
                "candle's module does not compute {key} as the file says it"
            )));
        }
        let handle = fs_err::File::open(file).map_err(anyhow::Error::from)?;
        // SAFETY: the map is read only. A file that another process cuts short meanwhile would end this process, as every other reader of
        // weights.
        let map = unsafe { Mmap::map(handle.file()) }.map_err(anyhow::Error::from)?;
        let weights = Weights { header, map, device, is_exact, tape, used: RefCell::default() };
        let decoder = Self::of_weights(&weights, architecture)?;
        let used = weights.used.take();
        match header.tensors.iter().find(|tensor| !used.contains(&tensor.name)) {
            Some(TensorInfo { name, .. }) => {
                Err(CaseFailure::unsupported(format!("candle's module does not compute the file's tensor {name:?}")))
            }
            None => Ok(decoder),
        }
    }

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
            bail!("the file says {heads} heads, {kv_heads} of them of keys, and {layers} layers, which cannot be")
        }
        let head_size = number("attention.key_length").unwrap_or(width / heads);
        // What follows has the size of a head, which a file may say as it likes; the weights are as large as the file.
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
        let rotation = |base: f32| -> Result<(Tensor, Tensor)> {
            let mut frequencies: Vec<f32> =
                (0..head_size).step_by(2).map(|place| 1.0 / base.powf(place as f32 / head_size as f32)).collect();
            frequencies.iter_mut().zip(&factors).for_each(|(frequency, factor)| *frequency /= factor);
            let angles = places.matmul(&Tensor::from_vec(frequencies, (1, head_size / 2), device)?)?;
            Ok((angles.cos()?, angles.sin()?))
        };
        let is_gemma = architecture == "gemma3";
        let has_head_norms = is_gemma || architecture == "qwen3";
        let window = number("attention.sliding_window").ok().filter(|window| is_gemma && *window > 0);
        let period = number("attention.sliding_window_pattern").unwrap_or(GEMMA_PERIOD);
        let far = rotation(base)?;
        let near = match window {
            Some(_) => rotation(float("rope.freq_base_swa").unwrap_or(GEMMA_NEAR_BASE) as f32)?,
            None => far.clone(),
        };
        let layer = |number: usize| -> Result<Layer> {
            let name = |part: &str| format!("blk.{number}.{part}");
            let linear = |part: &str| weights.linear(&name(part));
            let norm = |part: &str| weights.norm(&name(part), epsilon);
            let own = |is_there: bool, part: &str| if is_there { norm(part).map(Some) } else { Ok(None) };
            let is_near = window.is_some() && (period == 0 || number % period < period - 1);
            let (cos, sin) = if is_near { near.clone() } else { far.clone() };
            Ok(Layer {
                attention_norm: norm("attn_norm")?,
                query: linear("attn_q")?,
                key: linear("attn_k")?,
                value: linear("attn_v")?,
                head_norms: own(has_head_norms, "attn_q_norm")?.zip(own(has_head_norms, "attn_k_norm")?),
                cos,
                sin,
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
            Linear { weight: embeddings.clone(), bias: None, note: weights.note("token_embd", "QMatMul") }
        };
        let divides_by = if is_gemma && layers == GEMMA_LARGEST { width / heads } else { head_size };
        Ok(Decoder {
            embeddings,
            embedding: weights.note("token_embd", "embedding"),
            scale: if is_gemma { (width as f64).sqrt() } else { 1.0 },
            layers: (0..layers).map(layer).collect::<Result<_>>()?,
            norm: weights.norm("output_norm", epsilon)?,
            head,
            heads,
            kv_heads,
            head_size,
            divisor: (divides_by as f64).sqrt(),
            is_interleaved: architecture == "llama",
            has_gelu: is_gemma,
            device: (*device).clone(),
        })
    }

    /// The logits `[batch, vocabulary]` after tokens, i64 `[batch, length]`, of which the first is at the position.
    fn forward(&self, tokens: &Tensor, position: usize, cache: &mut Cache) -> Result<Tensor> {
        let (batch, length) = tokens.dims2()?;
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
        let (cos, sin) = (layer.cos.narrow(0, position, length)?, layer.sin.narrow(0, position, length)?);
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
            // The heads of one key lie side by side, and are more rows of the same product.
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

    /// What is added to scores, `[1, 1, length, positions]`, so that a token sees those before it only, and of these the last ones of the window.
    /// Returns `None` if it sees all.
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

impl Generator<Place> for Decoder {
    type Inputs = Tensor;
    type Cache = Rc<Cache>;

    fn upload(&self, place: &Place, inputs: &[HostTensor]) -> std::result::Result<Tensor, CaseFailure> {
        let [tokens] = inputs else { return Err(CaseFailure::failed("inputs that are not tokens alone")) };
        place.upload(tokens)
    }

    fn prefill(&mut self, _: &Place, tokens: &Tensor) -> std::result::Result<(Tensor, Rc<Cache>), CaseFailure> {
        let mut cache = vec![None; self.layers.len()];
        let logits = self.forward(tokens, 0, &mut cache)?;
        Ok((logits, Rc::new(cache)))
    }

    fn step(
        &mut self,
        _: &Place,
        tokens: &Tensor,
        position: usize,
        cache: &mut Rc<Cache>,
    ) -> std::result::Result<Tensor, CaseFailure> {
        Ok(self.forward(tokens, position, Rc::make_mut(cache))?)
    }
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

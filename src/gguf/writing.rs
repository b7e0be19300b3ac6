//! Writes the weights of a packaged or imported language model as a GGUF file of f32, from the `config.json` that
//! transformers writes and a safetensors file with transformers' names.
//!
//! Names, keys and layouts are those of llama.cpp's `convert_hf_to_gguf.py`. Its architecture `llama` rotates pairs of
//! neighbouring elements, where transformers rotates the halves of a head, so the rows of queries and keys are
//! reordered. GPT-2's matrices are transposed.

use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fs_err::File;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

const ALIGNMENT: usize = 32;
/// The numbers of value types in files.
const U32: u32 = 4;
const F32: u32 = 6;
const TEXT: u32 = 8;

/// An architecture that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
    Gpt2,
}

/// How a tensor's elements are reordered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Same,
    /// The rows of this many heads, from halves to pairs.
    Pairs(usize),
    Transposed,
}

impl Architecture {
    /// The architecture of the `config.json` in a folder.
    ///
    /// # Errors
    /// The file is missing, or its architecture cannot be written.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        Self::of_config(&serde_json::from_slice(&fs_err::read(folder.join("config.json"))?)?)
    }

    /// # Errors
    /// The architecture cannot be written, or the configuration has something that cannot.
    fn of_config(config: &Value) -> Result<Self> {
        let named = config["model_type"].as_str();
        let architecture: Option<Architecture> = named.and_then(|name| name.parse().ok());
        let architecture = architecture.with_context(|| {
            let name = named.unwrap_or("of its config.json");
            format!("the architecture {name} is not written as GGUF; llama, qwen2, qwen3 and gpt2 are")
        })?;
        let rope = &config["rope_parameters"]["rope_type"];
        ensure!(rope.is_null() || rope == "default", "its rope_type {rope} is not written as GGUF; the default is");
        let scaling = &config["rope_scaling"];
        ensure!(scaling.is_null(), "its rope_scaling is not written as GGUF");
        ensure!(config["use_sliding_window"] != true, "its sliding window is not written as GGUF");
        let activation = config["hidden_act"].as_str().or(config["activation_function"].as_str()).unwrap_or_default();
        let own = if architecture == Architecture::Gpt2 { "gelu_new" } else { "silu" };
        ensure!(activation == own, "its activation {activation:?} is not that of the architecture, {own:?}");
        Ok(architecture)
    }
}

/// A tensor with its name and its shape in the file; the last size is that of a row.
struct Planned<'a> {
    name: String,
    shape: Vec<usize>,
    layout: Layout,
    data: &'a [u8],
}

/// About how many bytes [`write_f32`] writes for tensors of these names and shapes.
pub fn bytes_to_write(tensors: &[(String, Vec<usize>)]) -> u64 {
    let bytes = |shape: &Vec<usize>| (4 * shape.iter().product::<usize>()).next_multiple_of(ALIGNMENT) as u64;
    tensors.iter().map(|(_, shape)| bytes(shape)).sum()
}

/// Writes a GGUF file of f32 of the architecture in `config_folder`, with the weights of a safetensors file of f32. It
/// has no tokenizer.
///
/// # Errors
/// The configuration or the weights cannot be read, are of an architecture that cannot be written, or do not fit each
/// other; or the disk is full.
pub fn write_f32(config_folder: &Path, weights: &Path, to: &Path) -> Result<()> {
    let config_file = config_folder.join("config.json");
    let config: Value =
        serde_json::from_slice(&fs_err::read(&config_file)?).with_context(|| config_file.display().to_string())?;
    let architecture = Architecture::of_config(&config)?;
    let keys = keys(architecture, &config).with_context(|| config_file.display().to_string())?;
    let file = File::open(weights)?;
    // SAFETY: the map is read only, and a prepared file is never changed in place.
    let map = unsafe { memmap2::Mmap::map(file.file()) }.with_context(|| weights.display().to_string())?;
    let tensors = SafeTensors::deserialize(&map).with_context(|| weights.display().to_string())?;
    let planned = planned(architecture, &config, &tensors).with_context(|| weights.display().to_string())?;
    let mut header = b"GGUF".to_vec();
    header.extend(3_u32.to_le_bytes());
    header.extend((planned.len() as u64).to_le_bytes());
    header.extend((keys.len() as u64).to_le_bytes());
    for (key, kind, value) in &keys {
        header.extend(text(key));
        header.extend(kind.to_le_bytes());
        header.extend(value);
    }
    let mut offset = 0_usize;
    for tensor in &planned {
        header.extend(text(&tensor.name));
        header.extend((tensor.shape.len() as u32).to_le_bytes());
        header.extend(tensor.shape.iter().rev().flat_map(|size| (*size as u64).to_le_bytes()));
        header.extend(0_u32.to_le_bytes());
        header.extend((offset as u64).to_le_bytes());
        offset += tensor.data.len().next_multiple_of(ALIGNMENT);
    }
    header.resize(header.len().next_multiple_of(ALIGNMENT), 0);
    let mut out = BufWriter::new(File::create(to)?);
    out.write_all(&header)?;
    for tensor in &planned {
        let data = laid_out(tensor);
        out.write_all(&data)?;
        out.write_all(&vec![0; data.len().next_multiple_of(ALIGNMENT) - data.len()])?;
    }
    out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    Ok(())
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// Keys, with the types and the bytes of their values.
fn keys(architecture: Architecture, config: &Value) -> Result<Vec<(String, u32, Vec<u8>)>> {
    let own: &str = architecture.into();
    let number = |name: &str| {
        let found = config[name].as_u64().and_then(|number| u32::try_from(number).ok());
        found.with_context(|| format!("it has no whole number {name:?}"))
    };
    let real = |name: &str| config[name].as_f64().with_context(|| format!("it has no number {name:?}"));
    let mut keys = vec![
        ("general.architecture".to_owned(), TEXT, text(own)),
        // llama.cpp's number for files of f32.
        ("general.file_type".into(), U32, 0_u32.to_le_bytes().to_vec()),
        ("general.quantization_version".into(), U32, 2_u32.to_le_bytes().to_vec()),
        ("tokenizer.ggml.model".into(), TEXT, text("none")),
    ];
    let mut whole = |key: &str, value: u32| keys.push((format!("{own}.{key}"), U32, value.to_le_bytes().to_vec()));
    whole("vocab_size", number("vocab_size")?);
    let (epsilon, epsilon_key, theta) = if architecture == Architecture::Gpt2 {
        let width = number("n_embd")?;
        whole("context_length", number("n_positions")?);
        whole("embedding_length", width);
        whole("block_count", number("n_layer")?);
        whole("feed_forward_length", number("n_inner").unwrap_or(width.saturating_mul(4)));
        whole("attention.head_count", number("n_head")?);
        (real("layer_norm_epsilon")?, "attention.layer_norm_epsilon", None)
    } else {
        let (width, heads) = (number("hidden_size")?, number("num_attention_heads")?);
        ensure!(heads > 0, "it has no heads");
        let head = number("head_dim").unwrap_or(width / heads);
        whole("context_length", number("max_position_embeddings")?);
        whole("embedding_length", width);
        whole("block_count", number("num_hidden_layers")?);
        whole("feed_forward_length", number("intermediate_size")?);
        whole("attention.head_count", heads);
        whole("attention.head_count_kv", number("num_key_value_heads").unwrap_or(heads));
        whole("attention.key_length", head);
        whole("attention.value_length", head);
        whole("rope.dimension_count", head);
        let theta = config["rope_parameters"]["rope_theta"].as_f64().or(config["rope_theta"].as_f64());
        (real("rms_norm_eps")?, "attention.layer_norm_rms_epsilon", Some(theta.unwrap_or(1e4)))
    };
    let mut float = |key: &str, value: f64| {
        keys.push((format!("{own}.{key}"), F32, (value as f32).to_le_bytes().to_vec()));
    };
    float(epsilon_key, epsilon);
    if let Some(theta) = theta {
        float("rope.freq_base", theta);
    }
    Ok(keys)
}

fn planned<'a>(architecture: Architecture, config: &Value, tensors: &'a SafeTensors<'a>) -> Result<Vec<Planned<'a>>> {
    let heads = config["num_attention_heads"].as_u64().unwrap_or(1) as usize;
    let kv_heads = config["num_key_value_heads"].as_u64().map_or(heads, |heads| heads as usize);
    let mut planned = Vec::new();
    let mut names = tensors.names();
    names.sort_unstable();
    for name in names {
        let tensor = tensors.tensor(name)?;
        // Old files of GPT-2 hold causal masks.
        if name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") {
            continue;
        }
        let new = renamed(architecture, name).with_context(|| format!("GGUF has no place for the tensor {name:?}"))?;
        ensure!(tensor.dtype() == Dtype::F32, "tensor {name:?} is of {:?} in place of f32", tensor.dtype());
        let is_product = tensor.shape().len() == 2;
        let layout = match architecture {
            Architecture::Llama if new.contains(".attn_q.") => Layout::Pairs(heads),
            Architecture::Llama if new.contains(".attn_k.") => Layout::Pairs(kv_heads),
            Architecture::Gpt2 if is_product && new.starts_with("blk.") => Layout::Transposed,
            _ => Layout::Same,
        };
        let mut shape = tensor.shape().to_vec();
        match layout {
            Layout::Transposed => shape.reverse(),
            Layout::Pairs(heads) => ensure!(
                heads > 0 && shape.first().is_some_and(|rows| rows.is_multiple_of(2 * heads)),
                "the rows of tensor {name:?} cannot be divided into {heads} heads of pairs"
            ),
            Layout::Same => {}
        }
        planned.push(Planned { name: new, shape, layout, data: tensor.data() });
    }
    Ok(planned)
}

/// The name of a tensor in GGUF files.
fn renamed(architecture: Architecture, name: &str) -> Option<String> {
    let name = name.strip_prefix("model.").or_else(|| name.strip_prefix("transformer.")).unwrap_or(name);
    let (stem, end) = name.rsplit_once('.')?;
    if !matches!(end, "weight" | "bias") {
        return None;
    }
    let whole = match stem {
        "embed_tokens" | "wte" => Some("token_embd"),
        "wpe" => Some("position_embd"),
        "norm" | "ln_f" => Some("output_norm"),
        "lm_head" => Some("output"),
        _ => None,
    };
    if let Some(whole) = whole {
        return Some(format!("{whole}.{end}"));
    }
    let of_layer = stem.strip_prefix("layers.").or_else(|| stem.strip_prefix("h."))?;
    let (layer, part) = of_layer.split_once('.')?;
    let layer: u32 = layer.parse().ok()?;
    let part = match (architecture, part) {
        (Architecture::Gpt2, "ln_1") | (_, "input_layernorm") => "attn_norm",
        (Architecture::Gpt2, "ln_2") | (_, "post_attention_layernorm") => "ffn_norm",
        (Architecture::Gpt2, "attn.c_attn") => "attn_qkv",
        (Architecture::Gpt2, "attn.c_proj") | (_, "self_attn.o_proj") => "attn_output",
        (Architecture::Gpt2, "mlp.c_fc") | (_, "mlp.up_proj") => "ffn_up",
        (Architecture::Gpt2, "mlp.c_proj") | (_, "mlp.down_proj") => "ffn_down",
        (_, "self_attn.q_proj") => "attn_q",
        (_, "self_attn.k_proj") => "attn_k",
        (_, "self_attn.v_proj") => "attn_v",
        (Architecture::Qwen3, "self_attn.q_norm") => "attn_q_norm",
        (Architecture::Qwen3, "self_attn.k_norm") => "attn_k_norm",
        (_, "mlp.gate_proj") => "ffn_gate",
        _ => return None,
    };
    Some(format!("blk.{layer}.{part}.{end}"))
}

/// The elements of a tensor in the order of the file.
fn laid_out<'a>(tensor: &Planned<'a>) -> Cow<'a, [u8]> {
    const SIZE: usize = 4;
    let data = tensor.data;
    match (tensor.layout, tensor.shape.as_slice()) {
        (Layout::Pairs(heads), [rows, rest @ ..]) => {
            let row = SIZE * rest.iter().product::<usize>();
            let half = rows / heads / 2;
            let mut out = Vec::with_capacity(data.len());
            // Place `2 × pair + part` of a head takes row `part × half + pair`.
            for head in 0..heads {
                for pair in 0..half {
                    for part in 0..2 {
                        let from = (head * 2 * half + part * half + pair) * row;
                        out.extend_from_slice(&data[from..from + row]);
                    }
                }
            }
            out.into()
        }
        (Layout::Transposed, [columns, rows]) => {
            let mut out = vec![0; data.len()];
            for row in 0..*rows {
                for column in 0..*columns {
                    let (from, to) = (SIZE * (row * columns + column), SIZE * (column * rows + row));
                    out[to..to + SIZE].copy_from_slice(&data[from..from + SIZE]);
                }
            }
            out.into()
        }
        _ => data.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(data: &[u8]) -> Vec<f32> {
        data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    }

    fn laid(layout: Layout, shape: &[usize]) -> Vec<f32> {
        let data: Vec<u8> = (0..shape.iter().product()).flat_map(|it: usize| (it as f32).to_le_bytes()).collect();
        let planned = Planned { name: String::new(), shape: shape.to_vec(), layout, data: &data };
        numbers(&laid_out(&planned))
    }

    #[test]
    fn halves_of_heads_become_pairs_and_products_are_transposed() {
        // Two heads of four rows of one element.
        assert_eq!(laid(Layout::Pairs(2), &[8, 1]), [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
        assert_eq!(laid(Layout::Transposed, &[3, 2]), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }

    #[test]
    fn tensors_have_the_names_of_llama_cpp() {
        for (architecture, name, expected) in [
            (Architecture::Llama, "model.embed_tokens.weight", Some("token_embd.weight")),
            (Architecture::Llama, "lm_head.weight", Some("output.weight")),
            (Architecture::Qwen2, "model.layers.11.self_attn.q_proj.bias", Some("blk.11.attn_q.bias")),
            (Architecture::Qwen3, "model.layers.1.self_attn.q_norm.weight", Some("blk.1.attn_q_norm.weight")),
            (Architecture::Qwen2, "model.layers.1.self_attn.q_norm.weight", None),
            (Architecture::Gpt2, "h.0.attn.c_attn.weight", Some("blk.0.attn_qkv.weight")),
            (Architecture::Gpt2, "transformer.ln_f.bias", Some("output_norm.bias")),
            (Architecture::Llama, "model.layers.0.mlp.experts.weight", None),
            (Architecture::Llama, "vision.weight", None),
        ] {
            assert_eq!(renamed(architecture, name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_written_is_said() {
        let refused =
            |text: &str| format!("{:#}", Architecture::of_config(&serde_json::from_str(text).unwrap()).unwrap_err());
        assert!(
            refused(r#"{"model_type": "bert"}"#)
                .contains("bert is not written as GGUF; llama, qwen2, qwen3 and gpt2 are")
        );
        let scaled = r#"{"model_type": "llama", "hidden_act": "silu", "rope_parameters": {"rope_type": "yarn"}}"#;
        assert!(refused(scaled).contains("rope_type \"yarn\""));
        let sliding = r#"{"model_type": "qwen2", "hidden_act": "silu", "use_sliding_window": true}"#;
        assert!(refused(sliding).contains("its sliding window is not written"));
    }
}

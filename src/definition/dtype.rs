//! The element types that models compute in, and the kinds of quantisation.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// The element type that a model computes in. The usual names of other libraries are read as well, such as `float16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, JsonSchema, Display, IntoStaticStr, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Dtype {
    #[default]
    #[serde(alias = "fp32", alias = "float32", alias = "float")]
    #[value(aliases = ["fp32", "float32", "float"])]
    F32,
    #[serde(alias = "fp16", alias = "float16", alias = "half")]
    #[value(aliases = ["fp16", "float16", "half"])]
    F16,
    #[serde(alias = "bfloat16")]
    #[value(alias = "bfloat16")]
    Bf16,
    #[serde(alias = "int8")]
    #[value(alias = "int8")]
    I8,
}

impl Dtype {
    /// All dtypes, the widest first.
    pub const ALL: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8];

    /// The name in ids and records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A quantisation of a language model's weights in GGUF files, by llama.cpp's name: blocks of weights with scales. If
/// the name ends with `m`, it is a mix, in which some tensors have more bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, Display, IntoStaticStr, strum::EnumIter)]
pub enum Scheme {
    #[strum(serialize = "q8_0")]
    Q8,
    #[strum(serialize = "q6_k")]
    Q6K,
    #[strum(serialize = "q5_k_m")]
    Q5KM,
    #[strum(serialize = "q4_k_m")]
    Q4KM,
    #[strum(serialize = "q4_0")]
    Q4,
}

impl Scheme {
    /// The name of the variant.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Weights per block. A row has to be a multiple of it.
    pub fn block(self) -> usize {
        match self {
            Scheme::Q8 | Scheme::Q4 => 32,
            Scheme::Q6K | Scheme::Q5KM | Scheme::Q4KM => 256,
        }
    }

    /// The approximate number of bits per weight in a file.
    pub fn bits(self) -> f64 {
        match self {
            Scheme::Q8 => 8.5,
            Scheme::Q6K => 6.6,
            Scheme::Q5KM => 5.7,
            Scheme::Q4KM => 4.9,
            Scheme::Q4 => 4.6,
        }
    }
}

/// A quantisation of ONNX graphs: the weights of matrix products are blocks of few bits, each with a scale, for ONNX
/// Runtime's operator `MatMulNBits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, Display, IntoStaticStr, strum::EnumIter)]
pub enum Blocks {
    /// Blocks of 32 weights of eight bits, symmetric.
    #[strum(serialize = "int8-block")]
    Int8,
    /// Blocks of 32 weights of four bits, symmetric.
    #[strum(serialize = "int4")]
    Int4,
    /// The same with a zero point per block.
    #[strum(serialize = "int4-asym")]
    Int4Asym,
    /// Blocks of 128 weights of four bits, symmetric.
    #[strum(serialize = "int4-128")]
    Int4Long,
    /// The same with a zero point per block.
    #[strum(serialize = "int4-128-asym")]
    Int4LongAsym,
}

impl Blocks {
    /// The name of the variant.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Bits per weight: 4 or 8.
    pub fn bits(self) -> usize {
        if self == Blocks::Int8 { 8 } else { 4 }
    }

    /// Weights per block. A row has to be a multiple of it.
    pub fn size(self) -> usize {
        match self {
            Blocks::Int8 | Blocks::Int4 | Blocks::Int4Asym => 32,
            Blocks::Int4Long | Blocks::Int4LongAsym => 128,
        }
    }

    /// Whether 0 is the middle of a block's integers. Otherwise each block has a zero point, so that its integers span
    /// the range from its smallest weight to its largest.
    pub fn is_symmetric(self) -> bool {
        !matches!(self, Blocks::Int4Asym | Blocks::Int4LongAsym)
    }
}

/// The fraction of a model's parameters that has to be in rows of whole blocks, for the variant to have the blocks'
/// name. Weights that do not fit blocks of 32 stay as they are.
pub(crate) fn least_share(block: usize) -> f64 {
    if block > 32 { 0.9 } else { 0.5 }
}

/// The kind of quantisation, by the source of the ranges of activations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantization {
    /// From the values of each call.
    Dynamic,
    /// From samples that were measured once: `calibration.toml`.
    Static,
    /// From the values of each call, in the engines that read GGUF files. The weights are those of a GGUF file.
    Gguf(Scheme),
    /// From the values of each call if the case is in i8; a case in f32 needs none. The weights are blocks of integers.
    Blocks(Blocks),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_known_by_the_names_of_other_libraries() {
        for (dtype, names) in [
            (Dtype::F32, ["f32", "FP32", "float32", "float"].as_slice()),
            (Dtype::F16, &["f16", "fp16", "Float16", "half"]),
            (Dtype::Bf16, &["bf16", "BFloat16"]),
            (Dtype::I8, &["i8", "int8"]),
        ] {
            assert!(names.iter().all(|name| Dtype::from_str(name, true) == Ok(dtype)), "{dtype}");
            let in_files = |name: &&str| toml::Value::from(name.to_lowercase()).try_into() == Ok(dtype);
            assert!(names.iter().all(in_files), "{dtype}");
            assert_eq!(dtype.to_string(), names[0]);
        }
        assert!(Dtype::from_str("f8", true).is_err());
    }
}

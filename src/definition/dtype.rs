//! The element types that models compute in, and the kinds of quantisation to eight-bit integers.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// The element type that a model computes in. The usual names of other libraries are read as well, such as `float16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, JsonSchema, Display, IntoStaticStr, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[value(rename_all = "lowercase")]
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

/// A form in which GGUF files have the weights of a language model, by llama.cpp's names: blocks of weights with scales, and for those with
/// `m` at the end a mix, in which some tensors have more bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(Serialize, Deserialize, Display, IntoStaticStr, strum::EnumIter)]
pub enum Scheme {
    #[serde(rename = "q8_0")]
    #[strum(serialize = "q8_0")]
    Q8,
    #[serde(rename = "q6_k")]
    #[strum(serialize = "q6_k")]
    Q6K,
    #[serde(rename = "q5_k_m")]
    #[strum(serialize = "q5_k_m")]
    Q5KM,
    #[serde(rename = "q4_k_m")]
    #[strum(serialize = "q4_k_m")]
    Q4KM,
    #[serde(rename = "q4_0")]
    #[strum(serialize = "q4_0")]
    Q4,
}

impl Scheme {
    /// The name, as variants have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Weights of a block, of which rows are multiples.
    pub fn block(self) -> usize {
        match self {
            Scheme::Q8 | Scheme::Q4 => 32,
            Scheme::Q6K | Scheme::Q5KM | Scheme::Q4KM => 256,
        }
    }

    /// About how many bits of a file there are per weight.
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

/// The source of the ranges of activations in quantised products.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantization {
    /// From the values of each call.
    Dynamic,
    /// From samples that were measured once: `calibration.toml`.
    Static,
    /// Of each call, in the engines that read GGUF files: the weights are those of a GGUF file.
    Gguf(Scheme),
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

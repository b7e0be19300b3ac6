//! How a graph of f32 becomes one of eight-bit integers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the range of the activations of a quantised product comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Quantization {
    /// From the values of each call.
    Dynamic,
    /// From samples that were measured once: `calibration.toml`.
    Static,
}

impl Quantization {
    pub fn name(self) -> &'static str {
        match self {
            Quantization::Dynamic => "dynamic",
            Quantization::Static => "static",
        }
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

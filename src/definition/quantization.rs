//! The kinds of quantisation to eight-bit integers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// Where the ranges of the activations of quantised products come from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, Display, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Quantization {
    /// From the values of each call.
    Dynamic,
    /// From samples that were measured once: `calibration.toml`.
    Static,
}

impl Quantization {
    /// The name in records.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

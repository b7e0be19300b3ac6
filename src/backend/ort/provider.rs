//! ONNX Runtime's execution providers: the device of each, and where it comes from.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::definition::{CaseFailure, Dtype, device_kind};

/// An execution provider, as `providers.toml` describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub device: String,
    pub name: String,
    pub package: String,
    pub plugin: Option<String>,
    pub dtypes: Vec<Dtype>,
    #[serde(default)]
    setup: bool,
}

/// All providers, each of another device.
pub static PROVIDERS: LazyLock<Vec<Provider>> = LazyLock::new(|| {
    let text = include_str!("providers.toml");
    let mut file: BTreeMap<String, Vec<Provider>> = toml::from_str(text).expect("the file is a part of the program");
    file.remove("provider").unwrap_or_default()
});

/// The provider for a device.
///
/// # Errors
/// `unavailable`: there is none.
pub fn provider_of(device: &str) -> Result<&'static Provider, CaseFailure> {
    let found = PROVIDERS.iter().find(|provider| provider.device == device_kind(device));
    found.ok_or_else(|| CaseFailure::unavailable(format!("ort has no device {device:?}")))
}

impl Provider {
    /// The command that adds it.
    pub fn how_to_add(&self) -> String {
        match self.device.as_str() {
            "cpu" => "get it with `scripts/setup onnxruntime`, or set ORT_DYLIB_PATH to a library of yours".into(),
            device if self.setup => format!("get it with `scripts/setup --device {device}`"),
            _ => format!("set ORT_DYLIB_PATH to a library that was built with {}", self.name),
        }
    }
}

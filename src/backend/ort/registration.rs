//! Puts an execution provider into a session, and says whether it is here and what is behind it.

use ort::device::Device;
use ort::session::builder::SessionBuilder;

use super::library;
use super::provider::{Kind, Options, Provider};
use crate::definition::{CaseFailure, device_index};

/// Where the provider's library is, as far as that is seen without loading anything.
///
/// # Errors
/// The provider is not there; the message says what adds it.
pub fn look(provider: &Provider) -> Result<String, String> {
    match provider.device {
        "mps" if !cfg!(target_os = "macos") => Err("CoreML is a part of macOS".into()),
        "webnn" => Err("WebNN needs a browser, and there is no worker in a browser yet".into()),
        _ => library::check(provider).map_err(|error| error.to_string()),
    }
}

/// Puts the provider into a session, and nothing besides it.
///
/// # Errors
/// `unavailable`: this ONNX Runtime has no such provider, or the provider finds no device.
pub fn register(
    provider: &'static Provider,
    builder: SessionBuilder,
    device: &str,
    threads: usize,
) -> Result<SessionBuilder, CaseFailure> {
    let unavailable = |error: ort::Error<SessionBuilder>| CaseFailure::unavailable(error.to_string());
    match &provider.kind {
        Kind::BuiltIn(is_available, make) => {
            if !is_available()? {
                let library = library::path(provider);
                let (library, name, hint) = (library.display(), provider.name, provider.how_to_add());
                return Err(CaseFailure::unavailable(format!("{library} has no {name}; {hint}")));
            }
            let options = Options { index: i32::try_from(device_index(device)).unwrap_or(i32::MAX), threads };
            builder.with_execution_providers([make(&options).error_on_failure()]).map_err(unavailable)
        }
        Kind::Plugin(options) => {
            let options = options().map_err(|error| CaseFailure::unavailable(format!("{error:#}")))?;
            let options: Vec<(String, String)> =
                options.into_iter().map(|(key, value)| (format!("{}.{key}", provider.name), value)).collect();
            let missing = || CaseFailure::unavailable(format!("{} finds no device here", provider.name));
            let device = plugin_device(provider)?.ok_or_else(missing)?;
            builder.with_devices([device], Some(&options)).map_err(unavailable)
        }
    }
}

/// The device type (`cpu`, `gpu` or `npu`) behind a plugin's device, and its vendor.
pub fn hardware(provider: &'static Provider) -> Option<(&'static str, String)> {
    provider.plugin?;
    let device = plugin_device(provider).ok()??;
    let hardware = device.hardware_device();
    let device_type = match hardware.ty() {
        ort::memory::DeviceType::CPU => "cpu",
        ort::memory::DeviceType::GPU => "gpu",
        ort::memory::DeviceType::NPU => "npu",
        _ => return None,
    };
    Some((device_type, hardware.vendor().unwrap_or_default().to_owned()))
}

fn plugin_device(provider: &'static Provider) -> Result<Option<Device<'static>>, CaseFailure> {
    let is_own = |device: &Device| device.ep().is_ok_and(|name| name == provider.name);
    Ok(library::environment(provider)?.devices().find(is_own))
}

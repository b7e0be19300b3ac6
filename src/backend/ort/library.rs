//! ONNX Runtime's shared library: one per process; the device decides which build of it.

use std::ffi::CStr;
use std::path::PathBuf;

use anyhow::bail;
use once_cell::sync::OnceCell;
use ort::environment::Environment;

use super::provider::Provider;
use crate::definition::CaseFailure;
use crate::paths::{Paths, variable};

/// The library that has the provider: that of `ORT_DYLIB_PATH`, or the one of `.native/`.
pub fn path(provider: &Provider) -> PathBuf {
    let file = if cfg!(target_os = "macos") { "libonnxruntime.dylib" } else { "libonnxruntime.so" };
    match variable("ORT_DYLIB_PATH") {
        Some(path) => PathBuf::from(path),
        None => Paths::find().native().join(&provider.package).join(file),
    }
}

/// Checks that the library and the provider's plugin exist, and returns the library's path.
///
/// # Errors
/// One of them is missing; the message says what adds it.
pub fn check(provider: &Provider) -> anyhow::Result<String> {
    match provider.device.as_str() {
        "mps" if !cfg!(target_os = "macos") => bail!("CoreML is a part of macOS"),
        "webnn" => bail!("WebNN needs a browser, and there is no worker in a browser yet"),
        _ => {}
    }
    let path = path(provider);
    if !path.is_file() {
        let with = if provider.device == "cpu" { String::new() } else { format!(" with {}", provider.name) };
        bail!("ONNX Runtime{with} is not at {}; {}", path.display(), provider.how_to_add());
    }
    match plugin_path(provider) {
        Some(plugin) if !plugin.is_file() => {
            bail!("the plugin {} is not there; {}", plugin.display(), provider.how_to_add())
        }
        _ => Ok(path.display().to_string()),
    }
}

/// The provider's own library, if it is a plugin.
fn plugin_path(provider: &Provider) -> Option<PathBuf> {
    provider.plugin.as_ref().map(|plugin| Paths::find().native().join(plugin))
}

static ENVIRONMENT: OnceCell<(&'static Provider, Environment)> = OnceCell::new();

/// The process's one environment, with the provider's plugin in it.
///
/// # Errors
/// The library is not there, is of another version, or the process has another one already.
pub fn environment(provider: &'static Provider) -> Result<&'static Environment, CaseFailure> {
    let open = || -> anyhow::Result<_> {
        check(provider)?;
        let environment = ort::init_from(path(provider))?.with_name("inferbench").with_telemetry(false).build()?;
        // Providers warn once per session, and errors are returned.
        let is_debugged = std::env::var_os(crate::backend::DEBUG).is_some();
        let level = if is_debugged { ort::logging::LogLevel::Verbose } else { ort::logging::LogLevel::Fatal };
        environment.set_log_level(level);
        if let Some(plugin) = plugin_path(provider) {
            environment.register_ep_library(&provider.device, &plugin)?;
        }
        Ok((provider, environment))
    };
    let opened = ENVIRONMENT.get_or_try_init(open).map_err(|error| CaseFailure::unavailable(format!("{error:#}")));
    let (loaded, environment) = opened?;
    // Once a plugin is registered, sessions without a provider run on it too: so a process has one provider.
    if loaded.name != provider.name {
        return Err(CaseFailure::failed(format!(
            "this process has ONNX Runtime for {}, not {}",
            loaded.name, provider.name
        )));
    }
    Ok(environment)
}

/// The version that the library reports; `None` if it cannot be loaded.
pub fn version(provider: &'static Provider) -> Option<String> {
    environment(provider).ok()?;
    // SAFETY: the library that `environment` has loaded is loaded once more, which adds a reference and runs nothing;
    // the symbol and both fields are ONNX Runtime's stable C entry point, and the string is static.
    unsafe {
        let library = libloading::Library::new(path(provider)).ok()?;
        let entry: libloading::Symbol<unsafe extern "C" fn() -> *const ort::sys::OrtApiBase> =
            library.get(b"OrtGetApiBase").ok()?;
        let base = entry().as_ref()?;
        Some(CStr::from_ptr((base.GetVersionString)()).to_string_lossy().into_owned())
    }
}

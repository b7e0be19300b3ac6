//! ONNX Runtime's shared library: one a process, which build of it depends on the device.

use std::ffi::CStr;
use std::path::PathBuf;

use once_cell::sync::OnceCell;
use ort::environment::Environment;

use super::provider::Provider;
use crate::definition::CaseFailure;
use crate::paths::Paths;

/// The library that has the provider: that of `ORT_DYLIB_PATH`, or the one of `.native/`.
pub fn path(provider: &Provider) -> PathBuf {
    let file = if cfg!(target_os = "macos") { "libonnxruntime.dylib" } else { "libonnxruntime.so" };
    match std::env::var_os("ORT_DYLIB_PATH") {
        Some(path) => PathBuf::from(path),
        None => Paths::find().native().join(provider.package).join(file),
    }
}

/// The library's path, and that of the provider's plugin, where they are there.
///
/// # Errors
/// One is not; the message says what adds it.
pub fn check(provider: &Provider) -> Result<String, String> {
    let path = path(provider);
    if !path.is_file() {
        return Err(format!(
            "ONNX Runtime{} is not at {}; {}",
            if provider.device == "cpu" { String::new() } else { format!(" with {}", provider.name) },
            path.display(),
            provider.how_to_add()
        ));
    }
    match plugin_path(provider) {
        Some(plugin) if !plugin.is_file() => {
            Err(format!("the plugin {} is not there; {}", plugin.display(), provider.how_to_add()))
        }
        _ => Ok(path.display().to_string()),
    }
}

/// The provider's own library, where it has one.
pub fn plugin_path(provider: &Provider) -> Option<PathBuf> {
    provider.plugin.map(|plugin| Paths::find().native().join(plugin))
}

static ENVIRONMENT: OnceCell<(&'static Provider, Environment)> = OnceCell::new();

/// The process's one environment, with the provider's plugin in it.
///
/// # Errors
/// The library is not there, is of another version, or the process has another one already.
pub fn environment(provider: &'static Provider) -> Result<&'static Environment, CaseFailure> {
    let (loaded, environment) = ENVIRONMENT
        .get_or_try_init(|| {
            check(provider)?;
            let builder = ort::init_from(path(provider)).map_err(|error| error.to_string())?;
            let builder = builder.with_name("inferbench").with_telemetry(false);
            let environment = builder.build().map_err(|error| error.to_string())?;
            // Warnings of providers come once a session, and errors are returned.
            environment.set_log_level(ort::logging::LogLevel::Fatal);
            if let Some(plugin) = plugin_path(provider) {
                environment.register_ep_library(provider.device, &plugin).map_err(|error| error.to_string())?;
            }
            Ok((provider, environment))
        })
        .map_err(|error: String| CaseFailure::unavailable(error))?;
    // Once a plugin is there, sessions without a provider run on it too: no process has two.
    if loaded.name != provider.name {
        return Err(CaseFailure::failed(format!(
            "this process has ONNX Runtime for {}, not {}",
            loaded.name, provider.name
        )));
    }
    Ok(environment)
}

/// The version that the library says it has.
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

//! ONNX Runtime's execution providers: the device of each, where it comes from, and the shared library that has it. A process
//! loads one library; the device decides which.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::bail;
use once_cell::sync::OnceCell;
use ort::environment::Environment;
use ort::logging::LogLevel;
use serde::Deserialize;

use crate::definition::{CaseFailure, Dtype, device_kind};
use crate::paths::{Paths, variable};

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

    /// The library that has the provider: that of `ORT_DYLIB_PATH`, or the one of `.native/`.
    pub fn library(&self) -> PathBuf {
        let file = if cfg!(target_os = "macos") { "libonnxruntime.dylib" } else { "libonnxruntime.so" };
        let packaged = || Paths::find().native().join(&self.package).join(file);
        variable("ORT_DYLIB_PATH").map_or_else(packaged, PathBuf::from)
    }

    /// The provider's own library, if it is a plugin.
    fn plugin_library(&self) -> Option<PathBuf> {
        self.plugin.as_ref().map(|plugin| Paths::find().native().join(plugin))
    }

    /// Checks that the library and the provider's plugin exist; an error says what adds them. Returns the library's path.
    pub fn check(&self) -> anyhow::Result<String> {
        match self.device.as_str() {
            "mps" if !cfg!(target_os = "macos") => bail!("CoreML is a part of macOS"),
            "webnn" => bail!("WebNN needs a browser, and there is no worker in a browser yet"),
            _ => {}
        }
        let library = self.library();
        if !library.is_file() {
            let with = if self.device == "cpu" { String::new() } else { format!(" with {}", self.name) };
            bail!("ONNX Runtime{with} is not at {}; {}", library.display(), self.how_to_add());
        }
        if let Some(plugin) = self.plugin_library().filter(|plugin| !plugin.is_file()) {
            bail!("the plugin {} is not there; {}", plugin.display(), self.how_to_add());
        }
        Ok(library.display().to_string())
    }

    /// The process's one environment, with the provider's plugin in it.
    pub fn environment(&'static self) -> Result<&'static Environment, CaseFailure> {
        static ENVIRONMENT: OnceCell<(&'static Provider, Environment)> = OnceCell::new();
        let open = || -> anyhow::Result<_> {
            self.check()?;
            let environment = ort::init_from(self.library())?.with_name("inferbench").with_telemetry(false).build()?;
            // Providers warn once per session, and errors are returned.
            let is_debugged = std::env::var_os(crate::backend::DEBUG).is_some();
            environment.set_log_level(if is_debugged { LogLevel::Verbose } else { LogLevel::Fatal });
            if let Some(plugin) = self.plugin_library() {
                environment.register_ep_library(&self.device, &plugin)?;
            }
            Ok((self, environment))
        };
        let opened = ENVIRONMENT.get_or_try_init(open).map_err(|error| CaseFailure::unavailable(format!("{error:#}")));
        let (loaded, environment) = opened?;
        // Once a plugin is registered, sessions without a provider run on it too: so a process has one provider.
        if loaded.name != self.name {
            let message = format!("this process has ONNX Runtime for {}, not {}", loaded.name, self.name);
            return Err(CaseFailure::failed(message));
        }
        Ok(environment)
    }

    /// The version that the library reports; `None` if it cannot be loaded.
    pub fn library_version(&'static self) -> Option<String> {
        self.environment().ok()?;
        // SAFETY: the library that `environment` has loaded is loaded once more, which adds a reference and runs nothing;
        // the symbol and both fields are ONNX Runtime's stable C entry point, and the string is static.
        unsafe {
            let library = libloading::Library::new(self.library()).ok()?;
            let entry: libloading::Symbol<unsafe extern "C" fn() -> *const ort::sys::OrtApiBase> =
                library.get(b"OrtGetApiBase").ok()?;
            let base = entry().as_ref()?;
            Some(CStr::from_ptr((base.GetVersionString)()).to_string_lossy().into_owned())
        }
    }
}

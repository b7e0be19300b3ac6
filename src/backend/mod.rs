//! The runtimes that run a model, behind one small trait.
//!
//! A [`Backend`] says what it is, which devices it has here, and loads an artifact into a [`Session`]. A session owns
//! its inputs on the device; `run` followed by `sync` is what is timed. Nothing falls back: a device or dtype that the
//! backend cannot give is a [`CaseFailure`], never another device or dtype.
//!
//! Adding a backend is one file here, one line in [`all`], one Cargo feature, and its row in the README.

#[cfg(feature = "candle")]
mod candle;
#[cfg(any(feature = "candle", feature = "openvino", feature = "ort", feature = "tch", feature = "tract"))]
mod generation;
#[cfg(any(feature = "candle", feature = "openvino", feature = "ort", feature = "tch", feature = "tract"))]
mod graphs;
mod null;
#[cfg(feature = "openvino")]
mod openvino;
#[cfg(feature = "ort")]
mod ort;
mod probe;
#[cfg(feature = "tch")]
mod tch;
#[cfg(feature = "tract")]
mod tract;

pub use null::{NULL, Null};
pub use probe::{answer as answer_probe, asked as asked_by_probe};

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::definition::{Capabilities, CaseFailure, Dtype, ElementType, Model, Origin, Phase, Sizes, device_kind};
use crate::fixture::{Artifacts, HostTensor};

/// A runtime.
pub trait Backend: Sync {
    /// The Rust crate that runs it, as in case ids: `ort`.
    fn name(&self) -> &'static str;
    /// The field's name: `onnxruntime`.
    fn framework(&self) -> &'static str;
    /// The devices that the backend knows, with what each is here or why it is not, as far as that is seen without loading
    /// anything large.
    fn devices(&self) -> Vec<DeviceReport>;
    /// What a device is, by computing something small on it. Called in a process of its own.
    ///
    /// # Errors
    /// Why it cannot compute.
    fn probe(&self, device: &str) -> Result<String, String> {
        Err(format!("{} cannot try {device}", self.name()))
    }
    /// Variables that a process has to have from its start, so that libraries find the device.
    fn process_environment(&self, _device: &str) -> Vec<(&'static str, OsString)> {
        Vec::new()
    }
    /// Runs the model once under the runtime's own profiler, free to use whatever it likes, and says what ran where; none
    /// where a session of the backend can only run in one place.
    ///
    /// # Errors
    /// The model cannot run at all.
    fn trace(&self, _request: &LoadRequest<'_>, _inputs: &[HostTensor]) -> Result<Option<Trace>, CaseFailure> {
        Ok(None)
    }
    /// Versions of the crate and of the native library for a device. Loads the library where that is how to know.
    fn versions(&self, device: &str) -> Versions;
    /// Whether the backend can load any of the model's artifacts in this dtype.
    ///
    /// # Errors
    /// `unsupported`, with what is missing.
    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure>;
    /// Loads a model. Called once a case; may take seconds.
    ///
    /// # Errors
    /// Why the session could not be made, with the status that the case gets.
    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure>;
}

/// What to load, and for what.
#[derive(Clone, Copy, Debug)]
pub struct LoadRequest<'a> {
    pub model: &'a Model,
    pub artifacts: &'a Artifacts,
    pub phase: Phase,
    /// What the case puts in for the dimensions that the model's inputs leave open.
    pub sizes: Sizes,
    pub device: &'a str,
    pub dtype: Dtype,
    /// Threads that one call may use.
    pub threads: usize,
}

/// A loaded model.
pub trait Session {
    /// Copies a batch to the device, in the order of the model's inputs, and returns its number: 0, 1, ….
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure>;
    /// Calls of the same binding that belong together: decoding goes on where the call before has stopped.
    fn calls_in_a_row(&self) -> usize {
        1
    }
    /// Lets the next call of the binding be the first of a row.
    fn rewind(&mut self, _binding: usize) {}
    /// Puts a batch of the same shapes in the place of a bound one.
    ///
    /// # Errors
    /// `unsupported`, where the session's phase does not begin with its inputs.
    fn rebind(&mut self, _binding: usize, _inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        Err(CaseFailure::unsupported("other inputs cannot take the place of those that are bound"))
    }
    /// One call over a bound batch: a forward pass, or what the phase is. May return before the device is done.
    fn run(&mut self, binding: usize) -> Result<(), CaseFailure>;
    /// Returns when the device has nothing left to do.
    fn sync(&mut self) -> Result<(), CaseFailure>;
    /// The same computation as a row of calls from its begin, with the outputs copied to the host: those of
    /// [`Model::output_names`].
    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure>;
    /// One call from host to host: the inputs take the place of the binding's, and the outputs are copied to the host.
    ///
    /// # Errors
    /// `unsupported`, where the session's phase has no such boundary.
    fn call_from_host(&mut self, binding: usize, inputs: &[HostTensor]) -> Result<Stages, CaseFailure>;
    /// Time that went into compiling for the shapes that are bound, where the runtime does that apart from loading.
    fn compilation(&self) -> Option<Duration> {
        None
    }
    /// What is really used, read back from the runtime where it can tell.
    fn placement(&self) -> Placement;
}

/// The parts of a call from host to host. Each ends when the device has nothing left to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages {
    pub to_device: Duration,
    pub compute: Duration,
    pub to_host: Duration,
}

/// Where and how a session computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    pub effective_device: String,
    /// `cpu`, `gpu` or `npu`, where the runtime says what is behind the device: a GPU's interface may have a software driver.
    pub device_type: Option<String>,
    pub effective_dtype: Option<Dtype>,
    /// ONNX Runtime's execution providers, or what takes their place.
    pub providers: String,
    /// Threads of one call, as the runtime says.
    pub threads: Option<usize>,
    /// The files that were loaded.
    pub artifacts: Vec<PathBuf>,
    /// What executes the graph, where a backend has more than one way.
    pub executor: Option<String>,
    /// Whether the session was compiled for the sizes of its request, and takes no others.
    pub has_fixed_sizes: bool,
}

/// What a runtime's profile says about one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The provider of the device that was asked for.
    pub asked_for: String,
    /// How many nodes of each operator ran on each provider, by provider.
    pub nodes: BTreeMap<String, BTreeMap<String, usize>>,
    /// Products and convolutions, by what they read; none for an element type that is no [`Dtype`].
    pub products: BTreeMap<Option<Dtype>, BTreeSet<String>>,
}

impl Trace {
    /// The part of the nodes that ran where it was asked for, from 0 to 1.
    pub fn share(&self) -> f64 {
        let count = |operators: &BTreeMap<String, usize>| operators.values().sum::<usize>() as f64;
        let all: f64 = self.nodes.values().map(count).sum();
        self.nodes.get(&self.asked_for).map_or(0.0, count) / all.max(1.0)
    }

    /// The operators that ran elsewhere: `Gather on CPUExecutionProvider`.
    pub fn elsewhere(&self) -> Vec<String> {
        let others = self.nodes.iter().filter(|(name, _)| **name != self.asked_for);
        others
            .flat_map(|(name, operators)| operators.keys().map(move |operator| format!("{operator} on {name}")))
            .collect()
    }

    /// The operators whose products are not all computed in `dtype`, and what they are computed in.
    ///
    /// Of i8 one product is enough: only those with weights are quantised, and those of two activations are not.
    pub fn products_not_in(&self, dtype: Dtype) -> Option<(Dtype, Vec<&str>)> {
        if dtype == Dtype::I8 && self.products.contains_key(&Some(dtype)) {
            return None;
        }
        let others = self.products.iter().filter_map(|(computed_in, operators)| Some(((*computed_in)?, operators)));
        let mut others = others.filter(|(computed_in, _)| *computed_in != dtype);
        others.next().map(|(computed_in, operators)| (computed_in, operators.iter().map(String::as_str).collect()))
    }
}

/// A backend's versions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Versions {
    /// Version of the Rust crate.
    pub backend: String,
    /// Version of the native library, or of the crate where there is none.
    pub library: String,
}

/// A device of a backend on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReport {
    pub device: String,
    /// What it is, or why it is not there and what would add it.
    pub availability: Result<String, String>,
    /// Whether only a try shows that it works.
    pub needs_probe: bool,
}

impl DeviceReport {
    /// A device that is there if its backend is.
    pub fn certain(device: &str, availability: Result<String, String>) -> Self {
        DeviceReport { device: device.into(), availability, needs_probe: false }
    }
}

/// The devices of a backend; what only a try can show has been tried, each in a process of its own.
pub fn tried_devices(backend: &dyn Backend) -> Vec<DeviceReport> {
    backend.devices().into_iter().map(|report| tried(backend, report)).collect()
}

fn tried(backend: &dyn Backend, report: DeviceReport) -> DeviceReport {
    if !report.needs_probe || report.availability.is_err() {
        return report;
    }
    DeviceReport { availability: probe::try_device(backend, &report.device), ..report }
}

/// The backends of this build, and why the others are not in it.
pub fn all() -> Vec<(&'static str, Result<&'static dyn Backend, String>)> {
    vec![
        #[cfg(feature = "ort")]
        ("ort", Ok(&ort::Ort as &dyn Backend)),
        #[cfg(not(feature = "ort"))]
        ("ort", Err(not_in_this_build("ort"))),
        #[cfg(feature = "tch")]
        ("tch", Ok(&tch::Tch as &dyn Backend)),
        #[cfg(not(feature = "tch"))]
        ("tch", Err(not_in_this_build("tch"))),
        #[cfg(feature = "candle")]
        ("candle", Ok(&candle::Candle as &dyn Backend)),
        #[cfg(not(feature = "candle"))]
        ("candle", Err(not_in_this_build("candle"))),
        #[cfg(feature = "tract")]
        ("tract", Ok(&tract::TractBackend as &dyn Backend)),
        #[cfg(not(feature = "tract"))]
        ("tract", Err(not_in_this_build("tract"))),
        #[cfg(feature = "openvino")]
        ("openvino", Ok(&openvino::OpenVino as &dyn Backend)),
        #[cfg(not(feature = "openvino"))]
        ("openvino", Err(not_in_this_build("openvino"))),
        (NULL, Ok(&null::Null as &dyn Backend)),
    ]
}

#[allow(dead_code, reason = "unused in a build with every backend")]
fn not_in_this_build(feature: &str) -> String {
    let setup = match feature {
        "tch" => "scripts/setup && ",
        "openvino" => "scripts/setup openvino && ",
        _ => "",
    };
    format!("not in this build; add it with `{setup}cargo bench --features {feature}`")
}

/// The backend of that name.
///
/// # Errors
/// It is unknown, or not in this build.
pub fn find(name: &str) -> Result<&'static dyn Backend, CaseFailure> {
    match all().into_iter().find(|(known, _)| *known == name) {
        Some((_, found)) => found.map_err(CaseFailure::unavailable),
        None => {
            let names: Vec<&str> = all().into_iter().map(|(name, _)| name).filter(|name| *name != NULL).collect();
            Err(CaseFailure::unavailable(format!("no backend {name:?}; there are {}", names.join(", "))))
        }
    }
}

/// The registry's answers to the planner.
pub struct Registry;

impl Capabilities for Registry {
    fn check_device(&self, backend: &str, device: &str) -> Result<(), CaseFailure> {
        let backend = find(backend)?;
        let devices = backend.devices();
        // `cuda` says all there is to say about `cuda:1`, until it is loaded.
        let is_asked_for = |report: &&DeviceReport| report.device == device || report.device == device_kind(device);
        let asked = devices.iter().find(is_asked_for);
        let there = || {
            // A library that is installed is no device yet.
            let there = devices.iter().cloned().map(|report| tried(backend, report));
            let there = there.filter(|report| report.availability.is_ok()).map(|report| report.device);
            let there: Vec<String> = there.collect();
            let there = if there.is_empty() { "no device".to_owned() } else { there.join(", ") };
            format!("{} has {there} here", backend.name())
        };
        let Some(asked) = asked else {
            return Err(CaseFailure::unavailable(format!("{} has no device {device:?}; {}", backend.name(), there())));
        };
        let asked = tried(backend, DeviceReport { device: device.to_owned(), ..asked.clone() });
        asked.availability.map(drop).map_err(|reason| CaseFailure::unavailable(format!("{reason}; {}", there())))
    }

    fn check_model(&self, backend: &str, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        find(backend)?.check_model(model, dtype)
    }
}

/// Which file of a model a backend loads.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each backend uses one of them")]
enum Format {
    Onnx,
    TorchScript,
}

#[allow(dead_code, reason = "unused in a build without native backends")]
impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Onnx => "ONNX",
            Format::TorchScript => "TorchScript",
        })
    }
}

/// The check that all backends share: the artifact exists, and the dtype is one of the backend's.
#[allow(dead_code, reason = "unused in a build without native backends")]
fn check_artifact(model: &Model, dtype: Dtype, dtypes: &[Dtype], format: Format) -> Result<(), CaseFailure> {
    let (exists, extension) = match (&model.origin, format) {
        (Origin::Packaged { quantization: Some(_), .. }, Format::TorchScript) => {
            return Err(CaseFailure::unsupported(
                "this variant is made from ONNX graphs, and there is no TorchScript of it",
            ));
        }
        (Origin::Packaged { .. }, _) => (true, ""),
        (Origin::Files { onnx, .. }, Format::Onnx) => (onnx.is_some(), "onnx"),
        (Origin::Files { torchscript, .. }, Format::TorchScript) => (torchscript.is_some(), "pt"),
    };
    if !exists {
        return Err(CaseFailure::unsupported(format!("needs a .{extension} file of the same name")));
    }
    if let Some(input) = model.inputs.iter().find(|input| input.dtype == ElementType::F16) {
        return Err(CaseFailure::unsupported(format!(
            "input {:?} is f16, for which there are no inputs yet",
            input.name
        )));
    }
    if !dtypes.contains(&dtype) {
        let names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
        return Err(CaseFailure::unsupported(format!(
            "no {dtype} of {format} graphs here; there are {}",
            names.join(", ")
        )));
    }
    Ok(())
}

/// A library's error as the status that it means for the case.
#[allow(dead_code, reason = "unused in a build without native backends")]
fn classify(error: impl std::fmt::Display) -> CaseFailure {
    use crate::definition::Status;
    let text = error.to_string();
    // Some libraries put a backtrace into their message when RUST_BACKTRACE is set.
    let lines = text.trim().lines().take_while(|line| !line.trim_start().starts_with("0: "));
    let message = lines.collect::<Vec<_>>().join("\n");
    let lower = message.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    if has(&["out of memory", "bad_alloc", "failed to allocate memory", "can't allocate memory"]) {
        CaseFailure::new(Status::OutOfMemory, message)
    } else if has(&[
        "not implemented",
        "not_implemented",
        "unsupported",
        "not supported",
        "could not find an implementation",
    ]) {
        CaseFailure::new(Status::Unsupported, message)
    } else {
        CaseFailure::new(Status::Failed, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Status;

    #[test]
    fn an_unknown_backend_and_an_absent_device_say_what_there_is() {
        let error = Registry.check_device("onnx", "cpu").unwrap_err();
        assert_eq!(error.status, Status::Unavailable);
        assert!(error.message.contains("there are ort, tch, candle"), "{error}");
        let error = Registry.check_device(NULL, "cuda").unwrap_err();
        assert!(error.message.contains("null has cpu here"), "{error}");
    }

    #[test]
    fn library_errors_become_statuses() {
        assert_eq!(classify("CUDA out of memory. Tried to allocate").status, Status::OutOfMemory);
        assert_eq!(classify("op NOT_IMPLEMENTED: Foo").status, Status::Unsupported);
        assert_eq!(classify("shape mismatch").status, Status::Failed);
    }
}

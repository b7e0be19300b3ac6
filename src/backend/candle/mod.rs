//! candle, pure Rust: the modules of `candle-transformers` in [`native`], GGUF files in [`quantised`], and ONNX graphs
//! through `candle-onnx` for models without a module.
//!
//! `candle-onnx` evaluates a graph node by node and prepares nothing: it decodes every initializer on every evaluation,
//! cannot read external data, fuses nothing and keeps every value until the end. So a graph is prepared once here, as
//! the other runtimes do: `graph` decodes it and computes the constants, `fusion` merges nodes, and `plan` decides the
//! order and how long values are kept. candle computes everything. Most nodes go through `candle-onnx`. `operator`
//! calls candle's own functions for nodes that `candle-onnx` evaluates slowly; `forms`, `spatial` and `lstm` do so for
//! those that it evaluates wrongly or not at all.

#[cfg(feature = "candle-onnx")]
mod evaluated;
#[cfg(feature = "candle-onnx")]
mod forms;
#[cfg(feature = "candle-onnx")]
mod fusion;
#[cfg(feature = "candle-onnx")]
mod graph;
#[cfg(feature = "candle-onnx")]
mod lstm;
mod native;
#[cfg(feature = "candle-onnx")]
mod operator;
#[cfg(feature = "candle-onnx")]
mod plan;
mod quantised;
#[cfg(feature = "candle-onnx")]
mod spatial;
mod tensor;

use std::ffi::OsString;
use std::path::Path;

use candle_core::Device;

use self::tensor::device_of;
use crate::backend::artifact::{Format, check_artifact};
use crate::backend::cuda::cuda_environment;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::backend::recorder::{RecordedSession, Recorder};
use crate::definition::{CaseFailure, Dtype, Model};
use crate::fixture::Reads;

pub struct Candle;

impl Backend for Candle {
    fn devices(&self) -> Vec<DeviceReport> {
        let describe = |device: &str| match device_of(device) {
            Ok(device) if device.is_cpu() => Ok("pure Rust".into()),
            Ok(_) => Ok("candle's own kernels".into()),
            Err(failure) => Err(failure.message),
        };
        ["cpu", "cuda", "mps"]
            .map(|device| DeviceReport::certain(device, describe(device).map_err(CaseFailure::unavailable)))
            .into()
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        cuda_environment(device)
    }

    fn check_model(&self, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        if model.is_gguf() {
            return Ok(());
        }
        check_artifact(model, dtype, &[Dtype::F32, Dtype::F16, Dtype::Bf16], Format::Onnx)
    }

    fn reads(&self) -> Reads {
        Reads::GraphsOrGguf
    }

    /// The weights of a GGUF file, dequantised by candle.
    fn load_exact(&self, request: &LoadRequest<'_>, _: &Path) -> Result<Option<Box<dyn Session>>, CaseFailure> {
        let Some(file) = &request.artifacts.gguf else { return Ok(None) };
        quantised::open_session(request, &device_of(request.device)?, file, true, None).map(Some)
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        let device = device_of(request.device)?;
        match native::open_session(request, &device, None)? {
            Some(session) => Ok(session),
            None => open_files(request, device, None),
        }
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        let device = device_of(request.device)?;
        if !device.is_cpu() {
            return Err(CaseFailure::unsupported("candle's operators can be timed on the CPU only"));
        }
        let spans = native::Spans::default();
        if let Some(session) = native::open_profiled(request, &device, &spans)? {
            return Ok(Box::new(RecordedSession { session, tape: spans }));
        }
        let tape = Recorder::default();
        Ok(Box::new(RecordedSession { session: open_files(request, device, Some(&tape))?, tape }))
    }
}

/// A session of the model's GGUF file, or else of its graphs. The operators of its calls are noted by the recorder, if
/// there is one.
fn open_files(
    request: &LoadRequest<'_>,
    device: Device,
    recorder: Option<&Recorder>,
) -> Result<Box<dyn Session>, CaseFailure> {
    if let Some(file) = &request.artifacts.gguf {
        return quantised::open_session(request, &device, file, false, recorder.cloned());
    }
    let no_module = if cfg!(feature = "candle-transformers") {
        "candle has no module of this model"
    } else {
        "this build of candle has no module of this model, which one with `--features candle-transformers` may have"
    };
    if !device.is_cpu() {
        return Err(CaseFailure::unsupported(format!("{no_module}, and candle-onnx computes on the CPU only")));
    }
    #[cfg(feature = "candle-onnx")]
    return evaluated::open_session(request, device, recorder);
    #[cfg(not(feature = "candle-onnx"))]
    return Err(CaseFailure::unsupported(format!(
        "{no_module}; a build with `--features candle-onnx` evaluates its graph"
    )));
}

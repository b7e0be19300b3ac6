//! candle, pure Rust: the modules of `candle-transformers` in [`native`], and ONNX graphs through `candle-onnx` for the
//! models that have no module.
//!
//! `candle-onnx` evaluates a graph node by node and prepares nothing: it decodes every initializer on every evaluation,
//! cannot read external data, fuses nothing and keeps every value until the end. So a graph is prepared once here, as the
//! other runtimes do: `graph` decodes it and computes the constants, `fusion` merges nodes, and `plan` decides the
//! order and how long values are kept. candle computes everything: through `candle-onnx`, or through its own functions in
//! `operator` for nodes that `candle-onnx` evaluates in a roundabout way, and in `forms`, `spatial` and `lstm` for those that it does
//! not evaluate.

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
use crate::definition::{CaseFailure, Dtype, Model, device_kind};
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
        if device_kind(device) == "cuda" { cuda_environment() } else { Vec::new() }
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
        if let Some(file) = &request.artifacts.gguf {
            return quantised::open_session(request, &device, file, false, None);
        }
        if let Some(session) = native::open_session(request, &device, None)? {
            return Ok(session);
        }
        open_graphs(request, device, None)
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        let device = device_of(request.device)?;
        if !device.is_cpu() {
            return Err(CaseFailure::unsupported("candle says when operators run on the CPU only"));
        }
        if let Some(file) = &request.artifacts.gguf {
            let tape = Recorder::default();
            let session = quantised::open_session(request, &device, file, false, Some(tape.clone()))?;
            return Ok(Box::new(RecordedSession { session, tape }));
        }
        let spans = native::Spans::default();
        if let Some(session) = native::open_profiled(request, &device, &spans)? {
            return Ok(Box::new(RecordedSession { session, tape: spans }));
        }
        let tape = Recorder::default();
        Ok(Box::new(RecordedSession { session: open_graphs(request, device, Some(&tape))?, tape }))
    }
}

#[cfg_attr(not(feature = "candle-onnx"), allow(unused_variables, reason = "there are no graphs then"))]
fn open_graphs(
    request: &LoadRequest<'_>,
    device: Device,
    recorder: Option<&Recorder>,
) -> Result<Box<dyn Session>, CaseFailure> {
    if !device.is_cpu() {
        return Err(CaseFailure::unsupported(
            "candle-onnx computes on the CPU only, and candle has no module of this model",
        ));
    }
    #[cfg(feature = "candle-onnx")]
    return evaluated::open_session(request, device, recorder);
    #[cfg(not(feature = "candle-onnx"))]
    return Err(CaseFailure::unsupported(
        "this build of candle has no module of this model; one with `--features candle-transformers` may have it, and one with `--features \
         candle-onnx` evaluates its graph",
    ));
}

//! The runtimes that run a model, behind one small interface.
//!
//! It takes a model with its artifacts (a [`LoadRequest`]). It gives the devices that there are, and a [`Session`]
//! that runs one call. When calls run and what they took is not its concern (`measurement`, `harness`), nor is
//! whether an output is right (`fixture`).
//!
//! A [`Backend`] says which devices it has here, and loads an artifact into a [`Session`]. A session owns its inputs on the
//! device; `run` followed by `sync` is what is timed. Nothing falls back: if the backend cannot give a device or dtype, the
//! case gets a [`CaseFailure`](crate::definition::CaseFailure), never another device or dtype.
//!
//! The backends are listed in [`registry`].

#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod artifact;
mod availability;
#[cfg(feature = "candle")]
mod candle;
mod closure;
pub mod cuda;
#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod failure;
#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod generation;
#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod graphs;
#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod installed;
mod interface;
#[cfg(feature = "llama-cpp")]
mod llama_cpp;
#[cfg(any(feature = "llama-cpp", feature = "openvino"))]
mod native_library;
mod null;
#[cfg(feature = "openvino")]
mod openvino;
#[cfg(feature = "ort")]
mod ort;
mod outside;
#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod recorder;
pub mod registry;
#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod runtime;
#[allow(dead_code, reason = "a build without native backends uses nothing of it")]
mod shared;
#[cfg(feature = "tch")]
mod tch;
#[cfg(feature = "tract")]
mod tract;

use std::path::Path;

use crate::definition::{CaseFailure, TensorSpec};
use crate::fixture::GgufForm;

/// The variable by which a worker is told that its runtime shall log what it does.
pub const DEBUG: &str = "INFERBENCH_RUNTIME_LOGS";

pub use availability::{Registry, answer_probe, asked_by_probe, tried_devices};
pub use closure::Closures;
pub use failure::{caught, is_out_of_memory};
pub use installed::{ENVIRONMENT, found_so_far, has_packages, use_environment};
pub use interface::{
    Backend, Continuation, DeviceReport, LoadRequest, NextTokens, Placement, ProfiledSession, Session, Stages, Trace,
    Turn,
};
pub use null::NullSession;
pub use outside::conformance::{Check, check as check_program};
#[cfg(fuzzing)]
pub use outside::fuzzed;
pub use registry::{LLAMA_CPP, NULL, ORT, find};

/// Makes a GGUF file of f32 into one of another form, as llama.cpp does.
///
/// # Errors
/// llama.cpp is not here, or refuses the file; the message says why.
pub(crate) fn quantise_gguf(from: &Path, to: &Path, form: GgufForm) -> anyhow::Result<()> {
    #[cfg(feature = "llama-cpp")]
    return llama_cpp::quantise(from, to, form).map_err(|failure| anyhow::anyhow!(failure.message));
    #[cfg(not(feature = "llama-cpp"))]
    anyhow::bail!(
        "only llama.cpp makes {} ({form:?}) of {}: use a build with `--features llama-cpp`",
        to.display(),
        from.display()
    );
}

/// The inputs of a `.py` or `.pt2`, which PyTorch is asked for.
///
/// # Errors
/// PyTorch is not here, or the file has no module; the message says why.
pub(crate) fn inputs_of_module(file: &Path) -> Result<Vec<TensorSpec>, CaseFailure> {
    registry::find("torch")?;
    #[cfg(feature = "torch")]
    return outside::torch::inputs_of(file);
    #[cfg(not(feature = "torch"))]
    return Err(CaseFailure::unsupported(format!("{} needs PyTorch", file.display())));
}

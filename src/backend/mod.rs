//! The runtimes that run a model, behind one small interface.
//!
//! It takes a model with its artifacts (a [`LoadRequest`]). It gives the available devices, and a [`Session`] that runs
//! one call. When calls run and how long they take belongs to `measurement` and `harness`. Whether an output is right
//! belongs to `harness` and `fixture`.
//!
//! A [`Backend`] lists its devices on this machine, and loads an artifact into a [`Session`]. A session owns its inputs
//! on the device; `run` followed by `sync` is timed. Nothing falls back: if the backend cannot give a device or dtype,
//! the case gets a [`CaseFailure`](crate::definition::CaseFailure), never another device or dtype.
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

/// The environment variable that makes the runtimes in a worker log what they do.
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

/// Converts a GGUF file of f32 to another form with llama.cpp.
///
/// # Errors
/// This build lacks llama.cpp, its library is missing, or it refuses the file; the message says which.
pub(crate) fn quantise_gguf(from: &Path, to: &Path, form: GgufForm) -> anyhow::Result<()> {
    #[cfg(feature = "llama-cpp")]
    return llama_cpp::quantise(from, to, form).map_err(anyhow::Error::new);
    #[cfg(not(feature = "llama-cpp"))]
    anyhow::bail!(
        "only llama.cpp makes {} ({form:?}) of {}: use a build with `--features llama-cpp`",
        to.display(),
        from.display()
    );
}

/// Checks the settings of llama.cpp in `INFERBENCH_LLAMA_SETTINGS`.
///
/// # Errors
/// One of them is invalid.
pub(crate) fn check_llama_settings() -> anyhow::Result<()> {
    #[cfg(feature = "llama-cpp")]
    llama_cpp::check_settings().map_err(|failure| anyhow::anyhow!(failure.message))?;
    Ok(())
}

/// The inputs of a `.py` or `.pt2` file, as PyTorch reports them.
///
/// # Errors
/// PyTorch is not available, or the file has no module; the message says why.
pub(crate) fn inputs_of_module(file: &Path) -> Result<Vec<TensorSpec>, CaseFailure> {
    registry::find("torch")?;
    #[cfg(feature = "torch")]
    return outside::torch::inputs_of(file);
    #[cfg(not(feature = "torch"))]
    return Err(CaseFailure::unsupported(format!("{} needs PyTorch", file.display())));
}

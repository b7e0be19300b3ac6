//! The request `load` and the answers of an external worker. The guide's chapter `workers` describes all requests in
//! words.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::backend::artifact::parts_named;
use crate::backend::generation::Lengths;
use crate::backend::graphs::values_given;
use crate::backend::interface::{DeviceReport, LoadRequest};
use crate::definition::{CaseFailure, Dtype, Origin, Part, Phase, Status, TensorSpec};
use crate::fixture::PartFiles;
use crate::onnx::Source;
use crate::run_data::OperatorCall;

/// The version of the protocol.
pub const PROTOCOL: u32 = 1;

/// The answer to `inputs`: each as `x:f32[batch,3,224,224]`.
#[cfg(feature = "torch")]
#[derive(Deserialize)]
pub(super) struct Inputs {
    pub inputs: Vec<String>,
}

/// The answer to `call`: the nanoseconds of its stages.
#[derive(Deserialize)]
pub(super) struct Called {
    pub to_device_ns: u64,
    pub compute_ns: u64,
    pub to_host_ns: u64,
}

/// The answer to the end of a profile: the operators of each call.
#[derive(Deserialize)]
pub(super) struct Profiled {
    pub calls: Vec<ProfiledCall>,
}

#[derive(Deserialize)]
pub(super) struct ProfiledCall {
    pub operators: Vec<OperatorCall>,
}

/// The answer to `describe`: the name, version and abilities of a process.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Description {
    pub protocol: u32,
    pub name: String,
    pub version: String,
    #[serde(default = "cpu")]
    pub devices: Vec<OutsideDevice>,
    #[serde(default = "f32_alone")]
    pub dtypes: Vec<Dtype>,
    /// True if the process compiles a program for each shape of its inputs.
    #[serde(default)]
    pub one_shape: bool,
    #[serde(default)]
    pub warm_up_calls: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutsideDevice {
    pub device: String,
    pub detail: String,
    /// Why nothing can run on it.
    pub missing: Option<String>,
    /// The status of cases on it if nothing can run. The default is `unavailable`.
    pub status: Option<Status>,
}

#[cfg(any(feature = "jax", feature = "ort-web", feature = "torch"))]
impl Description {
    /// How a process describes the device that it was started for, or why nothing can run on it.
    pub fn availability(&self) -> Result<String, CaseFailure> {
        let none = || CaseFailure::unavailable(format!("{} {} describes no device", self.name, self.version));
        self.devices.first().ok_or_else(none)?.availability()
    }
}

impl OutsideDevice {
    /// Its description, or why nothing can run on it.
    pub fn availability(&self) -> Result<String, CaseFailure> {
        // A device that is missing cannot have the status of a measured case.
        let status = self.status.filter(|status| !status.is_measured()).unwrap_or(Status::Unavailable);
        let failure = |why| CaseFailure::new(status, why);
        self.missing.clone().map_or_else(|| Ok(self.detail.clone()), |why| Err(failure(why)))
    }

    pub fn report(&self) -> DeviceReport {
        DeviceReport::certain(&self.device, self.availability())
    }
}

fn cpu() -> Vec<OutsideDevice> {
    vec![OutsideDevice { device: "cpu".into(), ..OutsideDevice::default() }]
}

fn f32_alone() -> Vec<Dtype> {
    vec![Dtype::F32]
}

/// The request `load`: what to load, and for what.
///
/// # Errors
/// The model has no such phase, or the lengths of its texts are not known.
pub(super) fn load(request: &LoadRequest<'_>) -> Result<Value, CaseFailure> {
    let LoadRequest { model, artifacts, phase, sizes, device, dtype, threads, .. } = *request;
    let generation = model.generation.as_ref();
    let path = |path: &PathBuf| path.display().to_string();
    let input = |input: &TensorSpec, value: String| {
        json!({
            "name": input.name, "value": value, "dtype": input.dtype.to_string(), "shape": input.shape,
        })
    };
    let part = |(part, files): (&Part, &PartFiles)| {
        let value_of = |name: &String| generation.map_or_else(|| name.clone(), |own| own.value_of(&part.name, name));
        let inputs: Vec<Value> = part.inputs.iter().map(|own| input(own, value_of(&own.name))).collect();
        // Each value, and whether a decode step computes it. Otherwise decoding keeps the value of the prefill.
        let values: Vec<(String, bool)> = match generation {
            Some(generation) => values_given(generation, part).collect(),
            None => part.outputs.iter().map(|output| (output.name.clone(), true)).collect(),
        };
        let output = |(output, (value, changes)): (&TensorSpec, (String, bool))| {
            json!({
                "name": output.name, "value": value, "changes": changes,
            })
        };
        let outputs: Vec<Value> = part.outputs.iter().zip(values).map(output).collect();
        json!({
            "name": part.name,
            "onnx": files.onnx.as_ref().map(path),
            "external": files.onnx.as_deref().map(data_files).unwrap_or_default(),
            "torchscript": files.torchscript.as_ref().map(path),
            "inputs": inputs,
            "outputs": outputs,
        })
    };
    let parts: Vec<Value> = parts_named(request)?.into_iter().map(part).collect();
    let names = |phase| model.phase(phase).map(|plan| plan.parts.as_slice()).unwrap_or_default();
    let generation = match (generation, phase) {
        (Some(generation), Phase::Prefill | Phase::Decode) => {
            let lengths = Lengths::of(request)?;
            json!({
                // The value that holds the tokens.
                "tokens": generation.tokens,
                "prompt_positions": lengths.prompt,
                "steps": lengths.steps,
                "compared_steps": lengths.compared_steps,
                "prefill": names(Phase::Prefill),
                "decode": names(Phase::Decode),
            })
        }
        _ => Value::Null,
    };
    let definition = match &model.origin {
        Origin::Packaged { folder, .. } => Some(path(folder)),
        Origin::Files { .. } | Origin::Gguf { .. } => None,
    };
    let inputs: Vec<Value> = model.inputs.iter().map(|own| input(own, own.name.clone())).collect();
    Ok(json!({
        "verb": "load",
        "model": model.name,
        "variant": model.variant,
        "family": model.family,
        "phase": phase,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "batch_size": sizes.batch,
        "sequence_length": sizes.sequence,
        "inputs": inputs,
        // The outputs to compare; empty for all outputs of the file.
        "outputs": model.output_names(phase),
        "parts": parts,
        "weights": artifacts.weights.as_ref().map(path),
        "definition": definition,
        "generation": generation,
    }))
}

/// The files with the weights of an ONNX graph, relative to it. None for a graph that cannot be read: the worker
/// reports what is wrong with it.
pub(super) fn data_files(graph: &Path) -> Vec<String> {
    Source::read(graph).map(|source| source.data_file_names()).unwrap_or_default()
}

/// The answer to `load`: where and how the process computes the model.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Loaded {
    /// The device that computes.
    pub device: String,
    pub device_type: Option<String>,
    /// The dtype that the runtime computes in, if it reports one.
    pub dtype: Option<Dtype>,
    pub threads: Option<usize>,
    /// The counterpart of ONNX Runtime's execution provider.
    pub provider: Option<String>,
    /// A remark about the figures, for the message of the row.
    pub note: Option<String>,
    /// The files that were loaded.
    #[serde(default)]
    pub files: Vec<PathBuf>,
    /// Whether all batches of the session must have the size of the first one.
    #[serde(default)]
    pub has_fixed_sizes: bool,
    #[serde(flatten)]
    pub progress: Progress,
}

/// The fields that the answers to `load`, `bind`, `run`, `outputs` and `follow` may add. A later answer replaces a
/// field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Progress {
    /// Milliseconds spent so far on compiling; `trace_ms` is the time spent on tracing before it.
    pub compile_ms: Option<f64>,
    pub trace_ms: Option<f64>,
    /// Milliseconds of the very first call without compiling and tracing, from a process that makes this call in
    /// `bind`.
    pub first_ms: Option<f64>,
    /// The dtype that calls were seen to compute in. Replaces [`Loaded::dtype`].
    pub computed_dtype: Option<Dtype>,
    /// How many calls each time covers.
    pub together: Option<u64>,
    /// Replaces [`Loaded::note`].
    pub note: Option<String>,
}

#[cfg(all(test, any(feature = "jax", feature = "ort-web", feature = "torch")))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_describes_no_device_has_none_that_is_available() {
        let described = |devices: Value| {
            let answer = json!({ "protocol": PROTOCOL, "name": "torch", "version": "2.11.0", "devices": devices });
            let description: Description = serde_json::from_value(answer).unwrap();
            description.availability().map_err(|failure| (failure.status, failure.message))
        };
        assert_eq!(described(json!([{ "device": "cpu", "detail": "eager" }])), Ok("eager".to_owned()));
        let missing = json!([{ "device": "cuda", "missing": "no cuda here", "status": "ok" }, { "device": "cpu" }]);
        assert_eq!(described(missing), Err((Status::Unavailable, "no cuda here".to_owned())));
        let none = "torch 2.11.0 describes no device".to_owned();
        assert_eq!(described(json!([])), Err((Status::Unavailable, none)));
    }
}

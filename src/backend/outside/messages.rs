//! What is asked of an external worker, and what it answers. The chapter `workers` of the guide describes the same in words.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::backend::artifact::parts_named;
use crate::backend::generation::Lengths;
use crate::backend::graphs::values_given;
use crate::backend::interface::LoadRequest;
use crate::definition::{CaseFailure, Dimension, Dtype, Origin, Part, Phase, Status, TensorSpec};
use crate::fixture::PartFiles;
use crate::onnx::Source;
use crate::run_data::OperatorCall;

/// The version of the protocol.
pub const PROTOCOL: u32 = 1;

/// The header of a request.
#[derive(Serialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub(super) enum Ask<'a> {
    Describe {
        protocol: u32,
    },
    Load(Box<Load<'a>>),
    /// The inputs of a file, which only PyTorch's worker is asked for.
    #[cfg(feature = "torch")]
    Inputs {
        file: &'a Path,
    },
    /// With the inputs as tensors.
    Bind {
        binding: usize,
    },
    /// With the tensor `turns`.
    Run,
    Outputs {
        binding: usize,
    },
    /// With the inputs, and with the tensor `text` if the tokens are given.
    Follow {
        tokens: usize,
    },
    /// From host to host, with the inputs; after so many calls of the binding that nobody times.
    Call {
        binding: usize,
        before: usize,
    },
    Clock,
    /// Begins a profile of calls, or ends it.
    Profile {
        is_on: bool,
    },
}

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
    /// The status of cases on it then. The default is `unavailable`.
    pub status: Option<Status>,
}

impl OutsideDevice {
    /// Its description, or why nothing can run on it.
    pub fn availability(&self) -> Result<String, CaseFailure> {
        let failure = |why| CaseFailure::new(self.status.unwrap_or(Status::Unavailable), why);
        self.missing.clone().map_or_else(|| Ok(self.detail.clone()), |why| Err(failure(why)))
    }
}

fn cpu() -> Vec<OutsideDevice> {
    vec![OutsideDevice { device: "cpu".into(), ..OutsideDevice::default() }]
}

fn f32_alone() -> Vec<Dtype> {
    vec![Dtype::F32]
}

/// What to load, and for what.
#[derive(Serialize)]
pub(super) struct Load<'a> {
    model: &'a str,
    variant: &'a str,
    family: &'a str,
    phase: Phase,
    device: &'a str,
    dtype: Dtype,
    threads: usize,
    batch_size: usize,
    sequence_length: Option<usize>,
    inputs: Vec<LoadInput<'a>>,
    /// The outputs that are compared; empty for all that the file has.
    outputs: Vec<String>,
    parts: Vec<LoadPart<'a>>,
    weights: Option<&'a PathBuf>,
    /// The folder that defines a packaged or imported model.
    definition: Option<&'a PathBuf>,
    generation: Option<LoadGeneration<'a>>,
}

#[derive(Serialize)]
struct LoadInput<'a> {
    name: &'a str,
    /// The value that it takes.
    value: String,
    dtype: String,
    shape: &'a [Dimension],
}

#[derive(Serialize)]
struct LoadPart<'a> {
    name: &'a str,
    onnx: Option<&'a PathBuf>,
    /// The files with its weights, relative to it.
    external: Vec<String>,
    torchscript: Option<&'a PathBuf>,
    inputs: Vec<LoadInput<'a>>,
    outputs: Vec<LoadOutput<'a>>,
}

#[derive(Serialize)]
struct LoadOutput<'a> {
    name: &'a str,
    value: String,
    /// True if each step of decoding computes this output; otherwise it keeps the value of the prefill.
    changes: bool,
}

#[derive(Serialize)]
struct LoadGeneration<'a> {
    /// The value that holds the tokens.
    tokens: &'a str,
    prompt_positions: usize,
    /// Calls of `decode` in a row.
    steps: usize,
    /// Calls in a row whose tokens are compared, which may be more.
    compared_steps: usize,
    prefill: &'a [String],
    decode: &'a [String],
}

impl<'a> Load<'a> {
    pub(super) fn new(request: &LoadRequest<'a>) -> Result<Self, CaseFailure> {
        let LoadRequest { model, artifacts, phase, sizes: of_case, device, dtype, threads, .. } = *request;
        let input = |input: &'a TensorSpec, value: String| LoadInput {
            name: &input.name,
            value,
            dtype: input.dtype.to_string(),
            shape: &input.shape,
        };
        let of_part = |(part, files): (&'a Part, &'a PartFiles)| {
            let generation = model.generation.as_ref();
            let value_of =
                |name: &String| generation.map_or_else(|| name.clone(), |own| own.value_of(&part.name, name));
            let values: Vec<(String, bool)> = match generation {
                Some(generation) => values_given(generation, part).collect(),
                None => part.outputs.iter().map(|output| (output.name.clone(), true)).collect(),
            };
            let outputs = part.outputs.iter().zip(values);
            LoadPart {
                name: &part.name,
                onnx: files.onnx.as_ref(),
                external: files.onnx.as_deref().map(data_files).unwrap_or_default(),
                torchscript: files.torchscript.as_ref(),
                inputs: part.inputs.iter().map(|own| input(own, value_of(&own.name))).collect(),
                outputs: outputs
                    .map(|(output, (value, changes))| LoadOutput { name: &output.name, value, changes })
                    .collect(),
            }
        };
        let parts = parts_named(request)?.into_iter().map(of_part).collect();
        let names = |phase| model.phase(phase).map(|plan| plan.parts.as_slice()).unwrap_or_default();
        let generation = match (&model.generation, phase) {
            (Some(generation), Phase::Prefill | Phase::Decode) => {
                let Lengths { prompt: prompt_positions, steps, compared_steps } = Lengths::of(request)?;
                let (prefill, decode) = (names(Phase::Prefill), names(Phase::Decode));
                let tokens = generation.tokens.as_str();
                Some(LoadGeneration { tokens, prompt_positions, steps, compared_steps, prefill, decode })
            }
            _ => None,
        };
        Ok(Load {
            model: &model.name,
            variant: &model.variant,
            family: &model.family,
            phase,
            device,
            dtype,
            threads,
            batch_size: of_case.batch,
            sequence_length: of_case.sequence,
            inputs: model.inputs.iter().map(|own| input(own, own.name.clone())).collect(),
            outputs: model.output_names(phase),
            parts,
            weights: artifacts.weights.as_ref(),
            definition: match &model.origin {
                Origin::Packaged { folder, .. } => Some(folder),
                Origin::Files { .. } | Origin::Gguf { .. } => None,
            },
            generation,
        })
    }

    /// Calls of a binding that belong together.
    pub(super) fn calls_in_a_row(&self) -> usize {
        match (&self.generation, self.phase) {
            (Some(generation), Phase::Decode) => generation.steps,
            _ => 1,
        }
    }
}

/// The files with the weights of an ONNX graph, relative to it. A graph that cannot be read has none: the program says what is
/// wrong with it.
pub(super) fn data_files(graph: &Path) -> Vec<String> {
    Source::read(graph).map(|source| source.data_file_names()).unwrap_or_default()
}

/// The answer to `load`: where and how the process computes the model.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Loaded {
    /// The device that computes.
    pub device: String,
    pub device_type: Option<String>,
    /// The dtype that is computed in, if the runtime says it.
    pub dtype: Option<Dtype>,
    pub threads: Option<usize>,
    /// The counterpart of ONNX Runtime's execution provider.
    pub provider: Option<String>,
    /// A remark about the figures, for the message of the row.
    pub note: Option<String>,
    /// The files that were loaded.
    #[serde(default)]
    pub files: Vec<PathBuf>,
}

/// The fields that any answer may add: the times of compiling, tracing and the first call, the calls that were timed together, the dtype
/// that computes, and a remark.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Progress {
    /// Milliseconds so far that went into compiling, and into tracing before it.
    pub compile_ms: Option<f64>,
    pub trace_ms: Option<f64>,
    /// Milliseconds of the very first call without these two, of a process that makes it in `bind`.
    pub first_ms: Option<f64>,
    /// The dtype that calls were seen to compute in, in place of that of `load`.
    pub computed_dtype: Option<Dtype>,
    /// Calls that each of the times is of.
    pub together: Option<u64>,
    /// In place of that of `load`.
    pub note: Option<String>,
}

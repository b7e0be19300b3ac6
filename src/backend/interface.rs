//! The interface of a runtime: a [`Backend`] loads a model into a [`Session`], which owns its inputs on the device.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::definition::{CaseFailure, Dtype, Model, Phase, Sizes};
use crate::fixture::{Artifacts, HostTensor, Reads};
use crate::run_data::RecordedCall;

/// A runtime, or an engine of your own. What is not given here has a sensible default: an engine that computes on the CPU, in
/// f32, needs [`load`](Backend::load) alone.
pub trait Backend: Send + Sync {
    /// The version of an engine of your own, for records: `env!("CARGO_PKG_VERSION")` in its crate.
    fn version(&self) -> Option<&'static str> {
        None
    }
    /// The devices that the backend knows, as far as they are seen without loading anything large. The default is the CPU.
    fn devices(&self) -> Vec<DeviceReport> {
        vec![DeviceReport::certain("cpu", Ok(String::new()))]
    }
    /// Computes something small on a device and describes the device. Called in a process of its own.
    ///
    /// # Errors
    /// The device cannot compute, or the backend's devices need no probe.
    fn probe(&self, device: &str) -> Result<String, CaseFailure> {
        Err(CaseFailure::failed(format!("{device} has no probe")))
    }
    /// Variables that a process needs from its start, so that libraries find the device.
    fn process_environment(&self, _device: &str) -> Vec<(&'static str, OsString)> {
        Vec::new()
    }
    /// Whether a session is compiled anew for each shape of its inputs, so that texts are better padded to one length.
    fn needs_one_shape(&self, _device: &str) -> bool {
        false
    }
    /// Whether several threads may call one loaded session on the device at the same time ([`LoadRequest::callers`]).
    fn serves_callers(&self, _device: &str) -> bool {
        false
    }
    /// Calls that a warm-up has at least, because the runtime still optimises in them.
    fn least_warm_up_calls(&self) -> usize {
        0
    }
    /// Runs the model once under the runtime's own profiler, which may use any device, and returns what ran where. Returns
    /// `None` if a session of the backend can run in one place only.
    ///
    /// # Errors
    /// The model cannot run at all.
    fn trace(&self, _request: &LoadRequest<'_>, _inputs: &[HostTensor]) -> Result<Option<Trace>, CaseFailure> {
        Ok(None)
    }
    /// Version of the native library for a device, which is loaded if only the library knows. Empty if the library is not here, and
    /// `None` if the backend is a Rust crate alone.
    fn library_version(&self, _device: &str) -> Option<String> {
        None
    }
    /// The native library for a device, or the program that has it. Returns `None` if the backend is a Rust crate alone.
    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        None
    }
    /// Which files of a packaged language model the backend loads, and whether it reads GGUF files. The default is graphs.
    #[doc(hidden)]
    fn reads(&self) -> Reads {
        Reads::Graphs
    }
    /// Checks that the backend can load an artifact of the model in this dtype. The default knows f32 and every model.
    ///
    /// # Errors
    /// `unsupported`; the message says what is missing.
    fn check_model(&self, _model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        match dtype {
            Dtype::F32 => Ok(()),
            other => Err(CaseFailure::unsupported(format!("it computes in f32, and not in {other}"))),
        }
    }
    /// Loads a model, which may take seconds. Never falls back to another device or dtype.
    ///
    /// # Errors
    /// The session cannot be made; the failure has the status that the case gets.
    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure>;
    /// Loads the same weights, computed in f32: what a session is compared with whose weights are quantised. Files that this needs are
    /// written into a folder, which is there as long as the session. Returns `None` if the backend has no such form of the model.
    ///
    /// # Errors
    /// As [`load`](Backend::load).
    #[doc(hidden)]
    fn load_exact(&self, _request: &LoadRequest<'_>, _folder: &Path) -> Result<Option<Box<dyn Session>>, CaseFailure> {
        Ok(None)
    }
    /// Loads a model under a profiler, in the same way as [`load`](Backend::load) otherwise.
    ///
    /// # Errors
    /// `unsupported` if nobody can say which operators a call consists of, which is the default; those of `load`.
    fn load_profiled(&self, _request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        Err(CaseFailure::unsupported("it does not say which operators a call consists of"))
    }
}

/// What to load, and for what.
#[derive(Clone, Copy, Debug)]
pub struct LoadRequest<'a> {
    /// The model's definition.
    pub model: &'a Model,
    /// The files of the model.
    pub artifacts: &'a Artifacts,
    /// The phase that one call of the session computes.
    pub phase: Phase,
    /// The sizes of the case, for the dimensions that the model's inputs leave open.
    pub sizes: Sizes,
    /// The device that the session has to use.
    pub device: &'a str,
    /// The dtype that the session has to compute in.
    pub dtype: Dtype,
    /// Threads that one call may use.
    pub threads: usize,
    /// Sessions of this request that serve at the same time in this process, each in a thread of its own. They may share their
    /// weights. 1 if there is no other session.
    pub instances: usize,
    /// Threads that call the session of this request at the same time, each through a [`Session`] of its own. 1 if there is no other caller.
    pub callers: usize,
}

#[cfg(any(feature = "ort", feature = "tract"))]
impl LoadRequest<'_> {
    /// f32, if it was asked for, and no input says that the network computes in f64.
    pub(crate) fn computed_f32(&self) -> Option<Dtype> {
        let is_double = self.model.inputs.iter().any(|input| input.dtype == crate::definition::ElementType::F64);
        (self.dtype == Dtype::F32 && !is_double).then_some(Dtype::F32)
    }
}

/// A loaded model.
pub trait Session {
    /// Copies a batch to the device, in the order of the model's inputs, and returns its number: 0, 1, ….
    ///
    /// # Errors
    /// The inputs do not fit the model, or the device has no room for them.
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure>;
    /// Calls of the same binding that belong together: each decoding step continues the one before it.
    fn calls_in_a_row(&self) -> usize {
        1
    }
    /// Makes the next call of the binding the first of a row.
    fn rewind(&mut self, _binding: usize) {}
    /// Replaces a bound batch by another of the same shapes. Samples are given to a session in this way, so that its answers are
    /// judged.
    ///
    /// # Errors
    /// `unsupported` if a call of the session's phase does not begin with its inputs, which is the default.
    fn rebind(&mut self, _binding: usize, _inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        Err(CaseFailure::unsupported("the session cannot replace its inputs by those of samples: it has no `rebind`"))
    }
    /// One call over a bound batch: a forward pass, or a call of another phase. May return before the device is done.
    ///
    /// # Errors
    /// The runtime fails.
    fn run(&mut self, binding: usize) -> Result<(), CaseFailure>;
    /// Makes the calls of these turns, one after the other until the device is idle, and returns the nanoseconds of each by a clock
    /// of its own: a runtime in another process times its calls itself. The default is `None`: the harness times
    /// [`run`](Session::run) and [`sync`](Session::sync).
    ///
    /// # Errors
    /// The runtime fails.
    fn run_timed(&mut self, _turns: &mut dyn Iterator<Item = Turn>) -> Option<Result<Vec<u64>, CaseFailure>> {
        None
    }
    /// Returns when the device is idle. The default is for sessions whose calls return no earlier.
    ///
    /// # Errors
    /// The device fails.
    fn sync(&mut self) -> Result<(), CaseFailure> {
        Ok(())
    }
    /// Computes the same as a row of calls from its beginning, and copies the outputs of [`Model::output_names`] to the host.
    ///
    /// # Errors
    /// The runtime fails, or an output has an element type that the host does not know.
    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure>;
    /// Takes a batch of inputs and the tokens after it, one after the other, and returns what is known of each.
    ///
    /// # Errors
    /// `unsupported` if the session does not make one token after the other; the runtime fails.
    fn follow(
        &mut self,
        _inputs: &[HostTensor],
        _continuation: Continuation<'_>,
    ) -> Result<Vec<NextTokens>, CaseFailure> {
        Err(CaseFailure::unsupported("the session makes no tokens one after the other"))
    }
    /// Answers a request of any length: reads a batch of prompts and makes so many tokens after it, each the likeliest. Calls `made` with each
    /// token, i64 `[batch, 1]`, when it is on the host.
    ///
    /// # Errors
    /// `unsupported` if the session does not make one token after the other; the runtime fails.
    fn generate(
        &mut self,
        _inputs: &[HostTensor],
        _tokens: usize,
        _made: &mut dyn FnMut(&HostTensor),
    ) -> Result<(), CaseFailure> {
        Err(CaseFailure::unsupported("the session makes no tokens one after the other"))
    }
    /// Lets a runtime in another process make calls that nobody times before each call from host to host.
    fn allow_lead_in(&mut self) {}

    /// One call from host to host: replaces the binding's inputs, computes, and copies the outputs to the host. The default
    /// counts that copy as a part of the computation.
    ///
    /// # Errors
    /// `unsupported` if the session's phase has no such boundary.
    fn call_from_host(
        &mut self,
        binding: usize,
        inputs: &[HostTensor],
    ) -> Result<(Vec<HostTensor>, Stages), CaseFailure> {
        let begin = Instant::now();
        self.rebind(binding, inputs)?;
        self.sync()?;
        let to_device = begin.elapsed();
        let outputs = self.outputs(binding)?;
        Ok((outputs, Stages { to_device, compute: begin.elapsed() - to_device, to_host: Duration::ZERO }))
    }
    /// Whether the stages of [`call_from_host`](Session::call_from_host) are of a clock of the runtime's own, which does not see how
    /// the tensors come to it from this process.
    fn has_own_clock(&self) -> bool {
        false
    }
    /// Time that went into compiling so far, if the runtime compiles after loading.
    fn compilation(&self) -> Option<Duration> {
        None
    }
    /// The time of the very first call without compilation, of a session that makes it when a batch is bound.
    fn first_call(&self) -> Option<Duration> {
        None
    }
    /// Drops all bound batches, and takes those of the request's sizes from now on.
    ///
    /// # Errors
    /// `unsupported` if the session serves the sizes only for which it was loaded.
    fn reset(&mut self, _request: &LoadRequest<'_>) -> Result<(), CaseFailure> {
        Err(CaseFailure::unsupported("the session serves one size only"))
    }
    /// What the session really uses, read back from the runtime if the runtime can tell. The default is f32 on the CPU.
    fn placement(&self) -> Placement {
        Placement {
            effective_device: "cpu".into(),
            effective_dtype: Some(Dtype::F32),
            providers: "cpu".into(),
            ..Placement::default()
        }
    }
}

/// A session of which a profiler sees the operators of each call.
///
/// It is bound and run as any session. A profile compares it with a plain session of the same case, so that it may be slower.
pub trait ProfiledSession: Session {
    /// Forgets what was recorded: the calls before were warm-up.
    ///
    /// # Errors
    /// The runtime fails.
    fn begin(&mut self) -> Result<(), CaseFailure>;
    /// The calls of [`Session::run`] since [`ProfiledSession::begin`], in their order. Called once, after the last of them.
    ///
    /// # Errors
    /// The runtime's profile is not what the backend reads.
    fn end(&mut self) -> Result<Vec<RecordedCall>, CaseFailure>;
}

/// The next call in a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The binding that it is a call of.
    pub binding: usize,
    /// Whether it is the first of a row: the binding is rewound before.
    pub is_first: bool,
}

/// The tokens after a batch of inputs.
#[derive(Clone, Copy, Debug)]
pub enum Continuation<'a> {
    /// Those of a text, i64 `[batch, count]`; and whether the logarithms of all tokens' probabilities are wanted.
    Given { text: &'a HostTensor, log_probabilities: bool },
    /// The likeliest ones: at most so many, until each row has one that ends it.
    Likeliest { most: usize, ends: &'a [i64] },
}

/// The next token of each row of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct NextTokens {
    /// The token with the largest logit.
    pub likeliest: Vec<i64>,
    /// The negative logarithm of the probability of the token that is taken.
    pub losses: Vec<f64>,
    /// How far the logit of the token that is taken is below the largest, as a fraction of the largest absolute logit.
    pub gaps: Vec<f64>,
    /// The logarithms of the probabilities of all tokens; empty if they are not known or not wanted.
    pub log_probabilities: Vec<Vec<f32>>,
}

/// The parts of a call from host to host. Each ends when the device is idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages {
    /// Copying the inputs to the device.
    pub to_device: Duration,
    /// The computation.
    pub compute: Duration,
    /// Copying the outputs to the host.
    pub to_host: Duration,
}

/// The device, dtype and settings with which a session computes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// The device that computes.
    pub effective_device: String,
    /// `cpu`, `gpu` or `npu`, if the runtime says it: the driver of a GPU's interface may be software.
    pub device_type: Option<String>,
    /// The dtype that is computed in, if the runtime says it.
    pub effective_dtype: Option<Dtype>,
    /// The dtype to which a function within the model is rounded, if that is a coarser one: the errors are those of this dtype.
    pub rounded_to: Option<Dtype>,
    /// ONNX Runtime's execution provider, or its counterpart in other runtimes.
    pub providers: String,
    /// Threads of one call, as the runtime says.
    pub threads: Option<usize>,
    /// Time that went into tracing the model before its compilation, if the runtime tells it apart.
    pub tracing: Option<Duration>,
    /// Calls that were last timed together by a clock of the runtime's own.
    pub together: Option<u64>,
    /// The number of trainable parameters, for files that only the runtime can read.
    pub parameters: Option<u64>,
    /// The scheme by which a GGUF file was quantised, as llama.cpp names it.
    pub gguf_scheme: Option<String>,
    /// The files that were loaded.
    pub artifacts: Vec<PathBuf>,
    /// What executes the graph, if a backend has more than one way.
    pub executor: Option<String>,
    /// Whether the session was compiled for the sizes of its request, and takes no others.
    pub has_fixed_sizes: bool,
    /// Whether the session serves cases of other sizes too ([`Session::reset`]), and computes them as fast as a session that
    /// was loaded for them.
    pub serves_other_sizes: bool,
}

/// What a runtime's own profile says about one call: which operator ran where, and in which element type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The provider of the device that was asked for.
    pub asked_for: String,
    /// How many nodes of each operator ran on each provider, by provider.
    pub nodes: BTreeMap<String, BTreeMap<String, usize>>,
    /// The operators that compute products, by the dtype of these; `None` for an element type that is no [`Dtype`].
    pub products: BTreeMap<Option<Dtype>, BTreeSet<String>>,
}

impl Trace {
    /// The fraction of the nodes that ran on the provider that was asked for.
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

    /// Operators whose products are computed in another dtype, and that dtype; `None` if there are none.
    ///
    /// For i8 one product is enough: products with weights are quantised, and products of two activations are not.
    pub fn products_not_in(&self, dtype: Dtype) -> Option<(Dtype, Vec<&str>)> {
        if dtype == Dtype::I8 && self.products.contains_key(&Some(dtype)) {
            return None;
        }
        let others = self.products.iter().filter_map(|(computed_in, operators)| Some(((*computed_in)?, operators)));
        let mut others = others.filter(|(computed_in, _)| *computed_in != dtype);
        others.next().map(|(computed_in, operators)| (computed_in, operators.iter().map(String::as_str).collect()))
    }
}

/// A device of a backend on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReport {
    /// The device's name, as in case ids.
    pub device: String,
    /// A description of the device, or why nothing can run on it and what adds it.
    pub availability: Result<String, CaseFailure>,
    /// True if only a probe can show that the device works.
    pub needs_probe: bool,
}

impl DeviceReport {
    /// A device that is available if its backend is.
    pub fn certain(device: &str, availability: Result<String, CaseFailure>) -> Self {
        DeviceReport { device: device.into(), availability, needs_probe: false }
    }

    /// A device of which a probe has to show that it works, if its library is here.
    #[allow(dead_code, reason = "a build without native backends uses nothing of it")]
    pub(super) fn probed(device: &str, availability: Result<String, CaseFailure>) -> Self {
        DeviceReport { needs_probe: true, ..Self::certain(device, availability) }
    }
}

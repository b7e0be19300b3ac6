//! The interface of a runtime: a [`Backend`] loads a model into a [`Session`], which owns its inputs on the device.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::definition::{CaseFailure, Dtype, Model, Phase, Sizes};
use crate::fixture::{Artifacts, HostTensor, Reads};
use crate::run_data::RecordedCall;

/// A runtime, or an engine of your own. An engine that computes in f32 on the CPU needs only [`load`](Backend::load);
/// the other methods have defaults.
pub trait Backend: Send + Sync {
    /// The version of an engine of your own, for records: `env!("CARGO_PKG_VERSION")` in its crate.
    fn version(&self) -> Option<&'static str> {
        None
    }
    /// The devices that the backend knows, with what is found out without a probe. The default is the CPU.
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
    /// Environment variables that a process needs from its start to use the device.
    fn process_environment(&self, _device: &str) -> Vec<(&'static str, OsString)> {
        Vec::new()
    }
    /// Whether a session compiles for each new input shape, so that texts should be padded to one length.
    fn needs_one_shape(&self, _device: &str) -> bool {
        false
    }
    /// Whether several threads may call one loaded session on the device at the same time ([`LoadRequest::callers`]).
    fn serves_callers(&self, _device: &str) -> bool {
        false
    }
    /// The least number of warm-up calls, because the runtime still optimises during these.
    fn least_warm_up_calls(&self) -> usize {
        0
    }
    /// Runs the model once under the runtime's own profiler, where it may use any device, and returns what ran where.
    /// Returns `None` if this is known without a trace.
    ///
    /// # Errors
    /// The model cannot run, or the runtime did not compute with its weights in blocks as they are.
    fn trace(&self, _request: &LoadRequest<'_>, _inputs: &[HostTensor]) -> Result<Option<Trace>, CaseFailure> {
        Ok(None)
    }
    /// The version of the native library for a device. May load the library. Empty if the library is missing, and
    /// `None` if the backend is only a Rust crate.
    fn library_version(&self, _device: &str) -> Option<String> {
        None
    }
    /// The path of the native library for a device, or of the program that contains it. Returns `None` if the library
    /// is missing, or the backend is only a Rust crate.
    fn library_path(&self, _device: &str) -> Option<PathBuf> {
        None
    }
    /// Which files of a packaged language model the backend loads, and whether it reads GGUF files. The default is
    /// graphs.
    #[doc(hidden)]
    fn reads(&self) -> Reads {
        Reads::Graphs
    }
    /// Checks that the backend can load an artifact of the model in this dtype. The default accepts every model in f32.
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
    /// Loads the same weights dequantised to f32, as the reference for a session with quantised weights. Writes the
    /// files that it needs into a folder, which has to outlive the session. Returns `None` if the backend has no such
    /// form of the model.
    ///
    /// # Errors
    /// As [`load`](Backend::load).
    #[doc(hidden)]
    fn load_exact(&self, _request: &LoadRequest<'_>, _folder: &Path) -> Result<Option<Box<dyn Session>>, CaseFailure> {
        Ok(None)
    }
    /// Loads a model under a profiler, but otherwise like [`load`](Backend::load).
    ///
    /// # Errors
    /// `unsupported` if the operators of a call cannot be recorded, which is the default; otherwise as `load`.
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
    /// Sessions of this request that serve at the same time in this process, each in its own thread. They may share
    /// their weights. 1 if there is no other session.
    pub instances: usize,
    /// Threads that call the session of this request at the same time, each through its own [`Session`]. 1 if there is
    /// no other caller.
    pub callers: usize,
}

#[cfg(any(feature = "ort", feature = "tract"))]
impl LoadRequest<'_> {
    /// f32, if the case is f32 and no input is f64, which would mean that the network computes in f64.
    pub(crate) fn computed_f32(&self) -> Option<Dtype> {
        let is_double = self.model.inputs.iter().any(|input| input.dtype == crate::definition::ElementType::F64);
        (self.dtype == Dtype::F32 && !is_double).then_some(Dtype::F32)
    }
}

/// A loaded model.
pub trait Session {
    /// Copies a batch, in the order of the model's inputs, to the device. Returns the number of the binding: 0, 1, ….
    ///
    /// # Errors
    /// The inputs do not fit the model, or the device has no room for them.
    fn bind(&mut self, inputs: &[HostTensor]) -> Result<usize, CaseFailure>;
    /// How many calls of a binding form a row: each continues the one before it, as decoding steps do.
    fn calls_in_a_row(&self) -> usize {
        1
    }
    /// Makes the next call of the binding the first of a row.
    fn rewind(&mut self, _binding: usize) {}
    /// Replaces a bound batch by another of the same shapes, such as the next samples of an evaluation.
    ///
    /// # Errors
    /// `unsupported` if the session cannot replace its inputs, which is the default; otherwise as
    /// [`bind`](Session::bind).
    fn rebind(&mut self, _binding: usize, _inputs: &[HostTensor]) -> Result<(), CaseFailure> {
        Err(CaseFailure::unsupported("the session cannot replace its inputs by those of samples: it has no `rebind`"))
    }
    /// One call over a bound batch: a forward pass, or a call of another phase. May return before the device is done.
    ///
    /// # Errors
    /// The runtime fails.
    fn run(&mut self, binding: usize) -> Result<(), CaseFailure>;
    /// Makes the calls of these turns, each until the device is idle, and returns their durations in nanoseconds. For
    /// runtimes in other processes, which time their calls with their own clock. The default is `None`: the harness
    /// times [`run`](Session::run) and [`sync`](Session::sync).
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
    /// Computes what a row of calls computes from its beginning, and copies the outputs of [`Model::output_names`] to
    /// the host.
    ///
    /// # Errors
    /// The runtime fails, or an output has an element type that the host does not know.
    fn outputs(&mut self, binding: usize) -> Result<Vec<HostTensor>, CaseFailure>;
    /// Reads a batch of inputs and then its continuation token by token; returns how likely each token was.
    ///
    /// # Errors
    /// `unsupported` if the session does not generate tokens; the runtime fails.
    fn follow(
        &mut self,
        _inputs: &[HostTensor],
        _continuation: Continuation<'_>,
    ) -> Result<Vec<NextTokens>, CaseFailure> {
        Err(CaseFailure::unsupported("the session does not generate tokens"))
    }
    /// The first token after each prompt of a bound batch. The default is `None`: they are not known.
    ///
    /// # Errors
    /// `unsupported` if the session does not generate tokens; the runtime fails.
    fn first_tokens(&mut self, _binding: usize) -> Result<Option<Vec<i64>>, CaseFailure> {
        Ok(None)
    }
    /// Answers a request of any length: reads a batch of prompts and generates the given number of tokens, each the
    /// likeliest. Calls `made` with each token, i64 `[batch, 1]`, when it is on the host.
    ///
    /// # Errors
    /// `unsupported` if the session does not generate tokens; the runtime fails.
    fn generate(
        &mut self,
        _inputs: &[HostTensor],
        _tokens: usize,
        _made: &mut dyn FnMut(&HostTensor),
    ) -> Result<(), CaseFailure> {
        Err(CaseFailure::unsupported("the session does not generate tokens"))
    }
    /// Allows a runtime in another process to make untimed calls before each call from host to host.
    fn allow_lead_in(&mut self) {}

    /// One call from host to host: replaces the binding's inputs, computes, and copies the outputs to the host. The
    /// default counts that copy as a part of the computation.
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
    /// Whether the runtime's own clock times the stages of [`call_from_host`](Session::call_from_host). That clock
    /// excludes the transfer of tensors between this process and the runtime's.
    fn has_own_clock(&self) -> bool {
        false
    }
    /// The time spent on compiling so far, if the runtime compiles after loading.
    fn compilation(&self) -> Option<Duration> {
        None
    }
    /// The duration of the very first call without compilation, if the session makes that call in
    /// [`bind`](Session::bind).
    fn first_call(&self) -> Option<Duration> {
        None
    }
    /// Drops all bound batches, and takes batches of the request's sizes from now on.
    ///
    /// # Errors
    /// `unsupported` if the session serves only the sizes for which it was loaded.
    fn reset(&mut self, _request: &LoadRequest<'_>) -> Result<(), CaseFailure> {
        Err(CaseFailure::unsupported("the session serves one size only"))
    }
    /// What the session really uses, read back from the runtime if it reports this. The default is f32 on the CPU.
    fn placement(&self) -> Placement {
        Placement {
            effective_device: "cpu".into(),
            effective_dtype: Some(Dtype::F32),
            providers: "cpu".into(),
            ..Placement::default()
        }
    }
}

/// A session that records the operators of each call.
///
/// It is bound and run like any session. It may be slower: a profile compares it with a plain session of the same case.
pub trait ProfiledSession: Session {
    /// Forgets the calls recorded so far, which were warm-up.
    ///
    /// # Errors
    /// The runtime fails.
    fn begin(&mut self) -> Result<(), CaseFailure>;
    /// The calls of [`Session::run`] since [`ProfiledSession::begin`], in order. Called once, after the last call.
    ///
    /// # Errors
    /// The backend cannot read the runtime's profile.
    fn end(&mut self) -> Result<Vec<RecordedCall>, CaseFailure>;
}

/// The next call in a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The binding to call.
    pub binding: usize,
    /// Whether the call is the first of a row, so that the binding is rewound before it.
    pub is_first: bool,
}

/// The tokens after a batch of inputs.
#[derive(Clone, Copy, Debug)]
pub enum Continuation<'a> {
    /// The tokens of a text, i64 `[batch, count]`; and whether the logarithms of all tokens' probabilities are wanted.
    Given { text: &'a HostTensor, log_probabilities: bool },
    /// The likeliest tokens: at most `most`, or until each row has one of `ends`.
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
    /// `cpu`, `gpu` or `npu`, if the runtime reports it. A GPU interface with a software driver is `cpu`.
    pub device_type: Option<String>,
    /// The dtype of the computation, if the runtime reports it.
    pub effective_dtype: Option<Dtype>,
    /// The dtype to which a function within the model rounds, if it is coarser than the case's. The outputs then have
    /// the rounding errors of this dtype.
    pub rounded_to: Option<Dtype>,
    /// ONNX Runtime's execution provider, or its counterpart in other runtimes.
    pub providers: String,
    /// Threads of one call, as the runtime reports them.
    pub threads: Option<usize>,
    /// The time for tracing the model before its compilation, if the runtime reports it separately.
    pub tracing: Option<Duration>,
    /// How many calls the runtime's own clock last timed together.
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
    /// Whether the session serves cases of other sizes too ([`Session::reset`]), and computes them as fast as a session
    /// that was loaded for them.
    pub serves_other_sizes: bool,
}

/// What a runtime's own profile says about one call: which operator ran where, and in which element type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The provider of the requested device.
    pub asked_for: String,
    /// How many nodes of each operator ran on each provider, by provider.
    pub nodes: BTreeMap<String, BTreeMap<String, usize>>,
    /// The operators that compute products, by the dtype of the products; `None` for an element type that is not a
    /// [`Dtype`].
    pub products: BTreeMap<Option<Dtype>, BTreeSet<String>>,
}

impl Trace {
    /// The fraction of the nodes that ran on the requested device's provider.
    pub fn share(&self) -> f64 {
        let count = |operators: &BTreeMap<String, usize>| operators.values().sum::<usize>() as f64;
        let all: f64 = self.nodes.values().map(count).sum();
        self.nodes.get(&self.asked_for).map_or(0.0, count) / all.max(1.0)
    }

    /// The operators that ran elsewhere: `Gather on CPUExecutionProvider`.
    pub(crate) fn elsewhere(&self) -> Vec<String> {
        let others = self.nodes.iter().filter(|(name, _)| **name != self.asked_for);
        others
            .flat_map(|(name, operators)| operators.keys().map(move |operator| format!("{operator} on {name}")))
            .collect()
    }

    /// Operators whose products are computed in another dtype, and that dtype; `None` if there are none.
    ///
    /// For i8, a single product in i8 is enough: products with weights are quantised, products of two activations are
    /// not.
    pub(crate) fn products_not_in(&self, dtype: Dtype) -> Option<(Dtype, Vec<&str>)> {
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

    /// A device that only a probe can show to work, if its library is installed.
    #[allow(dead_code, reason = "a build without native backends uses nothing of it")]
    pub(super) fn probed(device: &str, availability: Result<String, CaseFailure>) -> Self {
        DeviceReport { needs_probe: true, ..Self::certain(device, availability) }
    }
}

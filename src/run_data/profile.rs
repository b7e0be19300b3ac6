//! A profile: where the time of a call of a case goes.
//!
//! A backend gives an [`OperatorCall`] per operator and call; over all calls these are [`ProfiledCalls`]. What a reader
//! sees is a [`CaseProfile`]: the same as rows of the model's modules, without the profiler's own cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::Status;

/// One execution of an operator within a call, as the runtime's profiler saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperatorCall {
    /// The name of the node in the graph that the runtime executes. Empty if nodes have no names there.
    pub node: String,
    /// What is computed, in the runtime's words: `Conv`, `aten::linear`.
    pub operator: String,
    /// What computed it: `brgconv_avx512_f32`, `aten::addmm`.
    pub kernel: Option<String>,
    /// The module of the model, if the runtime knows it: `encoder.layer.0.attention.self.query`.
    pub module: Option<String>,
    /// Nanoseconds from the beginning of the call. Absent if the runtime has no timeline.
    pub start_ns: Option<u64>,
    /// How long it took, without the operators that it calls if these are listed themselves.
    pub duration_ns: u64,
    /// The operations that it does and the bytes that it reads and writes, if the runtime itself says so.
    pub flops: Option<u64>,
    pub bytes: Option<u64>,
    /// The thread that executed it, numbered from 0.
    pub thread: u32,
    /// The memory that the runtime had in use at its peak until the operator's end.
    pub memory_bytes: Option<u64>,
    /// Part of the time that the runtime's threads were at work and not waiting, from 0 to 1.
    pub busy_fraction: Option<f64>,
}

/// The operators of one call in the order in which they ran; or of several calls, each with its mean duration, if the
/// runtime adds them up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedCall {
    /// The number of these calls.
    pub calls: usize,
    /// The operators.
    pub operators: Vec<OperatorCall>,
}

/// The calls of a case, plain and profiled by turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfiledCalls {
    /// Nanoseconds of each call without a profiler.
    pub plain_ns: Vec<u64>,
    /// Nanoseconds of each call under the profiler.
    pub profiled_ns: Vec<u64>,
    /// The operators in the order in which they ran.
    pub operators: Vec<OperatorTimes>,
    /// If calls follow one another, each with the state that the one before has left: the median of the plain calls at
    /// each position.
    #[serde(default)]
    pub plain_by_position_ns: Vec<f64>,
}

/// An operator over the middle third of the profiled calls, by their durations: so operators add up to a typical call
/// even on a machine that is not quiet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorTimes {
    /// Its execution in the call whose duration is the median of all.
    pub typical: OperatorCall,
    /// How often a call executes it, on average.
    pub executions: f64,
    /// The mean of its durations.
    pub mean_ns: f64,
    /// If calls follow one another: its mean time in the calls at each position.
    #[serde(default)]
    pub by_position_ns: Vec<f64>,
}

/// The profile of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseProfile {
    pub case_id: String,
    /// The model's name with its variant.
    pub model: String,
    pub backend: String,
    /// The number of profiled calls.
    pub calls: usize,
    /// The median of the plain calls.
    pub plain_us: f64,
    /// The median of the profiled calls.
    pub profiled_us: f64,
    /// The least that the profiler adds to each execution of an operator, which is subtracted.
    pub cost_per_operator_us: f64,
    /// The most that it may add.
    #[serde(default)]
    pub cost_per_operator_upper_us: f64,
    /// Whether operators have a beginning, so that they can be drawn on a timeline.
    pub has_timeline: bool,
    /// The operators in the order in which they ran; the last row is what is outside of operators.
    pub rows: Vec<ProfileRow>,
    /// For a language model that makes one token after the other: its calls by the number of tokens before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<PositionRow>,
    /// The stacks of threads, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<CpuStacks>,
}

/// The calls of a language model after this many tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PositionRow {
    /// Tokens in the cache when the call begins.
    pub cached_tokens: usize,
    /// The median of the plain calls.
    pub plain_us: f64,
    /// Operators of attention without its projections, without the profiler's cost.
    pub attention_us: f64,
    /// Products with weights, without the profiler's cost.
    pub matmul_us: f64,
    /// The rest of a plain call.
    pub rest_us: f64,
}

/// What the threads of a process did while they used processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuStacks {
    /// Samples per second of processor time, of all threads together.
    pub frequency_hz: u32,
    /// The most frequent first.
    pub stacks: Vec<CpuStack>,
}

/// Functions that called each other, and how often this stack was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuStack {
    /// From the outermost function to the innermost, after the name of the thread. A function without a name is its
    /// library, in brackets.
    pub frames: Vec<String>,
    pub samples: u64,
}

impl CpuStacks {
    /// All samples.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }
}

/// An operator of a case: a row of `profiles` in the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileRow {
    pub run_id: String,
    pub case_id: String,
    /// The module of the model that it belongs to: `encoder.layer.0.attention.self.query`. Absent if it could not be
    /// mapped.
    pub module: Option<String>,
    /// What is computed: `Conv`. [`OUTSIDE`] for the rest of the call.
    pub operator: String,
    /// What computed it, if the runtime says it.
    pub kernel: Option<String>,
    /// The node's name in the runtime's graph.
    pub node: String,
    /// Executions per call.
    pub executions: f64,
    /// The mean of its times in typical calls as the profiler gives them, all executions of a call together.
    pub raw_us: f64,
    /// The same without the profiler's cost.
    pub corrected_us: f64,
    /// The bounds of its time in a plain call, as far as the times of plain and profiled calls tell. Absent in older
    /// profiles.
    pub corrected_lower_us: Option<f64>,
    pub corrected_upper_us: Option<f64>,
    /// Part of a plain call, from 0 to 1. Absent if the operator takes less than twice the profiler's cost, and for
    /// [`OUTSIDE`] if its bounds are too far apart.
    pub share: Option<f64>,
    pub flops: Option<u64>,
    /// Bytes that it reads and writes.
    pub bytes: Option<u64>,
    pub gflops_per_second: Option<f64>,
    /// Part of what the machine can do at the operator's intensity, from 0 to 1.
    pub roofline_fraction: Option<f64>,
    pub bound: Option<Bound>,
    pub start_us: Option<f64>,
    pub thread: u32,
    pub memory_bytes: Option<u64>,
    pub busy_fraction: Option<f64>,
}

/// What limits an operator on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Bound {
    Compute,
    Memory,
}

/// The operator of the row for the part of a call that is in no operator.
pub const OUTSIDE: &str = "outside operators";

/// Everything that one `inferbench profile` leaves: `profile.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    pub run_id: String,
    pub host_id: String,
    pub threads: usize,
    pub cases: Vec<CaseProfile>,
    /// Cases without a profile, each with the reason.
    pub failures: Vec<ProfileFailure>,
}

/// A case that could not be profiled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileFailure {
    pub case_id: String,
    // Added later: older profiles lack it.
    #[serde(default)]
    pub status: Status,
    /// Why it has that status.
    pub message: String,
}

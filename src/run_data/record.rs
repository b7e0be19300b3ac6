//! The record: the result of one case in one run, one row of `results.csv`.
//!
//! Field order is column order. Units are in the names; an unknown value is absent, never 0 or -1. Times are
//! milliseconds per call, sizes are megabytes (10^6 bytes).

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::{Boundary, Case, CaseFailure, Cost, Dtype, Phase, Status, TimedOn, device_type};

/// The version of the columns.
///
/// | version | since | change |
/// | --- | --- | --- |
/// | 1 | | first |
/// | 2 | | `memory_growth_mb` |
/// | 3 | | `disturbed_share` |
/// | 4 | 0.1.0 | `stopped_by`, `warmup_is_steady` |
/// | 5 | 0.1.0 | `provider_share`, `case_id`, `nonzero_parameters`, `arithmetic_intensity` |
/// | 6 | 0.1.0 | `data_source`, bounds and changes of `accuracy`, `accuracy_top5`, `agreement`, `output_cosine` |
/// | 7 | 0.1.0 | `output_cosine_samples`, `compared_with` |
/// | 8 | 0.1.0 | `processes`, `latency_p50_interval_lower_ms`, `latency_p50_interval_upper_ms` |
/// | 9 | 0.1.0 | `verified_by` |
/// | 10 | 0.1.0 | `timed_on`, `timed_samples`, `preprocess_ms`, `postprocess_ms` |
/// | 11 | 0.1.0 | `convolution_flops`, `graph_nodes`, `node_bytes`, `operators` |
/// | 12 | 0.1.0 | `trace_time_ms` |
/// | 13 | 0.1.0 | `calls_together` |
/// | 14 | 0.1.0 | `matrix_products` |
/// | 15 | 0.1.0 | `error_to_spread`, `error_to_rounding`, `model_sha256`, `library_path` |
/// | 16 | 0.1.0 | `dims` |
/// | 17 | 0.1.0 | `new_tokens` |
/// | 18 | 0.1.0 | `gguf_scheme` |
/// | 19 | 0.1.0 | `program` |
pub const SCHEMA_VERSION: u32 = 19;

/// One row: the result of a case in a run.
///
/// `CONTRIBUTING` lists the places of a new column. A field is an `Option`, because older records lack it; another type
/// needs `#[serde(default)]`. The header of the CSV, the schema of the Parquet file, the JSON Schema and the type in
/// DuckDB follow from the field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    // identity
    pub run_id: String,
    pub timestamp: Timestamp,
    pub git_commit: Option<String>,
    pub git_dirty: Option<bool>,
    pub schema_version: u32,
    pub host_id: String,
    pub suite: String,
    // case
    /// The case's id, `model/backend-device-dtype/batch`: the name by which its single calls are kept.
    #[serde(default)]
    pub case_id: String,
    pub framework: String,
    pub backend: String,
    pub model: String,
    pub variant: String,
    pub family: String,
    pub modality: String,
    pub phase: Phase,
    pub device: String,
    /// `cpu`, `gpu` or `npu`: what it ran on if the runtime tells, even behind a software driver or an emulator.
    pub device_type: Option<String>,
    pub effective_device: Option<String>,
    pub providers: Option<String>,
    /// Part of the graph's nodes, from 0 to 1, that the runtime's profile shows on the provider of `device`.
    pub provider_share: Option<f64>,
    pub dtype: Dtype,
    pub effective_dtype: Option<Dtype>,
    pub batch_size: usize,
    /// The sizes that were asked for, as in `height=224,width=224`.
    pub dims: Option<String>,
    pub sequence_length: Option<usize>,
    /// Steps of decoding after a prompt, before decoding restarts after the prompt.
    pub new_tokens: Option<usize>,
    pub input_shape: Option<String>,
    /// As the runtime reports it, not as it was asked for.
    pub threads: Option<usize>,
    pub boundary: Boundary,
    /// What the timed calls had as inputs; `seeded` before version 10.
    #[serde(default)]
    pub timed_on: TimedOn,
    /// The name of the samples that were timed, and a part of their hash.
    pub timed_samples: Option<String>,
    // status
    pub status: Status,
    pub message: Option<String>,
    /// Whether the outputs were right; absent where there was nothing to compare with.
    pub verified: Option<bool>,
    /// What they were compared with: `reference`, another backend (`ort`, `candle in f32`), or the same weights in f32.
    pub verified_by: Option<String>,
    pub max_abs_error: Option<f64>,
    /// Relative to the largest absolute reference value. If tokens differ, at least half of the relative gap between
    /// their logits.
    pub max_rel_error: Option<f64>,
    /// The error of the group of elements (the whole output, a channel, a class, …) that uses up most of its tolerance,
    /// relative to how much the outputs of different samples differ there.
    pub error_to_spread: Option<f64>,
    /// The same, relative to what rounding in the dtype explains; measured only if the error is above 1e-4 of the
    /// spread in f32, 0.1 in f16, 0.3 in bf16, or 0.5 in i8.
    pub error_to_rounding: Option<f64>,
    // latency, from the single calls
    /// Processes that have measured the case. If there are several, the latencies are the geometric means of theirs
    /// (for `latency_min_ms` and `latency_max_ms` the extremes), and throughput comes from them. Everything else comes
    /// from the first process: Criterion's columns, the single calls, and what is computed from them.
    pub processes: Option<usize>,
    pub latency_p50_ms: Option<f64>,
    /// The interval of `latency_p50_ms` between processes, with the confidence `confidence_level`: Student's t over the
    /// logarithms of their medians. It takes three processes.
    pub latency_p50_interval_lower_ms: Option<f64>,
    pub latency_p50_interval_upper_ms: Option<f64>,
    /// An upper bound of the percentile within a process, with a confidence of 99 %.
    pub latency_p50_upper_ms: Option<f64>,
    pub latency_p90_ms: Option<f64>,
    pub latency_p90_upper_ms: Option<f64>,
    pub latency_p95_ms: Option<f64>,
    pub latency_p95_upper_ms: Option<f64>,
    pub latency_p99_ms: Option<f64>,
    pub latency_p99_upper_ms: Option<f64>,
    pub latency_mean_ms: Option<f64>,
    pub latency_std_ms: Option<f64>,
    pub latency_min_ms: Option<f64>,
    pub latency_max_ms: Option<f64>,
    /// Measured calls.
    pub iterations: Option<usize>,
    /// Calls that are timed together, because the runtime's own clock is coarse: each of them has their mean time.
    /// Absent where inferbench's clock times each call.
    pub calls_together: Option<u64>,
    /// Why there are no more: `iterations` that were asked for, `percentile-bound` or `interval` that was reached, the
    /// same with `-missed` if it was planned for and not reached, `budget`, `most-calls`, or Criterion's `arguments`.
    pub stopped_by: Option<String>,
    pub warmup_iterations: Option<usize>,
    /// Whether the times were steady at the end of the warm-up. If not, its time was over.
    pub warmup_is_steady: Option<bool>,
    /// The autocorrelation of successive calls (lag 1), from -1 to 1.
    pub autocorrelation: Option<f64>,
    /// Calls beyond Tukey's inner fences.
    pub outliers: Option<usize>,
    // Criterion
    pub criterion_mean_ms: Option<f64>,
    pub criterion_mean_lower_ms: Option<f64>,
    pub criterion_mean_upper_ms: Option<f64>,
    pub criterion_median_ms: Option<f64>,
    pub criterion_median_lower_ms: Option<f64>,
    pub criterion_median_upper_ms: Option<f64>,
    pub criterion_slope_ms: Option<f64>,
    pub criterion_slope_lower_ms: Option<f64>,
    pub criterion_slope_upper_ms: Option<f64>,
    pub criterion_std_dev_ms: Option<f64>,
    pub criterion_std_dev_lower_ms: Option<f64>,
    pub criterion_std_dev_upper_ms: Option<f64>,
    pub confidence_level: Option<f64>,
    pub sample_count: Option<usize>,
    pub sampling_mode: Option<String>,
    /// Part of the samples, from 0 to 1, during which more than 5 % of the processors' time was stolen or used by other
    /// processes.
    pub disturbed_share: Option<f64>,
    /// The mean divided by the mean of the baseline, minus 1.
    pub change_vs_baseline: Option<f64>,
    pub baseline: Option<String>,
    // throughput
    /// Samples per second, by the mean time of a call; for images, images per second.
    pub throughput_ips: Option<f64>,
    /// By the interval of that mean: Criterion's for one process, and that between processes for three and more.
    pub throughput_lower_ips: Option<f64>,
    pub throughput_upper_ips: Option<f64>,
    pub tokens_per_second: Option<f64>,
    pub first_token_ms: Option<f64>,
    // phases
    pub load_time_ms: Option<f64>,
    pub compilation_time_ms: Option<f64>,
    /// Tracing the model before its compilation, if the runtime reports it separately.
    pub trace_time_ms: Option<f64>,
    pub first_inference_ms: Option<f64>,
    /// The parts of a call that is more than the computation: decoding and resizing pictures or tokenising texts,
    /// copying to the device, computing, copying to the host, and choosing the largest outputs.
    pub preprocess_ms: Option<f64>,
    pub h2d_ms: Option<f64>,
    pub compute_ms: Option<f64>,
    pub d2h_ms: Option<f64>,
    pub postprocess_ms: Option<f64>,
    // memory
    pub memory_mb: Option<f64>,
    pub memory_avg_mb: Option<f64>,
    /// How far the peak of the calls is above the resident set with the model loaded, before the first call.
    pub memory_growth_mb: Option<f64>,
    /// Whose peak `memory_mb` is: `own-process-peak-rss`, or `shared-process-peak-rss` of the process that has measured
    /// this and other cases. `own-process-seen-rss` is the largest of readings every 2 ms, on systems that report no
    /// peak.
    pub memory_kind: Option<String>,
    pub device_memory_mb: Option<f64>,
    // model
    pub parameters: Option<u64>,
    /// Parameters that are not 0 in the model's f32 weights.
    pub nonzero_parameters: Option<u64>,
    pub model_size_mb: Option<f64>,
    /// The scheme by which the loaded GGUF file was quantised, as the file gives it and llama.cpp names it:
    /// `Q4_K - Medium`.
    pub gguf_scheme: Option<String>,
    /// Floating-point operations of one call, for the whole batch, counted from the graph: those of matrix products and
    /// convolutions, two for each multiply-add, and nothing else. For `decode`, those of the first call after the
    /// prefill.
    pub flops: Option<u64>,
    /// The part of `flops` that comes from convolutions.
    pub convolution_flops: Option<u64>,
    /// Nodes of the model's graphs that compute or move something in one call.
    pub graph_nodes: Option<u64>,
    /// Bytes that these nodes read and write in one call, as if their elements were f32 and each node ran by itself.
    /// What a runtime fuses or keeps in a cache is included.
    pub node_bytes: Option<u64>,
    /// Products of two matrices in one call. A node that multiplies batches of matrices counts once per pair.
    pub matrix_products: Option<u64>,
    /// The operators of these graphs, by name.
    pub operators: Option<String>,
    /// `flops` per byte that has to be moved: weights, inputs and outputs, each once. Only for f32, and not for
    /// weights in blocks.
    pub arithmetic_intensity: Option<f64>,
    /// `flops` over the mean time of a call, in 10^9 per second.
    pub gflops_per_second: Option<f64>,
    /// `gflops_per_second` in percent of the smaller of two peaks that were measured on the machine: its f32 matrix
    /// product, and `arithmetic_intensity` times its copying of memory (Williams, Waterman and Patterson, CACM 52(4),
    /// 2009). Only for f32 on the CPU, and not for weights in blocks; above 100 if a runtime is faster than the measured
    /// product.
    pub roofline_percent: Option<f64>,
    // quality
    /// The samples by which the answers were evaluated: `synthetic` has no labels.
    pub data_source: Option<String>,
    /// Part of the samples, from 0 to 1, whose largest output is that of their label.
    pub accuracy: Option<f64>,
    /// 95 % interval of `accuracy` (Clopper and Pearson, Biometrika 26(4), 1934).
    pub accuracy_lower: Option<f64>,
    pub accuracy_upper: Option<f64>,
    /// Part of the samples whose label is among the five largest outputs.
    pub accuracy_top5: Option<f64>,
    pub accuracy_samples: Option<u64>,
    /// `accuracy` minus that of the model's original, `compared_with`, on the same samples.
    pub accuracy_change: Option<f64>,
    /// 95 % interval of `accuracy_change`, from the samples on which the two differ (Bonett and Price, Journal of
    /// Educational and Behavioral Statistics 37(4), 2012).
    pub accuracy_change_lower: Option<f64>,
    pub accuracy_change_upper: Option<f64>,
    /// Part of the samples, from 0 to 1, whose largest output is at the same position as the original's.
    pub agreement: Option<f64>,
    /// Mean over samples of the cosine between the outputs and the original's.
    pub output_cosine: Option<f64>,
    pub agreement_samples: Option<u64>,
    /// The number of samples behind `output_cosine`.
    pub output_cosine_samples: Option<u64>,
    /// The id of the case whose answers these were compared with: the original's.
    pub compared_with: Option<String>,
    /// SHA-256 of what was loaded. For one file, it is the file's own. For several, such as a graph and its weights, it
    /// is that of the lines `<sha256>  <name>` that `sha256sum` prints for them, the graphs first and then the files
    /// that each names.
    pub artifact_sha256: Option<String>,
    /// SHA-256 of the model's own files by the same rule, whatever a backend makes of them and loads: its graphs with
    /// the files that these name, or its TorchScript archive if it has no graph.
    pub model_sha256: Option<String>,
    // energy
    pub energy_j_per_sample: Option<f64>,
    pub power_w: Option<f64>,
    pub energy_kind: Option<String>,
    // versions
    pub backend_version: Option<String>,
    pub library_version: Option<String>,
    /// The native library that was loaded, or the program that contains it.
    pub library_path: Option<String>,
    pub rustc_version: String,
    /// The size of the executable that measured, and the time at which it was written: a later build has others.
    pub program: Option<String>,
}

/// Why no more calls were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum StopReason {
    /// There are as many as were asked for, or as many as fill the least time.
    Iterations,
    /// There are as many as a bound of the percentile that was asked for needs.
    PercentileBound,
    /// There are as many as make the interval of the mean as narrow as was asked for, by a pilot.
    Interval,
    /// There would have been more, but the budget was spent.
    Budget,
    /// The largest number of calls that are kept is reached.
    MostCalls,
    /// Criterion's own arguments said how many.
    Arguments,
}

/// A message followed by a note.
pub(crate) fn with_note(message: Option<String>, note: String) -> Option<String> {
    Some(match message {
        Some(message) => format!("{message}; {note}"),
        None => note,
    })
}

impl Record {
    /// The columns of the run with those of a case, of which nothing else is known yet.
    pub fn about(self, case: &Case) -> Self {
        Record {
            schema_version: SCHEMA_VERSION,
            case_id: case.to_string(),
            framework: case.backend.clone(),
            backend: case.backend.clone(),
            model: case.model.clone(),
            variant: case.variant.clone(),
            phase: case.phase,
            device: case.device.clone(),
            device_type: device_type(&case.device).map(str::to_owned),
            dtype: case.dtype,
            batch_size: case.batch_size,
            dims: Some(case.dims.to_string()).filter(|dims| !dims.is_empty()),
            sequence_length: case.sequence_length,
            boundary: case.boundary,
            timed_on: case.timed_on,
            status: Status::Ok,
            ..self
        }
    }

    /// Adds the cost of a call. The intensity is known only for f32, whose bytes were counted.
    pub(crate) fn put_cost(&mut self, cost: Option<Cost>) {
        self.flops = cost.map(|cost| cost.flops);
        // Older manifests lack these counts.
        let counted = cost.filter(|cost| cost.nodes > 0);
        self.convolution_flops = counted.map(|cost| cost.convolution_flops);
        self.graph_nodes = counted.map(|cost| cost.nodes);
        self.node_bytes = counted.map(|cost| cost.node_bytes);
        self.matrix_products = counted.and_then(Cost::counted_products);
        self.arithmetic_intensity = cost.filter(|_| self.dtype == Dtype::F32).and_then(Cost::intensity);
    }

    /// Notes why the case has no figures.
    pub(crate) fn fail(&mut self, failure: CaseFailure) {
        (self.status, self.message) = (failure.status, Some(failure.message));
    }

    /// The case that the record is about.
    pub fn case(&self) -> Case {
        Case {
            model: self.model.clone(),
            variant: self.variant.clone(),
            phase: self.phase,
            dims: self.dims.as_ref().and_then(|dims| dims.parse().ok()).unwrap_or_default(),
            sequence_length: self.sequence_length,
            backend: self.backend.clone(),
            device: self.device.clone(),
            dtype: self.dtype,
            batch_size: self.batch_size,
            boundary: self.boundary,
            timed_on: self.timed_on,
        }
    }
}

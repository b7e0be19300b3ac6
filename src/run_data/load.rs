//! A load test: requests that arrive by a schedule, and what became of them.
//!
//! [`LoadTerms`] say how requests arrive and what serves them; each trial of a case is a [`LoadResult`], which is a row
//! of the table `load_results`.

use std::fmt;

use clap::ValueEnum;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::definition::{Case, CaseFailure, Dtype, Phase, Status};

/// How requests arrive: the scenarios of MLPerf LoadGen (Reddi et al. 2020, "MLPerf Inference Benchmark").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[derive(Serialize, Deserialize, JsonSchema, Display, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Scenario {
    /// One query after the other.
    Single,
    /// One query of 8 samples after the other.
    Multi,
    /// All at once.
    Offline,
    /// A number of users, each of whom sends the next query when the answer is there.
    Concurrent,
    /// At random times, as those of many users: a Poisson process.
    #[default]
    Server,
}

impl Scenario {
    /// The percentile of the latency that counts, from 0 to 1.
    pub fn usual_percentile(self) -> f64 {
        if self == Scenario::Single { 0.9 } else { 0.99 }
    }

    /// Samples of a query, each of which is a request.
    pub fn samples_of_query(self) -> usize {
        if self == Scenario::Multi { 8 } else { 1 }
    }
}

/// What a trial says about its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[derive(Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Verdict {
    /// There is no bound.
    Measured,
    /// The percentile is within the bound, with 99 % confidence that allows for queries which wait for one another.
    Passed,
    /// The percentile is above the bound, or queries had no right answer.
    Failed,
    /// The percentile is within the bound, but the queries are too few to be certain.
    Undecided,
    /// The generator was late, so the figures are not for the load that was asked for.
    Invalid,
}

/// How long the null backend takes for a call, in seconds, so that theory can check a load test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceTime {
    /// Always this.
    Constant(f64),
    /// Exponentially distributed, with this mean.
    Exponential(f64),
    /// One call in `every` stalls.
    Stalling { seconds: f64, stall: f64, every: u64 },
}

/// How long prompts, or answers, of a language model are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenLength {
    /// All alike.
    Fixed(usize),
    /// The logarithm of the length is normally distributed: `sigma` is its standard deviation, and half of the lengths
    /// are above the median.
    LogNormal { median: f64, sigma: f64 },
}

/// How long the prompts and answers of a load test of language models are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestLengths {
    /// Independent of each other. An absent length is that of the case.
    Drawn { prompt: Option<TokenLength>, output: Option<TokenLength> },
    /// Prompt and output of each request, in turn.
    Listed(Vec<[usize; 2]>),
}

impl fmt::Display for TokenLength {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenLength::Fixed(tokens) => write!(formatter, "{tokens}"),
            TokenLength::LogNormal { median, sigma } => write!(formatter, "lognormal:{median},{sigma}"),
        }
    }
}

impl fmt::Display for RequestLengths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |length: &Option<TokenLength>| length.map_or_else(|| "usual".to_owned(), |length| length.to_string());
        match self {
            RequestLengths::Drawn { prompt, output } => write!(formatter, "{} → {}", text(prompt), text(output)),
            RequestLengths::Listed(all) => {
                let sum = |which: usize| all.iter().map(|lengths| lengths[which]).sum::<usize>();
                write!(formatter, "{} listed: {} → {}", all.len(), sum(0), sum(1))
            }
        }
    }
}

/// The terms of a load test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadTerms {
    pub scenario: Scenario,
    /// Requests per second of the server scenario.
    pub rate: Option<f64>,
    /// The percentile that the bound is for, from 0 to 1.
    pub percentile: f64,
    pub bound_ms: Option<f64>,
    /// The bound of the time to the first token.
    pub ttft_bound_ms: Option<f64>,
    /// The bound of the time per output token after the first.
    pub tpot_bound_ms: Option<f64>,
    /// The lengths of requests to language models. Without them a request is a call of the case.
    pub lengths: Option<RequestLengths>,
    /// The arrivals of the server scenario's requests, in nanoseconds, if a trace gives them.
    pub arrivals: Option<Vec<u64>>,
    /// Users of the concurrent scenario.
    pub users: usize,
    pub seed: u64,
    /// The least duration of a trial, in seconds.
    pub seconds: f64,
    /// The least number of queries of a trial.
    pub queries: usize,
    /// Sessions that serve requests at the same time.
    pub instances: usize,
    /// Threads that call a session at the same time.
    pub callers: usize,
    /// The most requests that a session takes in one call.
    pub most_batch: usize,
    /// How long a request waits for others to share its call.
    pub most_delay_ms: f64,
    pub service: Option<ServiceTime>,
    /// Whether the highest rate within the bound is searched for.
    pub is_search: bool,
    /// How often the search is made, each time in a process of its own and with other seeds.
    pub searches: usize,
    /// The number of this search, from 0 on.
    pub search: usize,
    /// The rate at which this search begins, if an earlier search has found one.
    pub first_rate: Option<f64>,
    /// Whether memory, latency and throttling are watched in windows.
    pub is_watched: bool,
    /// A watched trial fails and ends if memory grows faster than this.
    pub most_growth_mb_per_h: Option<f64>,
}

impl LoadTerms {
    /// The least duration of a trial: the seconds that were asked for, or the time in which the least number of queries
    /// arrives.
    pub fn least_seconds(&self) -> f64 {
        self.seconds.max(self.rate.map_or(0.0, |rate| self.queries as f64 / rate))
    }

    /// Requests, or calls that several requests share, that are served at the same time.
    pub fn served_at_once(&self) -> usize {
        self.instances * self.callers
    }
}

/// A trial of a case: a row of `load_results` in the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadResult {
    pub run_id: String,
    pub timestamp: Timestamp,
    pub host_id: String,
    pub case_id: String,
    pub model: String,
    pub variant: String,
    pub phase: Phase,
    pub sequence_length: Option<usize>,
    pub backend: String,
    pub device: String,
    pub dtype: Dtype,
    /// Samples of a request.
    pub batch_size: usize,
    /// The shape of a session's inputs, its library, and the SHA-256 of what was loaded, as in a record.
    pub input_shape: Option<String>,
    pub library_version: Option<String>,
    pub artifact_sha256: Option<String>,
    /// `ok`, or why there are no figures.
    pub status: Status,
    pub verdict: Option<Verdict>,
    /// The reason of the status or of the verdict.
    pub message: Option<String>,
    pub scenario: Scenario,
    /// Sessions that serve requests at the same time.
    pub instances: usize,
    /// Threads of each session.
    pub threads: usize,
    /// Threads that call the session at the same time, if there are several.
    pub callers: Option<usize>,
    /// The most requests that a session takes in one call.
    pub most_batch: usize,
    /// How long a request waits for others to share its call.
    pub most_delay_ms: f64,
    /// Requests per second that were asked for.
    pub rate: Option<f64>,
    /// Users at the same time, in the concurrent scenario.
    pub users: Option<usize>,
    /// The percentile that the bounds are for, from 0 to 1.
    pub percentile: f64,
    pub bound_ms: Option<f64>,
    /// Bounds of a language model's times to the first token and per output token.
    pub ttft_bound_ms: Option<f64>,
    pub tpot_bound_ms: Option<f64>,
    pub seed: u64,
    /// The seed, the seconds and the queries that were asked for. The trials of a search have seeds that follow from
    /// the first one.
    pub asked_seed: u64,
    pub asked_seconds: f64,
    pub asked_queries: usize,
    /// Queries that arrived, whether they were answered or not.
    pub queries: usize,
    /// Samples of all queries together.
    pub samples: usize,
    /// From the first arrival to the end of the last request that had begun, with an answer or without, or of the pause
    /// after it that a server asked for, within the seconds that were asked for.
    pub seconds: f64,
    /// Queries per second by the schedule: `(n - 1) / last arrival`.
    pub scheduled_per_s: Option<f64>,
    /// Queries per second that were answered: `(answered - 1) / seconds` in the server scenario, as MLPerf LoadGen
    /// counts, and `answered / seconds` otherwise.
    pub completed_per_s: f64,
    /// The same in samples.
    pub samples_per_s: f64,
    /// Latencies are from the scheduled time to the answer. Their mean and percentiles are those of the queries that
    /// were answered; if one was not, the verdict is `failed`.
    pub latency_mean_ms: f64,
    pub latency_p50_ms: f64,
    pub latency_p90_ms: f64,
    pub latency_p95_ms: f64,
    pub latency_p99_ms: f64,
    pub latency_p999_ms: f64,
    pub latency_max_ms: f64,
    /// The latency at the percentile that the bound is for.
    pub latency_ms: f64,
    /// The upper bound of `latency_ms` over all queries, with 99 % confidence. Absent if there are too few queries, or
    /// if one that decides had no right answer.
    pub latency_upper_ms: Option<f64>,
    /// How many queries are worth one independent query, since queries that wait for one another are alike. Absent for
    /// fewer than 40 queries.
    pub dependence: Option<f64>,
    /// Whether the early stopping of MLPerf LoadGen would accept the trial: it takes queries as independent. Absent
    /// without a bound.
    pub loadgen_accepts: Option<bool>,
    /// From the scheduled time to the beginning of the call, for queries that were answered.
    pub queue_mean_ms: Option<f64>,
    pub queue_p99_ms: Option<f64>,
    /// The duration of the call that answered a query. Queries without an answer do not count.
    pub service_mean_ms: f64,
    pub service_p50_ms: f64,
    pub service_p99_ms: f64,
    /// Queries that broke a bound, or had no right answer.
    pub over_bound: Option<usize>,
    /// Queries per second that were answered and kept all bounds.
    pub goodput_per_s: Option<f64>,
    /// The requested lengths of a language model's prompts and answers: `lognormal:32,0.5 → 16`, or `texts → 16`.
    pub lengths: Option<String>,
    /// Tokens of all prompts that were answered, and tokens of the answers.
    pub prompt_tokens: Option<usize>,
    pub output_tokens: Option<usize>,
    /// From the scheduled time to the first token of the answer.
    pub ttft_mean_ms: Option<f64>,
    pub ttft_p50_ms: Option<f64>,
    pub ttft_p99_ms: Option<f64>,
    /// Per request: from its first token to its last, divided by the tokens after the first.
    pub tpot_mean_ms: Option<f64>,
    pub tpot_p50_ms: Option<f64>,
    pub tpot_p99_ms: Option<f64>,
    /// Between tokens that follow each other in an answer: the gaps of all requests together.
    pub itl_mean_ms: Option<f64>,
    pub itl_p50_ms: Option<f64>,
    pub itl_p99_ms: Option<f64>,
    /// Tokens of answers per second, of the system.
    pub output_tokens_per_s: Option<f64>,
    /// Tokens per second that a user sees after the first token: 1 / the mean time per output token.
    pub user_tokens_per_s: Option<f64>,
    /// Queries that had no right answer when the trial ended.
    pub unanswered: usize,
    /// How late the generator issued queries.
    pub issue_lag_p50_us: Option<f64>,
    pub issue_lag_p99_us: Option<f64>,
    /// Part of one processor's time that the generator took, from 0 to 1.
    pub generator_share: Option<f64>,
    /// Whether the generator ran in the real-time class.
    pub generator_real_time: Option<bool>,
    /// The most queries that waited at the same time.
    pub backlog_most: Option<usize>,
    /// Queries that waited when the last one arrived.
    pub backlog_end: Option<usize>,
    /// Part of the sessions' time, from 0 to 1, that was spent on calls that were answered.
    pub utilisation: f64,
    /// Requests per call.
    pub mean_batch: f64,
    /// The largest resident set of the process, in 10^6 bytes.
    pub memory_mb: Option<f64>,
    /// Energy of the processor's packages, or of the GPU, during the trial, per query that was answered, in joules. It
    /// includes the energy of the idle machine and of other work. Absent for trials of more than a minute.
    pub energy_j_per_request: Option<f64>,
    /// `rapl-package`, `nvml-gpu`, or why there is none.
    pub energy_kind: Option<String>,
    /// What a million requests cost at the rate that was answered, if the machine's price is known.
    pub cost_per_million: Option<f64>,
    pub currency: Option<String>,
    /// In a watched trial: how memory grows in the second half, in 10^6 bytes per hour (Theil 1950), and the lower
    /// bound of that growth with 99 % confidence over all looks (Sen 1968).
    pub growth_mb_per_h: Option<f64>,
    pub least_growth_mb_per_h: Option<f64>,
    /// In a watched trial: the ratio of the windows' median p50 after a change to that before it, and the time of the
    /// change (Pettitt 1979). Absent if chance explains the difference.
    pub drift_p50: Option<f64>,
    pub drift_p50_from_s: Option<f64>,
    /// The same for p99.
    pub drift_p99: Option<f64>,
    pub drift_p99_from_s: Option<f64>,
    /// In a watched trial: how often the system slowed the processors down, if it tells.
    pub throttled: Option<u64>,
    /// Whether the trial was ended because it could not pass any more, or because a limit ended it.
    pub ended_early: bool,
    /// Whether the trial is one of a search.
    pub is_of_search: bool,
    /// The number of the search, from 0 on, if it was repeated.
    pub search: usize,
    /// In a search: whether this is the trial of the highest rate that the early stopping of MLPerf LoadGen accepts.
    pub is_highest: bool,
    /// In a search, on the row of the highest rate that is accepted: the lowest rate that is not.
    pub lowest_failing_rate: Option<f64>,
    /// On the rows of all searches' highest rates: the geometric mean of these rates, and its 95 % interval (Student's
    /// t). The interval is for this load test only: at another time, the machine may have another speed.
    pub found_rate: Option<f64>,
    pub found_rate_lower: Option<f64>,
    pub found_rate_upper: Option<f64>,
    /// The searches that were made, and those that found a rate.
    pub searches: Option<usize>,
    pub searches_with_rate: Option<usize>,
    /// In a search: whether latency begins to rise steeply from here on.
    pub is_knee: bool,
    /// For a server over HTTP: its address without secrets, and the protocol.
    pub url: Option<String>,
    pub protocol: Option<String>,
    /// The name and version that the server gives itself.
    pub server: Option<String>,
    /// The most connections that may be open at the same time.
    pub connections: Option<usize>,
    /// The most connections that were in use at the same time.
    pub connections_used: Option<usize>,
    /// How often a connection was opened during the trial.
    pub connects: Option<usize>,
    /// How long it took to open a connection, with TLS.
    pub connect_p50_ms: Option<f64>,
    pub connect_max_ms: Option<f64>,
    /// From sending a request to the head of its answer.
    pub first_byte_p50_ms: Option<f64>,
    pub first_byte_p99_ms: Option<f64>,
    /// Bytes of the bodies of requests and answers.
    pub sent_bytes: Option<u64>,
    pub received_bytes: Option<u64>,
    /// The answers by HTTP status: `200 × 1500, 503 × 2`.
    pub statuses: Option<String>,
    /// The requests without a right answer by the kind of error: `timeout × 3, wrong-values × 1`.
    pub errors: Option<String>,
    /// The longest time that the server asked to wait for (`Retry-After`), in seconds.
    pub retry_after_s: Option<f64>,
    /// How tokens were counted: `usage` from the server, a tokenizer with its file, or `events` of the stream.
    pub tokens_by: Option<String>,
    /// Processors that the process which sent the requests used on average: 1 is one processor all the time.
    pub client_processors: Option<f64>,
    /// The case without a server that the latency is compared with, its load test, and the differences.
    pub local_case: Option<String>,
    pub local_run: Option<String>,
    pub server_adds_p50_ms: Option<f64>,
    pub server_adds_p99_ms: Option<f64>,
}

impl LoadResult {
    /// A row about the case without a figure.
    pub fn about(case: &Case, terms: &LoadTerms, threads: usize) -> Self {
        LoadResult {
            case_id: case.to_string(),
            model: case.model.clone(),
            variant: case.variant.clone(),
            phase: case.phase,
            sequence_length: case.sequence_length,
            backend: case.backend.clone(),
            device: case.device.clone(),
            dtype: case.dtype,
            batch_size: case.batch_size,
            status: Status::Ok,
            scenario: terms.scenario,
            instances: terms.instances,
            threads,
            callers: Some(terms.callers).filter(|callers| *callers > 1),
            most_batch: terms.most_batch,
            most_delay_ms: terms.most_delay_ms,
            rate: terms.rate,
            percentile: terms.percentile,
            is_of_search: terms.is_search,
            lengths: terms.lengths.as_ref().map(ToString::to_string),
            users: (terms.scenario == Scenario::Concurrent).then_some(terms.users),
            bound_ms: terms.bound_ms,
            ttft_bound_ms: terms.ttft_bound_ms,
            tpot_bound_ms: terms.tpot_bound_ms,
            seed: terms.seed,
            asked_seed: terms.seed,
            asked_seconds: terms.seconds,
            asked_queries: terms.queries,
            search: terms.search,
            ..LoadResult::default()
        }
    }

    /// The same with the reason why there is no figure.
    pub fn failed(self, CaseFailure { status, message }: CaseFailure) -> Self {
        LoadResult { status, message: Some(message), ..self }
    }
}

/// A part of a watched trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadWindow {
    pub case_id: String,
    pub from_s: f64,
    pub to_s: f64,
    /// Queries that were answered in the window.
    pub queries: usize,
    pub latency_p50_ms: Option<f64>,
    pub latency_p99_ms: Option<f64>,
    /// The resident set at its end, in 10^6 bytes.
    pub memory_mb: Option<f64>,
    /// How often the system slowed the processors down, if it tells.
    pub throttled: Option<u64>,
}

/// What the worker of a load test answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadAnswer {
    pub results: Vec<LoadResult>,
    pub windows: Vec<LoadWindow>,
}

/// Everything that one `inferbench load` leaves: `load.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadRun {
    pub run_id: String,
    pub host_id: String,
    pub timestamp: Timestamp,
    /// The revision of the source, where git knows it.
    pub git_commit: Option<String>,
    /// The windows of watched trials.
    pub windows: Vec<LoadWindow>,
    pub results: Vec<LoadResult>,
}

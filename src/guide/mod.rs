//! The guide: how to measure, how to read the results, and what a number means.
//!
//! In the guide, `inferbench` stands for `target/release/inferbench` as `scripts/bench` builds it, with the features `tch,candle-onnx,program` and the
//! defaults. If a chapter needs another feature, a command such as `cargo build --release --features tch,candle-onnx,program,duckdb` adds it.
//! Each build replaces the executable, and so does a `cargo bench` with fewer features.
//!
//! # Measure
//!
//! | chapter | commands | answers |
//! | --- | --- | --- |
//! | [`measuring`] | `run` | Which cases run, what their ids mean, how long they take, what is timed, and how to write a suite |
//! | [`devices`] | `verify` | Which devices and dtypes there are, and what each needs |
//! | [`serving`] | `load` | Latency under load, and how many requests a machine can serve |
//! | [`servers`] | | The same for a server that already runs: Triton, MLServer, vLLM, llama-server, Ollama |
//! | [`profiles`] | `profile` | Where the time of a call goes, and why one case is slower than another |
//! | [`paired_benchmarks`] | `duel` | How to gate a pull request: a paired (duet) benchmark of two revisions |
//! | [`workers`] | | How to benchmark PyTorch, JAX, a browser, and your own runtime in any language |
//! | [`own_crate`] | | How to benchmark an engine and other code in your own crate with `cargo bench` |
//!
//! # Models
//!
//! | chapter | commands | answers |
//! | --- | --- | --- |
//! | [`own_models`] | `models`, `prepare` | How to benchmark a file of your own: its names, inputs, sizes and right outputs |
//! | [`imported_models`] | `import` | How to benchmark a checkpoint from a model hub, a state dict, and an exported decoder |
//! | [`language_models`] | | How to measure GGUF language models on llama.cpp and candle, and what quantisation loses |
//! | [`variants`] | `variants` | Which variant of a model to ship: pruned, distilled, quantised |
//! | [`quality`] | | How to measure the quality of answers: samples, labels, and the metric for each task |
//!
//! # Results
//!
//! | chapter | commands | answers |
//! | --- | --- | --- |
//! | [`results`] | `report` | What a run produces: tables, pages, charts, files, statuses, exit codes |
//! | [`comparing`] | `compare` | How to compare runs and baselines, and how small a change this machine can show |
//! | [`deciding`] | `recommend`, `predict` | What to deploy within limits, and how long unmeasured cases would take |
//! | [`history`] | `store`, `convert` | How to keep runs and query them with pandas, Polars or SQL |
//!
//! # Machines
//!
//! | chapter | commands | answers |
//! | --- | --- | --- |
//! | [`devices`](devices#devices) | `setup`, `devices`, `selftest`, `completions` | What this machine has, and how noisy it is |
//! | [`fleet`] | `shard`, `fleet`, `merge` | How to measure one suite on many machines: with Slurm, ssh or a matrix of CI jobs |
//! | [`service`] | `serve` | How to measure over HTTP on a machine that a team shares |
//!
//! # Method
//!
//! | chapter | answers |
//! | --- | --- |
//! | [`method`] | How each number is computed, and what the harness itself costs |
//! | [`validation`] | How far predictions, load tests and other answers can be trusted: dated experiments |

/// Makes a module of each chapter, whose documentation is the file of that name.
macro_rules! chapters {
    ($($chapter:ident)*) => {
        $(
            #[doc = include_str!(concat!(stringify!($chapter), ".md"))]
            pub mod $chapter {}
        )*
    };
}

chapters! {
    comparing deciding devices fleet history imported_models language_models measuring method
    own_crate own_models paired_benchmarks profiles quality results servers service serving
    validation variants workers
}

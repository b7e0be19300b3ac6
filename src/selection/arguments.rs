//! The filters that flags and `INFERBENCH_*` variables put on top of a suite.

use clap::Args;

use crate::catalogue::models_of_files;
use crate::definition::{Boundary, DataSource, Dtype, Phase, Suite, parse_device};

/// The flags that choose cases; each has an environment variable of the same name, which `cargo bench` reads.
#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    /// Suite: a name of models/suites, or a path
    #[arg(long, env = "INFERBENCH_SUITE", default_value = "quick", value_name = "NAME|FILE")]
    pub suite: String,
    /// Only these models, separated by commas
    #[arg(long, env = "INFERBENCH_MODEL", value_delimiter = ',', value_name = "NAME,…")]
    pub model: Vec<String>,
    /// These variants instead of the suite's, separated by commas, or all
    #[arg(long, env = "INFERBENCH_VARIANT", value_delimiter = ',', value_name = "NAME,…")]
    pub variant: Vec<String>,
    /// These files instead of the suite's models: a model, and other forms of it as its variants
    #[arg(
        long,
        env = "INFERBENCH_PATH",
        value_delimiter = ',',
        value_name = "[NAME=]FILE,…",
        conflicts_with = "model"
    )]
    pub path: Vec<String>,
    /// The samples by which answers are judged: synthetic, image-folder:PATH or recorded:FILE.safetensors [default: the model's]
    #[arg(long, env = "INFERBENCH_DATA_SOURCE", value_name = "SOURCE")]
    pub data_source: Option<DataSource>,
    /// These backends instead of the suite's
    #[arg(long, env = "INFERBENCH_BACKEND", value_delimiter = ',', value_name = "NAME,…")]
    pub backend: Vec<String>,
    /// These devices instead of the suite's: cpu, cuda:1, openvino, auto, …; `inferbench devices` shows them
    #[arg(long, env = "INFERBENCH_DEVICE", value_delimiter = ',', value_name = "NAME,…", value_parser = parse_device)]
    pub device: Vec<String>,
    /// These dtypes instead of the suite's
    #[arg(long, env = "INFERBENCH_DTYPE", value_delimiter = ',', value_name = "NAME,…")]
    pub dtype: Vec<Dtype>,
    /// These boundaries instead of the suite's: compute, end-to-end
    #[arg(long, env = "INFERBENCH_BOUNDARY", value_delimiter = ',', value_name = "NAME,…")]
    pub boundary: Vec<Boundary>,
    /// Only these phases of models that have more than one, separated by commas
    #[arg(long, env = "INFERBENCH_PHASE", value_delimiter = ',', value_name = "NAME,…")]
    pub phase: Vec<Phase>,
    /// These batch sizes instead of the suite's
    #[arg(long, env = "INFERBENCH_BATCH_SIZES", value_delimiter = ',', value_name = "N,…")]
    pub batch_sizes: Vec<usize>,
    /// These sequence lengths instead of the suite's, for models that have one
    #[arg(long, env = "INFERBENCH_SEQ_LENS", value_delimiter = ',', value_name = "N,…")]
    pub seq_lens: Vec<usize>,
}

/// The flags that change how much is measured.
#[derive(Args, Clone, Debug, Default)]
pub struct EffortArguments {
    /// Calls to measure of each case, if they fit into the budget [default: the suite's]
    #[arg(long, env = "INFERBENCH_ITERATIONS", value_name = "N")]
    pub iterations: Option<usize>,
    /// Calls before the first measured one, at the least
    #[arg(long, env = "INFERBENCH_WARMUP", value_name = "N")]
    pub warmup: Option<usize>,
    /// Seconds to spend on the measured calls of a case
    #[arg(long, env = "INFERBENCH_BUDGET", value_name = "SECONDS")]
    pub budget: Option<f64>,
    /// Measure until this percentile has a 99 % bound, or the budget is spent, instead of a number of calls
    #[arg(long, env = "INFERBENCH_UNTIL_PERCENTILE", value_name = "PERCENTILE", conflicts_with = "iterations")]
    pub until_percentile: Option<f64>,
    /// Measure until the mean is known to ± this many per cent, or the budget is spent
    #[arg(long, env = "INFERBENCH_UNTIL_INTERVAL", value_name = "PERCENT", conflicts_with = "iterations")]
    pub until_interval: Option<f64>,
    /// Shuffle the order of the cases in each process; the number makes the same order again [default: a new one]
    #[arg(long, env = "INFERBENCH_SHUFFLE", value_name = "SEED", num_args = 0..=1, default_missing_value = "new", value_parser = shuffle_seed)]
    pub shuffle: Option<u64>,
    /// Seconds after which a case is given up
    #[arg(long, env = "INFERBENCH_TIMEOUT", value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// Threads of every backend
    #[arg(long, env = "INFERBENCH_THREADS", value_name = "N")]
    pub threads: Option<usize>,
}

fn shuffle_seed(text: &str) -> Result<u64, String> {
    match text {
        "new" => Ok(jiff::Timestamp::now().as_microsecond().unsigned_abs()),
        seed => seed.parse().map_err(|_| "not a whole number".to_owned()),
    }
}

fn without_repetition(sizes: &[usize]) -> Vec<usize> {
    let mut seen = Vec::new();
    for &size in sizes {
        if !seen.contains(&size) {
            seen.push(size);
        }
    }
    seen
}

impl Suite {
    /// Puts the flags on top of the file.
    pub fn with_arguments(mut self, selection: &Selection, effort: &EffortArguments) -> Result<Suite, String> {
        if !selection.path.is_empty() {
            self.models = models_of_files(&selection.path)?;
            self.include_found = false;
        }
        self.data_source = selection.data_source.clone().or(self.data_source);
        if !selection.backend.is_empty() {
            self.backends = selection.backend.clone();
        }
        if !selection.device.is_empty() {
            self.devices = selection.device.clone();
        }
        if !selection.dtype.is_empty() {
            self.dtypes = selection.dtype.clone();
        }
        if !selection.boundary.is_empty() {
            self.boundaries = selection.boundary.clone();
        }
        if !selection.phase.is_empty() {
            self.phases = Some(selection.phase.clone());
            self.models.iter_mut().for_each(|model| model.phases = None);
        }
        if !selection.batch_sizes.is_empty() {
            self.batch_sizes = without_repetition(&selection.batch_sizes);
            self.models.iter_mut().for_each(|model| model.batch_sizes = None);
        }
        if !selection.seq_lens.is_empty() {
            self.seq_lens = Some(without_repetition(&selection.seq_lens));
            self.models.iter_mut().for_each(|model| model.seq_lens = None);
        }
        if let Some(iterations) = effort.iterations {
            self.effort.iterations = iterations;
            self.effort.are_iterations_explicit = effort.budget.is_none();
            self.effort.least_seconds = 0.0;
            self.effort.until_percentile = None;
            self.effort.until_interval = None;
        }
        self.effort.warmup = effort.warmup.unwrap_or(self.effort.warmup);
        self.effort.budget_seconds = effort.budget.unwrap_or(self.effort.budget_seconds);
        self.effort.timeout_seconds = effort.timeout.unwrap_or(self.effort.timeout_seconds);
        self.effort.until_percentile = effort.until_percentile.or(self.effort.until_percentile);
        self.effort.until_interval = effort.until_interval.or(self.effort.until_interval);
        self.effort.shuffle = effort.shuffle.or(self.effort.shuffle);
        self.effort.threads = effort.threads.or(self.effort.threads);
        self.check()?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: &str = "backends = ['ort']\nbatch_sizes = [1, 8]\nmodels = [{ name = 'a', batch_sizes = [4] }, { name = 'b' }]\n[effort]\nbudget_s = 2";

    #[test]
    fn flags_win_over_the_file() {
        let suite: Suite = toml::from_str(SUITE).unwrap();
        assert_eq!(suite.effort.iterations, 1000);
        assert_eq!(suite.effort.budget_seconds, 2.0);
        let selection = Selection { batch_sizes: vec![2], backend: vec!["candle".into()], ..Selection::default() };
        let effort = EffortArguments { iterations: Some(7), ..EffortArguments::default() };
        let suite = suite.with_arguments(&selection, &effort).unwrap();
        assert_eq!((suite.backends, suite.batch_sizes), (vec!["candle".to_owned()], vec![2]));
        assert_eq!(suite.models[0].batch_sizes, None);
        assert_eq!(suite.effort.iterations, 7);
    }
}

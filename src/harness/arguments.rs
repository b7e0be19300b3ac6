//! Criterion's command line, as far as the parent process has to understand it.
//!
//! The children get the arguments unchanged and Criterion reads them there; the parent needs the filter, to know which
//! children there are, and the modes in which nothing is measured. A test holds this mirror against Criterion's own.

use clap::Parser;
use regex::Regex;

/// The options of Criterion 0.8, which `cargo bench -- …` passes to a benchmark.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "cargo bench --bench inference --",
    no_binary_name = true,
    about = "Measures the cases of a suite with Criterion, one process a backend and device",
    after_help = "Which cases there are is configured by the suite file models/suites/quick.toml and by variables: \
        INFERBENCH_SUITE, INFERBENCH_MODEL, INFERBENCH_VARIANT, INFERBENCH_BACKEND, INFERBENCH_DEVICE, INFERBENCH_DTYPE, \
        INFERBENCH_BATCH_SIZES, INFERBENCH_ITERATIONS, INFERBENCH_WARMUP, INFERBENCH_BUDGET, INFERBENCH_TIMEOUT, \
        INFERBENCH_THREADS.\n\n\
        Examples:\n  cargo bench -- resnet50\n  cargo bench -- --save-baseline main\n  \
        INFERBENCH_BACKEND=ort cargo bench -- --baseline main digits"
)]
pub struct CriterionArguments {
    /// Only the cases whose id matches this regular expression
    #[arg(value_name = "FILTER")]
    pub filter: Option<String>,
    /// FILTER is a whole id
    #[arg(long)]
    pub exact: bool,
    /// Print the ids and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Format of --list
    #[arg(long, default_value = "pretty", value_parser = ["pretty", "terse"])]
    pub format: String,
    /// Keep the results under this name too
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["baseline", "baseline_lenient"])]
    pub save_baseline: Option<String>,
    /// Compare with the results of that name; each case must have some
    #[arg(short, long, value_name = "NAME", conflicts_with = "baseline_lenient")]
    pub baseline: Option<String>,
    /// Compare with the results of that name where there are some
    #[arg(long, value_name = "NAME")]
    pub baseline_lenient: Option<String>,
    /// Do not keep the results
    #[arg(long, conflicts_with_all = ["save_baseline", "baseline", "baseline_lenient"])]
    pub discard_baseline: bool,
    /// Compare these earlier results instead of measuring
    #[arg(long, value_name = "NAME", requires = "baseline")]
    pub load_baseline: Option<String>,
    /// Run each case for so many seconds, for a profiler; keep nothing
    #[arg(long, value_name = "SECONDS")]
    pub profile_time: Option<f64>,
    /// Samples a case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..))]
    pub sample_size: Option<u32>,
    /// Seconds of Criterion's warm-up, after the harness's own
    #[arg(long, value_name = "SECONDS")]
    pub warm_up_time: Option<f64>,
    /// Seconds to measure a case
    #[arg(long, value_name = "SECONDS")]
    pub measurement_time: Option<f64>,
    /// Stop early; the results cannot be converted
    #[arg(long, conflicts_with = "sample_size")]
    pub quick: bool,
    /// Draw nothing
    #[arg(short, long)]
    pub noplot: bool,
    #[arg(short, long)]
    pub verbose: bool,
    #[arg(long, conflicts_with = "verbose")]
    pub quiet: bool,
    #[arg(short, long, alias = "colour")]
    pub color: Option<String>,
    #[arg(long, value_name = "N")]
    pub nresamples: Option<usize>,
    #[arg(long)]
    pub noise_threshold: Option<f64>,
    #[arg(long)]
    pub confidence_level: Option<f64>,
    #[arg(long)]
    pub significance_level: Option<f64>,
    #[arg(long)]
    pub plotting_backend: Option<String>,
    #[arg(long)]
    pub output_format: Option<String>,
    #[arg(long, hide = true)]
    pub bench: bool,
    #[arg(long, hide = true)]
    pub test: bool,
    #[arg(long, hide = true)]
    pub ignored: bool,
    #[arg(long, hide = true)]
    pub include_ignored: bool,
    #[arg(long, hide = true)]
    pub nocapture: bool,
    #[arg(long, hide = true)]
    pub show_output: bool,
}

/// What a process is to do with the cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    List,
    /// Run each case once: `cargo test --benches`.
    Test,
    Profile,
    /// Compare two earlier measurements.
    Load,
    Measure,
}

impl CriterionArguments {
    pub fn mode(&self) -> Mode {
        if self.list {
            Mode::List
        } else if self.test || !self.bench {
            Mode::Test
        } else if self.profile_time.is_some() {
            Mode::Profile
        } else if self.load_baseline.is_some() {
            Mode::Load
        } else {
            Mode::Measure
        }
    }

    /// The filter by Criterion's rules.
    ///
    /// # Errors
    /// FILTER is not a regular expression.
    pub fn id_filter(&self) -> Result<IdFilter, String> {
        if self.ignored {
            return Ok(IdFilter::Nothing);
        }
        match &self.filter {
            None => Ok(IdFilter::Everything),
            Some(id) if self.exact => Ok(IdFilter::Exact(id.clone())),
            Some(pattern) => Regex::new(pattern)
                .map(IdFilter::Regex)
                .map_err(|error| format!("FILTER {pattern:?} is not a regular expression: {error}")),
        }
    }
}

/// Which ids a FILTER means.
#[derive(Clone, Debug)]
pub enum IdFilter {
    Everything,
    Nothing,
    Exact(String),
    Regex(Regex),
}

impl IdFilter {
    pub fn matches(&self, id: &str) -> bool {
        match self {
            IdFilter::Everything => true,
            IdFilter::Nothing => false,
            IdFilter::Exact(exact) => exact == id,
            IdFilter::Regex(regex) => regex.is_match(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> CriterionArguments {
        CriterionArguments::try_parse_from(arguments).unwrap()
    }

    #[test]
    fn modes_follow_criterions_rules() {
        assert_eq!(parse(&["--bench"]).mode(), Mode::Measure);
        assert_eq!(parse(&[]).mode(), Mode::Test);
        assert_eq!(parse(&["--bench", "--test"]).mode(), Mode::Test);
        assert_eq!(parse(&["--bench", "--list"]).mode(), Mode::List);
        assert_eq!(parse(&["--bench", "--profile-time", "5"]).mode(), Mode::Profile);
        assert_eq!(parse(&["--bench", "--load-baseline", "a", "--baseline", "b"]).mode(), Mode::Load);
    }

    #[test]
    fn filters_follow_criterions_rules() {
        let id = "resnet50/ort-cpu-f32/8";
        assert!(parse(&[]).id_filter().unwrap().matches(id));
        assert!(parse(&["ort.*8$"]).id_filter().unwrap().matches(id));
        assert!(!parse(&["resnet50", "--exact"]).id_filter().unwrap().matches(id));
        assert!(parse(&[id, "--exact"]).id_filter().unwrap().matches(id));
        assert!(!parse(&["--ignored"]).id_filter().unwrap().matches(id));
        assert!(parse(&["("]).id_filter().is_err());
    }
}

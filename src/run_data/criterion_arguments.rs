//! Criterion's command line, as far as the parent process has to understand it.
//!
//! The children get the arguments unchanged and Criterion reads them there; the parent needs the filter, to know which
//! children there are, and the modes in which nothing is measured. A test holds this mirror against Criterion's own.

use anyhow::Context;
use clap::Parser;
use regex::Regex;

/// The options of Criterion 0.8, which `cargo bench -- …` passes to a benchmark.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "cargo bench --bench inference --",
    no_binary_name = true,
    about = "Measures the cases of a suite with Criterion, one process per backend and device",
    after_help = "Examples:\n  cargo bench -- resnet50\n  cargo bench -- --save-baseline main\n  \
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
    /// Also keep the results under this name
    #[arg(short, long, value_name = "NAME", value_parser = new_baseline_name, conflicts_with_all = ["baseline", "baseline_lenient"])]
    pub save_baseline: Option<String>,
    /// Compare with the results of this name; each case must have some
    #[arg(short, long, value_name = "NAME", value_parser = earlier_baseline_name, conflicts_with = "baseline_lenient")]
    pub baseline: Option<String>,
    /// Compare with the results of this name, where a case has some
    #[arg(long, value_name = "NAME", value_parser = earlier_baseline_name)]
    pub baseline_lenient: Option<String>,
    /// Do not keep the results
    #[arg(long, conflicts_with_all = ["save_baseline", "baseline", "baseline_lenient"])]
    pub discard_baseline: bool,
    /// Compare these earlier results instead of measuring
    #[arg(long, value_name = "NAME", value_parser = baseline_name, requires = "baseline")]
    pub load_baseline: Option<String>,
    /// Run each case for this many seconds, for a profiler; keep nothing
    #[arg(long, value_name = "SECONDS", value_parser = profile_seconds, conflicts_with_all = ["test", "list"])]
    pub profile_time: Option<f64>,
    /// Samples per case
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..))]
    pub sample_size: Option<u32>,
    /// Seconds of Criterion's warm-up, after the harness's own
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub warm_up_time: Option<f64>,
    /// Measure each case for at most this many seconds, instead of its budget
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
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
    #[arg(short, long, alias = "colour", value_parser = ["auto", "always", "never"])]
    pub color: Option<String>,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nresamples: Option<u32>,
    #[arg(long, value_parser = positive)]
    pub noise_threshold: Option<f64>,
    #[arg(long, value_parser = fraction)]
    pub confidence_level: Option<f64>,
    #[arg(long, value_parser = fraction)]
    pub significance_level: Option<f64>,
    #[arg(long, value_parser = ["gnuplot", "plotters"])]
    pub plotting_backend: Option<String>,
    #[arg(long, value_parser = ["criterion", "bencher"])]
    pub output_format: Option<String>,
    #[arg(short = 'V', long, hide = true)]
    pub version: bool,
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

    /// Whether what is measured can be converted: it is kept, and not made up by `--quick`.
    pub fn leaves_records(&self) -> bool {
        self.mode() == Mode::Measure && !self.discard_baseline && !self.quick
    }

    /// The filter by Criterion's rules: an expression that matches the ids that FILTER means.
    ///
    /// # Errors
    /// FILTER is not a regular expression.
    pub fn id_filter(&self) -> anyhow::Result<Regex> {
        let pattern = match &self.filter {
            // Matches no text at all.
            _ if self.ignored => r"[^\s\S]".to_owned(),
            Some(id) if self.exact => format!("^{}$", regex::escape(id)),
            filter => filter.clone().unwrap_or_default(),
        };
        Regex::new(&pattern).with_context(|| format!("FILTER {pattern:?} is not a regular expression"))
    }
}

/// A baseline is a folder beside Criterion's own.
fn baseline_name(name: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(
            "a baseline's name has 1 to 64 letters, digits, '.', '_' or '-', and does not start with '.'".into()
        );
    }
    Ok(name.to_owned())
}

/// A baseline to be written must not be one of Criterion's own folders.
fn new_baseline_name(name: &str) -> Result<String, String> {
    if ["new", "base", "change", "report", "profile"].contains(&name) {
        return Err(format!("{name:?} is a name that Criterion keeps for its own files"));
    }
    baseline_name(name)
}

/// A baseline to compare with must not be what the run itself replaces.
fn earlier_baseline_name(name: &str) -> Result<String, String> {
    if name == "new" {
        return Err("a run replaces it, and would be compared with itself; `--save-baseline NAME` keeps one".into());
    }
    baseline_name(name)
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("not above 0".into()) }
}

fn fraction(text: &str) -> Result<f64, String> {
    positive(text).and_then(|number| if number < 1.0 { Ok(number) } else { Err("not below 1".into()) })
}

fn profile_seconds(text: &str) -> Result<f64, String> {
    positive(text).and_then(|seconds| if seconds >= 1.0 { Ok(seconds) } else { Err("at least 1 second".into()) })
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
    fn what_is_not_kept_or_is_made_up_leaves_no_records() {
        assert!(parse(&["--bench"]).leaves_records() && !parse(&[]).leaves_records());
        for flag in ["--quick", "--discard-baseline", "--list"] {
            assert!(!parse(&["--bench", flag]).leaves_records(), "{flag}");
        }
    }

    #[test]
    fn a_baseline_stays_in_criterions_tree() {
        for bad in ["", "../../x", "a/b", "new", "report", ".hidden"] {
            assert!(CriterionArguments::try_parse_from(["--save-baseline", bad]).is_err(), "{bad:?}");
        }
        for flag in ["--baseline", "--baseline-lenient"] {
            assert!(CriterionArguments::try_parse_from([flag, "new"]).is_err(), "{flag}");
        }
        assert_eq!(parse(&["--save-baseline", "v1.0_Main"]).save_baseline.as_deref(), Some("v1.0_Main"));
    }

    #[test]
    fn values_that_criterion_would_panic_on_are_refused() {
        let bad =
            [["--profile-time", "0.5"], ["--measurement-time", "nan"], ["--confidence-level", "2"], ["--color", "x"]];
        for arguments in bad {
            assert!(CriterionArguments::try_parse_from(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn filters_follow_criterions_rules() {
        let id = "resnet50/ort-cpu-f32/8";
        assert!(parse(&[]).id_filter().unwrap().is_match(id));
        assert!(parse(&["ort.*8$"]).id_filter().unwrap().is_match(id));
        assert!(!parse(&["resnet50", "--exact"]).id_filter().unwrap().is_match(id));
        assert!(parse(&[id, "--exact"]).id_filter().unwrap().is_match(id));
        assert!(!parse(&["--ignored"]).id_filter().unwrap().is_match(id));
        assert!(parse(&["("]).id_filter().is_err());
    }
}

//! The suite file: which cases run, and how much is measured of each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::case::{Boundary, Phase};
use super::data_source::DataSource;
use super::device::check_device;
use super::dtype::Dtype;

/// Which cases to run, and how much to measure of each. Read from `models/suites/<name>.toml` or a file of the user's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    #[serde(skip)]
    pub name: String,
    pub models: Vec<SuiteModel>,
    /// The samples by which the answers of all models are judged that can take them; each model's own where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<DataSource>,
    /// Also run every model that was put into `models/exported`, `models/trained` or `models/quantized`.
    #[serde(default)]
    pub include_found: bool,
    pub backends: Vec<String>,
    #[serde(default = "default_devices")]
    pub devices: Vec<String>,
    /// Each device's own where it is not said.
    #[serde(default)]
    pub dtypes: Vec<Dtype>,
    pub batch_sizes: Vec<usize>,
    /// Where the time of a call begins and ends: `compute`, `end-to-end`, or both.
    #[serde(default = "default_boundaries")]
    pub boundaries: Vec<Boundary>,
    /// Phases of models that have more than one; all of them where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Vec<Phase>>,
    /// Sequence lengths of models that have one; those of the model's own definition where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_lens: Option<Vec<usize>>,
    #[serde(default)]
    pub effort: Effort,
}

/// A model of a suite, with batch sizes, phases and sequence lengths of its own where they differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteModel {
    pub name: String,
    /// The model's file, for one that is in none of the folders of `models/`; files of the same stem belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Which form of the model the file of `path` is; its original where it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Which of the model's variants run, or `all`; where it is not said, the original and the files of users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variants: Option<Vec<String>>,
    /// A safetensors file that takes the place of a packaged model's weights; names and shapes as in the state dict of the
    /// library that the model comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<PathBuf>,
    /// The samples by which its answers are judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<DataSource>,
    /// Of a model with a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Of a model with a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modality: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_sizes: Option<Vec<usize>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Vec<Phase>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_lens: Option<Vec<usize>>,
}

/// How much is measured of each case: the table `[effort]` of a suite file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Effort {
    /// Calls to measure, if they fit into the budget.
    pub iterations: usize,
    /// Whether the user has said `iterations` by flag or variable: the timeout limits them then, and not the budget.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub are_iterations_explicit: bool,
    /// Seconds of measured calls at the least: calls that take microseconds get more than `iterations` of them.
    #[serde(rename = "least_s")]
    pub least_seconds: f64,
    /// Calls before the first measured one, at the least.
    pub warmup: usize,
    /// Seconds to spend on the measured calls of a case; Criterion's minimum of 10 samples may take longer.
    #[serde(rename = "budget_s")]
    pub budget_seconds: f64,
    /// Seconds after which a case is given up.
    #[serde(rename = "timeout_s")]
    pub timeout_seconds: f64,
    /// Measure until this percentile (of 100) has its bound, instead of `iterations` calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_percentile: Option<f64>,
    /// Measure until the 95 % interval of the mean is ± this many per cent of it, instead of `iterations` calls.
    #[serde(rename = "until_interval_percent", skip_serializing_if = "Option::is_none")]
    pub until_interval: Option<f64>,
    /// Take the cases of a process in an order that is shuffled by this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<u64>,
    /// Threads of every backend; as many as there are processors where it is not said.
    pub threads: Option<usize>,
    /// Whether memory and energy are watched, in a process of its own for each case after all are measured.
    pub watch: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            iterations: 1000,
            are_iterations_explicit: false,
            least_seconds: 1.0,
            warmup: 3,
            budget_seconds: 5.0,
            timeout_seconds: 1800.0,
            until_percentile: None,
            until_interval: None,
            shuffle: None,
            threads: None,
            watch: true,
        }
    }
}

fn default_devices() -> Vec<String> {
    vec!["cpu".into()]
}

fn default_boundaries() -> Vec<Boundary> {
    vec![Boundary::Compute]
}

impl Effort {
    /// The number of threads that every backend is told to use.
    pub fn effective_threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get()))
    }
}

impl Suite {
    /// Whether it can be run; files and flags may say what cannot.
    ///
    /// # Errors
    /// A number is out of its range, or two settings exclude each other.
    pub fn check(&self) -> Result<(), String> {
        let of_models = self.models.iter().flat_map(|model| model.batch_sizes.iter().chain(&model.seq_lens));
        for model in &self.models {
            if model.path.is_none() && model.variant.is_some() {
                return Err(format!(
                    "model {:?}: `variant` says what the file of a `path` is; `variants = [...]` says which run",
                    model.name
                ));
            }
            if model.path.is_some() && model.weights.is_some() {
                return Err(format!(
                    "model {:?}: a file of `path` has its weights inside; leave out `weights`",
                    model.name
                ));
            }
            if model.path.is_some() && model.variants.is_some() {
                return Err(format!(
                    "model {:?}: the file of a `path` is one form of the model, which `variant` names; leave out `variants`",
                    model.name
                ));
            }
        }
        self.check_weights()?;
        for sizes in std::iter::once(&self.batch_sizes).chain(&self.seq_lens).chain(of_models) {
            if sizes.is_empty() || sizes.contains(&0) {
                return Err("batch sizes and sequence lengths are numbers from 1".into());
            }
        }
        let positive = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        self.devices.iter().try_for_each(|device| check_device(device))?;
        if self.effort.iterations == 0 || self.effort.threads == Some(0) {
            return Err("iterations and threads are numbers from 1".into());
        }
        if !(self.effort.least_seconds.is_finite() && self.effort.least_seconds >= 0.0) {
            return Err("least_s is seconds from 0".into());
        }
        if self.effort.until_percentile.is_some_and(|percent| !(50.0..=99.99).contains(&percent)) {
            return Err("until_percentile is from 50 to 99.99".into());
        }
        if self.effort.until_interval.is_some_and(|percent| !(positive(percent) && percent < 100.0)) {
            return Err("until_interval_percent is above 0 and below 100".into());
        }
        if !positive(self.effort.budget_seconds) || !positive(self.effort.timeout_seconds) {
            return Err("budget and timeout are seconds above 0".into());
        }
        Ok(())
    }

    /// One name is one set of weights.
    fn check_weights(&self) -> Result<(), String> {
        let packaged: Vec<&SuiteModel> = self.models.iter().filter(|model| model.path.is_none()).collect();
        for (place, model) in packaged.iter().enumerate() {
            let differs = |other: &&&SuiteModel| other.name == model.name && other.weights != model.weights;
            let Some(other) = packaged[..place].iter().find(differs) else { continue };
            let said = |weights: &Option<PathBuf>| match weights {
                Some(file) => file.display().to_string(),
                None => "its own".into(),
            };
            let file = model.weights.as_ref().or(other.weights.as_ref()).cloned().unwrap_or_default();
            return Err(format!(
                "two tables of the suite give {0} different weights, {1} and {2}: give those of a file a name of their own, as in \
                 {{ name = \"{0}-own\", path = \"{3}\" }} with `architecture = \"{0}\"` in {4}",
                model.name,
                said(&other.weights),
                said(&model.weights),
                file.display(),
                file.with_extension("toml").display()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: &str = "backends = ['ort']\nbatch_sizes = [1, 8]\nmodels = [{ name = 'a', batch_sizes = [4] }, { name = 'b' }]\n[effort]\nbudget_s = 2";

    #[test]
    fn weights_of_one_name_are_those_of_one_file() {
        let check = |models: &str| {
            let text = SUITE.replace("[{ name = 'a', batch_sizes = [4] }, { name = 'b' }]", models);
            toml::from_str::<Suite>(&text).unwrap().check()
        };
        assert_eq!(check("[{ name = 'a', weights = 'x.safetensors' }, { name = 'b' }]"), Ok(()));
        let same = "{ name = 'a', weights = 'x.safetensors' }";
        assert_eq!(check(&format!("[{same}, {}]", same.replace(" }", ", variants = ['int8'] }"))), Ok(()));
        for other in ["{ name = 'a', weights = 'y.safetensors' }", "{ name = 'a' }"] {
            let error = check(&format!("[{other}, {same}]")).unwrap_err();
            assert!(error.contains("{ name = \"a-own\", path = \"x.safetensors\" }"), "{error}");
            assert!(error.ends_with("with `architecture = \"a\"` in x.toml"), "{error}");
        }
    }

    #[test]
    fn a_misspelt_key_and_a_batch_of_none_are_refused() {
        assert!(toml::from_str::<Suite>(&format!("batchsizes = [1]\n{SUITE}")).is_err());
        let suite: Suite = toml::from_str(&SUITE.replace("[1, 8]", "[0]")).unwrap();
        assert!(suite.check().is_err());
    }
}

//! What a job is asked to measure, and the command line of `inferbench run` that measures it.

use std::collections::BTreeSet;
use std::path::Path;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::failure::Failure;
use crate::backend::registry;
use crate::definition::{Dtype, Phase, parse_device, usual_backend};
use crate::paths::Paths;

/// The warm-up calls of a request that gives no number.
pub const WARMUP: usize = 10;
/// The measured calls of a request that gives no number.
pub const ITERATIONS: usize = 100;
const MOST_WARMUP: usize = 100_000;
const MOST_THREADS: usize = 4096;
const MOST_BATCH: usize = 65_536;
/// The most values in one list.
const MOST_VALUES: usize = 64;
/// The most combinations of the values of all lists.
const MOST_CASES: usize = 10_000;

/// What is measured: all combinations of the lists. An empty list leaves the choice to the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Asked {
    /// A suite of `models/suites`. Without one, `models` is required, and the defaults are `cpu`, batch size 1, and all
    /// backends with the device (for files, those of their extensions).
    pub suite: Option<String>,
    /// Packaged models, or files of `models/exported`, `models/trained` and `models/quantized` with their extension.
    pub models: Vec<String>,
    pub variants: Vec<String>,
    pub backends: Vec<String>,
    pub devices: Vec<String>,
    pub dtypes: Vec<String>,
    pub batch_sizes: Vec<usize>,
    pub phases: Vec<String>,
    pub sequence_lengths: Vec<usize>,
    /// Calls to measure per case.
    pub iterations: Option<usize>,
    /// The least number of calls before the first measured one.
    pub warmup: Option<usize>,
    /// The number of threads of every backend.
    pub threads: Option<usize>,
}

/// The suite of a job that names none; its name is the column `suite` of the records.
const OWN_SUITE: &str = "endpoint.toml";
const OWN_SUITE_TEXT: &str = "models = []\nbackends = ['ort']\nbatch_sizes = [1]\n";

/// Writes the suite of jobs that name none.
pub fn write_own_suite(folder: &Path) -> anyhow::Result<()> {
    fs_err::create_dir_all(folder)?;
    crate::run_data::write_whole(&folder.join(OWN_SUITE), OWN_SUITE_TEXT.as_bytes())
}

impl Asked {
    /// Puts names into their usual form and checks all but the models.
    ///
    /// # Errors
    /// A value is wrong or out of its range; the message names it.
    pub fn checked(mut self, paths: &Paths, settings: &Settings) -> Result<Self, Failure> {
        if let Some(suite) = &self.suite {
            let names = suites(paths);
            if !names.contains(suite) {
                let names = Vec::from_iter(names).join(", ");
                return Err(Failure::parameter(format!("suite: there is no suite of that name; there are {names}")));
            }
        }
        for (name, _, values) in self.lists() {
            let count = values.len();
            if count > MOST_VALUES {
                return Err(Failure::parameter(format!("{name}: at most {MOST_VALUES} values, not {count}")));
            }
        }
        let cases: usize = self.lists().iter().map(|(_, _, values)| values.len().max(1)).product();
        if cases > MOST_CASES {
            return Err(Failure::parameter(format!("at most {MOST_CASES} combinations of the lists, not {cases}")));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        for name in self.variants.iter().chain(&self.backends) {
            if name.is_empty() || name.starts_with('-') || !name.chars().all(is_plain) {
                return Err(Failure::parameter(format!("{name:?} is not a name of a variant or backend")));
            }
        }
        for name in &mut self.backends {
            *name = usual_backend(name).map_err(|error| Failure::parameter(format!("{error:#}")))?;
            registry::entry(name).map_err(|failure| Failure::parameter(failure.message))?;
        }
        for device in &self.devices {
            parse_device(device).map_err(|error| Failure::parameter(format!("device: {error}")))?;
        }
        for dtype in &mut self.dtypes {
            *dtype = value::<Dtype>("dtype", dtype)?.to_string();
        }
        for phase in &mut self.phases {
            *phase = value::<Phase>("phase", phase)?.to_string();
        }
        for &size in &self.batch_sizes {
            in_range("batch_size", size, 1, MOST_BATCH)?;
        }
        for &length in &self.sequence_lengths {
            in_range("sequence_length", length, 1, 1_000_000)?;
        }
        for (name, number, least, most) in [
            ("iterations", self.iterations, 1, settings.most_iterations),
            ("warmup", self.warmup, 0, MOST_WARMUP),
            ("threads", self.threads, 1, MOST_THREADS),
        ] {
            number.map_or(Ok(()), |number| in_range(name, number, least, most))?;
        }
        Ok(self)
    }

    /// The lists, each with its name and with the flag of `inferbench run` for its values.
    fn lists(&self) -> [(&'static str, &'static str, Vec<String>); 8] {
        let numbers = |numbers: &[usize]| numbers.iter().map(ToString::to_string).collect();
        [
            ("models", "model", self.models.clone()),
            ("variants", "variant", self.variants.clone()),
            ("backends", "backend", self.backends.clone()),
            ("devices", "device", self.devices.clone()),
            ("dtypes", "dtype", self.dtypes.clone()),
            ("batch_sizes", "batch-sizes", numbers(&self.batch_sizes)),
            ("phases", "phase", self.phases.clone()),
            ("sequence_lengths", "seq-lens", numbers(&self.sequence_lengths)),
        ]
    }

    /// The name of the suite in its records.
    pub fn suite_name(&self) -> &str {
        self.suite.as_deref().unwrap_or(OWN_SUITE.trim_end_matches(".toml"))
    }

    /// A rough number of cases, for estimates of time.
    pub fn about_cases(&self) -> usize {
        let cases: usize = self.lists().iter().map(|(.., values)| values.len().max(1)).product();
        if self.suite.is_some() { 12 * cases } else { cases }
    }

    /// The arguments of `inferbench` that measure it as the run `id`; `folder` has the suite of jobs that name none.
    pub fn arguments(&self, id: &str, folder: &Path, settings: &Settings) -> Vec<String> {
        let own_suite = || folder.join(OWN_SUITE).display().to_string();
        let mut arguments = vec!["run".to_owned(), "--noplot".into(), format!("--run-id={id}")];
        arguments.push(format!("--suite={}", self.suite.clone().unwrap_or_else(own_suite)));
        arguments.push(format!("--timeout={}", settings.timeout_seconds));
        let lists = self.lists().into_iter().filter(|(.., values)| !values.is_empty());
        arguments.extend(lists.map(|(_, flag, values)| format!("--{flag}={}", values.join(","))));
        let numbers = [("iterations", self.iterations), ("warmup", self.warmup), ("threads", self.threads)];
        let number = |(flag, number): (&str, Option<usize>)| number.map(|number| format!("--{flag}={number}"));
        arguments.extend(numbers.into_iter().filter_map(number));
        arguments
    }
}

/// The names of the suites of `models/suites`.
pub fn suites(paths: &Paths) -> BTreeSet<String> {
    let files =
        paths.models().and_then(|models| Ok(std::fs::read_dir(models.join("suites"))?)).into_iter().flatten().flatten();
    let name = |file: std::fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".toml")?.to_owned());
    files.filter_map(name).collect()
}

pub fn value<T: ValueEnum>(parameter: &str, text: &str) -> Result<T, Failure> {
    T::from_str(text, true).map_err(|_| {
        let names = T::value_variants().iter().filter_map(T::to_possible_value);
        let names = names.map(|it| it.get_name().to_owned()).collect::<Vec<_>>().join(", ");
        Failure::parameter(format!("{parameter}: {text:?} is none of {names}"))
    })
}

fn in_range(parameter: &str, number: usize, least: usize, most: usize) -> Result<(), Failure> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(Failure::parameter(format!("{parameter}: {number} is not from {least} to {most}")))
}

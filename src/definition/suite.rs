//! The suite: which cases run, and how much is measured of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::case::{Boundary, Case, Phase, TimedOn, usable_name};
use super::data_source::DataSource;
use super::dims::Sweep;
use super::dtype::Dtype;
use super::judge::Judge;
use super::model::Model;
use super::names::parse_device;
use super::shard::Shard;
use super::status::CaseFailure;

/// Which cases to run, and how much to measure of each. Read from `models/suites/<name>.toml` or a file of the user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    #[serde(skip)]
    pub name: String,
    /// Whether names of models that do not exist become cases with the status `unavailable` instead of an error, as in a
    /// custom set.
    #[serde(skip)]
    pub allows_unknown_models: bool,
    pub models: Vec<SuiteModel>,
    /// The samples for the evaluation of all models that can take them. The default is each model's own source.
    pub data_source: Option<DataSource>,
    /// Also run every model that is in `models/exported`, `models/trained` or `models/quantized`.
    #[serde(default)]
    pub include_found: bool,
    /// Also run the chains of single operators that the program makes, from which predictions are learned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_operators: bool,
    pub backends: Vec<String>,
    #[serde(default = "default_devices")]
    pub devices: Vec<String>,
    /// The default is each device's own dtype.
    #[serde(default)]
    pub dtypes: Vec<Dtype>,
    pub batch_sizes: Vec<usize>,
    /// Where the time of a call begins and ends: `compute`, `end-to-end`, `pipeline`, or several of them.
    #[serde(default = "default_boundaries")]
    pub boundaries: Vec<Boundary>,
    /// What is timed: `seeded` inputs, or `samples` of the model's data source.
    #[serde(default)]
    pub time_on: TimedOn,
    /// The phases that run; a model without one of them is left out. The default is all phases.
    pub phases: Option<Vec<Phase>>,
    /// Sequence lengths of models that have one. The default is the list in the model's definition.
    pub seq_lens: Option<Vec<usize>>,
    /// Tests of language models as llama-bench has them, in place of phases and sequence lengths.
    #[serde(default, skip_serializing_if = "TokenTests::is_empty")]
    pub tokens: TokenTests,
    /// Sizes that models leave open, by name, or as `x.2` for the third dimension of input `x`: one or a list for each.
    #[serde(default, skip_serializing_if = "Sweep::is_empty")]
    pub dims: Sweep,
    #[serde(default)]
    pub effort: Effort,
    /// How cases are put under load: the flags of `inferbench load`, by their names.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub load: toml::Table,
    /// The part that is measured, if the suite was divided among machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// Tests of language models by numbers of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenTests {
    /// Lengths of prompts that are read.
    pub pp: Vec<usize>,
    /// The number of tokens that are generated.
    pub tg: Option<usize>,
    /// Numbers of tokens before the generated ones.
    pub depth: Vec<usize>,
}

impl TokenTests {
    pub fn is_empty(&self) -> bool {
        self.pp.is_empty() && self.tg.is_none()
    }

    /// # Errors
    /// A number is out of its range, or there are depths without `tg`.
    fn check(&self) -> Result<()> {
        let range = 1..=MOST_TOKENS;
        ensure!(
            self.pp.iter().chain(&self.tg).all(|count| range.contains(count)),
            "`pp` and `tg` are numbers of tokens from 1 to {MOST_TOKENS}"
        );
        ensure!(
            self.depth.iter().all(|depth| *depth <= MOST_TOKENS),
            "`depth` is the number of tokens before those of `tg`, from 0 to {MOST_TOKENS}"
        );
        ensure!(
            self.depth.is_empty() || self.tg.is_some(),
            "`depth` says where `tg` begins: add `tg`, or leave it out"
        );
        Ok(())
    }

    /// Checks that a model has enough positions for a case of these tests, or for a case of any other kind if there are
    /// no tests: then one new token has to follow the prompt.
    ///
    /// # Errors
    /// `unsupported`: it has too few.
    pub(crate) fn check_positions(&self, model: &Model, case: &Case) -> Result<(), CaseFailure> {
        let new_tokens = match case.phase {
            Phase::Prefill => 0,
            Phase::Decode => self.tg.unwrap_or(1),
            _ => return Ok(()),
        };
        let positions = model.generation.as_ref().and_then(|generation| generation.positions);
        let Some((positions, prompt)) = positions.zip(model.prompt_positions(case.sequence_length)) else {
            return Ok(());
        };
        let needed = prompt.saturating_add(new_tokens);
        if needed <= positions {
            return Ok(());
        }
        let test = match new_tokens {
            0 => format!("a prompt of {prompt} tokens needs"),
            1 => format!("1 token after {prompt} needs"),
            _ => format!("{new_tokens} tokens after {prompt} need"),
        };
        Err(CaseFailure::unsupported(format!("{test} {needed} positions, and the model has {positions}")))
    }

    /// The phases of the tests with their sequence lengths. Decoding needs at least one token before it.
    pub fn cases(&self) -> Vec<(Option<usize>, Phase)> {
        let depths: &[usize] = if self.depth.is_empty() { &[0] } else { &self.depth };
        let prefill = self.pp.iter().map(|length| (Some(*length), Phase::Prefill));
        let decode = depths.iter().filter(|_| self.tg.is_some()).map(|depth| (Some((*depth).max(1)), Phase::Decode));
        prefill.chain(decode).collect()
    }
}

/// The most tokens of a test.
const MOST_TOKENS: usize = 1 << 24;
/// Products of larger sizes would overflow.
const LARGEST_SIZE: usize = 1 << 32;

/// A model of a suite. Its own backends, batch sizes, phases and sequence lengths replace those of the suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { name = \"digits\" }")]
#[non_exhaustive]
pub struct SuiteModel {
    pub name: String,
    /// Whether the model is neither a file nor packaged: engines of your own know what it is.
    #[serde(skip)]
    pub is_of_code: bool,
    /// The model's file, if it is in none of the folders of `models/`; files of the same stem belong to it.
    pub path: Option<PathBuf>,
    /// Whether the name comes from the file, so that inferbench may change it.
    #[serde(skip)]
    pub(crate) is_named_by_file: bool,
    /// Whether the file stands alone on the command line, and runs beside models that are asked for by name.
    #[serde(skip)]
    pub(crate) stands_alone: bool,
    /// Which variant of the model the file of `path` is. The default is the original.
    pub variant: Option<String>,
    /// Which variants of the model run, or `all`. The default is the original and the files of users.
    pub variants: Option<Vec<String>>,
    /// A safetensors file that replaces a packaged model's weights; names and shapes are those of the state dict of the
    /// library that the model comes from.
    pub weights: Option<PathBuf>,
    /// Inputs of a model with a path, in place of those that its file says: `["x:f32[batch,3,224,224]"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// Like `dims` of the suite, for this model.
    #[serde(default, skip_serializing_if = "Sweep::is_empty")]
    pub dims: Sweep,
    /// Inputs with the right outputs, for a model with a path: a folder of `.pb` files, `.npz` or `.safetensors`.
    pub reference: Option<PathBuf>,
    /// Outputs of a model that is code, as `logits:f32[batch,10]`.
    #[serde(skip)]
    pub outputs: Vec<String>,
    /// The samples for the evaluation of this model.
    pub data_source: Option<DataSource>,
    /// The backends that run this model.
    pub backends: Option<Vec<String>>,
    /// The family, for a model with a path.
    pub family: Option<String>,
    /// The modality, for a model with a path.
    pub modality: Option<String>,
    /// How the answers to samples are judged.
    pub judge: Option<Judge>,
    pub batch_sizes: Option<Vec<usize>>,
    pub phases: Option<Vec<Phase>>,
    pub seq_lens: Option<Vec<usize>>,
}

/// How much is measured of each case: the table `[effort]` of a suite file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Effort {
    /// Processes that measure each case; the processes of all cases alternate.
    pub processes: usize,
    /// Calls to measure, if they fit into the budget.
    pub iterations: usize,
    /// Whether a flag or variable gives `iterations`: then the timeout limits them, and not the budget.
    pub are_iterations_explicit: bool,
    /// The minimum seconds of measured calls: a case whose calls take microseconds makes more than `iterations`.
    #[serde(rename = "least_s")]
    pub least_seconds: f64,
    /// The minimum number of calls before the first measured one.
    pub warmup: usize,
    /// Seconds for the measured calls of a case; Criterion's minimum of 10 samples may take longer.
    #[serde(rename = "budget_s")]
    pub budget_seconds: f64,
    /// Seconds after which a case is stopped.
    #[serde(rename = "timeout_s")]
    pub timeout_seconds: f64,
    /// Measure until this percentile (of 100) has its bound, instead of `iterations` calls.
    pub until_percentile: Option<f64>,
    /// Measure until the 95 % interval of the mean is ± this many per cent of it, instead of `iterations` calls.
    #[serde(rename = "until_interval_percent")]
    pub until_interval: Option<f64>,
    /// The seed of a shuffled order of the cases in a process.
    pub shuffle: Option<u64>,
    /// Threads of every backend. The default is the number of processors.
    pub threads: Option<usize>,
    /// Whether memory and energy are watched, in a separate process for each case after all cases are measured.
    pub watch: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            processes: 1,
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

/// The most threads that can be asked for.
const MOST_THREADS: f64 = 4096.0;

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

impl Effort {
    /// The number of threads that every backend is told to use.
    pub fn effective_threads(&self) -> usize {
        self.threads.unwrap_or_else(processors)
    }

    /// A warning if more threads are asked for than there are processors.
    pub fn thread_warning(&self) -> Option<String> {
        let (threads, processors) = (self.threads?, processors());
        (threads > processors).then(|| {
            format!("threads: {threads} are more than the {processors} processors that this process may use; the times include waiting")
        })
    }

    /// # Errors
    /// A number is out of its range.
    fn check(&self) -> Result<()> {
        const YEAR: f64 = 365.0 * 86_400.0;
        const MOST_CALLS: f64 = 1e9;
        for (name, number, least, most) in [
            ("processes", Some(self.processes as f64), 1.0, 1000.0),
            ("iterations", Some(self.iterations as f64), 1.0, MOST_CALLS),
            ("warmup", Some(self.warmup as f64), 0.0, MOST_CALLS),
            ("threads", self.threads.map(|threads| threads as f64), 1.0, MOST_THREADS),
            ("least_s", Some(self.least_seconds), 0.0, YEAR),
            ("budget_s", Some(self.budget_seconds), 0.001, YEAR),
            ("timeout_s", Some(self.timeout_seconds), 0.001, YEAR),
            ("until_percentile", self.until_percentile, 50.0, 99.99),
            ("until_interval_percent", self.until_interval, 0.001, 99.99),
        ] {
            ensure!(
                number.is_none_or(|number| (least..=most).contains(&number)),
                "{name} is a number from {least} to {most}"
            );
        }
        Ok(())
    }
}

impl From<&str> for SuiteModel {
    /// The file of a graph if the name ends with `.onnx` or `.pt`, and otherwise a packaged model.
    fn from(name: &str) -> Self {
        let path = Path::new(name);
        let is_file = path.extension().is_some_and(|extension| extension == "onnx" || extension == "pt");
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let (name, path) = if is_file { (usable_name(&stem), Some(path.to_owned())) } else { (name.to_owned(), None) };
        SuiteModel { name, path, ..SuiteModel::default() }
    }
}

impl SuiteModel {
    /// A model that has no file: engines of your own know it by its name. Inputs and outputs are written as
    /// `x:f32[batch,64]`; `batch` stands for a case's batch size.
    pub fn of_code<'a>(
        name: &str,
        inputs: impl IntoIterator<Item = &'a str>,
        outputs: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let inputs = inputs.into_iter().map(str::to_owned).collect();
        let outputs = outputs.into_iter().map(str::to_owned).collect();
        SuiteModel { name: name.into(), is_of_code: true, inputs, outputs, ..SuiteModel::default() }
    }
}

impl Suite {
    /// A suite with the usual settings: batch size 1, on the CPU.
    pub fn new(name: &str, backends: Vec<String>) -> Self {
        Suite {
            name: name.into(),
            backends,
            devices: default_devices(),
            batch_sizes: vec![1],
            boundaries: default_boundaries(),
            ..Suite::default()
        }
    }

    /// The same suite, with relative paths as paths in `folder`.
    pub fn with_paths_in(mut self, folder: &Path) -> Self {
        let in_folder = |source: DataSource| source.relative_to(folder);
        self.data_source = self.data_source.map(in_folder);
        for key in ["lengths", "trace"] {
            if let Some(toml::Value::String(file)) = self.load.get_mut(key) {
                *file = folder.join(&file).to_string_lossy().into_owned();
            }
        }
        for model in &mut self.models {
            model.data_source = model.data_source.take().map(in_folder);
            for path in [&mut model.path, &mut model.weights, &mut model.reference].into_iter().flatten() {
                *path = folder.join(&path);
            }
        }
        self
    }

    /// What the calls of a boundary have as inputs: a pipeline always takes samples.
    pub fn inputs_of(&self, boundary: Boundary) -> TimedOn {
        if boundary == Boundary::Pipeline { TimedOn::Samples } else { self.time_on }
    }

    /// Checks that the suite can be run: files and flags may contradict each other.
    ///
    /// # Errors
    /// A number is out of its range, or two settings exclude each other.
    pub fn check(&self) -> Result<()> {
        let of_models = self.models.iter().flat_map(|model| model.batch_sizes.iter().chain(&model.seq_lens));
        for SuiteModel { name, path, variant, variants, weights, inputs, reference, is_of_code, .. } in &self.models {
            let has_settings_of_file = !is_of_code && (!inputs.is_empty() || reference.is_some());
            let wrong = match path {
                None if has_settings_of_file => "`inputs` and `reference` are for a model with a `path`",
                None if variant.is_some() => {
                    "`variant` says what the file of a `path` is; `variants = [...]` says which run"
                }
                Some(_) if weights.is_some() => "a file of `path` has its weights inside; leave out `weights`",
                Some(_) if variants.is_some() => {
                    "the file of a `path` is one form of the model, which `variant` names; leave out `variants`"
                }
                _ => continue,
            };
            bail!("model {name:?}: {wrong}");
        }
        let mut weights_of = BTreeMap::new();
        for SuiteModel { name, weights, .. } in self.models.iter().filter(|model| model.path.is_none()) {
            ensure!(
                weights_of.entry(name).or_insert(weights) == &weights,
                "two tables of the suite give {name} different weights: give those of a file a name of their own, as in \
                 {{ name = \"{name}-own\", path = \"own.safetensors\" }} with `architecture = \"{name}\"` in own.toml"
            );
        }
        for sizes in std::iter::once(&self.batch_sizes).chain(&self.seq_lens).chain(of_models) {
            ensure!(
                !sizes.is_empty() && sizes.iter().all(|size| (1..=LARGEST_SIZE).contains(size)),
                "batch sizes and sequence lengths are numbers from 1 to {LARGEST_SIZE}"
            );
        }
        self.devices.iter().try_for_each(|device| parse_device(device).map(drop))?;
        self.tokens.check()?;
        self.effort.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: &str = "backends = ['ort']\nbatch_sizes = [1, 8]\nmodels = [{ name = 'a', batch_sizes = [4] }, { name = 'b' }]\n[effort]\nbudget_s = 2";

    fn with_models(models: &str) -> Result<()> {
        let text = SUITE.replace("[{ name = 'a', batch_sizes = [4] }, { name = 'b' }]", models);
        toml::from_str::<Suite>(&text).unwrap().check()
    }

    #[test]
    fn weights_of_one_name_are_those_of_one_file() {
        with_models("[{ name = 'a', weights = 'x.safetensors' }, { name = 'b' }]").unwrap();
        let same = "{ name = 'a', weights = 'x.safetensors' }";
        with_models(&format!("[{same}, {}]", same.replace(" }", ", variants = ['int8'] }"))).unwrap();
        for other in ["{ name = 'a', weights = 'y.safetensors' }", "{ name = 'a' }"] {
            let error = with_models(&format!("[{other}, {same}]")).unwrap_err().to_string();
            assert!(error.starts_with("two tables of the suite give a different weights"), "{error}");
            assert!(error.ends_with("with `architecture = \"a\"` in own.toml"), "{error}");
        }
    }

    #[test]
    fn a_misspelt_key_a_model_that_is_no_table_and_a_batch_of_none_are_refused() {
        assert!(toml::from_str::<Suite>(&format!("batchsizes = [1]\n{SUITE}")).is_err());
        let error = toml::from_str::<Suite>(&SUITE.replace("{ name = 'b' }", "'b'")).unwrap_err().to_string();
        assert!(error.contains("string \"b\", expected a table such as { name = \"digits\" }"), "{error}");
        let suite: Suite = toml::from_str(&SUITE.replace("[1, 8]", "[0]")).unwrap();
        assert!(suite.check().is_err());
    }

    #[test]
    fn files_of_a_load_test_are_in_the_folder_of_the_suite() {
        let suite: Suite = toml::from_str(&format!("{SUITE}\n[load]\ntrace = 'a.csv'\nlengths = '/b.tsv'")).unwrap();
        let load = suite.with_paths_in(Path::new("/suites")).load;
        assert_eq!(["trace", "lengths"].map(|key| load[key].as_str()), [Some("/suites/a.csv"), Some("/b.tsv")]);
    }

    #[test]
    fn tests_of_no_tokens_and_depths_of_nothing_are_refused() {
        let check = |table: &str| {
            let suite: Suite = toml::from_str(&format!("{SUITE}\n[tokens]\n{table}"))?;
            suite.check()
        };
        check("pp = [512]\ntg = 128\ndepth = [0, 4096]").unwrap();
        for (table, expected) in [
            ("pp = [512, 0]", "`pp` and `tg` are numbers of tokens from 1 to 16777216"),
            ("tg = 0", "`pp` and `tg` are numbers of tokens from 1 to 16777216"),
            ("tg = 16777217", "`pp` and `tg` are numbers of tokens from 1 to 16777216"),
            (
                "tg = 8\ndepth = [1000000000]",
                "`depth` is the number of tokens before those of `tg`, from 0 to 16777216",
            ),
            ("pp = [8]\ndepth = [0]", "`depth` says where `tg` begins: add `tg`, or leave it out"),
            ("tg = -1", "invalid value: integer `-1`"),
        ] {
            let error = check(table).unwrap_err().to_string();
            assert!(error.contains(expected), "{table}: {error}");
        }
    }

    #[test]
    fn numbers_that_no_machine_can_do_are_refused() {
        let check = |effort: Effort| effort.check().map_err(|error| error.to_string());
        let plain = Effort::default();
        assert_eq!(check(plain.clone()), Ok(()));
        for seconds in [1e300, f64::INFINITY, f64::NAN, 0.0, -1.0] {
            assert!(check(Effort { budget_seconds: seconds, ..plain.clone() }).unwrap_err().contains("budget"));
            assert!(check(Effort { timeout_seconds: seconds, ..plain.clone() }).unwrap_err().contains("timeout"));
        }
        assert!(check(Effort { least_seconds: 1e300, ..plain.clone() }).is_err());
        assert!(check(Effort { iterations: usize::MAX, ..plain.clone() }).is_err());
        assert!(check(Effort { processes: 0, ..plain.clone() }).unwrap_err().contains("processes"));
        assert!(check(Effort { warmup: usize::MAX, ..plain }).is_err());
    }

    #[test]
    fn more_threads_than_processors_are_a_warning_and_far_more_an_error() {
        let with = |threads| Effort { threads: Some(threads), ..Effort::default() };
        assert_eq!(with(processors()).thread_warning(), None);
        assert_eq!(Effort::default().thread_warning(), None);
        let more = with(processors() + 1);
        assert!(more.thread_warning().unwrap().contains("more than"));
        more.check().unwrap();
        assert!(with(100_000).check().unwrap_err().to_string().starts_with("threads is a number from 1 to"));
        assert!(with(0).check().is_err());
    }
}

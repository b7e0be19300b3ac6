//! The flags and `INFERBENCH_*` variables that change what a suite says.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use indexmap::IndexSet;
use serde::{Serialize, Serializer};

use super::values::{count, per_cent, seconds};
use crate::catalogue::{files_of, is_model_file, is_module, models_of_files, models_of_paths, path_of};
use crate::definition::{
    Boundary, DataSource, Dtype, MODULES, Phase, Suite, SuiteModel, Sweep, TimedOn, TokenTests, backend_and_settings,
    backend_of_flag, parse_device, usable_name, with_settings,
};
use crate::paths::{TRUST, trust};

/// The flags that choose cases; each has an environment variable of the same name, which `cargo bench` reads.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct Selection {
    /// Suite: a name of models/suites, or a path [default: quick, or the models of a bench executable of your own]
    #[arg(long, env = "INFERBENCH_SUITE", value_name = "NAME|FILE")]
    pub suite: Option<String>,
    /// Only these models: names, hub ids or files, separated by commas
    #[arg(long, env = "INFERBENCH_MODEL", value_delimiter = ',', value_name = "NAME|FILE,…")]
    pub model: Vec<String>,
    /// These variants instead of the suite's, separated by commas, such as original,int4,q8_0, or all
    #[arg(long, env = "INFERBENCH_VARIANT", value_delimiter = ',', value_name = "NAME,…")]
    pub variant: Vec<String>,
    /// These files instead of the suite's models: a model, then its variants
    #[arg(
        long,
        env = "INFERBENCH_PATH",
        value_delimiter = ',',
        value_name = "[NAME=]FILE,…",
        conflicts_with = "model"
    )]
    pub path: Vec<String>,
    /// Files and folders that stand alone on the command line: each is a model
    #[arg(skip)]
    #[serde(skip)]
    pub files: Vec<String>,
    /// An input of the given files, which replaces their own: `x:f32[batch,3,224,224]`, `ids:i64[batch,128]<30522`, `sr:i64[]=16000`
    #[arg(long, env = "INFERBENCH_INPUT", value_delimiter = ';', value_name = "NAME:TYPE[SIZES];…")]
    pub input: Vec<String>,
    /// A size that models leave open, by its name, or as `x.2` for the third dimension of input `x`; several are measured one after the
    /// other: `height=224,384` (several batches by `--batch-sizes`). The lists of two dimensions are paired [default: typical sizes are tried]
    #[arg(long, env = "INFERBENCH_DIM", value_delimiter = ';', value_name = "NAME=SIZE,…")]
    pub dim: Vec<String>,
    /// Inputs for the given files, with the right outputs: a folder with `input_0.pb` and `output_0.pb`, `.npz` or `.safetensors` [default: those beside the file]
    #[arg(long, env = "INFERBENCH_REFERENCE", value_name = "PATH")]
    pub reference: Option<PathBuf>,
    /// The samples for the evaluation of accuracy, and for `--time-on samples`: synthetic, image-folder:PATH,
    /// recorded:FILE.safetensors or .npz, or text:FILE [default: the model's]
    // A duel passes the flags on as they are written.
    #[arg(long, env = "INFERBENCH_DATA_SOURCE", value_name = "SOURCE")]
    #[serde(serialize_with = "as_flag")]
    pub data_source: Option<DataSource>,
    /// The same as `--data-source text:FILE`: one text per line, for models with a tokenizer.json and GGUF files with a tokenizer
    #[arg(long, env = "INFERBENCH_TEXT", value_name = "FILE", conflicts_with = "data_source")]
    pub text: Option<PathBuf>,
    /// What is timed: seeded inputs, or samples of the data source in their own lengths [default: the suite's, which is seeded]
    #[arg(long, env = "INFERBENCH_TIME_ON", value_name = "INPUTS", ignore_case = true)]
    pub time_on: Option<TimedOn>,
    /// These backends instead of the suite's: ort or onnxruntime, torch or pytorch, tch, candle, …; `ort@FOLDER` is ONNX Runtime of the Python environment in that folder
    #[arg(long, env = "INFERBENCH_BACKEND", value_delimiter = ',', value_name = "NAME,…", value_parser = backend_of_flag)]
    pub backend: Vec<String>,
    /// Settings of the PyTorch backends; each makes a backend of its own: default, max-autotune,
    /// max-autotune-no-cudagraphs, reduce-overhead, freezing, channels-last, autocast, sdpa, static-cache, cache; several at once with dots between them
    #[arg(long, env = "INFERBENCH_TORCH_MODE", value_delimiter = ',', value_name = "MODE,…")]
    pub torch_mode: Vec<String>,
    /// Let PyTorch files (pickles, packages of AOTInductor) run code when they are read: those that the command or its suite names,
    /// or with `--trust=FILE` only that one; `--trust=false` overrides the variable
    #[arg(long, env = TRUST, value_parser = trusted, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_name = "FILE", hide_possible_values = true)]
    // Arms of a duel get it in another way.
    #[serde(skip)]
    pub trust: Vec<Trust>,
    /// These devices instead of the suite's: cpu, cuda:1, openvino, auto, …; `inferbench devices` shows them
    #[arg(long, env = "INFERBENCH_DEVICE", value_delimiter = ',', value_name = "NAME,…", value_parser = parse_device)]
    pub device: Vec<String>,
    /// These dtypes instead of the suite's: f32, f16 or float16, bf16, i8
    #[arg(long, env = "INFERBENCH_DTYPE", value_delimiter = ',', value_name = "NAME,…", ignore_case = true)]
    pub dtype: Vec<Dtype>,
    /// These boundaries instead of the suite's: compute, end-to-end, pipeline
    #[arg(long, env = "INFERBENCH_BOUNDARY", value_delimiter = ',', value_name = "NAME,…", ignore_case = true)]
    pub boundary: Vec<Boundary>,
    /// Only these phases, separated by commas; models that have none of them are left out
    #[arg(long, env = "INFERBENCH_PHASE", value_delimiter = ',', value_name = "NAME,…", ignore_case = true)]
    pub phase: Vec<Phase>,
    /// These batch sizes instead of the suite's
    #[arg(long, visible_alias = "batch", env = "INFERBENCH_BATCH_SIZES", value_delimiter = ',', value_name = "N,…")]
    pub batch_sizes: Vec<usize>,
    /// These sequence lengths instead of the suite's, for models that have one
    #[arg(long, visible_alias = "seq-len", env = "INFERBENCH_SEQ_LENS", value_delimiter = ',', value_name = "N,…")]
    pub seq_lens: Vec<usize>,
    /// As in llama-bench: measure only prompts of this many tokens of language models
    #[arg(short = 'p', long, env = "INFERBENCH_PP", value_delimiter = ',', value_name = "N,…", conflicts_with_all = ["seq_lens", "phase"])]
    pub pp: Vec<usize>,
    /// As in llama-bench: measure only the generation of this many tokens of language models
    #[arg(short = 'n', long, env = "INFERBENCH_TG", value_name = "N", value_parser = count,
          conflicts_with_all = ["seq_lens", "phase"])]
    pub tg: Option<usize>,
    /// The number of tokens before those of `--tg`; 0 means one token, since something has to be read [default: 0]
    #[arg(short = 'd', long, env = "INFERBENCH_DEPTH", value_delimiter = ',', value_name = "N,…", requires = "tg",
          conflicts_with_all = ["seq_lens", "phase"])]
    pub depth: Vec<usize>,
}

/// The flags that change how much is measured.
#[derive(Args, Clone, Debug, Default)]
pub struct EffortArguments {
    /// Fresh processes that measure each case, alternating with those of the other cases; with 3 or more, a row has an interval
    /// between processes [default: the suite's, which is 1]
    #[arg(long, env = "INFERBENCH_PROCESSES", value_name = "N")]
    pub processes: Option<usize>,
    /// Calls to measure per case, at least 10 (Criterion's minimum), even if they take longer than the suite's budget; `--budget`
    /// limits them, and so does half of the timeout [default: the suite's]
    #[arg(long, env = "INFERBENCH_ITERATIONS", value_name = "N")]
    pub iterations: Option<usize>,
    /// The minimum number of calls before the first measured one
    #[arg(long, env = "INFERBENCH_WARMUP", value_name = "N")]
    pub warmup: Option<usize>,
    /// The time to spend on the measured calls of a case, in seconds or with a unit, such as 300ms
    #[arg(long, env = "INFERBENCH_BUDGET", value_name = "SECONDS", value_parser = seconds)]
    pub budget: Option<f64>,
    /// As many calls as a 99 % bound of this percentile needs, or as the budget allows, instead of a number of calls
    #[arg(long, env = "INFERBENCH_UNTIL_PERCENTILE", value_name = "PERCENTILE", conflicts_with = "iterations")]
    pub until_percentile: Option<f64>,
    /// As many calls as it takes, by a pilot, to know the mean to ± this many per cent (`0.5` or `0.5%`), or as the budget allows
    #[arg(long, env = "INFERBENCH_UNTIL_INTERVAL", value_name = "PERCENT", conflicts_with = "iterations", value_parser = per_cent)]
    pub until_interval: Option<f64>,
    /// Shuffle the order of the cases in each process; the same number gives the same order, and no number takes a new one
    #[arg(long, env = "INFERBENCH_SHUFFLE", value_name = "SEED", num_args = 0..=1, require_equals = true, default_missing_value = "new", value_parser = shuffle_seed)]
    pub shuffle: Option<u64>,
    /// The time after which a case is stopped, in seconds or with a unit, such as 5min
    #[arg(long, env = "INFERBENCH_TIMEOUT", value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<f64>,
    /// Threads of every backend
    #[arg(long, env = "INFERBENCH_THREADS", value_name = "N")]
    pub threads: Option<usize>,
    /// Do not end with 5 if cases failed or took too long
    #[arg(long, env = "INFERBENCH_ALLOW_FAILED", value_parser = clap::builder::BoolishValueParser::new())]
    pub allow_failed: bool,
    /// Let the runtimes write their logs into `debug.log` in the run's folder; this takes time, so do not trust the measured times
    #[arg(long, env = "INFERBENCH_DEBUG", value_parser = clap::builder::BoolishValueParser::new())]
    pub debug: bool,
}

/// Which files may run code when they are read.
#[derive(Clone, Debug, PartialEq)]
pub enum Trust {
    Nothing,
    /// Those that the command or its suite names.
    Named,
    File(PathBuf),
}

fn trusted(text: &str) -> Result<Trust, String> {
    match text.to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(Trust::Named),
        "0" | "false" | "no" | "off" => Ok(Trust::Nothing),
        _ => match Path::new(text).canonicalize() {
            Ok(file) => Ok(Trust::File(file)),
            Err(error) => Err(format!("neither true nor false, and no file: {error}")),
        },
    }
}

/// The value of the flag.
impl std::fmt::Display for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trust::Nothing => write!(f, "false"),
            Trust::Named => write!(f, "true"),
            Trust::File(file) => file.display().fmt(f),
        }
    }
}

fn shuffle_seed(text: &str) -> Result<u64, String> {
    match text {
        "new" => Ok(jiff::Timestamp::now().as_microsecond().unsigned_abs()),
        seed => seed.parse().map_err(|_| "not a whole number".to_owned()),
    }
}

fn as_flag<S: Serializer>(source: &Option<DataSource>, serializer: S) -> Result<S::Ok, S::Error> {
    source.as_ref().map(DataSource::flag).serialize(serializer)
}

/// Replaces each backend of PyTorch in these lists by one backend for each of the modes that it has, without
/// duplicates.
///
/// # Errors
/// A mode is unknown, no backend has it, or a backend of PyTorch has an environment.
fn put_modes<'a>(lists: impl IntoIterator<Item = &'a mut Vec<String>>, modes: &[String]) -> Result<()> {
    let mut is_used = vec![false; modes.len()];
    for list in lists {
        let mut all = IndexSet::new();
        for backend in &*list {
            let (backend_name, place) =
                backend.split_once('@').map_or((backend.as_str(), None), |(name, place)| (name, Some(place)));
            if !MODULES.contains(&backend_and_settings(backend_name).0) {
                all.insert(backend.clone());
                continue;
            }
            ensure!(
                place.is_none(),
                "`--torch-mode` is for backends without an environment: write `torch-compile.max-autotune@FOLDER`"
            );
            for (mode, is_used) in modes.iter().zip(&mut is_used) {
                if let Some(name) = with_settings(backend_name, mode)? {
                    *is_used = true;
                    all.insert(name);
                }
            }
        }
        *list = all.into_iter().collect();
    }
    if let Some((mode, _)) = modes.iter().zip(is_used).find(|(_, is_used)| !is_used) {
        bail!("no backend here has the mode {mode:?}: add one by `--backend torch-compile`");
    }
    Ok(())
}

/// Prints the names of models whose files have no character in their names that Criterion keeps: a hash is in their
/// ids.
fn say_hashed_names(models: &[SuiteModel]) {
    for SuiteModel { name, path, .. } in models.iter().filter(|model| model.is_named_by_file) {
        let Some(path) = path else { continue };
        if usable_name(&path.file_stem().unwrap_or_default().to_string_lossy()).is_empty() {
            eprintln!(
                "{}: Criterion keeps a-z and 0-9 of a name, so the results call it {name}; `NAME=FILE` sets another name",
                path.display()
            );
        }
    }
}

/// The backend without its settings and its environment: `torch` for `torch.sdpa@old`.
fn plain_backend(name: &str) -> &str {
    backend_and_settings(name.split('@').next().unwrap_or(name)).0
}

/// Replaces `own` by what flags say, if they say anything.
fn replace<T: Clone>(own: &mut Vec<T>, said: &[T]) {
    if !said.is_empty() {
        *own = said.to_vec();
    }
}

impl Selection {
    /// Takes the files and folders of models among words that stand alone on the command line, and returns the others.
    fn take_files<'a>(&mut self, words: &'a [String]) -> Vec<&'a String> {
        let is_path = |word: &&String| {
            let path = path_of(word);
            is_model_file(&path) || is_module(&path) || path.exists() || word.contains(".py:")
        };
        let (paths, others): (Vec<&String>, Vec<&String>) = words.iter().partition(is_path);
        self.files.extend(paths.into_iter().cloned());
        others
    }

    /// Takes the files and folders of models, and returns an expression that matches if one of the other words does.
    pub fn take_filter(&mut self, words: &[String]) -> String {
        match self.take_files(words).as_slice() {
            [filter] => (*filter).clone(),
            filters => filters.iter().map(|filter| format!("(?:{filter})")).collect::<Vec<_>>().join("|"),
        }
    }

    /// Takes the words that stand alone on the command line: files and folders of models, and at most one other, which is a
    /// filter of cases and is returned.
    ///
    /// # Errors
    /// There are several filters.
    pub fn take_words(&mut self, words: &[String]) -> Result<Option<String>> {
        match self.take_files(words).as_slice() {
            [] => Ok(None),
            [filter] => Ok(Some((*filter).clone())),
            [first, second, ..] => {
                bail!("neither {first:?} nor {second:?} is a file or folder, and only one filter of cases is allowed")
            }
        }
    }
}

impl Suite {
    /// The files that `--trust` flags name. `--trust=false` cancels the flags before it.
    fn trusted_by<'a>(&'a self, said: &'a [Trust]) -> Vec<&'a Path> {
        let mut files = Vec::new();
        for trust in said {
            match trust {
                Trust::Nothing => files.clear(),
                Trust::Named => files.extend(self.models.iter().filter_map(|model| model.path.as_deref())),
                Trust::File(file) => files.push(file),
            }
        }
        files
    }

    /// Applies the flags to the suite.
    ///
    /// # Errors
    /// A file of a flag cannot be a model, a value is wrong or out of its range, or a flag applies to nothing.
    pub fn with_arguments(mut self, selection: &Selection, effort: &EffortArguments) -> Result<Suite> {
        if !selection.path.is_empty() || !selection.files.is_empty() {
            // A folder has models of its own, not variants of another file.
            let (folders, files): (Vec<_>, Vec<_>) =
                selection.path.iter().cloned().partition(|word| path_of(word).is_dir());
            let alone = [folders, selection.files.clone()].concat();
            self.models = [models_of_files(&files)?, models_of_paths(&alone)?].concat();
            say_hashed_names(&self.models);
            self.include_found = false;
        }
        let is_file = |name: &&String| {
            let path = Path::new(name.as_str());
            (is_model_file(path) || is_module(path)) && path.is_file()
        };
        for file in selection.model.iter().filter(is_file) {
            self.models.extend(models_of_files(std::slice::from_ref(file))?);
        }
        for name in &selection.model {
            let path = Path::new(name);
            let is_in_folder = path.parent().is_some_and(|folder| folder != Path::new(""));
            ensure!(!is_in_folder || !is_model_file(path) || path.is_file(), "there is no file {name}");
        }
        let is_said = !selection.input.is_empty() || selection.reference.is_some();
        let has_files = self.models.iter().any(|model| model.path.is_some());
        ensure!(!is_said || has_files, "`--input` and `--reference` are for files of models: name such files");
        // As one text, so that a dimension in two flags is refused.
        let said: Sweep = selection.dim.join(",").parse()?;
        self.dims = self.dims.with(&said);
        self.models.iter_mut().for_each(|model| model.dims = model.dims.without(&said));
        for model in self.models.iter_mut().filter(|model| model.path.is_some()) {
            model.inputs.extend(selection.input.iter().cloned());
            model.reference = selection.reference.clone().or(model.reference.take());
        }
        let text = selection.text.clone().map(DataSource::Text);
        if let Some(source) = text.or(selection.data_source.clone()) {
            self.data_source = Some(source);
            self.models.iter_mut().for_each(|model| model.data_source = None);
        }
        self.time_on = selection.time_on.unwrap_or(self.time_on);
        replace(&mut self.backends, &selection.backend);
        if !selection.backend.is_empty() {
            for own in self.models.iter_mut().filter_map(|model| model.backends.as_mut()) {
                let is_own = |name: &&String| own.iter().any(|own| plain_backend(own) == plain_backend(name));
                *own = selection.backend.iter().filter(is_own).cloned().collect();
            }
        }
        if !selection.torch_mode.is_empty() {
            let of_models = self.models.iter_mut().filter_map(|model| model.backends.as_mut());
            put_modes(of_models.chain([&mut self.backends]), &selection.torch_mode)?;
        }
        self.trusted_by(&selection.trust).iter().for_each(|file| trust(files_of(file).iter().map(PathBuf::as_path)));
        replace(&mut self.devices, &selection.device);
        replace(&mut self.dtypes, &selection.dtype);
        replace(&mut self.boundaries, &selection.boundary);
        if !selection.phase.is_empty() {
            self.phases = Some(selection.phase.clone());
            self.models.iter_mut().for_each(|model| model.phases = None);
        }
        if !selection.batch_sizes.is_empty() {
            self.batch_sizes = selection.batch_sizes.clone();
            self.models.iter_mut().for_each(|model| model.batch_sizes = None);
        }
        if !selection.seq_lens.is_empty() {
            self.seq_lens = Some(selection.seq_lens.clone());
            self.models.iter_mut().for_each(|model| model.seq_lens = None);
        }
        if !selection.pp.is_empty() || selection.tg.is_some() {
            let Selection { pp, tg, depth, .. } = selection;
            self.tokens = TokenTests { pp: pp.clone(), tg: *tg, depth: depth.clone() };
        } else if !selection.seq_lens.is_empty() || !selection.phase.is_empty() {
            self.tokens = TokenTests::default();
        }
        if let Some(iterations) = effort.iterations {
            if (1..10).contains(&iterations) {
                eprintln!(
                    "inferbench: `--iterations {iterations}` makes 10 calls of each case, which is Criterion's minimum"
                );
            }
            self.effort.iterations = iterations;
            self.effort.are_iterations_explicit = effort.budget.is_none();
            self.effort.least_seconds = 0.0;
            self.effort.until_percentile = None;
            self.effort.until_interval = None;
        }
        self.effort.processes = effort.processes.unwrap_or(self.effort.processes);
        self.effort.warmup = effort.warmup.unwrap_or(self.effort.warmup);
        self.effort.budget_seconds = effort.budget.unwrap_or(self.effort.budget_seconds);
        self.effort.timeout_seconds = effort.timeout.unwrap_or(self.effort.timeout_seconds);
        self.effort.until_percentile = effort.until_percentile.or(self.effort.until_percentile);
        self.effort.until_interval = effort.until_interval.or(self.effort.until_interval);
        self.effort.shuffle = effort.shuffle.or(self.effort.shuffle);
        self.effort.threads = effort.threads.or(self.effort.threads);
        self.check()?;
        if let Some(warning) = self.effort.thread_warning() {
            eprintln!("inferbench: {warning}");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests;

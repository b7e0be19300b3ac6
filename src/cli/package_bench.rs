//! The front end of a bench executable of another crate: its engines, models and closures beside those of this package.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

use super::run::run_and_show;
use super::{arm, exit_code, load};
use crate::backend::{Backend, Closures, registry};
use crate::definition::{CLOSURE, Suite, SuiteModel, backend_name};
use crate::exit_codes;
use crate::harness::{self, Answer, NoCase, Request, Scorer};
use crate::paths::Paths;
use crate::report::table::fit_to_terminal;
use crate::run_data::{CriterionArguments, Record};
use crate::selection::parse_with_variables;

/// The benchmarks of a crate that has inferbench as a dependency.
///
/// ```no_run
/// // benches/inference.rs, with `harness = false` in Cargo.toml
/// fn main() -> std::process::ExitCode {
///     inferbench::Harness::new().model("models/net.onnx").batch_sizes([1, 8]).main()
/// }
/// ```
///
/// `cargo bench` then measures each model on every backend of the build and on the engines of the crate, compares their
/// outputs, and shows a table. Criterion's flags and its FILTER work, and so do the variables `INFERBENCH_…` with the names of
/// the flags of `inferbench run`. Results lie in `target-reports/` of the package, where `inferbench report` and `inferbench
/// compare` find them.
///
/// The executable starts itself once more for each backend and device. Make the harness the first thing that `main` does: what
/// comes before it is done in each of these processes.
#[derive(Default)]
pub struct Harness {
    engines: Vec<(String, Box<dyn Backend>)>,
    closures: BTreeMap<String, Box<dyn Fn() + Send + Sync>>,
    scorers: Vec<Scorer>,
    models: Vec<SuiteModel>,
    batch_sizes: Vec<usize>,
    backends: Option<Vec<String>>,
}

impl Harness {
    /// Benchmarks without a model yet, at batch size 1, on the CPU.
    pub fn new() -> Self {
        Harness::default()
    }

    /// Adds an engine under the name that it gets in the ids of cases.
    #[must_use]
    pub fn backend(mut self, name: &str, engine: impl Backend + 'static) -> Self {
        self.engines.push((name.into(), Box::new(engine)));
        self
    }

    /// Takes these backends, in this order, instead of all backends of the build and then the engines. Without a
    /// reference, outputs are compared with those of the first one that runs.
    #[must_use]
    pub fn backends<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.backends = Some(names.into_iter().map(backend_name).collect());
        self
    }

    /// Adds a model: a file `.onnx` or `.pt` in the package, the name of a packaged model, or a [`SuiteModel`], which says
    /// more.
    #[must_use]
    pub fn model(mut self, model: impl Into<SuiteModel>) -> Self {
        self.models.push(model.into());
        self
    }

    /// Sets the batch sizes of models that do not have their own.
    #[must_use]
    pub fn batch_sizes(mut self, sizes: impl IntoIterator<Item = usize>) -> Self {
        self.batch_sizes = sizes.into_iter().collect();
        self
    }

    /// Adds a metric: the mean of a score over the samples of each model, after it was measured, with its 95 % interval. Models
    /// without samples of their own get 64 seeded ones. An answer without a score, `None`, is left out. The metric is a
    /// row of `metrics.csv` and a column of reports. Models that make one token after the other, and engines without
    /// [`Session::rebind`](crate::Session::rebind), have no such metrics.
    #[must_use]
    pub fn metric(
        mut self,
        name: &str,
        unit: &str,
        score: impl Fn(&Answer<'_>) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        self.scorers.push(Scorer { metric: name.into(), unit: unit.into(), score: Box::new(score) });
        self
    }

    /// Adds code around a model, such as a tokeniser, as a case of its own. The throughput counts the `elements` that
    /// one call handles; `unit` says what they are, such as `tokens`. The result of the closure is dropped within the
    /// measured time.
    #[must_use]
    pub fn bench<T>(
        mut self,
        name: &str,
        elements: usize,
        unit: &str,
        call: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        let input = format!("elements:u8[{elements},1]");
        let (backends, modality) = (Some(vec![CLOSURE.to_owned()]), Some(unit.to_owned()));
        self.models.push(SuiteModel { backends, modality, ..SuiteModel::of_code(name, [input.as_str()], []) });
        self.closures.insert(name.into(), Box::new(move || drop(std::hint::black_box(call()))));
        self
    }

    /// `main` of the bench executable: measures what the command line asks for, prints the results, and says how it went.
    pub fn main(self) -> ExitCode {
        fit_to_terminal();
        exit_code(self.run_with_code().map(|(code, _)| code)).into()
    }

    /// Does the same as [`main`](Harness::main), and returns the records instead of an exit code: one per case that was
    /// planned, with its status. There are none if nothing was measured, as with `--list`.
    ///
    /// This does not return in the processes that the executable starts of itself, nor in those of a paired benchmark
    /// or a load test.
    ///
    /// # Errors
    /// A model, a flag or a variable is wrong, or files cannot be written.
    pub fn run(self) -> Result<Vec<Record>> {
        Ok(self.run_with_code()?.1)
    }

    /// `main` of another bench executable, such as `serving`, which puts the models under load: its command line is that of `inferbench
    /// load`.
    pub fn load_main(self) -> ExitCode {
        fit_to_terminal();
        let load = || {
            let suite = self.register(&Paths::find())?;
            harness::run_as_worker().map_or_else(|| load::run_bench(Some(&suite)), Ok)
        };
        exit_code(load()).into()
    }

    fn run_with_code(self) -> Result<(u8, Vec<Record>)> {
        let paths = Paths::find();
        let suite = self.register(&paths)?;
        if let Some(code) = harness::run_as_worker() {
            std::process::exit(i32::from(code));
        }
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        if words.first().is_some_and(|word| word == "arm" || word == "load") {
            // `cargo bench` adds a flag of its own at the end.
            let words = std::env::args_os().filter(|word| word != "--bench");
            let ended = match parse_with_variables::<Part>(words) {
                Part::Arm(arguments) => arm::run(&arguments, Some(&suite)),
                Part::Load(arguments) => load::run(&arguments, Some(&suite)),
            };
            // There are no records, and what the crate prints about some would follow the answer of an arm.
            std::process::exit(exit_code(ended).into());
        }
        let request = Request { own_suite: Some(suite), ..harness::bench_request(&words) };
        let arguments = CriterionArguments::parse_from(&request.criterion_arguments);
        let ended = match arguments.leaves_records() {
            true => run_and_show(&paths, &request),
            false => harness::run(&paths, &request).map(|finished| (finished.exit_code, Vec::new())),
        };
        match ended {
            // `cargo bench` passes a filter to each bench, of which not all have such a case.
            Err(error) if error.is::<NoCase>() => {
                eprintln!("inferbench: {error}");
                Ok((exit_codes::OK, Vec::new()))
            }
            ended => ended,
        }
    }

    /// Registers the engines and returns the suite.
    fn register(self, paths: &Paths) -> Result<Suite> {
        let Harness { mut engines, closures, scorers, models, batch_sizes, backends } = self;
        ensure!(!models.is_empty(), "the harness has no model: add some with `.model(…)`");
        let own = engines.iter().map(|(name, _)| name.clone());
        let built = registry::built().into_iter().map(str::to_owned);
        // Without a reference, the outputs of an engine are compared with those of a known backend.
        let backends = backends.unwrap_or_else(|| built.chain(own).collect());
        let closures: &'static Closures = Box::leak(Box::new(Closures(closures)));
        engines.push((CLOSURE.into(), Box::new(closures)));
        registry::register(engines)?;
        harness::register_scorers(scorers)?;
        let mut suite = Suite { models, ..Suite::new(&own_name(), backends) }.with_paths_in(paths.root());
        if !batch_sizes.is_empty() {
            suite.batch_sizes = batch_sizes;
        }
        suite.check()?;
        Ok(suite)
    }
}

/// The command line of a process of a paired benchmark, and of a load test.
#[derive(Parser)]
enum Part {
    Arm(arm::Arguments),
    Load(Box<load::Arguments>),
}

/// The name of the bench, without the hash that Cargo appends to its executable.
fn own_name() -> String {
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name.to_owned(),
        _ => stem,
    }
}

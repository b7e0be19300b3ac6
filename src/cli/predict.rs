//! `inferbench predict`: latency, throughput and memory of cases that were not measured, with their errors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf, is_separator};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde::Deserialize;

use super::anchor;
use super::history_arguments::HistoryArguments;
use super::recommend::{Form, lessons, memory_of_machines, read};
use super::write_or_print;
use crate::catalogue::{attempts, flags, is_model_file, is_module, path_of, read_toml, shell_word};
use crate::decision::prediction::{
    Anchor, Asked, Basis, Lessons, Prediction, Predictor, Refusal, Runtime, Site, Subject, command, evaluate,
    evaluation_text, predictions_text, schema,
};
use crate::definition::{Boundary, Case, Dtype, Model, Origin, Sizes, SuiteModel, TimedOn, usual_backend};
use crate::exit_codes;
use crate::fixture::work_of;
use crate::harness::{Interrupted, Plan, is_interrupted, make_plan};
use crate::history::History;
use crate::machine::Machine;
use crate::onnx::count;
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::report::{Format, json};
use crate::run_data::{Peaks, Work};
use crate::selection::{EffortArguments, PlannedCase, Selection};

/// Predict latency, throughput and memory of unmeasured cases
#[derive(Args)]
#[command(
    after_help = "A measured case is shown as it was measured. A prediction is refused, with the reason, if the history has fewer \
        than 15 rows, or fewer than 5 families, of its backend, device and dtype, if operations or bytes are outside their range by more than \
        a factor of 4, or if no measured model has one of its operators. The history is filled by `inferbench run --suite small`, and by \
        `inferbench run --suite operators`, whose single operators are further examples. Without flags, the backends are those of the \
        history, the device is cpu, and the batch size is 1, or those of a matrix: 1, 2, 4, 8, 16, 32. A file for `--machine` has \
        `gflops_per_second`, `gb_per_second` and perhaps `cores`.\n\nExamples:\n  inferbench predict resnet50 --backend ort --batch 2,8,32\n  \
        inferbench predict --path net=file.onnx --backend ort,tch\n  inferbench predict bert-base --backend tch --seq-len 64,256\n  \
        inferbench predict resnet50 --machine server.toml --backend ort\n  \
        inferbench predict --path net=file.onnx --backend ort --anchor\n  inferbench predict --suite small --matrix out.json\n  \
        inferbench predict --evaluate",
    // A backend of the history may be of an environment that is not here.
    mut_arg("backend", |backend| backend.value_parser(usual_backend))
)]
pub struct Arguments {
    /// Names and files of models
    #[arg(value_name = "MODEL|FILE")]
    models: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// A machine of the history, by its host id [default: this one, or else the one with the most rows]
    #[arg(long, value_name = "HOST_ID")]
    host: Option<String>,
    /// A file that describes a machine by its peaks; intervals are wider
    #[arg(long, value_name = "FILE", conflicts_with = "host")]
    machine: Option<PathBuf>,
    /// Measure up to three cases of the history again for each backend, for 2 s each, and multiply predicted times by how much slower they are now
    #[arg(long, conflicts_with_all = ["machine", "evaluate"])]
    anchor: bool,
    /// Write the predictions to this file, as JSON
    #[arg(long, value_name = "FILE")]
    matrix: Option<PathBuf>,
    /// Show the errors of predictions for rows of the history if families, batch sizes or machines are left out
    #[arg(
        long,
        conflicts_with_all = ["models", "model", "suite", "path", "variant", "input", "dim", "backend", "device", "dtype"],
        conflicts_with_all = ["batch_sizes", "seq_lens", "phase", "host", "machine", "matrix", "pp", "tg", "torch_mode"],
        conflicts_with_all = ["boundary", "time_on", "data_source", "text", "reference", "depth"]
    )]
    evaluate: bool,
    #[command(flatten)]
    history: HistoryArguments,
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
}

/// A machine by its peaks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    gflops_per_second: f64,
    gb_per_second: f64,
    cores: Option<usize>,
}

const BATCHES_OF_MATRIX: [usize; 6] = [1, 2, 4, 8, 16, 32];

pub fn run(arguments: &Arguments) -> Result<u8> {
    let Some(format) = arguments.format.of_text() else {
        print!("{}", schema());
        return Ok(exit_codes::OK);
    };
    let paths = Paths::find();
    let history = arguments.history.open(paths.reports())?;
    history.latest()?;
    let mut lessons = lessons(&paths, &history, &read(&history, None)?.0);
    if arguments.evaluate {
        let found = evaluate(&lessons);
        if !found.errors.is_empty() || format == Format::Json {
            print!("{}", evaluation_text(&found, &lessons, format));
        }
        if found.errors.is_empty() {
            eprintln!(
                "inferbench: nothing can be evaluated: too few models with a counted cost were measured on one backend, device and dtype; \
                 fill the history by `inferbench run --suite small`"
            );
            return Ok(exit_codes::NOTHING_MEASURED);
        }
        return Ok(exit_codes::OK);
    }
    let site = arguments.site(&mut lessons)?;
    let memory_mb = memory_of_machines(&history).get(&site.host_id).copied();
    let all = arguments.ask(&paths, &lessons, &site, memory_mb)?;
    match &arguments.matrix {
        Some(file) => {
            write_or_print(Some(file), &json(&all))?;
            if file.as_os_str() != "-" {
                println!("{}", file.display());
            }
        }
        None => print!("{}", predictions_text(&all, &lessons, format)),
    }
    let is_answered = all.iter().any(|asked| asked.prediction.is_some());
    Ok(if is_answered { exit_codes::OK } else { exit_codes::NOTHING_MEASURED })
}

/// The predicted milliseconds of a call on this machine, by the id of the case, as far as the history predicts them.
pub fn predicted_latencies(paths: &Paths, cases: &[&PlannedCase]) -> BTreeMap<String, f64> {
    let Ok(history) = History::open(&[paths.reports()]) else { return BTreeMap::new() };
    let Ok((records, _)) = read(&history, None) else { return BTreeMap::new() };
    let lessons = lessons(paths, &history, &records);
    let Some(site) = usual_site(&lessons, Some(&Machine::read().host_id)) else { return BTreeMap::new() };
    let predictor = Predictor::new(&lessons);
    let predicted = |planned: &&PlannedCase| {
        let subject = subject(&planned.case, planned.definition.as_ref().ok()?).ok()?;
        Some((planned.case.to_string(), predictor.predict(&subject, &site).ok()?.latency_ms.value))
    };
    cases.iter().filter_map(predicted).collect()
}

/// The machine of this id with the number of threads that most of its rows have. Without an id, it is the machine with the most rows.
fn usual_site(lessons: &Lessons, host_id: Option<&str>) -> Option<Site> {
    let mut rows: BTreeMap<&Site, usize> = BTreeMap::new();
    let sites = lessons.examples.iter().map(|example| &example.site);
    for site in sites.filter(|site| host_id.is_none_or(|host_id| site.host_id == host_id)) {
        *rows.entry(site).or_default() += 1;
    }
    rows.into_iter().max_by_key(|(_, count)| *count).map(|(site, _)| site.clone())
}

/// The model with usual sizes in place of those that its file leaves open: the first ones for which its cost can be counted.
/// Adds a line about them to `said`.
fn with_usual_sizes(model: Model, case: &Case, said: &mut BTreeSet<String>) -> Model {
    let mut attempts = attempts(&model, case.sequence_length);
    if attempts.is_empty() {
        return model;
    }
    let is_counted = |attempt: &Model| count(attempt, case.phase, case.sizes()).is_ok();
    let sized = attempts.swap_remove(attempts.iter().position(is_counted).unwrap_or_default());
    let flags = flags(&model, &sized);
    let name = &case.model;
    said.insert(format!(
        "{name}: the file leaves sizes open; predicted for {flags} (to choose other sizes, pass these flags)"
    ));
    sized
}

/// A case with its cost, for a predictor.
fn subject(case: &Case, model: &Model) -> Result<Subject> {
    let (cost, operators) = count(model, case.phase, case.sizes())?;
    Ok(Subject {
        runtime: Runtime::of(case),
        work: work_of(case, model),
        family: model.family.clone(),
        batch_size: case.batch_size,
        cost,
        operators,
        parameters: model.parameters,
        is_packaged: matches!(model.origin, Origin::Packaged { .. }),
    })
}

impl Arguments {
    /// The site that the predictions are for. The peaks of a described machine are added to the lessons.
    fn site(&self, lessons: &mut Lessons) -> Result<Site> {
        if let Some(file) = &self.machine {
            let (site, peaks) = described(file)?;
            lessons.peaks.insert(site.clone(), peaks);
            return Ok(site);
        }
        if let Some(host) = &self.host {
            let hosts: BTreeSet<&str> = lessons.examples.iter().map(|it| it.site.host_id.as_str()).collect();
            let others = || format!("no row is of host {host}; there are {}", Vec::from_iter(hosts).join(", "));
            return usual_site(lessons, Some(host)).with_context(others);
        }
        let here = usual_site(lessons, Some(&Machine::read().host_id));
        let why = match lessons.disturbed {
            0 => "no row of this history has a counted cost; fill it by `inferbench run --suite small`".to_owned(),
            disturbed => format!(
                "other load affected most samples of {}, and no other row has a counted cost; measure again while the machine does nothing else",
                plural(disturbed, "row of this history", "rows of this history")
            ),
        };
        here.or_else(|| usual_site(lessons, None)).context(why)
    }

    fn ask(&self, paths: &Paths, lessons: &Lessons, site: &Site, memory_mb: Option<f64>) -> Result<Vec<Asked>> {
        let Plan { suite, cases } = self.planned(paths, lessons)?;
        let predictor = Predictor::new(lessons);
        let (mut all, mut said) = (Vec::new(), BTreeSet::new());
        let mut anchors: BTreeMap<(String, String, Dtype), Result<Anchor, String>> = BTreeMap::new();
        if self.anchor {
            anchor::check_machine(site)?;
        }
        for PlannedCase { case, definition, .. } in cases {
            let files = files_of(&suite.models, &case).join(",");
            let by_file = |command: String| self.by_file(command, &case, &files);
            let model = definition.map_err(|why| anyhow!("{}: {why}", case.model))?;
            let model = with_usual_sizes(model, &case, &mut said);
            let subject = subject(&case, &model).map_err(|why| Refusal {
                reason: format!("its cost cannot be counted: {why:#}"),
                would_help: command(&Runtime::of(&case), &Work::named(&case), case.batch_size),
            });
            let memory_mb = memory_mb.filter(|_| case.device == "cpu" && model.fixed_batch().is_none());
            let largest_batch = subject.as_ref().ok().zip(memory_mb).and_then(|(subject, memory_mb)| {
                let sizes = Sizes { batch: 2 * case.batch_size, ..case.sizes() };
                let (cost, _) = count(&model, case.phase, sizes).ok()?;
                let twice = Subject { batch_size: sizes.batch, cost, ..subject.clone() };
                predictor.largest_batch(subject, &twice, site, memory_mb)
            });
            let (prediction, refusal) = match subject.and_then(|subject| predictor.predict(&subject, site)) {
                Ok(found) => (Some(Prediction { would_help: found.would_help.clone().map(by_file), ..found }), None),
                Err(Refusal { reason, would_help }) => {
                    (None, Some(Refusal { reason, would_help: by_file(would_help) }))
                }
            };
            let mut asked = Asked {
                case_id: case.to_string(),
                model: case.model.clone(),
                variant: case.variant.clone(),
                backend: case.backend.clone(),
                device: case.device.clone(),
                dtype: case.dtype,
                batch_size: case.batch_size,
                dims: Some(case.dims.to_string()).filter(|dims| !dims.is_empty()),
                sequence_length: case.sequence_length,
                host_id: self.machine.is_none().then(|| site.host_id.clone()),
                threads: site.threads,
                largest_batch,
                anchor: None,
                prediction,
                refusal,
            };
            // A measured case keeps its time.
            if let Some(found) = asked.prediction.take_if(|it| self.anchor && it.basis != Basis::Measured) {
                let runtime = Runtime::of(&case);
                let measure = || anchor::measure(paths, lessons, &runtime, site).map_err(|why| format!("{why:#}"));
                let key = (case.backend.clone(), case.device.clone(), case.dtype);
                asked = match anchors.entry(key).or_insert_with(measure).clone() {
                    Ok(anchor) => Asked { prediction: Some(anchor.applied(found)), anchor: Some(anchor), ..asked },
                    Err(reason) => {
                        let would_help = anchor::filled_by(&runtime);
                        Asked { prediction: None, refusal: Some(Refusal { reason, would_help }), ..asked }
                    }
                };
                ensure!(!is_interrupted(), Interrupted);
            }
            all.push(asked);
        }
        said.iter().for_each(|line| eprintln!("{line}"));
        Ok(all)
    }

    /// The command that measures a model, with its files if it was given by them, since its name alone is known to this command only.
    fn by_file(&self, command: String, case: &Case, files: &str) -> String {
        if files.is_empty() {
            return command;
        }
        let mut words = format!("--path {}", shell_word(files));
        for input in &self.selection.input {
            words += &format!(" --input {}", shell_word(input));
        }
        command.replacen(&format!("--model {}", case.model), &words, 1)
    }

    fn planned(&self, paths: &Paths, lessons: &Lessons) -> Result<Plan> {
        let mut selection = self.selection.clone();
        for word in &self.models {
            let list = if is_path(word) { &mut selection.files } else { &mut selection.model };
            list.push(word.clone());
        }
        let lists = [&selection.model, &selection.files, &selection.path];
        let is_named = selection.suite.is_some() || lists.iter().any(|list| !list.is_empty());
        ensure!(is_named, "name a model, a file or a suite");
        ensure!(
            selection.boundary.is_empty() && selection.time_on.is_none(),
            "predictions are of seeded inputs and the boundary `compute`: leave `--boundary` and `--time-on` out"
        );
        (selection.boundary, selection.time_on) = (vec![Boundary::Compute], Some(TimedOn::Seeded));
        if selection.backend.is_empty() {
            let backends: BTreeSet<&String> = lessons.examples.iter().map(|it| &it.subject.runtime.backend).collect();
            selection.backend = backends.into_iter().cloned().collect();
        }
        if selection.device.is_empty() {
            selection.device = vec!["cpu".into()];
        }
        if selection.batch_sizes.is_empty() {
            selection.batch_sizes = if self.matrix.is_some() { BATCHES_OF_MATRIX.to_vec() } else { vec![1] };
        }
        make_plan(paths, None, &selection, &EffortArguments::default())
    }
}

/// Whether a word means a file or folder, which may be missing, and not a model by its name.
fn is_path(word: &str) -> bool {
    let path = path_of(word);
    let is_of_model = is_model_file(&path) || is_module(&path) || word.contains(".py:");
    is_of_model || word.contains(is_separator) || path.exists()
}

/// The file of a model and that of the case's variant, as `--path` takes them: `net=net.onnx` and `int8=net-int8.onnx`.
pub(super) fn files_of(models: &[SuiteModel], case: &Case) -> Vec<String> {
    let is_own = |it: &&SuiteModel| it.name == case.model && it.variant.as_ref().is_none_or(|it| *it == case.variant);
    let mut own: Vec<&SuiteModel> = models.iter().filter(is_own).collect();
    own.sort_by_key(|it| it.variant.is_some());
    let word = |it: &SuiteModel| {
        let path = it.path.as_ref()?;
        Some(format!("{}={}", it.variant.as_ref().unwrap_or(&it.name), path.display()))
    };
    own.into_iter().filter_map(word).collect()
}

fn described(file: &Path) -> Result<(Site, Peaks)> {
    let Described { gflops_per_second, gb_per_second, cores } = read_toml(file)?;
    let is_speed = |speed: f64| speed.is_finite() && speed > 0.0;
    ensure!(
        is_speed(gflops_per_second) && is_speed(gb_per_second),
        "{}: a peak is not a number above 0",
        file.display()
    );
    let site = Site { host_id: format!("described by {}", file.display()), threads: cores };
    let peaks = Peaks {
        threads: cores.unwrap_or(1),
        product_gflops_per_second: gflops_per_second,
        copy_gb_per_second: gb_per_second,
        ..Peaks::default()
    };
    Ok((site, peaks))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_variant_is_measured_by_its_own_file_beside_the_original() {
        let file = |variant: Option<&str>, path: &str| SuiteModel {
            variant: variant.map(str::to_owned),
            path: Some(path.into()),
            ..SuiteModel::from("net")
        };
        let models = [file(Some("int8"), "net-int8.onnx"), file(None, "net.onnx"), file(Some("f16"), "net-f16.onnx")];
        let case = Case { variant: "int8".into(), ..Case::new("net", "ort", 1) };
        assert_eq!(files_of(&models, &case), ["net=net.onnx", "int8=net-int8.onnx"]);
        assert_eq!(files_of(&models, &Case::new("net", "ort", 1)), ["net=net.onnx"]);
        assert!(files_of(&[SuiteModel::from("net")], &case).is_empty());
    }

    #[test]
    fn a_word_with_a_separator_or_the_ending_of_a_model_is_a_path() {
        for word in ["../nofile.onnx", "nofile.onnx", "net=nofile.pt", "nofile.py:make", "nofolder/", "src"] {
            assert!(is_path(word), "{word}");
        }
        assert!(!is_path("resnet50") && !is_path("tinyllama-1.1b"));
    }

    #[test]
    fn an_evaluation_is_of_the_whole_history() {
        let parsed = |flags: &[&str]| Cli::try_parse_from([&["inferbench", "predict", "--evaluate"], flags].concat());
        assert!(parsed(&["--format", "json"]).is_ok());
        assert!(parsed(&["--backend", "ort"]).is_err() && parsed(&["--host", "aaaa1111"]).is_err());
        assert!(parsed(&["--pp", "8"]).is_err() && parsed(&["--tg", "8"]).is_err());
        assert!(parsed(&["--boundary", "pipeline"]).is_err() && parsed(&["--reference", "outputs.npz"]).is_err());
    }
}

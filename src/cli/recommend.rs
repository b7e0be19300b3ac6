//! `inferbench recommend`: what to deploy of a model, from the history, within limits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indexmap::{IndexMap, IndexSet};

use super::history_arguments::HistoryArguments;
use super::predict::files_of;
use crate::catalogue::{packaged_names, read_toml, shell_word};
use crate::compare::{CaseFilter, Noise};
use crate::decision::prediction::{Lessons, Site};
use crate::decision::{
    Advice, Goal, Limits, Options, Per, Prices, add_predictions, advice_schema, advise, best_schema, best_table,
    drifts, render, side_by_side,
};
use crate::definition::{Boundary, Case, DataSource, ORIGINAL, Suite, SuiteModel, Sweep, TimedOn};
use crate::exit_codes;
use crate::history::{History, Run, write_whole};
use crate::machine::Machine;
use crate::paths::Paths;
use crate::report::{Format, json};
use crate::run_data::{Metric, Node, Peaks, Record};
use crate::selection::values::fraction_below_one;
use crate::selftest::known_noise;

/// Say what to deploy of a model for a goal within limits
#[derive(Args)]
#[command(
    after_help = "The command chooses among all backends, devices, dtypes, variants, batch sizes and machines of the history, and only among cases \
        whose outputs were compared with something. Rates and latencies of load tests count for the limits. Unmeasured cases that are predicted to be \
        better are named beside the answer. A file of prices says what an hour costs, by host id, device or default:\n\n  \
        currency = \"USD\"\n  per_hour = { default = 0.34, cuda = 1.20 }\n\nExamples:\n  inferbench recommend digits\n  \
        inferbench recommend resnet50 --max-p99 20ms --max-memory 1GB --goal throughput\n  \
        inferbench recommend digits --max-accuracy-loss 2% --goal size\n  \
        inferbench recommend tinyllama-1.1b --max-memory 1GB --max-kl 0.02\n  \
        inferbench recommend resnet50 --min-rate 100/s --goal cost --price prices.toml\n  \
        inferbench recommend resnet50 --per device\n  inferbench recommend --per model --goal throughput --backend ort\n  \
        inferbench recommend bert-base --last 5 --history /mnt/share/reports --format json"
)]
pub struct Arguments {
    /// The model
    #[arg(value_name = "MODEL", required_unless_present = "per")]
    wanted: Option<String>,
    /// Show the best case of each of these side by side; of all models, if none is named
    #[arg(long, value_enum, value_name = "WHAT")]
    per: Option<Per>,
    /// What to optimise
    #[arg(long, value_enum, default_value = "latency")]
    goal: Goal,
    #[command(flatten)]
    limits: Limits,
    /// The largest loss of accuracy of a variant, in percentage points; labelled samples have to show that it loses no more
    #[arg(long, value_name = "POINTS", default_value = "1%", allow_hyphen_values = true, value_parser = fraction_below_one)]
    max_accuracy_loss: f64,
    /// Prices of machines, for the goal `cost`
    #[arg(long, value_name = "FILE", required_if_eq("goal", "cost"))]
    price: Option<PathBuf>,
    /// Only the last N runs, and the load tests since the first of them [default: the whole history]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    last: Option<u64>,
    #[command(flatten)]
    history: HistoryArguments,
    #[command(flatten)]
    filter: CaseFilter,
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
}

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// For a terminal
    Table,
    /// For a README or a pull request
    #[value(alias = "md")]
    Markdown,
    /// For scripts
    Json,
    /// The schema of `json`
    JsonSchema,
}

impl Form {
    /// Returns `None` for the schema.
    pub(super) fn of_text(self) -> Option<Format> {
        match self {
            Form::Table => Some(Format::Table),
            Form::Markdown => Some(Format::Markdown),
            Form::Json => Some(Format::Json),
            Form::JsonSchema => None,
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let Some(format) = arguments.format.of_text() else {
        print!("{}", if arguments.per.is_some() { best_schema() } else { advice_schema() });
        return Ok(exit_codes::OK);
    };
    let paths = Paths::find();
    let history = arguments.history.open(paths.reports())?;
    history.latest()?;
    let (every, metrics) = read(&history, arguments.last)?;
    arguments.filter.check_names(every.iter())?;
    let passing: Vec<Record> =
        every.iter().filter(|record| arguments.filter.matches(&record.case())).cloned().collect();
    ensure!(!passing.is_empty(), "no case passes the filters; without filters all cases of the history count");
    let models: BTreeSet<&str> = passing.iter().map(|record| record.model.as_str()).collect();
    // Cases that do not pass still determine the originals and the newest files.
    let records: Vec<Record> = every.iter().filter(|it| models.contains(it.model.as_str())).cloned().collect();
    let since = every.iter().map(|record| record.timestamp).min().filter(|_| arguments.last.is_some());
    let loads = HistoryArguments::loads(&history).into_iter().flat_map(|run| run.results);
    let options = Options {
        goal: arguments.goal,
        filter: arguments.filter.clone(),
        accuracy_loss: arguments.max_accuracy_loss,
        limits: arguments.limits,
        prices: arguments.prices()?,
        loads: loads.filter(|trial| since.is_none_or(|since| trial.timestamp >= since)).collect(),
        drifted: drifts(&every),
        noise: noise_of(&passing, &paths),
        ..Options::new(arguments.wanted.as_deref().unwrap_or_default())
    };
    if let Some(per) = arguments.per {
        let found = side_by_side(&records, &metrics, &options, per);
        if found.is_empty() {
            if arguments.wanted.is_some() {
                // This is an error if there is no such model.
                advise(&records, &metrics, &options)?;
            }
            eprintln!("inferbench: nothing can be recommended; `inferbench recommend MODEL` says why");
            return Ok(exit_codes::NOTHING_MEASURED);
        }
        let table = best_table(&found, options.goal, per);
        match format {
            Format::Json => print!("{}", json(&found)),
            Format::Markdown => print!("{}", table.markdown()),
            Format::Table => print!("{}", table.terminal()),
        }
        return Ok(exit_codes::OK);
    }
    let mut all = advise(&records, &metrics, &options)?;
    let (lessons, memory_mb) = (lessons(&paths, &history, &every), memory_of_machines(&history));
    add_predictions(&mut all, &records, &lessons, &memory_mb, &options);
    for advice in &mut all {
        let Some(record) = advice.chosen(&records) else { continue };
        let by_file = named([record, record], &[suite_of_run(&history, record), None]);
        for predicted in &mut advice.predicted {
            predicted.command = predicted.command.replacen(&format!("--model {}", record.model), &by_file, 1);
        }
    }
    let decide = |advice: &Advice| {
        // JSON has no line for this command.
        if format == Format::Json {
            return None;
        }
        command_that_decides(advice, &records, &history, &paths).unwrap_or_else(|why| {
            eprintln!("there is no command that would decide: {why:#}");
            None
        })
    };
    let decide: Vec<Option<String>> = all.iter().map(decide).collect();
    print!("{}", render(&all, &decide, format));
    let is_answered = all.iter().any(|advice| advice.case_id.is_some());
    Ok(if is_answered { exit_codes::OK } else { exit_codes::NOTHING_MEASURED })
}

impl Arguments {
    fn prices(&self) -> Result<Prices> {
        let Some(file) = &self.price else { return Ok(Prices::default()) };
        ensure!(self.goal == Goal::Cost, "`--price` is for `--goal cost`: say that goal, or leave `--price` out");
        let prices = read_prices(file)?;
        ensure!(
            prices.per_hour.values().all(|price| *price > 0.0),
            "a machine with the price 0 cannot be compared: `--goal cost` compares prices by their ratio"
        );
        Ok(prices)
    }
}

/// The records and metrics of the newest runs, or of all. A run that cannot be read is reported and left out.
pub fn read(history: &History, last: Option<u64>) -> Result<(Vec<Record>, Vec<Metric>)> {
    let (mut records, mut metrics) = (Vec::new(), Vec::new());
    for run in history.runs().iter().take(last.unwrap_or(u64::MAX) as usize) {
        match run.records().and_then(|records| Ok((records, run.metrics()?))) {
            Ok((of_run, metrics_of_run)) => {
                records.extend(of_run);
                metrics.extend(metrics_of_run);
            }
            Err(why) => eprintln!("left out: {why:#}"),
        }
    }
    ensure!(!records.is_empty(), "no run of {} has a record", history.places());
    Ok((records, metrics))
}

/// The memory of each machine of the history, in megabytes: that of its container, if it has a limit.
pub fn memory_of_machines(history: &History) -> BTreeMap<String, f64> {
    let machines = history.runs().iter().rev().flat_map(nodes).map(|node| node.machine);
    let memory = |it: Machine| Some((it.host_id.clone(), it.usable_memory_bytes()? as f64 / 1e6));
    machines.filter_map(memory).collect()
}

/// What predictions learn from the records of a history and the peaks of its runs.
pub fn lessons(paths: &Paths, history: &History, records: &[Record]) -> Lessons {
    let of_node = |node: Node| {
        let peaks = node.peaks.filter(|peaks| peaks.product_gflops_per_second > 0.0)?;
        Some((Site { host_id: node.machine.host_id, threads: Some(peaks.threads) }, peaks))
    };
    let peaks: Vec<(Site, Peaks)> = history.runs().iter().flat_map(nodes).filter_map(of_node).collect();
    let packaged = paths.models().and_then(|models| packaged_names(&models)).unwrap_or_default();
    Lessons::of(records, &peaks, |model| packaged.contains(model))
}

/// The machines of a run: several if it was merged of parts.
fn nodes(run: &Run) -> Vec<Node> {
    run.manifest().ok().flatten().map(|manifest| manifest.nodes()).unwrap_or_default()
}

/// Reads a file of prices.
pub fn read_prices(path: &Path) -> Result<Prices> {
    ensure!(path.exists(), "there is no file {}", path.display());
    let prices: Prices = read_toml(path).context("prices are written as `per_hour = { default = 0.34 }`")?;
    let is_price = |price: &f64| price.is_finite() && *price >= 0.0;
    ensure!(prices.per_hour.values().all(is_price), "{}: a price is not a number from 0 on", path.display());
    Ok(prices)
}

/// The noise between processes on the noisiest of the machines. It is at least what is assumed without a self-test,
/// since a self-test measures another model, with short calls.
pub fn noise_of(records: &[Record], paths: &Paths) -> Noise {
    let hosts: BTreeSet<&str> = records.iter().map(|record| record.host_id.as_str()).collect();
    let known = hosts.into_iter().map(|host_id| known_noise(&paths.selftest(), host_id));
    known.fold(Noise::assumed(), Noise::or_larger)
}

/// The recommendations for the latency of each model of these records, in the order of the records.
pub fn advice_about(records: &[Record], metrics: &[Metric], paths: &Paths) -> Vec<Advice> {
    let models: IndexSet<&str> = records.iter().map(|record| record.model.as_str()).collect();
    let noise = noise_of(records, paths);
    let drifted = drifts(records);
    let options = |model: &str| Options { noise, drifted: drifted.clone(), ..Options::new(model) };
    let advice = |model: &str| advise(records, metrics, &options(model));
    models.into_iter().filter_map(|model| advice(model).ok()).flatten().collect()
}

/// The command that would tell the recommended case from the next one: a search under load where rates under load were compared, a duel
/// if both do the same work on one machine, or else more processes of both. Returns `None` if they are told apart.
fn command_that_decides(
    advice: &Advice,
    records: &[Record],
    history: &History,
    paths: &Paths,
) -> Result<Option<String>> {
    let second = advice.runner_up.as_ref().filter(|_| advice.is_undecided);
    let second = second.and_then(|it| advice.newest(records, &it.case_id, &it.host_id));
    let Some((first, second)) = advice.chosen(records).zip(second) else { return Ok(None) };
    let suites = [first, second].map(|record| suite_of_run(history, record));
    let of_second = advice.runner_up.as_ref().and_then(|it| it.under_load.as_ref());
    if let Some(load) = advice.under_load.as_ref().or(of_second).filter(|_| advice.goal.is_of_rate()) {
        return Ok(Some(format!(
            "inferbench load search {}{} --backend {} --p99 {}ms",
            named([first, second], &suites),
            narrowed(first, second),
            both(&first.backend, &second.backend),
            (1e3 * load.p99_ms).round() / 1e3,
        )));
    }
    // A duel measures no energy, and of a run's processes only one does.
    let is_of_energy = advice.goal == Goal::Energy;
    let is_same_work = first.batch_size == second.batch_size && first.host_id == second.host_id;
    if !is_same_work || is_of_energy {
        let processes = if is_of_energy { "" } else { " --processes 5" };
        let times = is_of_energy.then(|| "three times or more, since a run measures the energy once".to_owned());
        let places =
            (first.host_id != second.host_id).then(|| format!("on {} and on {}", first.host_id, second.host_id));
        let notes = times.into_iter().chain(places).collect::<Vec<_>>().join(", ");
        let notes = if notes.is_empty() { notes } else { format!("  # {notes}") };
        return Ok(Some(format!(
            "inferbench run {}{}{} --backend {} --batch-sizes {}{processes}{notes}",
            named([first, second], &suites),
            narrowed(first, second),
            timed(first, suites[0].as_ref()),
            both(&first.backend, &second.backend),
            both(first.batch_size, second.batch_size),
        )));
    }
    let mut files = Vec::new();
    for (record, suite) in [first, second].into_iter().zip(suites) {
        let text = suite_of(&record.case(), suite)?;
        let file = paths.duels().join("files").join(format!("{}.toml", record.case_id.replace('/', "-")));
        fs_err::create_dir_all(file.parent().unwrap_or(&file))?;
        write_whole(&file, text.as_bytes())?;
        files.push(shell_word(&file.display().to_string()));
    }
    Ok(Some(format!("inferbench duel {}", files.join(" "))))
}

/// The suite of a record's run.
fn suite_of_run(history: &History, record: &Record) -> Option<Suite> {
    history.get(&record.run_id).ok()?.manifest().ok()?.map(|manifest| manifest.suite)
}

/// The flag that names the model of two cases: by its files, if it was given by them, since a name alone is known to those runs only.
fn named(records: [&Record; 2], suites: &[Option<Suite>; 2]) -> String {
    let mut files = IndexMap::new();
    for (record, suite) in records.into_iter().zip(suites) {
        for word in suite.iter().flat_map(|suite| files_of(&suite.models, &record.case())) {
            let (name, path) = word.split_once('=').unwrap_or(("", &word));
            // One file may have been measured by two paths.
            let file = Path::new(path).canonicalize().unwrap_or_else(|_| path.into());
            files.entry((name.to_owned(), file)).or_insert(word);
        }
    }
    if files.is_empty() {
        return format!("--model {}", shell_word(&records[0].model));
    }
    format!("--path {}", shell_word(&files.into_values().collect::<Vec<String>>().join(",")))
}

/// The flags that say what is timed, if it is not the call alone on seeded inputs.
fn timed(record: &Record, suite: Option<&Suite>) -> String {
    let mut words = String::new();
    if record.boundary != Boundary::default() {
        words += &format!(" --boundary {}", record.boundary);
    }
    if record.timed_on == TimedOn::Samples {
        let source = suite.and_then(|suite| suite.data_source.as_ref());
        words += " --time-on samples";
        words.extend(source.map(|source| format!(" --data-source {}", shell_word(&source.flag()))));
    }
    words
}

/// `ort,tch`, or `ort` if both are the same.
fn both<T: PartialEq + ToString>(one: T, other: T) -> String {
    if one == other { one.to_string() } else { format!("{},{}", one.to_string(), other.to_string()) }
}

/// The flags for everything in which two cases of one kind of work are not the default.
fn narrowed(one: &Record, other: &Record) -> String {
    let words = [
        ("--variant", both(&one.variant, &other.variant), ORIGINAL),
        ("--device", both(&one.device, &other.device), "cpu"),
        ("--dtype", both(one.dtype, other.dtype), "f32"),
        ("--dim", one.case().dims.to_string(), ""),
        ("--seq-lens", one.sequence_length.map(|length| length.to_string()).unwrap_or_default(), ""),
    ];
    let of_word = |(flag, word, usual): (&str, String, &str)| (word != usual).then(|| format!(" {flag} {word}"));
    words.into_iter().filter_map(of_word).collect()
}

/// A suite with nothing but the case. The run's own suite knows where the model's file is.
fn suite_of(case: &Case, known: Option<Suite>) -> Result<String> {
    let mut suite = known.unwrap_or_else(|| Suite::new(&case.model, vec![case.backend.clone()]));
    let is_of_case = |model: &SuiteModel| {
        model.name == case.model && model.variant.as_ref().is_none_or(|variant| *variant == case.variant)
    };
    let own = suite.models.drain(..).find(is_of_case);
    let mut model = own.unwrap_or_else(|| SuiteModel::from(case.model.as_str()));
    (model.backends, model.batch_sizes, model.phases, model.seq_lens) = (None, None, None, None);
    model.variants = model.path.is_none().then(|| vec![case.variant.clone()]);
    for path in [&mut model.path, &mut model.weights, &mut model.reference].into_iter().flatten() {
        *path = std::path::absolute(&*path)?;
    }
    // Only a case that is timed on samples needs them.
    let here = std::env::current_dir()?;
    let timed =
        |it: Option<DataSource>| it.filter(|_| case.timed_on == TimedOn::Samples).map(|it| it.relative_to(&here));
    model.data_source = timed(model.data_source);
    model.dims = Sweep::default();
    suite.models = vec![model];
    suite.include_found = false;
    suite.data_source = timed(suite.data_source);
    suite.time_on = case.timed_on;
    suite.backends = vec![case.backend.clone()];
    suite.devices = vec![case.device.clone()];
    if !suite.dtypes.is_empty() {
        suite.dtypes = vec![case.dtype];
    }
    suite.batch_sizes = vec![case.batch_size];
    suite.boundaries = vec![case.boundary];
    suite.phases = Some(vec![case.phase]);
    suite.seq_lens = case.sequence_length.map(|length| vec![length]);
    suite.dims = case.dims.to_string().parse()?;
    Ok(toml::to_string(&suite)?)
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};
    use jiff::Timestamp;

    use super::*;
    use crate::definition::Dtype;
    use crate::history::write_records;
    use crate::report::tests::record;
    use crate::run_data::{Manifest, RunFolder, RunPart};

    #[test]
    fn the_command_that_decides_is_of_the_two_cases() {
        let (one, other) = (record("m", "ort", 1, None), record("m", "ort", 8, None));
        assert_eq!(narrowed(&one, &other), "");
        let int8 = Record { variant: "int8".into(), dtype: Dtype::I8, sequence_length: Some(32), ..other };
        let of_both = " --variant int8,original --dtype i8,f32 --seq-lens 32";
        assert_eq!(narrowed(&int8, &Record { sequence_length: Some(32), ..one }), of_both);
        let suite = Suite { data_source: Some(DataSource::Text("a.txt".into())), ..Suite::new("m", Vec::new()) };
        let of_samples = Record { timed_on: TimedOn::Samples, ..record("m", "ort", 1, None) };
        assert_eq!(timed(&of_samples, Some(&suite)), " --time-on samples --data-source text:a.txt");
        assert_eq!(timed(&record("m", "ort", 1, None), Some(&suite)), "");
        let by_file = SuiteModel { path: Some("my nets/m.onnx".into()), ..SuiteModel::from("m") };
        let suites = [Suite { models: vec![by_file], ..suite.clone() }, suite.clone()].map(Some);
        let records = [&of_samples, &of_samples];
        assert_eq!(named(records, &suites), "--path 'm=my nets/m.onnx'");
        assert_eq!(named(records, &[None, None]), "--model m");
        let folder = tempfile::tempdir().unwrap();
        let [path, again] = ["m.onnx", "./m.onnx"].map(|name| folder.path().join(name));
        fs_err::write(&path, "").unwrap();
        let by_path = |path: &PathBuf| {
            let model = SuiteModel { path: Some(path.clone()), ..SuiteModel::from("m") };
            Some(Suite { models: vec![model], ..suite.clone() })
        };
        let once = format!("--path {}", shell_word(&format!("m={}", path.display())));
        assert_eq!(named(records, &[by_path(&path), by_path(&again)]), once);
        let text = |timed_on| suite_of(&Case { timed_on, ..Case::new("m", "ort", 1) }, Some(suite.clone())).unwrap();
        assert!(text(TimedOn::Samples).contains("a.txt") && !text(TimedOn::Seeded).contains("a.txt"));
    }

    #[test]
    fn prices_are_for_the_goal_cost() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prices.toml");
        fs_err::write(&file, "per_hour = { default = 0.34 }").unwrap();
        let prices = |goal: &str| {
            let words = ["recommend", "m", "--goal", goal, "--price", file.to_str().unwrap()];
            let found = Arguments::augment_args(Command::new("recommend")).try_get_matches_from(words).unwrap();
            Arguments::from_arg_matches(&found).unwrap().prices()
        };
        assert_eq!(prices("cost").unwrap().per_hour_of("h", "cpu"), Some(0.34));
        let number = folder.path().join("number.toml");
        fs_err::write(&number, "per_hour = 0.34").unwrap();
        let written = read_prices(&number).unwrap_err().to_string();
        assert!(written.contains("per_hour = { default = 0.34 }"), "{written}");
        let nowhere = read_prices(&folder.path().join("nowhere.toml")).unwrap_err().to_string();
        assert!(nowhere.starts_with("there is no file"), "{nowhere}");
        let of_gpus =
            Prices { per_hour: [("default".to_owned(), 0.34), ("cuda".to_owned(), 1.2)].into(), ..Prices::default() };
        assert_eq!(
            ["cuda", "cuda:1", "cpu"].map(|device| of_gpus.per_hour_of("h", device)),
            [Some(1.2), Some(1.2), Some(0.34)]
        );
        let refused = prices("latency").unwrap_err().to_string();
        assert!(refused.starts_with("`--price` is for `--goal cost`"), "{refused}");
    }

    #[test]
    fn each_machine_of_a_merged_run_has_its_memory_and_its_peaks() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("20260101T000000Z");
        fs_err::create_dir(&folder).unwrap();
        let records = [record("m", "ort", 1, Some(1.0))];
        write_records(&records, fs_err::File::create(folder.join("results.csv")).unwrap()).unwrap();
        let machine = |host_id: &str, memory_bytes: u64| Machine {
            host_id: host_id.into(),
            memory_bytes: Some(memory_bytes),
            // A limit above the memory of the machine has no effect.
            container_memory_bytes: Some(9_000_000_000),
            ..Machine::default()
        };
        let part = |index: usize, machine: Machine| RunPart {
            index,
            run_id: "part".into(),
            started: Timestamp::UNIX_EPOCH,
            finished: None,
            machine,
            peaks: Some(Peaks { threads: 2, product_gflops_per_second: 100.0 * index as f64, ..Peaks::default() }),
            calibrations: Vec::new(),
        };
        let suite = Suite::new("quick", Vec::new());
        let begun = Manifest::begun("20260101T000000Z".into(), Timestamp::UNIX_EPOCH, suite, Vec::new());
        let (first, second) = (machine("h", 8_000_000_000), machine("i", 4_000_000_000));
        let parts = vec![part(1, first.clone()), part(2, second)];
        RunFolder::new(folder).write_manifest(&Manifest { machine: first, parts, ..begun }).unwrap();
        let history = History::open(&[root.path().to_owned()]).unwrap();
        let memory = BTreeMap::from([("h".to_owned(), 8000.0), ("i".to_owned(), 4000.0)]);
        assert_eq!(memory_of_machines(&history), memory);
        let peaks = lessons(&Paths::find(), &history, &records).peaks;
        let known: Vec<(&str, f64)> =
            peaks.iter().map(|(site, peaks)| (site.host_id.as_str(), peaks.product_gflops_per_second)).collect();
        assert_eq!(known, [("h", 100.0), ("i", 200.0)]);
    }
}

//! `inferbench report`: shows runs as tables, JSON, one page or charts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::history_arguments::HistoryArguments;
use super::machines::{MachinesArguments, fleet_of, fleet_of_history, shown_of};
use super::recommend::{advice_about, noise_of};
use crate::compare::CaseFilter;
use crate::decision::{self, Goal, Options, Variants, advice_table, compare, section};
use crate::definition::usable_name;
use crate::exit_codes;
use crate::history::{History, RESULTS, Run, write_whole};
use crate::paths::{OUTPUT_DIR, Paths, variable};
use crate::report::checks::CheckFormat;
#[cfg(feature = "charts")]
use crate::report::drawing::{Drawing, png};
use crate::report::fleet::{self, Fleet};
use crate::report::load::curves;
use crate::report::profile::newest_pages;
use crate::report::{Format, Known, Payload, ReportedRun, Shown, columns, html, index, llama_bench, records};
use crate::run_data::{Metric, Record, RunFolder};
use crate::selection::values::fraction_below_one;
use crate::selftest::{known_noise, line_about};

/// The trend of a run includes at most this many runs before it.
const EARLIER_RUNS: usize = 20;

/// Show runs as tables, JSON, one HTML page, or charts
#[derive(Args)]
#[command(
    after_help = "HTML and charts of several runs show the newest measurement of each case on each machine, all \
        measurements in the trend, and the machines side by side. The trend of one run includes the runs before it.\n\n\
        Examples:\n  inferbench report\n  inferbench report --format markdown --output REPORT.md\n  \
        inferbench report --columns backend,p50,p95,energy,load\n  \
        inferbench report --format html\n  \
        inferbench report --last 10 --format html --output history.html\n  \
        inferbench report LAPTOP_RUN SERVER_RUN --format html --model resnet50\n  \
        inferbench report --machines --last 5 --price prices.toml --format html\n  \
        inferbench report --charts figures --model resnet50,bert-base\n  \
        inferbench report 20260101T120000Z --format json\n  \
        inferbench report --format junit --output report.xml\n  \
        inferbench report --variants resnet50 --goal size --max-accuracy-loss 0.5%"
)]
pub struct Arguments {
    /// Run ids, folders of runs, or CSV files of one run [default: the latest run]
    #[arg(value_name = "RUN", conflicts_with_all = ["last", "all"])]
    runs: Vec<String>,
    /// Show the last N runs; with `--machines`, the last N of each machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "all")]
    last: Option<u64>,
    /// Show all runs of the history
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    machines: MachinesArguments,
    #[command(flatten)]
    history: HistoryArguments,
    #[command(flatten)]
    filter: CaseFilter,
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
    /// The columns of tables and Markdown, in this order; `all` shows every column that has a value
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["variants", "machines"], value_parser = PossibleValuesParser::new(columns::names()))]
    columns: Vec<String>,
    /// Write to this file instead of the terminal; HTML goes to report.html beside the results unless this says `-`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write every chart into this folder, as SVG and PNG; needs a build with the feature `charts`
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["format", "output"])]
    charts: Option<PathBuf>,
    /// Compare the variants of this model and recommend one; times of several runs of one commit are averaged
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["charts", "model"])]
    variants: Option<String>,
    /// What to optimise
    #[arg(long, value_parser = goals_without_prices(), default_value = "latency", requires = "variants")]
    goal: Goal,
    /// The largest loss of accuracy of a variant, in percentage points; labelled samples have to show that it loses no more
    #[arg(
        long,
        value_name = "POINTS",
        default_value = "1%",
        allow_hyphen_values = true,
        value_parser = fraction_below_one,
        requires = "variants"
    )]
    max_accuracy_loss: f64,
}

/// A form of report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// For a terminal
    Table,
    /// For a README or a pull request
    #[value(alias = "md")]
    Markdown,
    /// For scripts
    Json,
    /// One page with charts and filters, for a browser
    Html,
    /// The schema of `json`
    JsonSchema,
    /// JUnit XML, in which a case that failed or has wrong outputs is a failed test
    Junit,
    /// Annotations of a GitHub workflow, a line for each failed case
    Github,
    /// The tests of language models in the layout of llama-bench, in Markdown
    LlamaBench,
    /// A short comment for a pull request: the verdict, the failed cases, and the rest collapsed
    MarkdownComment,
}

fn goals_without_prices() -> impl TypedValueParser<Value = Goal> {
    let goals = Goal::value_variants().iter().filter(|goal| **goal != Goal::Cost);
    let parser = PossibleValuesParser::new(goals.filter_map(Goal::to_possible_value));
    parser.map(|name| Goal::from_str(&name, false).unwrap_or_default())
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    if let Some(folder) = &arguments.charts {
        return charts(arguments, &paths, folder);
    }
    let (text, own_path) = match arguments.format {
        Form::Html => arguments.page(&paths).map(|(html, path)| (html, Some(path)))?,
        Form::JsonSchema if arguments.variants.is_some() => (decision::schema(), None),
        Form::JsonSchema if arguments.machines.machines => (fleet::schema(), None),
        Form::JsonSchema => (records::schema(), None),
        Form::Table => (arguments.text(Format::Table, &paths)?, None),
        Form::Markdown => (arguments.text(Format::Markdown, &paths)?, None),
        Form::Json => (arguments.text(Format::Json, &paths)?, None),
        Form::Junit => (arguments.checks(CheckFormat::Junit, &paths)?, None),
        Form::Github => (arguments.checks(CheckFormat::Github, &paths)?, None),
        Form::LlamaBench => (arguments.llama_bench(&paths)?, None),
        Form::MarkdownComment => (arguments.checks(CheckFormat::MarkdownComment, &paths)?, None),
    };
    let file = arguments.output.as_ref().or(own_path.as_ref()).filter(|file| file.as_os_str() != "-");
    let Some(file) = file else {
        print!("{text}");
        return Ok(exit_codes::OK);
    };
    // The page of several runs may be the first file in the folder of reports.
    if arguments.output.is_none() {
        fs_err::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    }
    write_whole(file, text.as_bytes())?;
    // A page that is written to the standard output would otherwise end with this line.
    if own_path.is_some() && !file.starts_with("/dev") && !file.starts_with("/proc") {
        println!("{}", file.display());
    }
    // The index has links to pages about runs.
    let reports = paths.reports();
    if arguments.output.is_none() && arguments.variants.is_none() && reports.is_dir() {
        let page = index::render(&reports, &paths.criterion());
        let written = page.and_then(|page| write_whole(&reports.join(index::INDEX), page.as_bytes()));
        if let Err(why) = written {
            eprintln!("the index of pages is not written: {why:#}");
        }
    }
    Ok(exit_codes::OK)
}

/// The runs that were asked for.
struct Asked {
    runs: Vec<ReportedRun>,
    /// The folder for the page of each run.
    folders: Vec<PathBuf>,
    /// All machines side by side, if there are several or they were asked for.
    fleet: Option<Fleet>,
    history: History,
}

impl Asked {
    /// Keeps the machines whose cases a page or a chart shows. Other forms, such as JSON and JUnit, have every record.
    fn keep_shown(&mut self) {
        if let Some(fleet) = &self.fleet {
            self.runs = shown_of(fleet, std::mem::take(&mut self.runs));
        }
    }
}

impl Arguments {
    /// The runs one after the other; in JSON, one array of all records. With `--variants`, the comparison of the
    /// variants.
    fn text(&self, format: Format, paths: &Paths) -> Result<String> {
        let asked = self.read(paths)?;
        if let Some(model) = &self.variants {
            return Ok(self.compared(model, &asked.runs, paths)?.render(format));
        }
        if let Some(fleet) = asked.fleet.as_ref().filter(|_| self.machines.machines) {
            return Ok(fleet.render(format));
        }
        if format == Format::Json {
            return Ok(records::render_json(&asked.runs));
        }
        let text = |run: &ReportedRun| {
            let text = records::render(run, &self.columns, &resolution(paths, &run.records), format);
            let text = text + &recommended(run, paths, format);
            match format {
                _ if asked.runs.len() == 1 => text,
                Format::Markdown => format!("## Run {}\n\n{text}\n", run.run_id()),
                _ => format!("run {}\n{text}\n", run.run_id()),
            }
        };
        let side_by_side = asked.fleet.iter().map(|fleet| match fleet.has_same_cases() {
            true => fleet.render(format),
            false => fleet.lines().into_iter().map(|line| line + "\n\n").collect(),
        });
        Ok(side_by_side.chain(asked.runs.iter().map(text)).collect())
    }

    /// The cases of the runs for continuous integration.
    fn checks(&self, format: CheckFormat, paths: &Paths) -> Result<String> {
        Ok(records::checks(&self.read_cases(paths)?, &self.columns).render(format))
    }

    /// The tests of language models.
    fn llama_bench(&self, paths: &Paths) -> Result<String> {
        let records: Vec<Record> = self.read_cases(paths)?.into_iter().flat_map(|run| run.records).collect();
        llama_bench::render(&records).context("no language model was measured in these runs")
    }

    /// The runs for a form that shows nothing but their cases.
    fn read_cases(&self, paths: &Paths) -> Result<Vec<ReportedRun>> {
        ensure!(
            self.variants.is_none() && !self.machines.machines,
            "junit, github, llama-bench and markdown-comment show the cases of runs, not --variants or --machines"
        );
        Ok(self.read(paths)?.runs)
    }

    /// The page, and the path that it is written to by default.
    fn page(&self, paths: &Paths) -> Result<(String, PathBuf)> {
        let mut asked = self.read(paths)?;
        let (mut sections, mut name, mut title) = (String::new(), index::REPORT.to_owned(), None);
        if let Some(model) = &self.variants {
            sections = self.compared(model, &asked.runs, paths)?.html();
            // A model's name may have any characters, but a file's may not.
            name = format!("variants-{}.html", usable_name(model));
            title = Some(format!("Variants of {model}"));
            for run in &mut asked.runs {
                run.records.retain(|record| record.model == *model);
                run.not_reached.retain(|case| case.model == *model);
            }
            // The fleet is of all models.
            asked.fleet = None;
        }
        asked.keep_shown();
        // A recommendation is about all machines.
        if sections.is_empty() && asked.fleet.as_ref().is_none_or(Fleet::shows_each_kind) {
            let records: Vec<Record> = asked.runs.iter().flat_map(|run| &run.records).cloned().collect();
            sections = section(&advice_about(&records, &metrics_of(&asked.runs), paths));
        }
        let mut payload = payload(&asked.runs, asked.fleet.as_ref(), paths, &asked.history);
        payload.title = title.unwrap_or(payload.title);
        let reports = paths.reports();
        let folder = match asked.folders.as_slice() {
            [one] if variable(OUTPUT_DIR).is_none() || one.starts_with(&reports) => one,
            _ => &reports,
        };
        let file = folder.join(name);
        let written_to = self.output.as_ref().unwrap_or(&file).parent().unwrap_or(folder);
        payload.link_profiles(&newest_pages(&reports, written_to));
        Ok((html::render(&payload, &sections)?, file))
    }

    /// The variants of the model in these runs.
    fn compared(&self, model: &str, runs: &[ReportedRun], paths: &Paths) -> Result<Variants> {
        let records: Vec<Record> = runs.iter().flat_map(|run| &run.records).cloned().collect();
        let Arguments { goal, max_accuracy_loss: accuracy_loss, .. } = *self;
        let noise = noise_of(&records, paths);
        compare(&records, &metrics_of(runs), &Options { goal, accuracy_loss, noise, ..Options::new(model) })
    }

    fn read(&self, paths: &Paths) -> Result<Asked> {
        let history = self.history.open(paths.reports())?;
        let prices = self.machines.prices()?;
        let asked: Vec<Run> = if self.runs.is_empty() {
            let latest = history.latest()?;
            if history.roots() == [paths.reports()] {
                unconverted(latest, paths).iter().for_each(|line| eprintln!("{line}"));
            }
            let most = if self.all { usize::MAX } else { self.last.unwrap_or(1) as usize };
            let mut newest = match self.machines.machines && !self.all {
                true => history.newest_of_each_machine(most),
                false => history.runs().iter().take(most).cloned().collect(),
            };
            newest.reverse();
            newest
        } else {
            self.runs.iter().map(|run| history.get(run)).collect::<Result<_>>()?
        };
        let folders = asked.iter().map(|run| run.pages().to_owned()).collect();
        if self.machines.machines {
            let (fleet, runs) = fleet_of_history(&asked, &self.filter, &prices, paths)?;
            return Ok(Asked { runs, folders, fleet: Some(fleet), history });
        }
        let mut runs = asked.iter().map(ReportedRun::read).collect::<Result<Vec<_>>>()?;
        let has_rows = |run: &ReportedRun| !run.records.is_empty() || !run.not_reached.is_empty();
        let empty = asked.iter().zip(&runs).filter(|(_, read)| !has_rows(read));
        let empty: Vec<String> = empty.map(|(run, _)| run.folder().join(RESULTS).display().to_string()).collect();
        ensure!(empty.len() < runs.len(), "{} has no row", empty[0]);
        empty.iter().for_each(|file| eprintln!("left out: {file} has no row"));
        let not_reached = runs.iter().flat_map(|run| &run.not_reached);
        let not_reached: Vec<Record> = not_reached.map(|case| Record::default().about(case)).collect();
        self.filter.check_names(runs.iter().flat_map(|run| &run.records).chain(&not_reached))?;
        for run in &mut runs {
            run.records.retain(|record| self.filter.matches(&record.case()));
            run.not_reached.retain(|case| self.filter.matches(case));
        }
        runs.retain(has_rows);
        if runs.is_empty() {
            bail!("no case passes the filters; `inferbench report` without filters shows all cases");
        }
        // The other forms have this line themselves; a page lacks it for runs whose cases newer runs have measured.
        let is_without = matches!(self.format, Form::Json | Form::LlamaBench | Form::Html);
        if self.variants.is_some() || self.charts.is_some() || is_without {
            for run in &runs {
                let line = records::not_reached(&run.not_reached);
                line.iter().for_each(|line| eprintln!("run {}: {line}", run.run_id()));
            }
        }
        let fleet = fleet_of(&runs, &prices, paths);
        Ok(Asked { runs, folders, fleet, history })
    }
}

/// A line about a newer run without results here. Returns `None` if there is none.
fn unconverted(latest: &Run, paths: &Paths) -> Option<String> {
    let newest = RunFolder::find(&paths.runs(), None).ok().filter(|folder| folder.id().as_str() > latest.name())?;
    // A part of a suite has its results elsewhere.
    newest.read_manifest().ok().filter(|manifest| !manifest.is_complete() && manifest.suite.shard.is_none())?;
    let (newest, latest) = (newest.id(), latest.name());
    Some(format!(
        "run {newest} was stopped, or is still measuring: `inferbench convert` adds its finished cases; the newest run \
         with results is {latest}"
    ))
}

fn metrics_of(runs: &[ReportedRun]) -> Vec<Metric> {
    runs.iter().flat_map(|run| &run.metrics).cloned().collect()
}

#[cfg(not(feature = "charts"))]
fn charts(_: &Arguments, _: &Paths, _: &Path) -> Result<u8> {
    bail!(
        "this build draws no charts as files: build it with `--features charts`; the page of `--format html` has them"
    )
}

#[cfg(feature = "charts")]
fn charts(arguments: &Arguments, paths: &Paths, folder: &Path) -> Result<u8> {
    let mut asked = arguments.read(paths)?;
    asked.keep_shown();
    fs_err::create_dir_all(folder)?;
    let drawing = Drawing::new(&payload(&asked.runs, asked.fleet.as_ref(), paths, &asked.history))?;
    for chart in drawing.charts()? {
        if let Some(reason) = &chart.absent {
            eprintln!("no {}: {reason}", chart.id);
            continue;
        }
        let svg = drawing.svg(&chart.id)?;
        let path = folder.join(format!("{}.svg", chart.id));
        write_whole(&path, svg.as_bytes())?;
        let pixels = path.with_extension("png");
        write_whole(&pixels, &png(&svg)?)?;
        println!("{}\n{}", path.display(), pixels.display());
    }
    Ok(exit_codes::OK)
}

/// The payload of the page of these runs. If there is one run, the trend includes the runs before it on its machine.
pub fn payload(runs: &[ReportedRun], fleet: Option<&Fleet>, paths: &Paths, history: &History) -> Payload {
    let earlier = if runs.len() == 1 { earlier_runs(&runs[0], history) } else { Vec::new() };
    let known = Known {
        resolution: &|host_id| line_about(&paths.selftest(), host_id),
        noise: &|host_id| known_noise(&paths.selftest(), host_id),
        fleet,
    };
    let mut payload = Payload::new(&Shown::new(runs, &earlier), &known);
    // A load test that cannot be read must not prevent a report of the runs.
    payload.give_curves(&curves(HistoryArguments::loads(history).into_iter()));
    payload
}

/// The last runs before this one on its machine, without those that cannot be read.
fn earlier_runs(run: &ReportedRun, history: &History) -> Vec<ReportedRun> {
    let Some(first) = run.records.first() else { return Vec::new() };
    // The facts decide, so that the runs of other machines are not read.
    let is_earlier = |other: &&Run| {
        let facts = other.facts();
        facts.is_ok_and(|facts| facts.host_id == first.host_id && facts.timestamp < first.timestamp)
    };
    let earlier = history.runs().iter().filter(is_earlier).filter_map(|other| ReportedRun::read(other).ok());
    earlier.take(EARLIER_RUNS).collect()
}

/// The line about the smallest detectable change on the machine of these records.
pub fn resolution(paths: &Paths, records: &[Record]) -> String {
    line_about(&paths.selftest(), records.first().map_or("", |record| &record.host_id))
}

/// The table of what to deploy, with the models that have several cases to choose from.
pub fn recommended(ReportedRun { records, metrics, .. }: &ReportedRun, paths: &Paths, format: Format) -> String {
    let table = advice_table(&advice_about(records, metrics, paths));
    match format {
        _ if table.is_empty() => String::new(),
        Format::Markdown => format!("\n### What to deploy\n\n{}", table.markdown()),
        _ => format!("\nWhat to deploy\n{}", table.terminal()),
    }
}

/// The table and the recommendation for a model of which several variants were measured.
pub fn variants_of(ReportedRun { records, metrics, .. }: &ReportedRun, model: &str, paths: &Paths) -> Result<String> {
    let options = Options { noise: noise_of(records, paths), ..Options::new(model) };
    Ok(compare(records, metrics, &options)?.render(Format::Table))
}

//! `inferbench run`: `cargo bench --bench inference` by flags, and the table at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;

use super::convert::convert_run;
use super::report::{recommended, resolution, variants_of};
use crate::definition::{PartNumber, Status};
use crate::harness::{self, Purpose, Request};
use crate::history::{METRICS, RESULTS, Run, THROUGHPUT, write_whole};
use crate::machine::Machine;
use crate::machine::processes::interrupt_with_parent;
use crate::paths::Paths;
use crate::report::{Format, records};
use crate::run_data::{Record, RunFolder};
use crate::selection::{EffortArguments, Selection};
use crate::selftest::known_spread;

/// Measure the cases of a suite, convert the results and show them
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench run net.onnx\n  inferbench run net.onnx --dim height=640 --dim width=640 --batch-sizes 1\n  \
        inferbench run --model digits --backend ort --iterations 500\n  \
        inferbench run --suite quick --processes 5 --save-baseline main\n  inferbench run --baseline main --dry-run\n  inferbench run --path net.onnx,net-int8.onnx --data-source image-folder:images\n  \
        inferbench run --suite small --calibrate\n  inferbench run my-bert --text texts.txt --time-on samples\n  inferbench run --model resnet50 --data-source image-folder:images --boundary pipeline"
)]
pub struct Arguments {
    /// Files and folders of models to measure instead of the suite's, and a regular expression that the ids of cases have to match
    #[arg(value_name = "FILE|FOLDER|FILTER")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
    /// Also keep Criterion's results under this name
    #[arg(long, value_name = "NAME")]
    save_baseline: Option<String>,
    /// Compare with Criterion's results of this name
    #[arg(long, value_name = "NAME", conflicts_with = "save_baseline")]
    baseline: Option<String>,
    /// Draw no plots
    #[arg(long)]
    noplot: bool,
    /// Measure without comparing the outputs; the records say that nothing was verified
    #[arg(long)]
    benchmark_only: bool,
    /// Continue the last run where it was stopped, and measure again the cases that failed; the other finished cases are not measured
    /// again. A part of a suite (`--shard`) begins if it was never started, or was started by another machine; its failed cases stay
    #[arg(long, conflicts_with = "dry_run")]
    resume: bool,
    /// Measure one part of the suite, such as 2/4: the cases of a model stay together. `inferbench merge` puts parts together
    #[arg(long, value_name = "K/N")]
    shard: Option<PartNumber>,
    /// The id of the run, for a server that has started this process: it ends, with what it has, when the server ends
    #[arg(long, value_name = "ID", hide = true, conflicts_with_all = ["resume", "dry_run"])]
    run_id: Option<String>,
    /// End, with what it has, when the process that has started this one ends
    #[arg(long, hide = true)]
    with_parent: bool,
    /// Measure the speed of this machine before and after the cases, so that `report --machines` can say which machines are equal
    #[arg(long)]
    calibrate: bool,
    /// Show the cases and about how long they take, and run nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    if arguments.run_id.is_some() || arguments.with_parent {
        interrupt_with_parent();
    }
    harness::say_misspelled_variables();
    let mut selection = arguments.selection.clone();
    let filter = selection.take_words(&arguments.words)?;
    let paths = Paths::find();
    let purpose = if arguments.benchmark_only { Purpose::MeasureUnverified } else { Purpose::Measure };
    // Such results are compared with those of other machines.
    let is_compared = arguments.calibrate || arguments.shard.is_some();
    let request = Request {
        purpose,
        criterion_arguments: criterion_arguments(arguments, filter),
        run_id: arguments.run_id.clone(),
        resume: arguments.resume,
        can_resume: true,
        part: arguments.shard,
        keep_of_others: Some(keep_of_other),
        is_dry: arguments.dry_run,
        calibrates: is_compared,
        selftest: is_compared.then(|| known_spread(&paths)).flatten(),
        ..Request::of(selection, &arguments.effort, None)
    };
    Ok(run_and_show(&paths, &request)?.0)
}

/// Runs, converts, and shows the tables and where the reports are. Returns the exit code and the records.
pub fn run_and_show(paths: &Paths, request: &Request) -> anyhow::Result<(u8, Vec<Record>)> {
    let finished = harness::run(paths, request)?;
    let Some(folder) = &finished.folder else { return Ok((finished.exit_code, Vec::new())) };
    let reports = finished.part.as_ref().map_or_else(|| paths.reports(), |part| paths.parts().join(part));
    // Without results in the history, as after a full disk or a killed process, the run is converted below.
    if finished.was_complete
        && let Some(kept) = kept_here(&folder.id(), &reports, folder.read_manifest()?.finished)
    {
        println!("{:<15}{}", "CSV", kept.join(RESULTS).display());
        return Ok((finished.exit_code, Vec::new()));
    }
    // The new results replace those that the history may have of this run.
    let how = if request.can_resume { "; the same command with `--resume` does that" } else { "" };
    let converted = convert_run(folder, "new", &reports, true)
        .with_context(|| format!("the results of run {} are kept, but could not be converted{how}", folder.id()))?;
    let records = &converted.reported.records;
    let folder = converted.run.folder();
    let markdown = folder.join("report.md");
    let resolution = resolution(paths, records);
    let text = records::render(&converted.reported, &[], &resolution, Format::Markdown);
    write_whole(&markdown, (text + &recommended(&converted.reported, paths, Format::Markdown)).as_bytes())?;
    print!("{}", records::render(&converted.reported, &[], &resolution, Format::Table));
    for model in models_with_variants(records) {
        print!("\n{}", variants_of(&converted.reported, &model, paths)?);
    }
    print!("{}", recommended(&converted.reported, paths, Format::Table));
    let [page, index] = converted.write_pages(&reports, paths)?;
    let files = [
        ("CSV", &folder.join(RESULTS)),
        ("short CSV", &folder.join(THROUGHPUT)),
        ("Markdown", &markdown),
        ("HTML", &page),
        ("all runs", &index),
        ("metrics", &folder.join(METRICS)),
        ("Criterion HTML", &paths.criterion().join("report/index.html")),
    ];
    // A run may have no metrics, and Criterion no plots.
    for (name, path) in files.into_iter().filter(|(_, path)| path.is_file()) {
        println!("{name:<15}{}", path.display());
    }
    println!("{:<15}{}", "history", reports.display());
    Ok((finished.exit_code, converted.reported.records))
}

/// The folder of this machine's run in a history. If another machine began a run in the same second, the name has the
/// machine, too. Results of an interrupted run, which have fewer cases, do not count.
fn kept_here(id: &str, reports: &Path, finished: Option<Timestamp>) -> Option<PathBuf> {
    let own = Machine::read().host_id;
    let folders = [id.to_owned(), format!("{id}-{own}")].map(|name| reports.join(name));
    let is_own = |folder: &PathBuf| {
        let run = Run::in_folder(folder);
        let is_whole = run.manifest().is_ok_and(|kept| kept.is_some_and(|kept| kept.finished == finished));
        is_whole && run.facts().is_ok_and(|facts| facts.host_id == own)
    };
    folders.into_iter().find(|folder| folder.join(RESULTS).is_file() && is_own(folder))
}

/// Converts what another machine has measured of a part into the reports of the part, unless that machine did so itself
/// after its last case.
fn keep_of_other(folder: &RunFolder, part: &Path) {
    let reports = Paths::find().parts().join(part);
    let converted = reports.join(folder.id()).join(RESULTS).metadata().and_then(|it| it.modified()).ok();
    if converted < folder.outcomes_changed()
        && let Err(why) = convert_run(folder, "new", &reports, false)
    {
        eprintln!("not converted: {}: {why:#}", folder.path().display());
    }
}

/// The models that a run has measured in more than one variant.
fn models_with_variants(records: &[Record]) -> Vec<String> {
    let mut variants: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.status == Status::Ok) {
        variants.entry(&record.model).or_default().insert(&record.variant);
    }
    variants.into_iter().filter(|(_, names)| names.len() > 1).map(|(model, _)| model.to_owned()).collect()
}

fn criterion_arguments(arguments: &Arguments, filter: Option<String>) -> Vec<String> {
    let mut criterion = vec!["--bench".to_owned()];
    criterion.extend(filter);
    for (flag, value) in [("--save-baseline", &arguments.save_baseline), ("--baseline", &arguments.baseline)] {
        criterion.extend(value.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
    }
    criterion.extend(arguments.noplot.then(|| "--noplot".to_owned()));
    criterion
}

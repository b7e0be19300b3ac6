//! `inferbench convert`: Criterion's files → `target-reports/<run-id>/`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::report::payload;
use super::store::import::import_one;
use crate::convert::{Conversion, convert_each};
use crate::definition::Status;
use crate::exit_codes;
use crate::harness::{Manifest, RunFolder};
use crate::history::History;
use crate::paths::Paths;
use crate::record::{DISTRIBUTIONS, Distributions};
use crate::report::{ReportedRun, html, index};
use crate::store::{
    CallsWriter, LATENCIES, RESULTS, THROUGHPUT, write_file_whole, write_records, write_throughput, write_whole,
};

/// Turn the measurements of a run into results.csv, throughput.csv, latencies.parquet, manifest.json and report.html
#[derive(Args)]
#[command(after_help = "Entries of Criterion's tree that do not belong to the run are refused with the reason.\n\n\
        Examples:\n  inferbench convert\n  inferbench convert --store\n  inferbench convert --run 20260101T120000Z --baseline main")]
pub struct Arguments {
    /// Run id [default: the latest]
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Name under which Criterion keeps the measurements
    #[arg(long, value_name = "NAME", default_value = "new")]
    baseline: String,
    /// Criterion's root folder [default: the run's]
    #[arg(long, value_name = "FOLDER")]
    criterion: Option<PathBuf>,
    /// Folder for the reports [default: target-reports]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Add the run to the history too [default folder: target-reports/store]
    #[arg(long, value_name = "FOLDER", num_args = 0..=1)]
    store: Option<Option<PathBuf>>,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let paths = Paths::find();
    let folder = RunFolder::find(&paths.runs(), arguments.run.as_deref()).map_err(|error| format!("{error:#}"))?;
    let reports = arguments.output.clone().unwrap_or_else(|| paths.reports());
    let converted = convert_run(&folder, arguments.criterion.as_deref(), &arguments.baseline, &reports)?;
    write_pages(&converted, &reports, &paths)?;
    println!("{}", converted.results.display());
    if let Some(store) = &arguments.store {
        let store = store.clone().unwrap_or_else(|| paths.store());
        import_one(&store, converted.results.parent().unwrap_or(&reports))?;
    }
    Ok(if converted.has_figures { exit_codes::OK } else { exit_codes::NOTHING_MEASURED })
}

/// Where a run's records are now.
pub struct Converted {
    pub results: PathBuf,
    pub throughput: PathBuf,
    pub has_figures: bool,
}

/// Converts a run, says what was refused, and writes its files, but for its pages.
///
/// # Errors
/// The manifest cannot be read, or the files cannot be written.
pub fn convert_run(
    folder: &RunFolder,
    criterion_root: Option<&Path>,
    baseline: &str,
    reports: &Path,
) -> Result<Converted, String> {
    let Manifest { run_id, criterion_root: own_root, .. } =
        folder.read_manifest().map_err(|error| format!("{error:#}"))?;
    let criterion_root = criterion_root.map_or(own_root, Path::to_owned);
    let output = reports.join(&run_id);
    std::fs::create_dir_all(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    let conversion = write_file_whole(&output.join(LATENCIES), |file| {
        let mut calls = CallsWriter::new(&run_id, file)?;
        let conversion = convert_each(folder, &criterion_root, baseline, |record, entry| {
            calls.append(&record.case().to_string(), &entry.samples_ns, entry.disturbed.as_deref())
        })?;
        calls.finish()?;
        Ok(conversion)
    })?;
    say_refusals(&conversion);
    let (mut results, mut throughput) = (Vec::new(), Vec::new());
    write_records(&conversion.records, &mut results)?;
    write_throughput(&conversion.records, &mut throughput)?;
    let manifest = serde_json::to_vec_pretty(&conversion.manifest).map_err(|error| error.to_string())?;
    write_whole(&output.join("manifest.json"), &manifest)?;
    let distributions = Distributions::new(conversion.distributions);
    let distributions = serde_json::to_vec(&distributions).map_err(|error| error.to_string())?;
    write_whole(&output.join(DISTRIBUTIONS), &distributions)?;
    write_whole(&output.join(THROUGHPUT), &throughput)?;
    write_whole(&output.join(RESULTS), &results)?;
    Ok(Converted {
        results: output.join(RESULTS),
        throughput: output.join(THROUGHPUT),
        has_figures: conversion.records.iter().any(|record| record.status == Status::Ok),
    })
}

/// Where a run's page is, and the page of all runs.
pub struct Pages {
    pub report: PathBuf,
    pub index: PathBuf,
}

/// Writes both.
///
/// # Errors
/// The results cannot be read, or the files cannot be written.
pub fn write_pages(converted: &Converted, reports: &Path, paths: &Paths) -> Result<Pages, String> {
    let pages = Pages { report: converted.results.with_file_name(index::REPORT), index: reports.join(index::INDEX) };
    let page = page(converted, reports, paths).map_err(|error| format!("{error:#}"))?;
    write_whole(&pages.report, page.as_bytes())?;
    // After the page, to which it has a link.
    let index = index::render(reports, &paths.criterion()).map_err(|error| format!("{error:#}"))?;
    write_whole(&pages.index, index.as_bytes())?;
    Ok(pages)
}

fn page(converted: &Converted, reports: &Path, paths: &Paths) -> anyhow::Result<String> {
    let history = History::open(&[reports.to_owned()])?;
    let run = ReportedRun::read(&history.get(&converted.results.to_string_lossy())?)?;
    html::render(&payload(&[run], paths, &history))
}

fn say_refusals(conversion: &Conversion) {
    for (entry, reason) in &conversion.refused {
        eprintln!("not converted: {entry}: {reason}");
    }
    for (run, count) in &conversion.of_other_runs {
        eprintln!("not converted: {count} entries are stale: run {run} measured them");
    }
    if conversion.not_reached > 0 {
        eprintln!("{} cases were not reached before the run was stopped", conversion.not_reached);
    }
}

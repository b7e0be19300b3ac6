//! `inferbench store import`: runs → the store.

use std::path::Path;

use clap::Args;

use crate::exit_codes;
use crate::paths::Paths;
use crate::store::{Imported, Store, StoredRun, all_runs, find_runs, read_run};

/// Add runs: all of them at once or, if the disk is full or it is interrupted, none
#[derive(Args)]
#[command(
    after_help = "A run that is there already, by host and id, is not there twice. One that cannot be read, or of which the \
        store has more, is named and left out, and the exit code is 2.\n\nExamples:\n  inferbench store import\n  inferbench store import 20260101T120000Z\n  \
        inferbench store import /mnt/other/store exported.csv"
)]
pub struct Arguments {
    /// Run ids, folders of runs, CSV files, or other stores [default: every run in target-reports]
    sources: Vec<String>,
    /// Take a run also where the store has more of it
    #[arg(long)]
    replace: bool,
}

pub fn run(arguments: &Arguments, store: &Path) -> Result<u8, String> {
    let reports = Paths::find().reports();
    let mut found = Vec::new();
    if arguments.sources.is_empty() {
        found = all_runs(&reports);
        if found.is_empty() {
            return Err(format!("no results in {}; make some with `inferbench convert`", reports.display()));
        }
    }
    for source in &arguments.sources {
        found.extend(find_runs(&reports, source)?);
    }
    let (runs, unread): (Vec<_>, Vec<_>) = found.into_iter().partition(Result::is_ok);
    let runs: Vec<StoredRun> = runs.into_iter().flatten().collect();
    let refused = import(store, &runs, arguments.replace)?;
    let left_out: Vec<String> = unread.into_iter().filter_map(Result::err).chain(refused).collect();
    for reason in &left_out {
        eprintln!("not imported: {reason}");
    }
    Ok(if left_out.is_empty() { exit_codes::OK } else { exit_codes::USAGE })
}

/// Adds the run in a folder of reports, as `convert --store` does.
///
/// # Errors
/// It cannot be read, or the store cannot be written.
pub fn import_one(store: &Path, run_folder: &Path) -> Result<(), String> {
    let mut refused = import(store, &[read_run(run_folder)?], false)?;
    refused.pop().map_or(Ok(()), Err)
}

/// Returns why runs were refused.
fn import(store: &Path, runs: &[StoredRun], replace: bool) -> Result<Vec<String>, String> {
    let store = Store::write(store)?;
    let done = store.import(runs, replace)?;
    let mut refused = Vec::new();
    for (stored, imported) in runs.iter().zip(done) {
        let run = &stored.run;
        let what = match imported {
            Imported::Added => "added",
            Imported::Replaced => "replaced",
            Imported::Unchanged => "there already",
            Imported::Refused(reason) => {
                refused.push(reason);
                continue;
            }
        };
        eprintln!("{what}: {} ({} cases, {} calls)", run.run_id, run.cases, run.calls);
    }
    println!("{}", store.folder().display());
    Ok(refused)
}

//! `inferbench store import`: copies runs into the history.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::exit_codes;
use crate::history::{History, Imported, Run, import};
use crate::paths::Paths;

/// Copy runs into the history, each whole or not at all
#[derive(Args)]
#[command(
    after_help = "A run that the history has already, by host and id, is not added again. A run that cannot be read, or of \
        which the history has more, is named and left out; the exit code is then 2.\n\nExamples:\n  \
        inferbench store import /mnt/laptop/target-reports exported.csv history.duckdb\n  \
        inferbench store import 20260101T120000Z --history /mnt/share/reports"
)]
pub struct Arguments {
    /// Run ids, folders of runs, CSV files of records, or .duckdb exports [default: every run in target-reports]
    sources: Vec<String>,
    /// Take a run even if the history has more of it
    #[arg(long)]
    replace: bool,
}

pub fn run(arguments: &Arguments, root: &Path) -> Result<u8> {
    let reports = Paths::find().reports();
    let mut runs = Vec::new();
    if arguments.sources.is_empty() {
        runs.extend(History::open(std::slice::from_ref(&reports))?.runs().to_vec());
        ensure!(!runs.is_empty(), "no results in {}; make some with `inferbench convert`", reports.display());
    }
    for source in &arguments.sources {
        runs.extend(find(source, &reports)?);
    }
    let mut code = exit_codes::OK;
    // The oldest first.
    for run in runs.iter().rev() {
        let imported = import(run, root, arguments.replace).and_then(|imported| {
            let word = match imported {
                Imported::Added => "added",
                Imported::Replaced => "replaced",
                Imported::Unchanged => "there already",
                Imported::Refused(reason) => bail!(reason),
            };
            let facts = run.facts()?;
            Ok(format!("{word}: {} ({} cases, {} calls)", facts.run_id, facts.cases, facts.calls))
        });
        match imported {
            Ok(said) => eprintln!("{said}"),
            Err(error) => {
                eprintln!("not imported: {}: {error:#}", run.name());
                code = exit_codes::USAGE;
            }
        }
    }
    println!("{}", root.display());
    Ok(code)
}

/// The runs of a source.
fn find(source: &str, reports: &Path) -> Result<Vec<Run>> {
    let path = PathBuf::from(source);
    if !path.exists() {
        return Ok(vec![History::open(&[reports.to_owned()])?.get(source)?]);
    }
    let history = History::open(&[path])?;
    ensure!(!history.runs().is_empty(), "{source}: no run, and no folder of runs");
    Ok(history.runs().to_vec())
}

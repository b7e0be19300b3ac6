//! `inferbench store export`: writes the history, or some of its runs, in another place or form.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::chosen;
use crate::exit_codes;
use crate::history::{History, Imported, Run, import, write_records, write_whole};

/// Write runs as another history, a CSV file, or a DuckDB database
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench store export /mnt/share/reports\n  inferbench store export results.csv\n  \
        inferbench store export history.duckdb\n  inferbench store export one.csv --run 20260101T120000Z"
)]
pub struct Arguments {
    /// A folder, which becomes a history or is added to; a file that ends in .csv, for all results; or one that ends in
    /// .duckdb, for a database with the four tables, which needs a build with `--features duckdb`
    target: PathBuf,
    /// Only these runs
    #[arg(long = "run", value_name = "ID", value_delimiter = ',')]
    runs: Vec<String>,
}

pub fn run(arguments: &Arguments, history: &History) -> Result<u8> {
    let target = &arguments.target;
    let mut runs = chosen(history, &arguments.runs)?;
    // The oldest first.
    runs.reverse();
    match target.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => {
            let mut records = Vec::new();
            for run in runs {
                records.extend(run.records()?);
            }
            let mut bytes = Vec::new();
            write_records(&records, &mut bytes)?;
            write_whole(target, &bytes)?;
        }
        Some("duckdb") => export_database(&runs, target)?,
        _ => export_folders(&runs, target)?,
    }
    println!("{}", target.display());
    Ok(exit_codes::OK)
}

fn export_folders(runs: &[&Run], target: &Path) -> Result<()> {
    for run in runs {
        let is_same = run.folder().parent().and_then(|root| root.canonicalize().ok()) == target.canonicalize().ok();
        ensure!(!is_same || !target.exists(), "{} is the history itself", target.display());
        if let Imported::Refused(reason) = import(run, target, false)? {
            bail!("{}: {reason}", target.display());
        }
    }
    Ok(())
}

#[cfg(feature = "duckdb")]
fn export_database(runs: &[&Run], target: &Path) -> Result<()> {
    let runs: Vec<Run> = runs.iter().map(|&run| run.clone()).collect();
    crate::history::write_database(&runs, target)
}

#[cfg(not(feature = "duckdb"))]
fn export_database(_runs: &[&Run], _target: &Path) -> Result<()> {
    bail!("{}", crate::history::WITHOUT_DUCKDB)
}

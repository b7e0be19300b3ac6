//! `inferbench store export`: the store, or some of its runs, in another place or form.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::exit_codes;
use crate::store::{Imported, RunPlace, Store, write_file_whole, write_records};

/// Write runs as another store, a CSV file, or a DuckDB database
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench store export /mnt/share/store\n  inferbench store export results.csv\n  \
        inferbench store export history.duckdb\n  inferbench store export one.csv --run 20260101T120000Z"
)]
pub struct Arguments {
    /// A folder, or a file that ends in .csv or .duckdb
    target: PathBuf,
    /// What is written [default: by the target's name]
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Only these runs
    #[arg(long = "run", value_name = "ID", value_delimiter = ',')]
    runs: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// A store: a folder of Parquet files, added to if it is there
    Parquet,
    /// The results of all runs in one file
    Csv,
    /// A database with the four tables; needs a build with `--features duckdb`
    Duckdb,
}

pub fn run(arguments: &Arguments, folder: &Path) -> Result<u8, String> {
    let store = Store::read(folder)?;
    let target = &arguments.target;
    let mut places = store.places()?;
    for id in &arguments.runs {
        if !places.iter().any(|place| place.is_run(id)) {
            return Err(format!("no run {id:?} in {}; `inferbench store runs` lists them", folder.display()));
        }
    }
    places.retain(|place| arguments.runs.is_empty() || arguments.runs.iter().any(|id| place.is_run(id)));
    let by_name = || match target.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => ExportFormat::Csv,
        Some("duckdb") => ExportFormat::Duckdb,
        _ => ExportFormat::Parquet,
    };
    match arguments.format.unwrap_or_else(by_name) {
        ExportFormat::Parquet => export_store(&store, &places, target)?,
        ExportFormat::Csv => export_csv(&store, &places, target)?,
        ExportFormat::Duckdb => export_database(store, &places, target)?,
    }
    println!("{}", target.display());
    Ok(exit_codes::OK)
}

fn export_store(store: &Store, places: &[RunPlace], target: &Path) -> Result<(), String> {
    let is_same = || Some(target.canonicalize().ok()? == store.folder().canonicalize().ok()?);
    if is_same() == Some(true) {
        return Err(format!("{} is the store itself", target.display()));
    }
    let runs = places.iter().map(|place| store.stored_run(place)).collect::<Result<Vec<_>, _>>()?;
    let done = Store::write(target)?.import(&runs, false)?;
    let refused = done.into_iter().find_map(|imported| match imported {
        Imported::Refused(reason) => Some(format!("{}: {reason}", target.display())),
        _ => None,
    });
    refused.map_or(Ok(()), Err)
}

fn export_csv(store: &Store, places: &[RunPlace], target: &Path) -> Result<(), String> {
    let mut records = Vec::new();
    for place in places {
        records.extend(store.stored_run(place)?.records);
    }
    write_file_whole(target, |file| write_records(&records, file))
}

#[cfg(feature = "duckdb")]
fn export_database(store: Store, places: &[RunPlace], target: &Path) -> Result<(), String> {
    crate::store::write_database(store, places, target)
}

#[cfg(not(feature = "duckdb"))]
fn export_database(_store: Store, _places: &[RunPlace], _target: &Path) -> Result<(), String> {
    Err("this inferbench is built without DuckDB; run `scripts/setup duckdb` and build with `--features duckdb`".into())
}

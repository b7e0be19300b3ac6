//! `inferbench report`: the records of a run, to read.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;

use super::print;
use crate::exit_codes;
use crate::places::Places;
use crate::report::Format;
use crate::store::{find_results, read_records, write_whole};

/// Show a run: a table, Markdown or JSON
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench report\n  inferbench report --format markdown --output REPORT.md\n  \
        inferbench report 20260101T120000Z --format json")]
pub struct Arguments {
    /// Run id, or a results.csv, or a folder with one [default: the latest run]
    run: Option<String>,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Write to this file instead of the terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let path = find_results(&Places::find().reports(), arguments.run.as_deref())?;
    let named = |error: String| format!("{}: {error}", path.display());
    let file = File::open(&path).map_err(|error| named(error.to_string()))?;
    let records = read_records(file).map_err(named)?;
    let text = arguments.format.render(&records);
    match &arguments.output {
        Some(output) => write_whole(output, text.as_bytes())?,
        None => print(&text)?,
    }
    Ok(exit_codes::OK)
}

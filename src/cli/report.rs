//! `inferbench report`: the records of a run, to read.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;

use super::print;
use crate::exit_codes;
use crate::places::Places;
use crate::record::Record;
use crate::report::Format;
use crate::selftest::line_about;
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
    let places = Places::find();
    let path = find_results(&places.reports(), arguments.run.as_deref())?;
    let named = |error: String| format!("{}: {error}", path.display());
    let file = File::open(&path).map_err(|error| named(error.to_string()))?;
    let records = read_records(file).map_err(named)?;
    let text = arguments.format.render(&records, &resolution(&places, &records));
    match &arguments.output {
        Some(output) => write_whole(output, text.as_bytes())?,
        None => print(&text)?,
    }
    Ok(exit_codes::OK)
}

/// What can be shown on the machine of these records.
pub fn resolution(places: &Places, records: &[Record]) -> String {
    line_about(&places.selftest(), records.first().map_or("", |record| &record.host_id))
}

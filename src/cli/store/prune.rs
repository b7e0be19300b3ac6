//! `inferbench store prune`: what the store need not keep.

use std::path::Path;

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::exit_codes;
use crate::store::{RunPlace, Store};

/// Remove runs, or only their calls, which are most of the store
#[derive(Args)]
#[command(after_help = "Conditions are joined by and. Nothing is removed without one.\n\nExamples:\n  \
        inferbench store prune --keep 20 --only-calls\n  inferbench store prune --before 2026-01-01 --dry-run\n  \
        inferbench store prune --run 20260101T120000Z")]
#[command(group = ArgGroup::new("which").required(true).multiple(true))]
pub struct Arguments {
    /// These runs
    #[arg(long = "run", value_name = "ID", value_delimiter = ',', group = "which")]
    runs: Vec<String>,
    /// All but the latest so many
    #[arg(long, value_name = "COUNT", group = "which")]
    keep: Option<usize>,
    /// Those that began before this day (UTC)
    #[arg(long, value_name = "DATE", group = "which")]
    before: Option<Date>,
    /// Keep the results
    #[arg(long)]
    only_calls: bool,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

pub fn run(arguments: &Arguments, folder: &Path) -> Result<u8, String> {
    // What is not there to read is not made to be pruned.
    drop(Store::read(folder)?);
    let store = Store::write(folder)?;
    let places = store.places()?;
    for id in &arguments.runs {
        if !places.iter().any(|place| place.is_run(id)) {
            return Err(format!("no run {id:?} in {}; `inferbench store runs` lists them", folder.display()));
        }
    }
    let began_before = |place: &RunPlace, time: Timestamp| store.run_row(place).is_ok_and(|run| run.timestamp < time);
    let before = arguments.before.map(|date| date.to_zoned(TimeZone::UTC).map(|time| time.timestamp()));
    let before = before.transpose().map_err(|error| error.to_string())?;
    let older = places.len().saturating_sub(arguments.keep.unwrap_or(0));
    let is_chosen = |(index, place): &(usize, RunPlace)| {
        (arguments.runs.is_empty() || arguments.runs.iter().any(|id| place.is_run(id)))
            && *index < older
            && before.is_none_or(|time| began_before(place, time))
    };
    let chosen: Vec<RunPlace> = places.into_iter().enumerate().filter(is_chosen).map(|(_, place)| place).collect();
    if !arguments.dry_run && !chosen.is_empty() {
        store.prune(&chosen, arguments.only_calls)?;
    }
    let what = if arguments.dry_run { "would remove" } else { "removed" };
    let part = if arguments.only_calls { " (the calls)" } else { "" };
    for place in &chosen {
        println!("{what} {}{part}", place.run());
    }
    if chosen.is_empty() {
        eprintln!("nothing to remove");
    }
    Ok(exit_codes::OK)
}

//! `inferbench store runs`: what the store holds.

use std::path::Path;

use clap::Args;
use serde_json::json;

use crate::cli::{ListFormat, Listing};
use crate::exit_codes;
use crate::report::table::{Column, Table};
use crate::store::{RunRow, Store};

/// List the runs of the store
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench store runs\n  inferbench store runs --format json | jq '.[].run_id'")]
pub struct Arguments {
    #[arg(long, value_enum, default_value = "table")]
    format: ListFormat,
}

pub fn run(arguments: &Arguments, folder: &Path) -> Result<u8, String> {
    let store = Store::read(folder)?;
    let (runs, unread): (Vec<_>, Vec<_>) =
        store.places()?.iter().map(|place| store.run_row(place)).partition(Result::is_ok);
    let runs: Vec<RunRow> = runs.into_iter().flatten().collect();
    let row = |run: &RunRow| {
        let commit: String = run.git_commit.iter().flat_map(|commit| commit.chars().take(10)).collect();
        let dirty = if run.git_dirty == Some(true) { "+" } else { "" };
        vec![
            run.run_id.clone(),
            run.host_id.clone(),
            run.suite.clone(),
            commit + dirty,
            run.cases.to_string(),
            run.cases_ok.to_string(),
            run.calls.to_string(),
        ]
    };
    let texts = ["run", "host", "suite", "commit"].map(Column::text);
    let numbers = ["cases", "ok", "calls"].map(Column::number);
    let table = Table::new(texts.into_iter().chain(numbers)).with_rows(runs.iter().map(row));
    Listing { table, objects: json!(runs) }.print(arguments.format)?;
    for error in unread.iter().filter_map(|unread| unread.as_ref().err()) {
        eprintln!("unreadable: {error}");
    }
    Ok(if unread.is_empty() { exit_codes::OK } else { exit_codes::USAGE })
}

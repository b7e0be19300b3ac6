//! `inferbench store runs`: lists the runs of the history.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::cli::{ListFormat, Listing};
use crate::exit_codes;
use crate::history::{History, RunFacts};
use crate::report::table::{Column, Table};

/// List the runs of the history
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench store runs\n  inferbench store runs --format json | jq '.[].run_id'")]
pub struct Arguments {
    #[arg(long, value_enum, default_value = "table")]
    format: ListFormat,
}

pub fn run(arguments: &Arguments, history: &History) -> Result<u8> {
    let (mut runs, mut unread) = (Vec::new(), Vec::new());
    // The oldest first: the newest stand where a terminal's reader looks.
    for run in history.runs().iter().rev() {
        match run.facts() {
            Ok(facts) => runs.push(facts),
            Err(error) => unread.push(format!("unreadable: {error:#}; {}", run.how_to_mend())),
        }
    }
    let row = |run: &RunFacts| {
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
    unread.iter().for_each(|line| eprintln!("{line}"));
    Ok(if unread.is_empty() { exit_codes::OK } else { exit_codes::USAGE })
}

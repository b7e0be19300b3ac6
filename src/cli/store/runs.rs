//! `inferbench store runs`: lists the runs of the history.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::cli::Listing;
use crate::exit_codes;
use crate::history::History;
use crate::report::Format;
use crate::report::index::RunList;

/// List the runs of the history
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench store runs\n  inferbench store runs --format json | jq '.[].run_id'")]
pub struct Arguments {
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments, history: &History) -> Result<u8> {
    // The oldest first: the newest stand where a terminal's reader looks.
    let RunList { table, facts, unread } = RunList::new(history.runs().iter().rev());
    Listing { table, objects: json!(facts) }.print(arguments.format)?;
    unread.iter().for_each(|line| eprintln!("{line}"));
    Ok(if unread.is_empty() { exit_codes::OK } else { exit_codes::USAGE })
}

//! `inferbench round`: one process's part of a duel, for `inferbench duel` to call and not for people.

use std::time::Duration;

use clap::Args;

use super::print;
use crate::definition::{EffortArguments, Selection};
use crate::exit_codes;
use crate::harness::{RoundRequest, RoundTerms, run_round};
use crate::paths::Paths;

/// Time the cases once, in fresh processes, and print one JSON document
#[derive(Args)]
#[command(after_help = "Example:\n  inferbench round --model digits --seconds 0.2")]
pub struct Arguments {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
    /// Only the case of this id; may be given more than once
    #[arg(long, value_name = "ID")]
    case: Vec<String>,
    /// Seconds of measured calls a case
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = seconds)]
    seconds: Duration,
    /// Make every call longer by so many millionths
    #[arg(long, value_name = "N")]
    slowdown_ppm: Option<u32>,
    /// Do not compare the outputs
    #[arg(long)]
    unproven: bool,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let request = RoundRequest {
        selection: arguments.selection.clone(),
        effort: arguments.effort.clone(),
        terms: RoundTerms {
            duration: arguments.seconds,
            slowdown_ppm: arguments.slowdown_ppm,
            is_verified: !arguments.unproven,
        },
        ids: arguments.case.clone(),
    };
    let Some(report) = run_round(&Paths::find(), &request)? else { return Ok(exit_codes::INTERRUPTED) };
    print(&(serde_json::to_string(&report).map_err(|error| error.to_string())? + "\n"))?;
    Ok(exit_codes::OK)
}

/// Also the seconds of `inferbench duel`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1e-3..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not from 0.001 to 3600".into())
    }
}

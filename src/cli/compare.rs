//! `inferbench compare`: two runs, or a run and a baseline, with a verdict per case.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use clap::builder::PossibleValuesParser;

use super::history_arguments::HistoryArguments;
use crate::compare::{Allowance, CaseFilter, Condition, EarlierRuns, Options, Side, compare};
use crate::history::write_whole;
use crate::paths::Paths;
use crate::report::profile::newest_pages;
use crate::report::{Format, columns, comparison};
use crate::selection::values::fraction_below_one;
use crate::selftest::known_noise;

/// Compare two runs, or a run and a baseline: faster, same, slower or cannot-say, and what else changed
#[derive(Args)]
#[command(
    after_help = "A side is a run's id, a results.csv, a folder with one, a baseline that Criterion keeps, or `new` for \
        the latest run; several, separated by commas, are runs of the same code.\n\n\
        Exit codes: 0 no regression, 1 a regression (of time, memory, size, accuracy or status), 2 bad usage or a bad \
        file, 3 nothing to compare, 4 the machine is too unstable to say anything about any case.\n\n\
        Examples:\n  inferbench compare main new\n  \
        inferbench compare 20260101T120000Z 20260102T120000Z --format markdown --output COMMENT.md\n  \
        inferbench compare before/results.csv after/results.csv --allow-different host --tolerance 10%\n  \
        inferbench compare RUN1,RUN2,RUN3 RUN4,RUN5,RUN6 --backend ort"
)]
pub struct Arguments {
    /// The runs or the baseline to compare with
    #[arg(value_name = "BASE")]
    base: String,
    /// The runs or the baseline that may be faster or slower
    #[arg(value_name = "CANDIDATE")]
    candidate: String,
    #[command(flatten)]
    history: HistoryArguments,
    #[command(flatten)]
    filter: CaseFilter,
    /// Also compare cases in which these conditions differ, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CONDITION,…")]
    allow_different: Vec<Condition>,
    /// Do not count a case that the candidate lacks as a regression
    #[arg(long)]
    allow_missing: bool,
    /// Smaller changes of the time do not matter: those that are certain are shown as notices, not as regressions
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = fraction_below_one)]
    tolerance: f64,
    /// An increase of memory or of the model's size up to this is no regression
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = fraction_below_one)]
    memory_tolerance: f64,
    /// A loss of accuracy up to this is no regression
    #[arg(long, value_name = "POINTS", default_value = "0.5%", value_parser = fraction_below_one)]
    accuracy_tolerance: f64,
    /// Confidence of the intervals; the rest to 100 % is the rate of false alarms among the changes found in all cases
    #[arg(long, value_name = "PERCENT", default_value = "99%", value_parser = confidence)]
    confidence: f64,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The columns of the table of other figures, in this order; `all` shows every column that has a value
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(columns::names()))]
    columns: Vec<String>,
    /// Write to this file instead of the terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let paths = Paths::find();
    let runs = arguments.history.open(paths.reports())?;
    let base = Side::find(&arguments.base, &runs, &paths)?;
    let candidate = Side::find(&arguments.candidate, &runs, &paths)?;
    let options = Options {
        confidence: arguments.confidence,
        tolerance: arguments.tolerance,
        allowance: Allowance { memory: arguments.memory_tolerance, accuracy: arguments.accuracy_tolerance },
        allowed: arguments.allow_different.clone(),
        missing_is_allowed: arguments.allow_missing,
        filter: arguments.filter.clone(),
    };
    let compared = &base.run_ids() | &candidate.run_ids();
    let earlier = EarlierRuns::read(&runs, &compared);
    let known = |host_id: &str| known_noise(&paths.selftest(), host_id);
    let found = compare(&base, &candidate, &earlier, &known, &options);
    let text = comparison::render(&found, arguments.format, &arguments.columns);
    match &arguments.output {
        Some(output) => write_whole(output, text.as_bytes())?,
        None => print!("{text}"),
    }
    let pages = newest_pages(&paths.reports(), Path::new(""));
    for case in found.slower() {
        if let Some(page) = pages.get(&case.id) {
            eprintln!("profile of {}: {page}", case.id);
        }
    }
    Ok(found.exit_code)
}

fn confidence(text: &str) -> anyhow::Result<f64> {
    let fraction = fraction_below_one(text)?;
    ensure!(fraction >= 0.5, "not from 50 % to below 100 %");
    Ok(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confidence_is_at_least_a_half() {
        assert!(confidence("95%").is_ok() && confidence("5%").is_err());
    }
}

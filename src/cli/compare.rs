//! `inferbench compare`: two runs, or a run and a baseline, with a verdict per case.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use clap::builder::PossibleValuesParser;

use super::history_arguments::HistoryArguments;
use super::write_or_print;
use crate::compare::{EarlierRuns, Noise, Options, Side, compare, lost_in_words, lost_searches, rate_changes};
use crate::definition::Case;
use crate::exit_codes;
use crate::history::{RunFacts, find_load};
use crate::paths::Paths;
use crate::report::checks::AnyFormat;
use crate::report::load::{checks_of_rates, render_comparison};
use crate::report::profile::newest_pages;
use crate::report::{Format, columns, comparison};
use crate::run_data::{LoadResult, LoadRun};
use crate::selftest::known_noise;

/// Compare two runs or baselines, with a verdict for each case
#[derive(Args)]
#[command(
    after_help = "A side is a run's id, a results.csv, a folder with one, a baseline that Criterion keeps, or `new` for \
        the latest run. Commas separate several runs of the same code. A side may also be a load test. Load tests that followed a \
        run, on its machine and at its revision, are compared with the run.\n\n\
        Exit codes: 0 a slow-down beyond the tolerance is excluded for every case, 1 a regression (of time, memory, size, accuracy, status \
        or the highest rate under load), 2 bad usage or a bad file, 3 nothing to compare, or every case is refused, 4 a case is open: cannot-say, or refused. \
        Between load tests, a rate that is certainly lower is a regression, and a search that was broken off, and found a rate in the base, is open.\n\n\
        Examples:\n  inferbench compare main new\n  \
        inferbench compare 20260101T120000Z 20260102T120000Z --format markdown --output COMMENT.md\n  \
        inferbench compare main new --format junit --output compare.xml\n  \
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
    options: Options,
    #[arg(long, value_enum, default_value_t = AnyFormat::Text(Format::Table))]
    format: AnyFormat,
    /// The columns of the table of other metrics, in this order; `all` shows every column that has a value
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(columns::names()))]
    columns: Vec<String>,
    /// Write to this file instead of the terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let paths = Paths::find();
    let runs = arguments.history.open(paths.reports())?;
    let loads = HistoryArguments::loads(&runs);
    let rows = |names: &str| rows_of_loads(names, &loads, &paths);
    if let (Some(base), Some(candidate)) = (rows(&arguments.base)?, rows(&arguments.candidate)?) {
        return compare_loads(arguments, base, candidate);
    }
    let side = |names: &str| {
        let found = Side::find(names, &runs, &paths);
        let is_load = found.is_err() && rows(names).is_ok_and(|rows| rows.is_some());
        ensure!(!is_load, "{names} is a load test, and the other side is not; a load test is compared with load tests");
        found
    };
    let (base, candidate) = (side(&arguments.base)?, side(&arguments.candidate)?);
    let options = &arguments.options;
    if !base.has_unread() && !candidate.has_unread() {
        options.filter.check_names(base.records.iter().chain(&candidate.records))?;
    }
    let compared = &base.run_ids() | &candidate.run_ids();
    let earlier = EarlierRuns::read(&runs, &compared);
    // A self-test measures another model, with short calls: it can only add to the noise that is assumed.
    let known = |host_id: &str| Noise::assumed().or_larger(known_noise(&paths.selftest(), host_id));
    let found = compare(&base, &candidate, &earlier, &known, options);
    let searches: Vec<&LoadRun> = loads.iter().filter(|load| load.results.iter().any(|row| row.is_of_search)).collect();
    // The newest first. They are needed only if there are searches.
    let facts: Vec<RunFacts> = match searches.is_empty() {
        true => Vec::new(),
        false => runs.runs().iter().filter_map(|run| run.facts().ok()).collect(),
    };
    let sides = chosen([&base, &candidate].map(|side| loads_of(side, &searches, &facts)), options);
    let found = found.with_rates(&sides, options.undecided_is_allowed);
    let text = match arguments.format {
        AnyFormat::Text(format) => comparison::render(&found, format, &arguments.columns),
        AnyFormat::Checks(format) => comparison::checks(&found, &arguments.columns).render(format),
    };
    write_or_print(arguments.output.as_deref(), &text)?;
    let pages = newest_pages(&paths.reports(), Path::new(""));
    for case in found.slower() {
        let host_id = case.records[1].first().map(|record| record.host_id.clone()).unwrap_or_default();
        if let Some(page) = pages.get(&(host_id, case.case.to_string())) {
            eprintln!("profile of {}: {page}", case.id);
        }
    }
    Ok(found.exit_code)
}

/// Compares the rates that the searches of two load tests found, and returns the exit code.
fn compare_loads(arguments: &Arguments, base: Vec<LoadResult>, candidate: Vec<LoadResult>) -> anyhow::Result<u8> {
    ensure!(
        arguments.columns.is_empty() && arguments.options.allowed.is_empty(),
        "`--columns` and `--allow-different` are for runs, and not for load tests: leave them out"
    );
    if let Some(row) = base.iter().find(|row| candidate.iter().any(|other| other.run_id == row.run_id)) {
        eprintln!("inferbench: load test {} is on both sides", row.run_id);
        return Ok(exit_codes::NOTHING_MEASURED);
    }
    let sides = chosen([base, candidate], &arguments.options);
    let changes = rate_changes(&sides[0], &sides[1], arguments.options.tolerance);
    let lost = lost_searches(&sides[0], &sides[1]);
    if changes.is_empty() && lost.is_empty() {
        eprintln!(
            "inferbench: the two load tests have no search of a case in common that found a rate on both sides; \
             only the rates of searches are compared"
        );
        return Ok(exit_codes::NOTHING_MEASURED);
    }
    let text = match arguments.format {
        AnyFormat::Text(format) => render_comparison(&changes, format),
        AnyFormat::Checks(format) => {
            let title = format!("compare {} {}", arguments.base, arguments.candidate);
            checks_of_rates(&title, &changes, &lost).render(format)
        }
    };
    write_or_print(arguments.output.as_deref(), &text)?;
    lost.iter().for_each(|row| eprintln!("inferbench: {}", lost_in_words(row)));
    let may_lose = arguments.options.undecided_is_allowed && !changes.is_empty();
    Ok(match () {
        () if changes.iter().any(|row| row.is_lower) => exit_codes::REGRESSION_OR_WRONG,
        () if !lost.is_empty() && !may_lose => exit_codes::UNSTABLE,
        () => exit_codes::OK,
    })
}

/// The rows of the load tests with these names, which commas separate. Returns `None` if one of them is not a load
/// test.
fn rows_of_loads(names: &str, loads: &[LoadRun], paths: &Paths) -> anyhow::Result<Option<Vec<LoadResult>>> {
    let mut rows = Vec::new();
    for name in names.split(',').map(str::trim) {
        let known = loads.iter().find(|load| load.run_id == name).cloned();
        match known.map_or_else(|| find_load(&paths.reports(), name), |load| Ok(Some(load)))? {
            Some(load) => rows.extend(load.results),
            None => return Ok(None),
        }
    }
    Ok(Some(rows))
}

/// The rows of the load tests that followed a run of the side: on its machine, at its revision, and before the next run there.
fn loads_of(side: &Side, searches: &[&LoadRun], runs: &[RunFacts]) -> Vec<LoadResult> {
    let run_ids = side.run_ids();
    let is_of_side = |load: &&&LoadRun| {
        let run = runs.iter().find(|run| run.host_id == load.host_id && run.timestamp <= load.timestamp);
        run.is_some_and(|run| run_ids.contains(run.run_id.as_str()) && run.git_commit == load.git_commit)
    };
    searches.iter().filter(is_of_side).flat_map(|load| load.results.clone()).collect()
}

/// The rows of the cases that pass the filter.
fn chosen(sides: [Vec<LoadResult>; 2], options: &Options) -> [Vec<LoadResult>; 2] {
    let is_chosen = |row: &LoadResult| {
        let case = Case::new(&row.model, &row.backend, row.batch_size);
        let (variant, device) = (row.variant.clone(), row.device.clone());
        let &LoadResult { phase, sequence_length, dtype, .. } = row;
        options.filter.matches(&Case { variant, device, phase, sequence_length, dtype, ..case })
    };
    sides.map(|mut rows| {
        rows.retain(is_chosen);
        rows
    })
}

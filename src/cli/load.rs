//! `inferbench load`: requests that arrive by a schedule, their latency, and the highest rate within a bound.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::definition::{NULL, Status, Suite};
use crate::exit_codes;
use crate::harness::{self, Request, Split, splits};
use crate::history::{find_load, write_load, write_whole};
use crate::load::parse_service;
use crate::paths::Paths;
use crate::report::load::{Form, compare, render, render_comparison};
use crate::run_data::{LoadResult, LoadRun, LoadTerms, Scenario, ServiceTime, Verdict};
use crate::selection::values::{duration, fraction, rate};
use crate::selection::{EffortArguments, Selection};
use crate::statistics::queries_for;

/// The word that makes a load test a search.
const SEARCH: &str = "search";
/// Seconds that a trial takes at least, unless something else is said.
const SECONDS: f64 = 10.0;
const SECONDS_OF_A_SEARCH: f64 = 2.0;
/// Each query is kept until the trial ends.
const MOST_QUERIES: f64 = 1e7;
/// A trial of a search has as many queries as it takes to be certain with so many of them over the bound.
const OVER_IN_A_SEARCH: u64 = 5;

/// Put cases under load: the latency of requests, and the highest rate within a bound
#[derive(Args)]
#[command(
    after_help = "Latency counts from the time at which a request was to arrive, so that requests which wait for slow ones are slow, too. \
        With the word `search` before the filters, the highest rate within the bound is searched for.\n\n\
        Exit codes: 1 if a bound is not kept, or the highest rate of a search is lower than that of the base, 4 if the generator of requests was late.\n\n\
        Examples:\n  inferbench load --model digits --backend ort --rate 300/s --p99 20ms\n  \
        inferbench load net.onnx --scenario single --duration 30s\n  \
        inferbench load search --model bert-small --backend ort --p99 50ms --instances auto\n  \
        inferbench load search digits/ort --p99 5ms --max-batch 8 --max-delay 2ms\n  \
        inferbench load 20260101T120000Z 20260102T120000Z"
)]
pub struct Arguments {
    /// The word `search`, files and folders of models, and regular expressions that cases' ids have to match; or one or two load tests
    /// that were made before, of which the first is the base
    #[arg(value_name = "search|FILE|FOLDER|FILTER|LOAD TEST")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
    /// How requests arrive, as in MLPerf LoadGen
    #[arg(long, value_enum, default_value = "server")]
    scenario: Scenario,
    /// Requests per second of the server scenario: `300/s`
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// The percentile of the latency that has to be within the bound [default: 90 of a single stream, otherwise 99]
    #[arg(long, value_name = "PERCENTILE", value_parser = percentile)]
    percentile: Option<f64>,
    /// The latency that the percentile must not exceed: `20ms`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    bound: Option<f64>,
    /// The same as `--percentile 99 --bound TIME`
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["percentile", "bound"])]
    p99: Option<f64>,
    /// The seed of the arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long a trial takes at least [default: 10s, and 2s in a search; as long as the queries take if their number is given]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<f64>,
    /// Queries that a trial has at least [default in a search: as many as are certain with 5 over the bound]
    #[arg(long, value_name = "N")]
    queries: Option<usize>,
    /// Sessions that serve at the same time; `auto` tries those that divide the processors among them [default: 1]
    #[arg(long, value_name = "N|auto", default_value = "1")]
    instances: Instances,
    /// Requests that share a call, at most
    #[arg(long, value_name = "N", default_value_t = 1)]
    max_batch: usize,
    /// How long a request waits for others to share its call [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "max_batch")]
    max_delay: Option<f64>,
    /// Let calls of the null backend take so long, to compare the figures with theory: `2ms`, `exponential:2ms`, or
    /// `0.5ms+100ms/1000` with a stall every 1,000 calls
    #[arg(long, value_name = "TIME", value_parser = parse_service)]
    service_time: Option<ServiceTime>,
    /// How much lower the highest rate of a search may be than that of the base
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = fraction)]
    tolerance: f64,
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
    /// Write to this file instead of the terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Folder for the reports and the history [default: target-reports]
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instances {
    Auto,
    Number(usize),
}

impl FromStr for Instances {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Instances::Auto);
        }
        let number = text.parse().context("neither a number nor auto")?;
        ensure!((1..=1024).contains(&number), "not from 1 to 1024");
        Ok(Instances::Number(number))
    }
}

fn percentile(text: &str) -> Result<f64> {
    let number: f64 = text.parse().context("not a number")?;
    ensure!((50.0..=99.99).contains(&number), "not from 50 to 99.99");
    Ok(number / 100.0)
}

/// `own_suite` stands for the default suite.
pub fn run(arguments: &Arguments, own_suite: Option<&Suite>) -> Result<u8> {
    let paths = Paths::find();
    let reports = arguments.output_dir.clone().unwrap_or_else(|| paths.reports());
    let kept: Vec<Option<LoadRun>> =
        arguments.words.iter().map(|word| find_load(&reports, word)).collect::<Result<_>>()?;
    if kept.iter().any(Option::is_some) {
        return of_kept(arguments, kept.into_iter().flatten().collect());
    }
    let is_search = arguments.words.first().is_some_and(|word| word == SEARCH);
    let terms = terms(arguments, is_search)?;
    let mut selection = arguments.selection.clone();
    if selection.batch_sizes.is_empty() {
        selection.batch_sizes = vec![1];
    }
    let filters = selection.take_files(&arguments.words[usize::from(is_search)..]);
    let filter = filters.iter().map(|filter| format!("(?:{filter})")).collect::<Vec<_>>().join("|");
    let request = Request {
        own_suite: own_suite.cloned(),
        selection,
        effort: arguments.effort.clone(),
        criterion_arguments: vec!["--bench".to_owned(), filter],
        ..Request::default()
    };
    let _lock = harness::keep_others_out(&paths)?;
    let run = harness::load(&paths, &request, &terms, &splits_of(arguments))?;
    eprintln!("load test   {}", write_load(&reports, &run)?.display());
    write(arguments, &render(&run, arguments.format)?)?;
    Ok(if harness::is_interrupted() { exit_codes::INTERRUPTED } else { exit_code(&run.results, is_search) })
}

/// One load test that was made before is shown, and two searches are compared.
fn of_kept(arguments: &Arguments, runs: Vec<LoadRun>) -> Result<u8> {
    ensure!(
        runs.len() == arguments.words.len(),
        "some of the words are load tests that were made before, and others are not"
    );
    match runs.as_slice() {
        [run] => write(arguments, &render(run, arguments.format)?)?,
        [base, new] => {
            let found = compare(base, new, arguments.tolerance);
            ensure!(!found.is_empty(), "the two have no search of a case in common");
            write(arguments, &render_comparison(&found, arguments.format)?)?;
            if found.iter().any(|row| row.is_lower) {
                return Ok(exit_codes::REGRESSION_OR_WRONG);
            }
        }
        _ => bail!("one load test is shown and two are compared; more are not"),
    }
    Ok(exit_codes::OK)
}

fn write(arguments: &Arguments, text: &str) -> Result<()> {
    match &arguments.output {
        Some(file) => write_whole(file, text.as_bytes())?,
        None => print!("{text}"),
    }
    Ok(())
}

fn terms(arguments: &Arguments, is_search: bool) -> Result<LoadTerms> {
    let &Arguments { scenario, seed, duration, queries, max_batch: most_batch, service_time: service, .. } = arguments;
    let is_server = scenario == Scenario::Server;
    let bound = arguments.p99.or(arguments.bound);
    let of_p99 = arguments.p99.map(|_| 0.99);
    let percentile = of_p99.or(arguments.percentile).unwrap_or(scenario.usual_percentile());
    ensure!(is_server || arguments.rate.is_none() && !is_search, "only the server scenario has a rate");
    ensure!(!is_search || bound.is_some(), "a search needs a bound, such as `--p99 20ms`");
    ensure!(!is_search || arguments.rate.is_none(), "a search finds the rate: leave `--rate` out");
    ensure!(
        !is_server || is_search || arguments.rate.is_some(),
        "the server scenario needs a rate, such as `--rate 300/s`"
    );
    let has_one_query = matches!(scenario, Scenario::Single | Scenario::Multi);
    ensure!(
        !has_one_query || arguments.instances == Instances::Number(1),
        "the scenarios single and multi have one query at a time, which one session answers: leave `--instances` out"
    );
    let is_null = arguments.selection.backend == [NULL];
    ensure!(
        service.is_none() || is_null,
        "`--service-time` is for `--backend null`: others take the time that they take"
    );
    ensure!((1..=1024).contains(&most_batch), "`--max-batch` is from 1 to 1024");
    let usual_seconds = if is_search { SECONDS_OF_A_SEARCH } else { SECONDS };
    let usual_queries = if is_search { queries_for(percentile, OVER_IN_A_SEARCH) as usize } else { 1 };
    let seconds = duration.unwrap_or(if queries.is_some() { 0.0 } else { usual_seconds });
    let queries = queries.unwrap_or(usual_queries).max(1);
    let in_all = (queries as f64).max(seconds * arguments.rate.unwrap_or(0.0));
    ensure!(in_all <= MOST_QUERIES, "a trial of {in_all:.0} queries is more than {MOST_QUERIES} queries");
    Ok(LoadTerms {
        scenario,
        rate: arguments.rate,
        percentile,
        bound_ms: bound.map(|seconds| 1e3 * seconds),
        seed,
        seconds,
        queries,
        instances: 1,
        most_batch,
        most_delay_ms: 1e3 * arguments.max_delay.unwrap_or(0.0),
        service,
        is_search,
    })
}

fn splits_of(arguments: &Arguments) -> Vec<Split> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let threads = arguments.effort.threads;
    match arguments.instances {
        Instances::Number(instances) => {
            vec![Split { instances, threads: threads.unwrap_or((processors / instances).max(1)) }]
        }
        Instances::Auto => {
            let all = splits(processors);
            all.into_iter().filter(|split| threads.is_none_or(|threads| split.threads == threads)).collect()
        }
    }
}

fn exit_code(results: &[LoadResult], is_search: bool) -> u8 {
    let has = |verdict: Verdict| results.iter().any(|row| row.verdict == Some(verdict));
    let is_broken = match is_search {
        // Each split that finds a rate has a row that says so.
        true => !results.iter().any(|row| row.is_highest),
        false => has(Verdict::Failed),
    };
    match () {
        () if results.iter().any(|row| row.status == Status::WrongOutput) => exit_codes::REGRESSION_OR_WRONG,
        () if results.iter().all(|row| row.status != Status::Ok) => exit_codes::NOTHING_MEASURED,
        () if has(Verdict::Invalid) && (is_broken || !is_search) => exit_codes::UNSTABLE,
        () if is_broken => exit_codes::REGRESSION_OR_WRONG,
        () => exit_codes::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_say_whether_the_bound_is_kept() {
        let row = |verdict| LoadResult { status: Status::Ok, verdict: Some(verdict), ..LoadResult::default() };
        let of = |verdicts: &[Verdict], is_search| {
            exit_code(&verdicts.iter().map(|verdict| row(*verdict)).collect::<Vec<_>>(), is_search)
        };
        assert_eq!(of(&[Verdict::Measured, Verdict::Passed, Verdict::Undecided], false), exit_codes::OK);
        assert_eq!(of(&[Verdict::Passed, Verdict::Failed], false), exit_codes::REGRESSION_OR_WRONG);
        assert_eq!(of(&[Verdict::Failed, Verdict::Invalid], false), exit_codes::UNSTABLE);
        assert_eq!(of(&[Verdict::Failed], true), exit_codes::REGRESSION_OR_WRONG);
        let highest = LoadResult { is_highest: true, ..row(Verdict::Passed) };
        assert_eq!(exit_code(&[highest, row(Verdict::Failed), row(Verdict::Invalid)], true), exit_codes::OK);
        assert_eq!(exit_code(&[LoadResult::default()], false), exit_codes::NOTHING_MEASURED);
    }
}

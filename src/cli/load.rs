//! `inferbench load`: requests that arrive by a schedule, their latency, and the highest rate within a bound.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Parser;

use super::load_terms::TermArguments;
use super::load_url::{self, UrlArguments};
use super::recommend::read_prices;
use super::{OF_TIMED_CALLS, without, write_or_print};
use crate::decision::Prices;
use crate::definition::{Phase, Status, Suite};
use crate::exit_codes;
use crate::harness::{self, Request};
use crate::history::{find_load, write_load};
use crate::load::ENDED_HERE;
use crate::paths::Paths;
use crate::report::load::{Form, render};
use crate::run_data::{LoadResult, LoadRun, Verdict};
use crate::selection::{EffortArguments, Selection, parse_with_variables};

/// The word that makes a load test a search.
const SEARCH: &str = "search";
const LENGTH: &str =
    "a load test is as long as `--duration` and `--queries` say, and `--searches` repeats a search: leave it out";

/// Put cases under load: latency of requests, highest rate
#[derive(Parser)]
#[command(
    name = "serving",
    after_help = "Latency counts from the scheduled arrival of a request, so a request that waits behind a slow one is slow, too. \
        The word `search` before the filters finds the highest rate within the bound.\n\n\
        Exit codes: 1 a bound is not kept, or requests had no right answer, 3 nothing could be put under load, \
        4 the load generator fell behind schedule, or a search ended before its answer was known, 5 a case failed.\n\n\
        Examples:\n  inferbench load --model digits --backend ort --rate 300/s --p99 20ms\n  \
        inferbench load net.onnx --scenario single --duration 30s\n  \
        inferbench load search --model bert-small --backend ort --p99 50ms --instances auto\n  \
        inferbench load search digits/ort --p99 5ms --max-batch 8 --max-delay 2ms\n  \
        inferbench load --model llama-small --prompt-tokens lognormal:32,0.5 --output-tokens 16 --rate 5/s --ttft 200ms --tpot 50ms\n  \
        inferbench load --url http://127.0.0.1:8080 --model digits --rate 300/s --p99 20ms\n  \
        inferbench load 20260101T120000Z",
    mut_args(|flag| without(flag, &OF_TIMED_CALLS, LENGTH))
)]
pub struct Arguments {
    /// The word `search`, files and folders of models, and regular expressions that the ids of cases have to match. Or earlier
    /// load tests, separated by commas, which are shown again
    #[arg(value_name = "search|FILE|FOLDER|FILTER|LOAD TEST")]
    words: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    effort: EffortArguments,
    #[command(flatten)]
    terms: TermArguments,
    #[command(flatten)]
    server: UrlArguments,
    /// Prices of machines, as for `inferbench recommend`: show the cost of a million requests
    #[arg(long, value_name = "FILE")]
    price: Option<PathBuf>,
    /// Show every trial and column of a search
    #[arg(long)]
    all: bool,
    #[arg(long, value_enum, default_value = "table")]
    format: Form,
    /// Write to this file instead of the terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the load test that the command line of a bench executable asks for.
pub fn run_bench(own_suite: Option<&Suite>) -> Result<u8> {
    // `cargo bench` adds a flag of its own.
    let words = std::env::args_os().filter(|word| word != "--bench");
    run(&parse_with_variables::<Arguments>(words), own_suite)
}

/// `own_suite` replaces the default suite.
pub fn run(arguments: &Arguments, own_suite: Option<&Suite>) -> Result<u8> {
    arguments.server.check()?;
    let is_address = |word: &&String| word.contains("://") && arguments.server.url.is_none();
    if let Some(word) = arguments.words.iter().find(is_address) {
        bail!("{word:?} is an address: `inferbench load --url ADDRESS` puts a server under load");
    }
    let paths = Paths::find();
    let reports = paths.reports();
    // The load tests of names that commas separate, or `None` if one of the names is not a load test.
    let named = |names: &String| names.split(',').map(|name| find_load(&reports, name)).collect();
    let kept: Vec<Option<Vec<LoadRun>>> = arguments.words.iter().map(named).collect::<Result<_>>()?;
    let prices = arguments.price.as_deref().map(read_prices).transpose()?;
    if let Some(runs) = kept.iter().flatten().next() {
        ensure!(
            kept.len() == 1,
            "earlier load tests are shown alone, and separated by commas; `inferbench compare BASE NEW` compares two"
        );
        return show_again(arguments, runs.clone(), prices.as_ref());
    }
    let is_search = arguments.words.first().is_some_and(|word| word == SEARCH);
    let suite = harness::asked_suite(&paths, own_suite, &arguments.selection)?;
    let asked = arguments.terms.clone().over_suite(&suite, is_search)?;
    if arguments.server.url.is_some() {
        if let Some(word) = arguments.words.get(usize::from(is_search)) {
            bail!("a server has no cases to choose: leave {word:?} out");
        }
        refuse_effort(&arguments.effort)?;
        // The suite's settings for its own sessions do not apply to a server.
        let (mut asked, own) = (asked, &arguments.terms);
        (asked.instances, asked.callers, asked.max_batch) = (own.instances, own.callers, own.max_batch);
        (asked.max_delay, asked.max_growth, asked.service_time) = (own.max_delay, own.max_growth, own.service_time);
        let run = load_url::load(&arguments.server, &paths, &arguments.selection, &asked, is_search)?;
        return finish(arguments, run, is_search, prices.as_ref(), &reports);
    }
    let terms = asked.terms(&arguments.selection, is_search)?;
    let mut selection = arguments.selection.clone();
    if selection.batch_sizes.is_empty() {
        selection.batch_sizes = vec![1];
    }
    if terms.lengths.is_some() && selection.phase.is_empty() {
        selection.phase = vec![Phase::Decode];
    }
    let filter = selection.take_filter(&arguments.words[usize::from(is_search)..]);
    let request = Request { own_suite: own_suite.cloned(), ..Request::of(selection, &arguments.effort, Some(filter)) };
    let splits = asked.splits(arguments.effort.threads)?;
    paths.check_writable()?;
    let _lock = harness::keep_others_out(&paths)?;
    let kept = Cell::new(None);
    // If it cannot be kept, as on a full disk, `finish` says so at the end.
    let keep = |run: &LoadRun| kept.set(write_load(&reports, run).ok());
    let run = harness::load(&paths, &request, &terms, &splits, keep).inspect_err(|error| match kept.take() {
        Some(folder) => eprintln!("load test   {}", folder.display()),
        None if error.is::<harness::Interrupted>() => eprintln!("no case was finished, so nothing is kept"),
        None => {}
    })?;
    finish(arguments, run, is_search, prices.as_ref(), &reports)
}

/// Refuses flags about how this program's own cases are measured.
fn refuse_effort(effort: &EffortArguments) -> Result<()> {
    let given = [
        ("--threads", effort.threads.is_some()),
        ("--budget", effort.budget.is_some()),
        ("--warmup", effort.warmup.is_some()),
        ("--timeout", effort.timeout.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => bail!("a server computes as it is set up: leave {flag} and its variable out"),
        None => Ok(()),
    }
}

/// Keeps the load test and shows it.
fn finish(
    arguments: &Arguments,
    mut run: LoadRun,
    is_search: bool,
    prices: Option<&Prices>,
    reports: &Path,
) -> Result<u8> {
    put_costs(&mut run, prices);
    let kept = write_load(reports, &run);
    if let Ok(folder) = &kept {
        eprintln!("load test   {}", folder.display());
    }
    write_or_print(arguments.output.as_deref(), &render(std::slice::from_ref(&run), arguments.format, arguments.all)?)?;
    // The load test is shown even if it cannot be kept.
    kept?;
    // A trial of a server that fails is not a case of this program that failed.
    let may_fail = arguments.effort.allow_failed || arguments.server.url.is_some();
    Ok(if harness::is_interrupted() { exit_codes::INTERRUPTED } else { exit_code(&run.results, is_search, may_fail) })
}

/// Notes what a million requests cost, if there are prices.
fn put_costs(run: &mut LoadRun, prices: Option<&Prices>) {
    let Some(prices) = prices else { return };
    for row in run.results.iter_mut().filter(|row| row.completed_per_s > 0.0) {
        // The machine of a row with a URL is the client's, which the server may not be on.
        let host_id = if row.url.is_some() { "" } else { &row.host_id };
        let per_hour = prices.per_hour_of(host_id, &row.device);
        row.cost_per_million = per_hour.map(|price| price / 3600.0 / row.completed_per_s * 1e6);
        row.currency = Some(prices.currency.clone()).filter(|currency| !currency.is_empty());
    }
}

/// Shows earlier load tests.
fn show_again(arguments: &Arguments, mut runs: Vec<LoadRun>, prices: Option<&Prices>) -> Result<u8> {
    ensure!(
        arguments.terms == TermArguments::default() && arguments.server.url.is_none(),
        "an earlier load test is shown as it was measured: leave out `--rate` and other flags that say how to load"
    );
    runs.iter_mut().for_each(|run| put_costs(run, prices));
    write_or_print(arguments.output.as_deref(), &render(&runs, arguments.format, arguments.all)?)?;
    Ok(exit_codes::OK)
}

fn exit_code(results: &[LoadResult], is_search: bool, may_fail: bool) -> u8 {
    // Each split that finds a rate has a row that says so. One of a case's splits is enough, and each case needs one.
    let has_rate = |row: &LoadResult| results.iter().any(|other| other.is_highest && other.case_id == row.case_id);
    let is_without_rate = |row: &LoadResult| row.status == Status::Ok && !has_rate(row);
    let is_broken = match is_search {
        true => results.iter().any(is_without_rate),
        false => results.iter().any(|row| row.verdict == Some(Verdict::Failed)),
    };
    // If a trial that counts fails at a lower rate, a late trial at a higher rate changes nothing.
    let is_refused_below = |row: &LoadResult| {
        let is_lower = |other: &LoadResult| other.case_id == row.case_id && other.rate <= row.rate;
        results.iter().any(|other| is_lower(other) && other.verdict == Some(Verdict::Failed))
    };
    let decides = |row: &LoadResult| !is_search || is_without_rate(row) && !is_refused_below(row);
    // Late requests leave the answer open, and so does a limit such as `--max-time`, in a trial or after one that passed.
    let is_unfinished = |row: &LoadResult| is_search && (row.ended_early || row.loadgen_accepts == Some(true));
    let is_late = |row: &LoadResult| match row.verdict {
        Some(Verdict::Failed) => false,
        verdict => decides(row) && (verdict == Some(Verdict::Invalid) || is_unfinished(row)),
    };
    // The limit came before a lower rate was tried.
    let was_ended = |row: &LoadResult| {
        is_search && is_without_rate(row) && row.message.as_ref().is_some_and(|message| message.contains(ENDED_HERE))
    };
    match () {
        () if results.iter().any(|row| row.status == Status::WrongOutput) => exit_codes::REGRESSION_OR_WRONG,
        () if results.iter().all(|row| row.status != Status::Ok) => exit_codes::NOTHING_MEASURED,
        () if results.iter().any(|row| is_late(row) || was_ended(row)) => exit_codes::UNSTABLE,
        () if is_broken => exit_codes::REGRESSION_OR_WRONG,
        () if !may_fail && results.iter().any(|row| row.status.is_failure() && !has_rate(row)) => {
            exit_codes::CASE_FAILED
        }
        () => exit_codes::OK,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn exit_codes_say_whether_the_bound_is_kept() {
        let row = |verdict| LoadResult { status: Status::Ok, verdict: Some(verdict), ..LoadResult::default() };
        let of = |verdicts: &[Verdict], is_search| {
            exit_code(&verdicts.iter().map(|verdict| row(*verdict)).collect::<Vec<_>>(), is_search, false)
        };
        assert_eq!(of(&[Verdict::Measured, Verdict::Passed, Verdict::Undecided], false), exit_codes::OK);
        assert_eq!(of(&[Verdict::Passed, Verdict::Failed], false), exit_codes::REGRESSION_OR_WRONG);
        assert_eq!(of(&[Verdict::Failed, Verdict::Invalid], false), exit_codes::UNSTABLE);
        assert_eq!(of(&[Verdict::Failed], true), exit_codes::REGRESSION_OR_WRONG);
        let ended = LoadResult { ended_early: true, ..row(Verdict::Undecided) };
        assert_eq!(exit_code(&[ended], true, false), exit_codes::UNSTABLE);
        let [passed, failed] =
            [LoadResult { loadgen_accepts: Some(true), ..row(Verdict::Passed) }, row(Verdict::Failed)];
        let trials = |[accepted, refused]: [f64; 2]| {
            [(&passed, accepted), (&failed, refused)].map(|(row, rate)| LoadResult { rate: Some(rate), ..row.clone() })
        };
        assert_eq!(exit_code(&trials([1.0, 2.0]), true, false), exit_codes::UNSTABLE);
        assert_eq!(exit_code(&trials([2.0, 1.0]), true, false), exit_codes::REGRESSION_OR_WRONG);
        let ended = LoadResult { message: Some(format!("{ENDED_HERE}the limit of 15 s is reached")), ..failed.clone() };
        assert_eq!(exit_code(&[ended], true, false), exit_codes::UNSTABLE);
        let highest = LoadResult { is_highest: true, ..row(Verdict::Passed) };
        assert_eq!(exit_code(&[highest, row(Verdict::Failed), row(Verdict::Invalid)], true, false), exit_codes::OK);
        assert_eq!(exit_code(&[LoadResult::default()], false, false), exit_codes::NOTHING_MEASURED);
    }

    #[test]
    fn a_search_is_well_if_each_case_has_a_rate() {
        let row = |case: &str, verdict, is_highest| LoadResult {
            case_id: case.into(),
            status: Status::Ok,
            verdict: Some(verdict),
            is_highest,
            ..LoadResult::default()
        };
        let found = || row("a/null-cpu-f32/1", Verdict::Undecided, true);
        let code = |others: &[LoadResult]| exit_code(&[&[found()], others].concat(), true, false);
        assert_eq!(code(&[row("a/null-cpu-f32/1", Verdict::Failed, false)]), exit_codes::OK);
        assert_eq!(code(&[row("b/null-cpu-f32/1", Verdict::Failed, false)]), exit_codes::REGRESSION_OR_WRONG);
        assert_eq!(code(&[row("b/null-cpu-f32/1", Verdict::Invalid, false)]), exit_codes::UNSTABLE);
        let of_first = row("a/null-cpu-f32/1", Verdict::Invalid, false);
        let of_second = row("b/null-cpu-f32/1", Verdict::Failed, false);
        assert_eq!(code(&[of_first, of_second]), exit_codes::REGRESSION_OR_WRONG);
        let at = |verdict, rate| LoadResult { rate: Some(rate), ..row("b/null-cpu-f32/1", verdict, false) };
        assert_eq!(code(&[at(Verdict::Failed, 5.0), at(Verdict::Invalid, 9.0)]), exit_codes::REGRESSION_OR_WRONG);
        assert_eq!(code(&[at(Verdict::Invalid, 5.0), at(Verdict::Failed, 9.0)]), exit_codes::UNSTABLE);
        // A split or a repeated search may fail if another one finds a rate.
        let failed = |case: &str| LoadResult { case_id: case.into(), status: Status::Failed, ..LoadResult::default() };
        assert_eq!(code(&[failed("a/null-cpu-f32/1")]), exit_codes::OK);
        assert_eq!(code(&[failed("b/null-cpu-f32/1")]), exit_codes::CASE_FAILED);
    }

    #[test]
    fn a_case_that_failed_beside_others_is_not_well_unless_it_may_fail() {
        let served = |verdict| LoadResult { status: Status::Ok, verdict: Some(verdict), ..LoadResult::default() };
        let without = |status| LoadResult { status, ..LoadResult::default() };
        for status in [Status::Failed, Status::Timeout] {
            let rows = [served(Verdict::Passed), without(status)];
            assert_eq!(exit_code(&rows, false, false), exit_codes::CASE_FAILED);
            assert_eq!(exit_code(&rows, false, true), exit_codes::OK);
            let worse = [served(Verdict::Failed), without(status)];
            assert_eq!(exit_code(&worse, false, false), exit_codes::REGRESSION_OR_WRONG);
        }
        for status in [Status::Unsupported, Status::Unavailable, Status::OutOfMemory] {
            assert_eq!(exit_code(&[served(Verdict::Passed), without(status)], false, false), exit_codes::OK);
        }
    }

    #[test]
    fn a_load_test_that_cannot_be_kept_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let [reports, output] = ["reports", "load.json"].map(|name| folder.path().join(name));
        fs_err::write(&reports, "no folder").unwrap();
        let flags = ["serving", "--format", "json", "--output", output.to_str().unwrap()];
        let arguments = Arguments::try_parse_from(flags).ok().unwrap();
        let run = LoadRun { run_id: "20260101T000000Z".into(), ..LoadRun::default() };
        assert!(finish(&arguments, run, false, None, &reports).is_err());
        assert!(fs_err::read_to_string(&output).unwrap().contains("20260101T000000Z"));
    }

    #[test]
    fn numbers_of_timed_calls_are_refused_and_their_variables_are_not_read() {
        for flag in ["--iterations", "--processes", "--until-percentile", "--until-interval"] {
            let error =
                Arguments::try_parse_from(["serving", "--rate", "300/s", flag, "50"]).err().unwrap().to_string();
            let begins = format!("error: invalid value '50' for '{flag} <");
            assert!(error.starts_with(&begins) && error.contains("say, and `--searches` repeats"), "{error}");
        }
        let taken = Arguments::try_parse_from(["serving", "--warmup", "3", "--budget", "2", "--threads", "1"]);
        assert_eq!(taken.ok().unwrap().effort.warmup, Some(3));
        let command = Arguments::command();
        let variable = |flag: &clap::Arg| Some(flag.get_env()?.to_string_lossy().into_owned());
        let variables: Vec<String> = command.get_arguments().filter_map(variable).collect();
        let is_read = |name: &str| variables.iter().any(|own| own == name);
        assert!(is_read("INFERBENCH_WARMUP") && is_read("INFERBENCH_MODEL"), "{variables:?}");
        let others = [
            "INFERBENCH_ITERATIONS",
            "INFERBENCH_PROCESSES",
            "INFERBENCH_UNTIL_PERCENTILE",
            "INFERBENCH_UNTIL_INTERVAL",
        ];
        assert_eq!(others.into_iter().find(|name| is_read(name)), None);
    }

    #[test]
    fn load_tests_that_are_shown_again_are_in_one_file_with_their_costs() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("prices.toml"), "per_hour = { default = 0.36, client = 9 }").unwrap();
        let kept = |run_id: &str| {
            let row = LoadResult {
                run_id: run_id.into(),
                host_id: "client".into(),
                url: Some("http://server".into()),
                completed_per_s: 100.0,
                ..LoadResult::default()
            };
            let run = LoadRun { run_id: run_id.into(), results: vec![row], ..LoadRun::default() };
            write_load(folder.path(), &run).unwrap().display().to_string()
        };
        let (one, other) = (kept("20260101T000000Z"), kept("20260102T000000Z"));
        let (prices, output) = (path("prices.toml"), path("shown"));
        let written = |names: &str, format: &str| {
            let words = ["serving", names, "--format", format, "--price", &prices, "--output", &output];
            assert_eq!(run(&Arguments::parse_from(words), None).unwrap(), exit_codes::OK);
            std::fs::read_to_string(&output).unwrap()
        };
        let both = written(&format!("{one},{other}"), "csv");
        assert!(both.contains("20260101T000000Z") && both.contains("20260102T000000Z"), "{both}");
        let refused = Arguments::parse_from(["serving", one.as_str(), "--p99", "5ms"]);
        let error = run(&refused, None).unwrap_err().to_string();
        assert!(error.starts_with("an earlier load test is shown as it was measured"), "{error}");
        let without_url = Arguments::parse_from(["serving", "net", "--max-time", "5s"]);
        let error = run(&without_url, None).unwrap_err().to_string();
        assert!(error.starts_with("`--max-time` is for a server"), "{error}");
        let two = Arguments::parse_from(["serving", "net", one.as_str()]);
        let error = run(&two, None).unwrap_err().to_string();
        assert!(error.starts_with("earlier load tests are shown alone"), "{error}");
        let shown: LoadRun = serde_json::from_str(&written(&one, "json")).unwrap();
        assert!((shown.results[0].cost_per_million.unwrap() - 1.0).abs() < 1e-9, "{shown:?}");
    }
}

//! Load tests of the selected cases, each in a separate process.

use std::collections::BTreeSet;

use anyhow::Result;
use jiff::Timestamp;

use super::asked_cases::AskedCases;
use super::conditions::say_variables;
use super::plan::Request;
use super::protocol::{Purpose, WorkItem};
use super::supervisor::{Interrupted, Supervisor};
use crate::definition::{CaseFailure, Effort};
use crate::load::found_rate;
use crate::machine::{Machine, Revision};
use crate::paths::Paths;
use crate::run_data::files::unused_name;
use crate::run_data::{LoadAnswer, LoadResult, LoadRun, LoadTerms, LoadWindow};

/// How many sessions serve a case at the same time, and with how many threads each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub instances: usize,
    pub threads: usize,
}

/// The ways to divide the processors among sessions of equal size.
pub fn splits(processors: usize) -> Vec<Split> {
    let mut threads: Vec<usize> = (1..=processors).map(|instances| processors / instances).collect();
    threads.dedup();
    threads.into_iter().map(|threads| Split { instances: processors / threads, threads }).collect()
}

/// The timeout in lengths of a trial: the last requests have to be answered, and a search makes many trials.
const LENGTHS_OF_A_TIMEOUT: f64 = 100.0;
/// Seconds that the timeout adds for each query if there is no rate.
const SECONDS_OF_A_QUERY: f64 = 10.0;

/// Load-tests the cases that the suite, filters and Criterion's arguments select, with each of these splits. A case
/// that fails has a row with its status. `keep` gets the load test so far after each case, so that nothing measured is
/// lost. If the user stops it, the rows until then are returned.
///
/// # Errors
/// The request is wrong, no case matches, no process can be started, or the user stopped before the first case ended.
pub fn load(
    paths: &Paths,
    request: &Request,
    terms: &LoadTerms,
    splits: &[Split],
    keep: impl Fn(&LoadRun),
) -> Result<LoadRun> {
    let cases = AskedCases::select(paths, request)?;
    let (timestamp, machine) = (Timestamp::now(), Machine::read());
    say_variables(&machine);
    let run_id = unused_name(&paths.loads(), timestamp);
    let git_commit = Revision::read(paths.root()).commit;
    let run_of = |mut results: Vec<LoadResult>, windows: &[LoadWindow]| {
        for row in &mut results {
            row.run_id.clone_from(&run_id);
            row.host_id.clone_from(&machine.host_id);
            row.timestamp = timestamp;
        }
        let (run_id, host_id, windows) = (run_id.clone(), machine.host_id.clone(), windows.to_vec());
        LoadRun { run_id, host_id, timestamp, git_commit: git_commit.clone(), windows, results }
    };
    let effort = cases.effort.clone();
    let (mut windows, mut so_far) = (Vec::new(), Vec::new());
    let all_splits = |item: WorkItem| -> Result<Vec<LoadResult>> {
        let mut rows: Vec<LoadResult> = Vec::new();
        'splits: for split in splits {
            let mut terms = LoadTerms { instances: split.instances, ..terms.clone() };
            let of_split = rows.len();
            for search in 0..terms.searches.max(1) {
                terms.search = search;
                match served(&item, &terms, split.threads, &effort) {
                    Ok(Ok(found)) => {
                        let highest = found.results.iter().find(|row| row.is_highest);
                        terms.first_rate = highest.and_then(|row| row.rate).or(terms.first_rate);
                        rows.extend(found.results);
                        windows.extend(found.windows);
                    }
                    Ok(Err(failure)) => {
                        rows.push(LoadResult::about(&item.case, &terms, split.threads).failed(failure));
                        break;
                    }
                    Err(error) if error.is::<Interrupted>() && !rows.is_empty() => {
                        note_found(&mut rows[of_split..]);
                        break 'splits;
                    }
                    Err(error) => return Err(error),
                }
            }
            note_found(&mut rows[of_split..]);
        }
        so_far.extend_from_slice(&rows);
        keep(&run_of(so_far.clone(), &windows));
        Ok(rows)
    };
    let mut results = Vec::new();
    for (case, answer) in cases.ask_each(paths, "serving", all_splits)? {
        let threads = effort.effective_threads();
        results.extend(answer.unwrap_or_else(|failure| vec![LoadResult::about(&case, terms, threads).failed(failure)]));
    }
    Ok(run_of(results, &windows))
}

/// Writes the combined result of a split's searches into its rows.
pub fn note_found(rows: &mut [LoadResult]) {
    let searches: BTreeSet<usize> = rows.iter().filter(|row| row.is_of_search).map(|row| row.search).collect();
    let rates: Vec<f64> = rows.iter().filter(|row| row.is_highest).filter_map(|row| row.rate).collect();
    let Some((rate, interval)) = found_rate(&rates) else { return };
    for row in rows.iter_mut().filter(|row| row.is_highest) {
        row.found_rate = Some(rate);
        (row.found_rate_lower, row.found_rate_upper) = interval.unzip();
        (row.searches, row.searches_with_rate) = (Some(searches.len()), Some(rates.len()));
    }
}

fn timeout_seconds(effort: &Effort, terms: &LoadTerms) -> f64 {
    // Without a rate, it is not known how long the queries take.
    let of_queries = if terms.rate.is_none() { SECONDS_OF_A_QUERY * terms.queries as f64 } else { 0.0 };
    effort.timeout_seconds + of_queries + LENGTHS_OF_A_TIMEOUT * terms.least_seconds()
}

fn served(
    item: &WorkItem,
    terms: &LoadTerms,
    threads: usize,
    effort: &Effort,
) -> Result<Result<LoadAnswer, CaseFailure>> {
    let timeout_seconds = timeout_seconds(effort, terms);
    let effort = Effort { threads: Some(threads), timeout_seconds, ..effort.clone() };
    Supervisor::ask(Purpose::Serve, vec![item.clone()], Some(terms.clone()), &effort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_has_the_time_in_which_its_queries_arrive() {
        let of = |seconds, queries| {
            let terms = LoadTerms { rate: Some(0.5), seconds, queries, ..LoadTerms::default() };
            timeout_seconds(&Effort { timeout_seconds: 1800.0, ..Effort::default() }, &terms) - 1800.0
        };
        assert_eq!(of(10.0, 1), 1000.0);
        // Without `--duration`, `seconds` is 0. These queries take 2,614 s.
        assert!(of(0.0, 1307) >= 3.0 * 2614.0);
        let closed = LoadTerms { queries: 20_000, ..LoadTerms::default() };
        assert_eq!(timeout_seconds(&Effort { timeout_seconds: 1800.0, ..Effort::default() }, &closed), 202_800.0);
    }

    #[test]
    fn processors_are_divided_into_sessions_of_equal_size() {
        let of = |processors| -> Vec<(usize, usize)> {
            splits(processors).iter().map(|split| (split.instances, split.threads)).collect()
        };
        assert_eq!(of(1), [(1, 1)]);
        assert_eq!(of(2), [(1, 2), (2, 1)]);
        assert_eq!(of(8), [(1, 8), (2, 4), (4, 2), (8, 1)]);
    }
}

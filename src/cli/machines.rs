//! Machines side by side: which of their runs `report` reads and keeps.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::recommend::read_prices;
use crate::compare::CaseFilter;
use crate::decision::{Goal, Prices};
use crate::history::Run;
use crate::paths::Paths;
use crate::report::ReportedRun;
use crate::report::fleet::{Fleet, Gatherer};
use crate::run_data::Record;
use crate::selftest::known_noise;

/// How machines are shown side by side.
#[derive(Args)]
pub struct MachinesArguments {
    /// Show machines side by side, with the newest run of each: a matrix of cases and machines, which machines differ from their
    /// kind, and the trend of each
    #[arg(long, conflicts_with_all = ["charts", "variants"])]
    pub machines: bool,
    /// Prices of machines, as for `recommend`: show the price of a million samples or tokens on each machine
    #[arg(long, value_name = "FILE")]
    price: Option<PathBuf>,
}

impl MachinesArguments {
    /// The prices, if there are any.
    pub fn prices(&self) -> Result<Prices> {
        Ok(self.price.as_deref().map(read_prices).transpose()?.unwrap_or_default())
    }
}

/// The machines of these runs, side by side. Returns `None` if there is only one.
pub fn fleet_of(runs: &[ReportedRun], prices: &Prices, paths: &Paths) -> Option<Fleet> {
    let hosts: BTreeSet<&str> = runs.iter().flat_map(|run| &run.records).map(|it| it.host_id.as_str()).collect();
    let mut in_order: Vec<&ReportedRun> = runs.iter().collect();
    in_order.sort_by_key(|run| run.records.first().map(|record| record.timestamp));
    (hosts.len() > 1).then(|| gathered(in_order.into_iter(), prices, paths))
}

/// The machines of these runs, which are read one by one, the oldest first; and the runs whose cases the page shows.
pub fn fleet_of_history(
    runs: &[Run],
    filter: &CaseFilter,
    prices: &Prices,
    paths: &Paths,
) -> Result<(Fleet, Vec<ReportedRun>)> {
    let read = |run: &Run, is_whole: bool| {
        let mut read = if is_whole { ReportedRun::read(run)? } else { ReportedRun::read_figures(run)? };
        read.records.retain(|record| filter.matches(&record.case()));
        read.not_reached.retain(|case| filter.matches(case));
        Ok::<_, anyhow::Error>(read)
    };
    let readable =
        runs.iter().filter_map(|run| read(run, false).inspect_err(|why| eprintln!("left out: {why:#}")).ok());
    let fleet = gathered(readable, prices, paths);
    if fleet.cases.is_empty() {
        bail!("no run has a row, or no case passes the filters; `inferbench store runs` lists all runs");
    }
    let shown = fleet.shown_hosts();
    // For many machines, only the runs that `shown_of` keeps are read.
    let is_thinned = fleet.has_same_cases() && fleet.is_large();
    let (mut done, mut kept) = (BTreeSet::new(), Vec::new());
    for run in runs.iter().rev() {
        let hosts = run.host_ids().unwrap_or_default();
        if !hosts.iter().any(|host_id| shown.contains(&host_id.as_str()) && !done.contains(host_id)) {
            continue;
        }
        let Ok(read) = read(run, !is_thinned) else { continue };
        if is_thinned {
            done.extend(read.records.iter().map(|record| record.host_id.clone()));
        }
        kept.push(read);
    }
    kept.reverse();
    let kept = shown_of(&fleet, kept);
    Ok((fleet, kept))
}

fn gathered(runs: impl Iterator<Item = impl Borrow<ReportedRun>>, prices: &Prices, paths: &Paths) -> Fleet {
    let price = |record: &Record| Goal::Cost.quantity(record, prices);
    let noise = |host_id: &str| known_noise(&paths.selftest(), host_id);
    let mut gatherer = Gatherer::new(&price, &noise);
    runs.for_each(|run| gatherer.add(run.borrow()));
    gatherer.finish(&prices.currency)
}

/// The runs with the machines whose cases a page shows. For many machines with the same cases, this is the newest run
/// of each machine that represents its kind.
pub fn shown_of(fleet: &Fleet, mut runs: Vec<ReportedRun>) -> Vec<ReportedRun> {
    let shown = fleet.shown_hosts();
    if !fleet.has_same_cases() || shown.len() == fleet.machines.len() {
        return runs;
    }
    let mut done: BTreeSet<String> = BTreeSet::new();
    for run in runs.iter_mut().rev() {
        run.records.retain(|record| shown.contains(&record.host_id.as_str()) && !done.contains(&record.host_id));
        if fleet.is_large() {
            done.extend(run.records.iter().map(|record| record.host_id.clone()));
            // Distributions are two thirds of a page.
            run.distributions = None;
        }
    }
    runs.retain(|run| !run.records.is_empty());
    runs
}

//! What a report is about: the newest measurement of each case and machine among its runs, and the runs before them.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use indexmap::IndexMap;

use crate::definition::Case;
use crate::history::Run;
use crate::machine::Machine;
use crate::run_data::{Distribution, Distributions, Metric, Node, Record, Work, Works};

/// A run as `target-reports/<run>/` has it.
#[derive(Clone, Debug, Default)]
pub struct ReportedRun {
    /// The name of a run without records.
    pub name: String,
    pub records: Vec<Record>,
    /// The cases that the run was to measure and has no record of. Empty if only the CSV file was kept.
    pub not_reached: Vec<Case>,
    /// Figures of the cases that are not columns of their records.
    pub metrics: Vec<Metric>,
    /// The machines that took part. Empty if only the CSV file was kept.
    pub nodes: Vec<Node>,
    pub distributions: Option<Distributions>,
    /// What [`Manifest::equal_machines`](crate::run_data::Manifest::equal_machines) says.
    pub equal_machines: Option<f64>,
}

impl ReportedRun {
    /// Reads what the report needs from a run. A machine that cannot be read counts as unknown.
    pub fn read(run: &Run) -> Result<Self> {
        Ok(ReportedRun { distributions: run.distributions(), ..Self::read_figures(run)? })
    }

    /// Reads the same except the distributions, which take most of the time.
    pub fn read_figures(run: &Run) -> Result<Self> {
        let (manifest, records) = (run.manifest().ok().flatten(), run.records()?);
        Ok(ReportedRun {
            name: run.name().to_owned(),
            not_reached: manifest.as_ref().map(|manifest| manifest.not_reached(&records)).unwrap_or_default(),
            records,
            metrics: run.metrics()?,
            nodes: manifest.as_ref().map(|manifest| manifest.nodes()).unwrap_or_default(),
            distributions: None,
            equal_machines: manifest.and_then(|manifest| manifest.equal_machines),
        })
    }

    /// What is known about a machine of the run.
    pub fn node(&self, host_id: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.machine.host_id == host_id)
    }

    pub fn run_id(&self) -> &str {
        self.records.first().map_or(self.name.as_str(), |record| &record.run_id)
    }
}

/// The newest measurement of each case on each machine, and all runs, the oldest first.
pub struct Shown<'a> {
    pub runs: Vec<&'a ReportedRun>,
    /// The runs without a record.
    pub unmeasured: Vec<&'a ReportedRun>,
    pub cases: Vec<Measured<'a>>,
    /// By the ids of the hosts.
    pub machines: IndexMap<&'a str, NamedMachine<'a>>,
}

/// A case on a machine.
pub struct Measured<'a> {
    pub record: &'a Record,
    pub metrics: Vec<&'a Metric>,
    pub distribution: Option<&'a Distribution>,
}

/// A machine, with a name for people.
pub struct NamedMachine<'a> {
    pub name: String,
    pub facts: Option<&'a Machine>,
}

impl<'a> Shown<'a> {
    /// The cases are those of `runs`; `earlier` runs are only for the trend.
    pub fn new(runs: &'a [ReportedRun], earlier: &'a [ReportedRun]) -> Self {
        let in_order = |runs: Vec<&'a ReportedRun>| {
            let mut runs: Vec<&ReportedRun> = runs.into_iter().filter(|run| !run.records.is_empty()).collect();
            // Two machines may have begun in the same second.
            let identity = |run: &ReportedRun| (run.run_id().to_owned(), run.records[0].host_id.clone());
            runs.sort_by_key(|run| (run.records[0].timestamp, identity(run)));
            runs.dedup_by_key(|run| identity(run));
            runs
        };
        let named = in_order(runs.iter().collect());
        let all = in_order(runs.iter().chain(earlier).collect());
        let (mut works, mut cases) = (Works::default(), IndexMap::<(usize, &str), Measured<'a>>::new());
        for run in &named {
            for record in &run.records {
                let case = record.case();
                let distribution =
                    run.distributions.as_ref().and_then(|kept| kept.of(&record.host_id, &case.to_string()));
                let metrics = Metric::all_of(&run.metrics, record);
                let number = works.number(Work::of(record));
                for older in works.replaced_by(number) {
                    cases.shift_remove(&(older, record.host_id.as_str()));
                }
                cases.insert((number, &record.host_id), Measured { record, metrics, distribution });
            }
        }
        let unmeasured = runs.iter().filter(|run| run.records.is_empty()).collect();
        Shown { runs: all, unmeasured, cases: cases.into_values().collect(), machines: machines(&named) }
    }

    /// The machines that a run has shown to be equal, each with the one that stands for all of them.
    pub(super) fn equal_machines(&self) -> HashMap<&'a str, &'a str> {
        let equal = self.runs.iter().filter(|run| run.equal_machines.is_some());
        let hosts = equal.flat_map(|run| {
            let first = run.records.first().map(|record| record.host_id.as_str());
            run.records.iter().filter_map(move |record| Some((record.host_id.as_str(), first?)))
        });
        hosts.collect()
    }
}

/// Names each machine by its processor, with the start of its id if there are several machines, or else by its id.
fn machines<'a>(runs: &[&'a ReportedRun]) -> IndexMap<&'a str, NamedMachine<'a>> {
    let mut hosts: IndexMap<&str, Option<&Machine>> = IndexMap::new();
    // The newest run knows most about a machine.
    for run in runs.iter().rev() {
        for record in &run.records {
            let facts = || run.node(&record.host_id).map(|node| &node.machine);
            hosts.entry(&record.host_id).or_insert_with(facts);
        }
    }
    let is_one = hosts.len() == 1;
    let letters = telling_letters(hosts.keys().copied());
    let machine = |(host_id, facts): (&'a str, Option<&'a Machine>)| {
        let name = facts.and_then(short_name).filter(|_| is_one);
        (host_id, NamedMachine { name: name.unwrap_or_else(|| name_among_several(host_id, facts, letters)), facts })
    };
    hosts.into_iter().map(machine).collect()
}

/// How many letters at the start of the ids tell the hosts apart; at least four.
pub(super) fn telling_letters<'a>(host_ids: impl Iterator<Item = &'a str> + Clone) -> usize {
    let count = host_ids.clone().collect::<HashSet<_>>().len();
    let longest = host_ids.clone().map(str::len).max().unwrap_or_default();
    let tells = |letters: &usize| {
        host_ids.clone().map(|id| id.chars().take(*letters).collect::<String>()).collect::<HashSet<_>>().len() == count
    };
    (4..longest).find(tells).unwrap_or(longest)
}

/// `AMD EPYC ×2 1a2b`, with so many letters of the id.
pub(super) fn name_among_several(host_id: &str, facts: Option<&Machine>, letters: usize) -> String {
    match facts.and_then(short_name) {
        Some(name) => format!("{name} {}", host_id.chars().take(letters).collect::<String>()),
        None => host_id.to_owned(),
    }
}

/// `AMD EPYC ×2`: the first words of the processor's name, and how many there are.
fn short_name(machine: &Machine) -> Option<String> {
    let model = machine.cpu_model.as_deref()?.replace("(R)", "").replace("(TM)", "");
    let words: Vec<&str> = model.split_whitespace().filter(|word| !["CPU", "Processor", "@"].contains(word)).collect();
    let name = words.into_iter().take(4).collect::<Vec<_>>().join(" ");
    Some(format!("{name} ×{}", machine.logical_processors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{record, run_of};

    #[test]
    fn of_several_runs_the_newest_measurement_of_each_case_is_shown() {
        let older = run_of(1, vec![record("m", "ort", 1, Some(1.0)), record("m", "ort", 8, Some(5.0))]);
        let newer = run_of(2, vec![record("m", "ort", 1, Some(2.0))]);
        let runs = [newer, older];
        let shown = Shown::new(&runs, &[]);
        let latencies: Vec<_> = shown.cases.iter().map(|case| case.record.latency_p50_ms).collect();
        assert_eq!(latencies, [Some(2.0), Some(5.0)]);
        assert_eq!(shown.runs.iter().map(|run| run.run_id()).collect::<Vec<_>>(), ["run1", "run2"]);
    }

    #[test]
    fn runs_of_two_machines_that_began_in_the_same_second_are_both_shown() {
        let here = run_of(1, vec![record("m", "ort", 1, Some(1.0))]);
        let there = run_of(1, vec![Record { host_id: "there".into(), ..record("m", "ort", 1, Some(2.0)) }]);
        let runs = [here, there];
        let shown = Shown::new(&runs, &[]);
        assert_eq!((shown.cases.len(), shown.runs.len()), (2, 2));
        assert_eq!(Shown::new(&runs[..1], &runs[..1]).runs.len(), 1);
    }

    #[test]
    fn a_file_that_has_changed_takes_the_place_of_the_one_before_and_another_size_does_not() {
        let run = |index: usize, shape: &str, model: &str| {
            let known = record("m", "ort", 1, Some(1.0));
            let (input_shape, model_sha256) = (Some(shape.to_owned()), Some(model.to_owned()));
            run_of(index, vec![Record { input_shape, model_sha256, ..known }])
        };
        let runs = [run(1, "1x8", "a"), run(2, "1x64", "a"), run(3, "1x8", "b")];
        let shown = Shown::new(&runs, &[]);
        let ids: Vec<&str> = shown.cases.iter().map(|case| case.record.run_id.as_str()).collect();
        assert_eq!(ids, ["run2", "run3"]);
    }

    #[test]
    fn earlier_runs_are_for_the_trend_only() {
        let earlier = [run_of(1, vec![record("gone", "ort", 1, Some(1.0))])];
        let runs = [run_of(2, vec![record("m", "ort", 1, Some(2.0))])];
        let shown = Shown::new(&runs, &earlier);
        assert_eq!((shown.cases.len(), shown.runs.len()), (1, 2));
    }
}

//! The measurements of both sides that are of the same case, and the conditions in which they differ.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::filter::CaseFilter;
use super::noise::is_same_build;
use super::sides::{Measurement, Side};
use crate::definition::{Boundary, Case};
use crate::run_data::Record;

/// A case with the measurements of each side; one side may have none.
#[derive(Debug)]
pub struct Pair<'a> {
    pub case: Case,
    pub base: Vec<&'a Measurement>,
    pub candidate: Vec<&'a Measurement>,
}

/// A condition that must be equal, so that a ratio says something about the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// The machine
    Host,
    /// The version of the backend or of its native library
    Library,
    /// The work inside the timed call
    Boundary,
    /// The number of threads that the runtime uses
    Threads,
    /// The device or dtype that was effective
    Device,
}

/// A condition that is not the same on both sides, or within one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub condition: Condition,
    pub base: String,
    pub candidate: String,
}

impl Condition {
    pub const ALL: [Condition; 5] =
        [Condition::Host, Condition::Library, Condition::Boundary, Condition::Threads, Condition::Device];

    pub fn name(self) -> &'static str {
        match self {
            Condition::Host => "host",
            Condition::Library => "library",
            Condition::Boundary => "boundary",
            Condition::Threads => "threads",
            Condition::Device => "device",
        }
    }

    /// The condition in a run. Returns `None` if it is unknown, which is not a difference.
    fn of(self, record: &Record) -> Option<String> {
        let known = |parts: &[Option<&str>]| {
            let parts: Vec<&str> = parts.iter().flatten().copied().collect();
            (!parts.is_empty()).then(|| parts.join(" "))
        };
        match self {
            Condition::Host => Some(record.host_id.clone()),
            Condition::Library => known(&[record.backend_version.as_deref(), record.library_version.as_deref()]),
            Condition::Boundary => Some(record.boundary.to_string()),
            Condition::Threads => record.threads.map(|threads| threads.to_string()),
            Condition::Device => {
                known(&[record.effective_device.as_deref(), record.effective_dtype.map(|dtype| dtype.name())])
            }
        }
    }
}

/// The pairs in the order of the base, then what only the candidate has. Cases are paired by their identity; where one
/// side has a case with another boundary only, the two are paired to be refused.
pub fn pair<'a>(base: &'a Side, candidate: &'a Side, filter: &CaseFilter) -> Vec<Pair<'a>> {
    let bases = by_identity(base, filter);
    let mut candidates = by_identity(candidate, filter);
    let boundaries = |sides: &Groups<'a>, case: &Case| -> Vec<Boundary> {
        sides
            .of_work
            .get(&of_any_boundary(case))
            .into_iter()
            .flatten()
            .map(|&index| sides.all[index].case.boundary)
            .collect()
    };
    let mut pairs = Vec::with_capacity(bases.all.len());
    for group in &bases.all {
        // The same boundary, or else one that the base does not have.
        let own = boundaries(&bases, &group.case);
        let there = boundaries(&candidates, &group.case);
        let same = there.iter().find(|boundary| **boundary == group.case.boundary);
        let found = same.or_else(|| there.iter().find(|boundary| !own.contains(boundary)));
        let candidate = found.map(|&boundary| candidates.take(&Case { boundary, ..group.case.clone() }));
        let candidate = candidate.unwrap_or_default();
        pairs.push(Pair { case: group.case.clone(), base: group.measurements.clone(), candidate });
    }
    let only_there = candidates.all.into_iter().filter(|group| !group.measurements.is_empty());
    pairs.extend(only_there.map(|group| Pair { case: group.case, base: Vec::new(), candidate: group.measurements }));
    pairs
}

/// The measurements of a side, by case.
#[derive(Default)]
struct Groups<'a> {
    all: Vec<Group<'a>>,
    /// By the case without its boundary.
    of_work: HashMap<Case, Vec<usize>>,
}

struct Group<'a> {
    case: Case,
    measurements: Vec<&'a Measurement>,
}

impl<'a> Groups<'a> {
    fn find(&mut self, case: &Case) -> Option<&mut Group<'a>> {
        let same_work = self.of_work.get(&of_any_boundary(case))?;
        let index = same_work.iter().copied().find(|&index| self.all[index].case == *case)?;
        Some(&mut self.all[index])
    }

    /// Leaves the group empty: what was paired is paired once.
    fn take(&mut self, case: &Case) -> Vec<&'a Measurement> {
        self.find(case).map(|group| std::mem::take(&mut group.measurements)).unwrap_or_default()
    }
}

fn of_any_boundary(case: &Case) -> Case {
    Case { boundary: Boundary::default(), ..case.clone() }
}

fn by_identity<'a>(side: &'a Side, filter: &CaseFilter) -> Groups<'a> {
    let mut groups = Groups::default();
    for found in side.measurements() {
        let case = found.record.case();
        if !filter.matches(&case) {
            continue;
        }
        if let Some(group) = groups.find(&case) {
            group.measurements.push(found);
            continue;
        }
        groups.of_work.entry(of_any_boundary(&case)).or_default().push(groups.all.len());
        groups.all.push(Group { case, measurements: vec![found] });
    }
    groups
}

impl Pair<'_> {
    /// The run whose measurement both sides have, as a baseline that was saved by the latest run has.
    pub fn shared_run(&self) -> Option<&str> {
        let is_shared = |found: &&&Measurement| self.candidate.iter().any(|other| other.is_same_as(found));
        self.base.iter().find(is_shared).map(|found| found.record.run_id.as_str())
    }

    /// Whether all runs of both sides are known to be of one build.
    pub fn is_same_build(&self) -> bool {
        let first = &self.base[0].record;
        self.base.iter().chain(&self.candidate).all(|found| is_same_build(first, &found.record))
    }

    /// The conditions that are not the same everywhere.
    pub fn differences(&self) -> Vec<Difference> {
        let values = |condition: Condition, measurements: &[&Measurement]| -> BTreeSet<String> {
            measurements.iter().filter_map(|found| condition.of(&found.record)).collect()
        };
        let shown = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(" and ");
        let difference = |condition| {
            let (base, candidate) = (values(condition, &self.base), values(condition, &self.candidate));
            let all: BTreeSet<&String> = base.iter().chain(&candidate).collect();
            (all.len() > 1).then(|| Difference { condition, base: shown(base), candidate: shown(candidate) })
        };
        Condition::ALL.into_iter().filter_map(difference).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::simulation::empty_record;

    fn side(records: Vec<Record>) -> Side {
        Side::of_records("s", records)
    }

    fn with_boundary(run_id: &str, boundary: Boundary) -> Record {
        Record { run_id: run_id.into(), boundary, ..empty_record() }
    }

    #[test]
    fn each_boundary_has_its_own_pair_where_both_sides_have_it() {
        let base = side(vec![with_boundary("a", Boundary::Compute), with_boundary("a", Boundary::EndToEnd)]);
        let candidate = side(vec![with_boundary("b", Boundary::EndToEnd), with_boundary("b", Boundary::Compute)]);
        let pairs = pair(&base, &candidate, &CaseFilter::default());
        assert_eq!(pairs.len(), 2);
        assert!(pairs.iter().all(|pair| pair.candidate.len() == 1 && pair.differences().is_empty()));
        let other = side(vec![with_boundary("b", Boundary::EndToEnd)]);
        let only_compute = side(vec![with_boundary("a", Boundary::Compute)]);
        let pairs = pair(&only_compute, &other, &CaseFilter::default());
        assert_eq!(pairs[0].differences()[0].condition, Condition::Boundary);
    }

    #[test]
    fn what_is_unknown_is_no_difference_and_what_differs_within_a_side_is() {
        let with = |run_id: &str, library: Option<&str>, threads| Record {
            library_version: library.map(str::to_owned),
            threads: Some(threads),
            ..with_boundary(run_id, Boundary::Compute)
        };
        let base = side(vec![with("a", None, 1), with("b", None, 2)]);
        let candidate = side(vec![with("c", Some("2.0"), 2)]);
        let pairs = pair(&base, &candidate, &CaseFilter::default());
        let expected = Difference { condition: Condition::Threads, base: "1 and 2".into(), candidate: "2".into() };
        assert_eq!(pairs[0].differences(), [expected]);
    }
}

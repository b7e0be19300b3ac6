//! The records of both sides that are of the same case, and the conditions in which they differ.

use std::collections::BTreeSet;

use clap::ValueEnum;
use indexmap::IndexMap;

use super::conditions::{Condition, Difference, is_same_build};
use super::filter::CaseFilter;
use super::sides::Side;
use crate::definition::{Boundary, Case, TimedOn};
use crate::run_data::Record;

/// A case with the records of each side; one side may have none.
#[derive(Debug)]
pub struct Pair<'a> {
    pub case: Case,
    /// The machine of the records, if the case is compared machine by machine.
    pub host_id: Option<&'a str>,
    pub base: Vec<&'a Record>,
    pub candidate: Vec<&'a Record>,
}

/// The pairs in the order of the base, then the cases that only the candidate has. Cases are paired by their identity.
/// If the candidate has a case only with another boundary or other inputs, the two are paired, to be refused.
pub fn pair<'a>(base: &'a Side, candidate: &'a Side, filter: &CaseFilter) -> Vec<Pair<'a>> {
    let bases = by_case(base, filter);
    let mut candidates = by_case(candidate, filter);
    let mut pairs = Vec::with_capacity(bases.len());
    for (case, records) in &bases {
        // The same case, or else one that the base does not have.
        let others = [TimedOn::Seeded, TimedOn::Samples].into_iter().flat_map(|timed_on| {
            let with = move |&boundary: &Boundary| Case { boundary, timed_on, ..case.clone() };
            Boundary::value_variants().iter().map(with)
        });
        let mut cases = [case.clone()].into_iter().chain(others.filter(|other| !bases.contains_key(other)));
        let found = cases.find(|case| candidates.contains_key(case));
        // A case is paired once.
        let candidate = found.and_then(|case| candidates.get_mut(&case)).map(std::mem::take).unwrap_or_default();
        pairs.push(Pair { case: case.clone(), host_id: None, base: records.clone(), candidate });
    }
    let only_there = candidates.into_iter().filter(|(_, records)| !records.is_empty());
    pairs.extend(only_there.map(|(case, candidate)| Pair { case, host_id: None, base: Vec::new(), candidate }));
    pairs
}

/// The records of a side, by case.
fn by_case<'a>(side: &'a Side, filter: &CaseFilter) -> IndexMap<Case, Vec<&'a Record>> {
    let mut groups: IndexMap<Case, Vec<&Record>> = IndexMap::new();
    for record in &side.records {
        groups.entry(record.case()).or_default().push(record);
    }
    groups.retain(|case, _| filter.matches(case));
    groups
}

/// Whether a run among these records of one case has rows of several machines: a merged run has a row of its anchor case of each machine.
fn is_of_merged_run(records: &[&Record]) -> bool {
    let is_elsewhere = |one: &Record, other: &Record| one.run_id == other.run_id && one.host_id != other.host_id;
    records.iter().any(|one| records.iter().any(|other| is_elsewhere(one, other)))
}

impl<'a> Pair<'a> {
    /// The case on each machine, if a side has a merged run and the sides have a machine in common: the rows of an
    /// anchor are not repetitions of one another, and each is compared with the row of the same machine. Otherwise, the
    /// pair as it is.
    pub fn by_machine(self) -> Vec<Self> {
        let hosts = |records: &[&'a Record]| -> BTreeSet<&'a str> {
            records.iter().copied().map(|record| record.host_id.as_str()).collect()
        };
        let (base, candidate) = (hosts(&self.base), hosts(&self.candidate));
        let is_merged = is_of_merged_run(&self.base) || is_of_merged_run(&self.candidate);
        if !is_merged || base.is_disjoint(&candidate) {
            return vec![self];
        }
        let on = |host_id: &'a str| {
            let own = |records: &[&'a Record]| -> Vec<&'a Record> {
                records.iter().copied().filter(|record| record.host_id == host_id).collect()
            };
            let (base, candidate) = (own(&self.base), own(&self.candidate));
            Pair { case: self.case.clone(), host_id: Some(host_id), base, candidate }
        };
        base.union(&candidate).copied().map(on).collect()
    }

    /// The id of the case, and the machine if it is compared machine by machine: `m/ort-cpu-f32/1 on 1a2b3c4d`.
    pub fn id(&self) -> String {
        match self.host_id {
            Some(host_id) => format!("{} on {host_id}", self.case),
            None => self.case.to_string(),
        }
    }

    /// The run whose measurement is on both sides, as happens with a baseline that the latest run has saved.
    pub fn shared_run(&self) -> Option<&str> {
        let is_same = |one: &Record, other: &Record| {
            one.run_id == other.run_id && one.latency_p50_ms.is_some() && one.latency_p50_ms == other.latency_p50_ms
        };
        let is_shared = |record: &&&Record| self.candidate.iter().any(|other| is_same(record, other));
        self.base.iter().find(is_shared).map(|record| record.run_id.as_str())
    }

    /// A note if the native library is another file on the candidate's side: two builds may report the same version.
    pub fn other_library(&self) -> Option<String> {
        let files = |records: &[&Record]| -> BTreeSet<String> {
            records.iter().filter_map(|record| record.library_path.clone()).collect()
        };
        let (base, candidate) = (files(&self.base), files(&self.candidate));
        let is_other = !base.is_empty() && !candidate.is_empty() && base != candidate;
        let backend = &self.case.backend;
        is_other.then(|| format!("{backend}: the library is {} and was {}", shown(candidate), shown(base)))
    }

    /// Whether all runs of both sides are known to be of one build.
    pub fn is_same_build(&self) -> bool {
        self.base.iter().chain(&self.candidate).all(|record| is_same_build(self.base[0], record))
    }

    /// Whether the runs of a side differ in this condition, so that their mean says nothing.
    pub fn is_mixed(&self, condition: Condition) -> bool {
        [&self.base, &self.candidate].into_iter().any(|side| differs(condition, side))
    }

    /// The conditions that are not the same everywhere.
    pub fn differences(&self) -> Vec<Difference> {
        let all = [self.base.as_slice(), &self.candidate].concat();
        let differing = Condition::value_variants().iter().copied().filter(|condition| differs(*condition, &all));
        let of_sides = |condition| {
            let [base, candidate] = [&self.base, &self.candidate].map(|side| shown(values(condition, side)));
            Difference { condition, base, candidate }
        };
        differing.map(of_sides).collect()
    }
}

/// Whether a part of the condition has several values, as far as they are known.
fn differs(condition: Condition, records: &[&Record]) -> bool {
    let parts: Vec<[Option<String>; 2]> = records.iter().map(|record| condition.parts(record)).collect();
    let values_of = |part: usize| parts.iter().filter_map(|parts| parts[part].as_ref()).collect::<BTreeSet<_>>();
    (0..2).any(|part| values_of(part).len() > 1)
}

fn values(condition: Condition, records: &[&Record]) -> BTreeSet<String> {
    records.iter().filter_map(|record| condition.of(record)).collect()
}

fn shown(values: BTreeSet<String>) -> String {
    Vec::from_iter(values).join(" and ")
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
    fn the_anchor_of_merged_runs_is_paired_machine_by_machine() {
        let on = |run_id: &str, host_id: &str| Record {
            host_id: host_id.into(),
            ..with_boundary(run_id, Boundary::Compute)
        };
        let paired = |base: &[(&str, &str)], candidate: &[(&str, &str)]| {
            let [base, candidate] =
                [base, candidate].map(|rows| side(rows.iter().map(|&(run_id, host_id)| on(run_id, host_id)).collect()));
            let pairs = pair(&base, &candidate, &CaseFilter::default()).into_iter().flat_map(Pair::by_machine);
            let shown = |pair: Pair<'_>| {
                let machine = pair.host_id.unwrap_or("all").to_owned();
                assert_eq!(pair.id().ends_with(&format!(" on {machine}")), pair.host_id.is_some());
                (machine, pair.base.len(), pair.candidate.len(), pair.differences().len())
            };
            pairs.map(shown).collect::<Vec<_>>()
        };
        let of = |machine: &str, base: usize, candidate: usize, differences: usize| {
            (machine.to_owned(), base, candidate, differences)
        };
        let merged = [("m1", "a"), ("m1", "b")];
        // A side may have several merged runs.
        let several = [("m2", "a"), ("m2", "b"), ("m3", "b")];
        assert_eq!(paired(&merged, &several), [of("a", 1, 1, 0), of("b", 1, 2, 0)]);
        // A machine that one side lacks has a pair of its own.
        assert_eq!(
            paired(&merged, &[("m2", "b"), ("m2", "c")]),
            [of("a", 1, 0, 0), of("b", 1, 1, 0), of("c", 0, 1, 0)]
        );
        assert_eq!(paired(&[("r", "a")], &merged), [of("a", 1, 1, 0), of("b", 0, 1, 0)]);
        // Other machines are refused as those of any other runs are.
        assert_eq!(paired(&merged, &[("m2", "c"), ("m2", "d")]), [of("all", 2, 2, 1)]);
        assert_eq!(paired(&[("r", "a"), ("s", "b")], &[("t", "a"), ("u", "b")]), [of("all", 2, 2, 1)]);
        assert_eq!(paired(&merged, &[]), [of("all", 2, 0, 1)]);
    }

    #[test]
    fn another_file_of_the_library_is_said_where_both_are_known() {
        let with = |run_id: &str, path: Option<&str>| Record {
            library_path: path.map(str::to_owned),
            ..with_boundary(run_id, Boundary::Compute)
        };
        let note = |one: Option<&str>, other: Option<&str>| {
            let (base, candidate) = (side(vec![with("a", one)]), side(vec![with("b", other)]));
            let pairs = pair(&base, &candidate, &CaseFilter::default());
            assert_eq!(pairs[0].differences(), []);
            pairs[0].other_library()
        };
        let said = note(Some("/old/lib.so"), Some("/new/lib.so")).unwrap();
        assert!(said.ends_with(": the library is /new/lib.so and was /old/lib.so"), "{said}");
        assert_eq!((note(None, Some("/new/lib.so")), note(Some("/a"), Some("/a"))), (None, None));
    }

    #[test]
    fn what_is_unknown_is_no_difference_and_what_differs_within_a_side_is() {
        let with = |run_id: &str, library: Option<&str>, threads| Record {
            backend_version: Some("1.0".into()),
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

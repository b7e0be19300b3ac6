//! Which case of the candidate belongs to which of the base, and which cannot be compared, and why.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::definition::Status;
use crate::harness::{RoundCase, RoundReport};

/// A case of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub base: String,
    /// Another id only where two suites are compared.
    pub candidate: String,
    pub trouble: Option<Trouble>,
}

/// Why a case has no times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    pub whose: Whose,
    pub status: Status,
    pub message: String,
}

/// On which side a trouble is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// The base's, or both sides': nothing can be compared.
    Base,
    /// The candidate's alone: it lost something.
    Candidate,
}

impl Pair {
    /// The id, or both of them.
    pub fn name(&self) -> String {
        if self.base == self.candidate { self.base.clone() } else { format!("{} → {}", self.base, self.candidate) }
    }
}

/// Pairs the cases by their ids, and what is left, where that is asked for, by all of the id but the contestant; the last
/// one of each side belongs to the other's.
pub fn pair(base: &RoundReport, candidate: &RoundReport, may_differ: bool) -> Vec<Pair> {
    let ids = |report: &RoundReport| report.cases.iter().map(|case| case.id.clone()).collect::<BTreeSet<_>>();
    let (base_ids, candidate_ids) = (ids(base), ids(candidate));
    let mut partners: BTreeMap<String, String> =
        base_ids.intersection(&candidate_ids).map(|id| (id.clone(), id.clone())).collect();
    if may_differ {
        let mut left: Vec<&String> = candidate_ids.difference(&base_ids).collect();
        let alone: Vec<&String> = base_ids.difference(&candidate_ids).collect();
        for id in &alone {
            let alike: Vec<usize> = (0..left.len()).filter(|index| is_same_work(id, left[*index])).collect();
            let rivals = alone.iter().filter(|other| is_same_work(id, other)).count();
            if let ([index], 1) = (alike.as_slice(), rivals) {
                partners.insert((*id).clone(), left.remove(*index).clone());
            }
        }
        let open: Vec<&&String> = alone.iter().filter(|id| !partners.contains_key(**id)).collect();
        if let ([id], [other]) = (open.as_slice(), left.as_slice()) {
            partners.insert((**id).clone(), (*other).clone());
        }
    }
    let find = |report: &RoundReport, id: &str| report.cases.iter().find(|case| case.id == id).cloned();
    let make = |case: &RoundCase| {
        let partner = partners.get(&case.id).and_then(|id| find(candidate, id));
        let id = partner.as_ref().map_or_else(|| case.id.clone(), |partner| partner.id.clone());
        let mut trouble = trouble(case, partner.as_ref());
        if let Some(trouble) = trouble.as_mut().filter(|_| may_differ && partner.is_none()) {
            // Nobody promised that the other suite has it.
            trouble.whose = Whose::Base;
        }
        Pair { base: case.id.clone(), candidate: id, trouble }
    };
    base.cases.iter().map(make).collect()
}

/// Whether two ids `group/contestant/batch` differ in the contestant only.
fn is_same_work(one: &str, other: &str) -> bool {
    let work = |id: &str| {
        let mut parts = id.split('/');
        (parts.next().map(str::to_owned), parts.nth(1).map(str::to_owned))
    };
    work(one) == work(other)
}

/// What keeps two cases from being compared.
pub fn trouble(base: &RoundCase, candidate: Option<&RoundCase>) -> Option<Trouble> {
    let of = |case: &RoundCase, whose| {
        (case.status != Status::Ok || case.figures.is_none()).then(|| Trouble {
            whose,
            status: case.status,
            message: case.message.clone().unwrap_or_default(),
        })
    };
    let absent = || Trouble {
        whose: Whose::Candidate,
        status: Status::Unsupported,
        message: "the other side has no such case".into(),
    };
    of(base, Whose::Base).or_else(|| candidate.map_or_else(|| Some(absent()), |case| of(case, Whose::Candidate)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{CallFigures, ROUND_FORMAT};

    fn report(ids: &[&str]) -> RoundReport {
        let case = |id: &&str| RoundCase {
            id: (*id).to_owned(),
            status: Status::Ok,
            message: None,
            figures: CallFigures::of(vec![1]),
        };
        RoundReport { format: ROUND_FORMAT, cases: ids.iter().map(case).collect() }
    }

    fn names(pairs: &[Pair]) -> Vec<String> {
        pairs.iter().filter(|pair| pair.trouble.is_none()).map(Pair::name).collect()
    }

    #[test]
    fn a_case_that_only_the_base_has_is_the_candidates_loss() {
        let pairs = pair(&report(&["a/x/1", "b/x/1"]), &report(&["a/x/1"]), false);
        assert_eq!(names(&pairs), ["a/x/1"]);
        assert_eq!(pairs[1].trouble.as_ref().unwrap().whose, Whose::Candidate);
    }

    #[test]
    fn suites_of_other_libraries_or_artifacts_meet() {
        let libraries = pair(&report(&["a/ort/1", "a/ort/8"]), &report(&["a/tch/1", "a/tch/8"]), true);
        assert_eq!(names(&libraries), ["a/ort/1 → a/tch/1", "a/ort/8 → a/tch/8"]);
        let artifacts = pair(&report(&["a/ort/1"]), &report(&["a-int8/ort/1"]), true);
        assert_eq!(names(&artifacts), ["a/ort/1 → a-int8/ort/1"]);
        let unclear = pair(&report(&["a/x/1", "a/y/1"]), &report(&["a/z/1", "a/w/1"]), true);
        assert!(names(&unclear).is_empty());
    }

    #[test]
    fn a_trouble_of_the_base_says_nothing_of_the_candidate() {
        let mut base = report(&["a/x/1"]);
        base.cases[0].status = Status::WrongOutput;
        let pairs = pair(&base, &report(&["a/x/1"]), false);
        assert_eq!(pairs[0].trouble.as_ref().unwrap().whose, Whose::Base);
    }
}

//! Which case of the candidate belongs to which of the base, and which cannot be compared, and why.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::compare::{Loss, Role};
use crate::definition::Status;
use crate::harness::{ArmCase, ArmPlan, ArmStart};

/// A case of both programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub base: String,
    /// Another id only if two suites are compared.
    pub candidate: String,
    /// How an arm of the base and one of the candidate are started, or why they are not.
    pub starts: Result<[ArmStart; 2], Loss>,
}

impl Pair {
    /// The id, or both of them.
    pub fn name(&self) -> String {
        if self.base == self.candidate { self.base.clone() } else { format!("{} → {}", self.base, self.candidate) }
    }
}

/// Pairs the cases by their ids. If `may_differ`, what is left is paired by all of the id but backend, device and dtype, and
/// the last one of each program belongs to the other's. Cases that the base cannot run on this machine or in this build are
/// left out, with their reasons in the second list: they are nobody's loss.
pub fn pair(base: &ArmPlan, candidate: &ArmPlan, may_differ: bool) -> (Vec<Pair>, Vec<String>) {
    let partners = partners(base, candidate, may_differ);
    let mut pairs = Vec::new();
    let mut left_out = Vec::new();
    for case in &base.cases {
        if matches!(case.status, Status::Unavailable | Status::Unsupported) {
            left_out.push(format!("{}: {}: {}", case.id, case.status, case.message.as_deref().unwrap_or_default()));
            continue;
        }
        let partner = partners.get(&case.id).and_then(|id| candidate.cases.iter().find(|case| case.id == *id));
        let starts = starts(case, partner, may_differ);
        let id = partner.map_or_else(|| case.id.clone(), |partner| partner.id.clone());
        pairs.push(Pair { base: case.id.clone(), candidate: id, starts });
    }
    (pairs, left_out)
}

fn partners(base: &ArmPlan, candidate: &ArmPlan, may_differ: bool) -> BTreeMap<String, String> {
    let ids = |plan: &ArmPlan| plan.cases.iter().map(|case| case.id.clone()).collect::<BTreeSet<_>>();
    let (base_ids, candidate_ids) = (ids(base), ids(candidate));
    let mut partners: BTreeMap<String, String> =
        base_ids.intersection(&candidate_ids).map(|id| (id.clone(), id.clone())).collect();
    if !may_differ {
        return partners;
    }
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
    partners
}

/// Whether two ids `group/backend-device-dtype/batch` differ in the middle part only.
fn is_same_work(one: &str, other: &str) -> bool {
    let work = |id: &str| {
        let mut parts = id.split('/');
        (parts.next().map(str::to_owned), parts.nth(1).map(str::to_owned))
    };
    work(one) == work(other)
}

fn starts(base: &ArmCase, candidate: Option<&ArmCase>, may_differ: bool) -> Result<[ArmStart; 2], Loss> {
    let of = |case: &ArmCase, role| {
        let message = case.message.clone().unwrap_or_default();
        case.start.clone().ok_or(Loss { role, status: case.status, message })
    };
    let base = of(base, Role::Base)?;
    let Some(candidate) = candidate else {
        // Nobody promised that another suite has it.
        let role = if may_differ { Role::Base } else { Role::Candidate };
        return Err(Loss { role, status: Status::Unsupported, message: "the candidate has no such case".into() });
    };
    Ok([base, of(candidate, Role::Candidate)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::ARM_PROTOCOL;

    fn plan(ids: &[&str]) -> ArmPlan {
        let start = ArmStart {
            job: "job.json".into(),
            environment: BTreeMap::new(),
            processors: Vec::new(),
            timeout_seconds: 60.0,
        };
        let case =
            |id: &&str| ArmCase { id: (*id).to_owned(), status: Status::Ok, message: None, start: Some(start.clone()) };
        ArmPlan { protocol: ARM_PROTOCOL, cases: ids.iter().map(case).collect() }
    }

    fn names(pairs: &[Pair]) -> Vec<String> {
        pairs.iter().filter(|pair| pair.starts.is_ok()).map(Pair::name).collect()
    }

    #[test]
    fn a_case_that_only_the_base_has_is_the_candidates_loss() {
        let (pairs, _) = pair(&plan(&["a/x/1", "b/x/1"]), &plan(&["a/x/1"]), false);
        assert_eq!(names(&pairs), ["a/x/1"]);
        assert_eq!(pairs[1].starts.as_ref().unwrap_err().role, Role::Candidate);
    }

    #[test]
    fn suites_of_other_libraries_or_artifacts_are_paired() {
        let names = |base: &[&str], candidate: &[&str]| names(&pair(&plan(base), &plan(candidate), true).0);
        assert_eq!(names(&["a/ort/1", "a/ort/8"], &["a/tch/1", "a/tch/8"]), ["a/ort/1 → a/tch/1", "a/ort/8 → a/tch/8"]);
        assert_eq!(names(&["a/ort/1"], &["a-int8/ort/1"]), ["a/ort/1 → a-int8/ort/1"]);
        assert!(names(&["a/x/1", "a/y/1"], &["a/z/1", "a/w/1"]).is_empty());
    }

    #[test]
    fn a_failure_of_the_base_says_nothing_of_the_candidate_and_a_missing_device_is_left_out() {
        let mut base = plan(&["a/x/1", "b/x/1"]);
        (base.cases[0].status, base.cases[0].start) = (Status::WrongOutput, None);
        (base.cases[1].status, base.cases[1].start) = (Status::Unavailable, None);
        let (pairs, left_out) = pair(&base, &plan(&["a/x/1", "b/x/1"]), false);
        assert_eq!((pairs.len(), left_out.len()), (1, 1));
        assert_eq!(pairs[0].starts.as_ref().unwrap_err().role, Role::Base);
    }
}

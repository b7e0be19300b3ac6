//! Pairs each case of the base with a case of each candidate, and says which cannot be compared, and why.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexSet;

use crate::compare::{Loss, Role};
use crate::definition::Status;
use crate::harness::{ArmCase, ArmPlan, ArmStart};

/// A case of the base, and of every candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairing {
    /// The id of the base's case, with the candidates' ids if they differ from it.
    pub id: String,
    /// The ids of the base's case and of each candidate's, if it has one.
    base_id: String,
    candidate_ids: Vec<Option<String>>,
    /// How the arms of the base and of each candidate are started, or why no candidate can be compared.
    pub starts: Result<(ArmStart, Vec<Result<ArmStart, Loss>>), Loss>,
}

impl Pairing {
    /// The candidates that can be measured, and how they are started.
    pub fn candidate_starts(&self) -> impl Iterator<Item = (usize, &ArmStart)> {
        let starts = self.starts.iter().flat_map(|(_, candidates)| candidates.iter().enumerate());
        starts.filter_map(|(number, start)| Some((number, start.as_ref().ok()?)))
    }

    /// Why a candidate cannot be measured.
    pub fn loss_of(&self, candidate: usize) -> Option<&Loss> {
        self.starts.as_ref().map_or_else(Some, |(_, candidates)| candidates[candidate].as_ref().err())
    }

    /// The ids of the case in the base and in a candidate, if the pairing's id is made of several.
    pub fn own_ids(&self, candidate: usize) -> Option<[String; 2]> {
        let of_candidate = self.candidate_ids[candidate].as_ref().filter(|_| self.id != self.base_id)?;
        Some([self.base_id.clone(), of_candidate.clone()])
    }

    /// Why the base or some candidates cannot be measured.
    pub fn losses(&self) -> Vec<&Loss> {
        match &self.starts {
            Ok((_, candidates)) => candidates.iter().filter_map(|start| start.as_ref().err()).collect(),
            Err(loss) => vec![loss],
        }
    }
}

/// Pairs the cases by their ids. If `may_differ`, the others are paired if they differ only in the dtype, then if they
/// differ only in backend, device and dtype, and then if each program has only one left. Cases that the base cannot run
/// on this machine or in this build, that no candidate has to run, or that only candidates have, are left out, with
/// their reasons in the second list: no program has lost them.
pub fn pair(base: &ArmPlan, candidates: &[ArmPlan], may_differ: bool) -> (Vec<Pairing>, Vec<String>) {
    let partners: Vec<BTreeMap<String, String>> =
        candidates.iter().map(|candidate| partners(base, candidate, may_differ)).collect();
    let mut pairings = Vec::new();
    let mut left_out = Vec::new();
    for case in &base.cases {
        if matches!(case.status, Status::Unavailable | Status::Unsupported) {
            left_out.push(format!("{}: {}: {}", case.id, case.status, case.message.as_deref().unwrap_or_default()));
            continue;
        }
        let found: Vec<Option<&ArmCase>> = candidates
            .iter()
            .zip(&partners)
            .map(|(plan, partners)| partners.get(&case.id).and_then(|id| plan.cases.iter().find(|it| it.id == *id)))
            .collect();
        let absent =
            |number, status, message| Err(Loss { role: Role::Candidate(number), status, message, is_left_out: true });
        let candidate_start = |(number, found): (usize, &Option<&ArmCase>)| match found {
            // Inputs of another size are other work, so no program has lost the case.
            Some(ArmCase { id, inputs: Some(inputs), .. })
                if (*id == case.id || !is_same_work(id, &case.id))
                    && case.inputs.as_ref().is_some_and(|of_base| of_base != inputs) =>
            {
                let of_base = case.inputs.as_deref().unwrap_or_default();
                let message = format!("the inputs are {of_base} in the base, and {inputs} in the candidate");
                absent(number, Status::Unsupported, message)
            }
            // A runtime that does not support the dtype is not a fault of the quantised file.
            Some(found)
                if may_differ
                    && found.id != case.id
                    && matches!(found.status, Status::Unavailable | Status::Unsupported) =>
            {
                let why = found.message.as_deref().unwrap_or_default();
                absent(number, found.status, format!("candidate {} has no such form: {why}", number + 1))
            }
            Some(found) => start(found, Role::Candidate(number)),
            None => {
                let (role, message) = (Role::Candidate(number), "the candidate has no such case".to_owned());
                // Another suite need not have the case.
                Err(Loss { role, status: Status::Unsupported, message, is_left_out: may_differ })
            }
        };
        let of_candidates: Vec<_> = found.iter().enumerate().map(candidate_start).collect();
        let nobodys = of_candidates.iter().map(|start| start.as_ref().err().filter(|loss| loss.is_left_out));
        if let Some([loss, ..]) = nobodys.collect::<Option<Vec<_>>>().as_deref() {
            left_out.push(format!("{}: {}: {}", case.id, loss.status, loss.message));
            continue;
        }
        let starts = start(case, Role::Base).map(|base| (base, of_candidates));
        let others: IndexSet<&str> =
            found.iter().flatten().map(|it| it.id.as_str()).filter(|id| *id != case.id).collect();
        let others = Vec::from_iter(others).join(", ");
        let id = if others.is_empty() { case.id.clone() } else { format!("{} → {others}", case.id) };
        let candidate_ids = found.iter().map(|found| found.map(|it| it.id.clone())).collect();
        pairings.push(Pairing { id, base_id: case.id.clone(), candidate_ids, starts });
    }
    for (plan, partners) in candidates.iter().zip(&partners) {
        let is_alone = |case: &&ArmCase| case.start.is_some() && !partners.values().any(|id| *id == case.id);
        for case in plan.cases.iter().filter(is_alone) {
            let reason = format!("{}: the base has no such case", case.id);
            if !left_out.contains(&reason) {
                left_out.push(reason);
            }
        }
    }
    (pairings, left_out)
}

fn partners(base: &ArmPlan, candidate: &ArmPlan, may_differ: bool) -> BTreeMap<String, String> {
    let ids = |plan: &ArmPlan| plan.cases.iter().map(|case| case.id.clone()).collect::<BTreeSet<_>>();
    let (base_ids, candidate_ids) = (ids(base), ids(candidate));
    let mut partners: BTreeMap<String, String> =
        base_ids.intersection(&candidate_ids).map(|id| (id.clone(), id.clone())).collect();
    if !may_differ {
        return partners;
    }
    let (mut alone, mut left) = (&base_ids - &candidate_ids, &candidate_ids - &base_ids);
    for is_alike in [is_same_runtime as fn(&str, &str) -> bool, is_same_work, |_, _| true] {
        for id in alone.clone() {
            let alike: Vec<&String> = left.iter().filter(|other| is_alike(&id, other)).collect();
            let rivals = alone.iter().filter(|other| is_alike(&id, other)).count();
            if let ([other], 1) = (alike.as_slice(), rivals) {
                let other = (*other).clone();
                left.remove(&other);
                alone.remove(&id);
                partners.insert(id, other);
            }
        }
    }
    partners
}

/// Whether two ids differ in the dtype only, such as those of a file and its quantised form.
fn is_same_runtime(one: &str, other: &str) -> bool {
    let runtime = |id: &str| Some(id.split('/').nth(1)?.rsplit_once('-')?.0.to_owned());
    is_same_work(one, other) && runtime(one).is_some() && runtime(one) == runtime(other)
}

/// Whether two ids `group/backend-device-dtype/batch` differ in the middle part only.
fn is_same_work(one: &str, other: &str) -> bool {
    let work = |id: &str| {
        let mut parts = id.split('/');
        (parts.next().map(str::to_owned), parts.nth(1).map(str::to_owned))
    };
    work(one) == work(other)
}

fn start(case: &ArmCase, role: Role) -> Result<ArmStart, Loss> {
    let message = case.message.clone().unwrap_or_default();
    case.start.clone().ok_or(Loss { role, status: case.status, message, is_left_out: false })
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
            loads_elsewhere: true,
        };
        let case = |id: &&str| ArmCase {
            id: (*id).to_owned(),
            status: Status::Ok,
            message: None,
            start: Some(start.clone()),
            inputs: None,
            library: None,
            files_sha256: None,
            is_verified: None,
        };
        ArmPlan { protocol: ARM_PROTOCOL, cases: ids.iter().map(case).collect() }
    }

    fn names(pairings: &[Pairing]) -> Vec<String> {
        pairings.iter().filter(|it| it.candidate_starts().count() > 0).map(|it| it.id.clone()).collect()
    }

    fn loser(pairing: &Pairing) -> Role {
        pairing.losses()[0].role
    }

    #[test]
    fn a_case_that_only_the_base_has_is_the_candidates_loss() {
        let (pairings, _) = pair(&plan(&["a/x/1", "b/x/1"]), &[plan(&["a/x/1"])], false);
        assert_eq!(names(&pairings), ["a/x/1"]);
        assert_eq!(loser(&pairings[1]), Role::Candidate(0));
    }

    #[test]
    fn a_case_with_other_inputs_is_not_compared() {
        let sized = |inputs: Option<&str>| {
            let mut plan = plan(&["a/x/1"]);
            plan.cases[0].inputs = inputs.map(str::to_owned);
            plan
        };
        let (small, large) = (sized(Some("f32[1,8]")), sized(Some("f32[1,16]")));
        let (pairings, left_out) = pair(&small, &[large], false);
        assert_eq!(pairings.len(), 0);
        let reason = "a/x/1: unsupported: the inputs are f32[1,8] in the base, and f32[1,16] in the candidate";
        assert_eq!(left_out, [reason]);
        for alike in [small.clone(), sized(None)] {
            assert_eq!(names(&pair(&small, &[alike], false).0), ["a/x/1"]);
        }
    }

    #[test]
    fn a_candidate_that_lacks_a_case_does_not_take_it_from_the_others() {
        let base = plan(&["a/x/1", "b/x/1"]);
        let (pairings, _) = pair(&base, &[plan(&["a/x/1"]), base.clone()], false);
        assert_eq!(names(&pairings), ["a/x/1", "b/x/1"]);
        let measured: Vec<usize> = pairings[1].candidate_starts().map(|(number, _)| number).collect();
        assert_eq!((measured, loser(&pairings[1])), (vec![1], Role::Candidate(0)));
    }

    #[test]
    fn what_only_some_programs_have_is_left_out_and_takes_nothing_from_the_others() {
        let base = plan(&["a/ort-cpu-f32/1", "b/ort-cpu-f32/1"]);
        let mut other = plan(&["a/candle-cpu-f32/1", "b/candle-cpu-f32/1"]);
        (other.cases[1].status, other.cases[1].start) = (Status::Unsupported, None);
        let (pairings, left_out) = pair(&base, &[other, base.clone()], true);
        assert_eq!((pairings.len(), left_out.len()), (2, 0));
        let loss = pairings[1].losses()[0];
        assert_eq!((loss.role, loss.is_left_out), (Role::Candidate(0), true));
        let more = plan(&["a/x/1", "b/x/1"]);
        let (pairings, left_out) = pair(&plan(&["a/x/1"]), &[more.clone(), more], false);
        assert_eq!(names(&pairings), ["a/x/1"]);
        assert_eq!(left_out, ["b/x/1: the base has no such case"]);
    }

    #[test]
    fn suites_of_other_libraries_or_artifacts_are_paired() {
        let names = |base: &[&str], candidate: &[&str]| names(&pair(&plan(base), &[plan(candidate)], true).0);
        assert_eq!(names(&["a/ort/1", "a/ort/8"], &["a/tch/1", "a/tch/8"]), ["a/ort/1 → a/tch/1", "a/ort/8 → a/tch/8"]);
        assert_eq!(names(&["a/ort/1"], &["a-int8/ort/1"]), ["a/ort/1 → a-int8/ort/1"]);
        assert!(names(&["a/x/1", "a/y/1"], &["a/z/1", "a/w/1"]).is_empty());
    }

    #[test]
    fn a_file_and_its_quantised_form_are_paired_by_runtime_and_one_that_lacks_the_form_loses_nothing() {
        let base = plan(&["a/ort-cpu-f32/1", "a/candle-cpu-f32/1"]);
        let mut quantised = plan(&["a/ort-cpu-i8/1", "a/candle-cpu-i8/1"]);
        (quantised.cases[1].status, quantised.cases[1].start) = (Status::Unsupported, None);
        let (pairings, left_out) = pair(&base, &[quantised], true);
        assert_eq!(names(&pairings), ["a/ort-cpu-f32/1 → a/ort-cpu-i8/1"]);
        assert_eq!(left_out, ["a/candle-cpu-f32/1: unsupported: candidate 1 has no such form: "]);
    }

    #[test]
    fn each_program_is_asked_for_a_case_by_its_own_id() {
        let base = plan(&["a/ort/1"]);
        let (pairings, _) = pair(&base, &[base.clone(), plan(&["a/tch/1"])], true);
        assert_eq!(pairings[0].id, "a/ort/1 → a/tch/1");
        let own = |ids: [&str; 2]| Some(ids.map(str::to_owned));
        assert_eq!(pairings[0].own_ids(0), own(["a/ort/1", "a/ort/1"]));
        assert_eq!(pairings[0].own_ids(1), own(["a/ort/1", "a/tch/1"]));
        assert_eq!(pair(&base, std::slice::from_ref(&base), true).0[0].own_ids(0), None);
        let several = ["a/tch/1", "a/jax/1", "a/tch/1"].map(|id| plan(&[id]));
        assert_eq!(pair(&base, &several, true).0[0].id, "a/ort/1 → a/tch/1, a/jax/1");
    }

    #[test]
    fn a_failure_of_the_base_says_nothing_of_the_candidate_and_a_missing_device_is_left_out() {
        let mut base = plan(&["a/x/1", "b/x/1"]);
        (base.cases[0].status, base.cases[0].start) = (Status::WrongOutput, None);
        (base.cases[1].status, base.cases[1].start) = (Status::Unavailable, None);
        let (pairings, left_out) = pair(&base, &[plan(&["a/x/1", "b/x/1"])], false);
        assert_eq!((pairings.len(), left_out.len()), (1, 1));
        assert_eq!(loser(&pairings[0]), Role::Base);
    }
}

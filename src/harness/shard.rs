//! Divides the cases of a suite into parts for several machines.
//!
//! Cases that are compared stay on one machine: all backends of a model are in one part, unless the user calls the
//! machines equal and there are fewer models than parts. The models that are expected to take longest come first, each
//! into the part with the least to do so far (Graham 1969, "Bounds on multiprocessing timing anomalies").

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, ValueEnum};
use indexmap::IndexMap;
use jiff::Timestamp;
use regex::Regex;

use super::expected_time::{ExpectedTimes, work_of_planned};
use super::plan::{Plan, Request, make_plan};
use super::supervisor::MOST_LOST;
use crate::definition::{Effort, Fingerprint, PartNumber, Shard, ShardCases, Status, Suite, device_kind};
use crate::fixture::{sha256_of_bytes, sha256_of_definition, sha256_of_file};
use crate::machine::Machine;
use crate::machine::processes::own_executable;
use crate::paths::Paths;
use crate::report::numbers::plural;
use crate::run_data::{CriterionArguments, Manifest, Outcomes, RunFolder};
use crate::selection::PlannedCase;

/// How a suite is to be divided.
#[derive(Args, Clone, Debug, Default)]
pub struct Division {
    /// The number of parts.
    #[arg(skip)]
    pub count: usize,
    /// Give each kind of device, such as cpu or cuda, parts of its own
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// The machines are equal: if there are fewer models than parts, divide the backends of a model, too. `merge` ranks
    /// the rows together only if the calibrations of the machines and the anchor show no difference
    #[arg(long, requires = "anchor")]
    pub equal_machines: bool,
    /// The id of a case that every part measures, so that the machines can be compared
    #[arg(long, value_name = "CASE")]
    pub anchor: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum By {
    MachineKind,
}

/// Divides the cases that the suite, filters and Criterion's arguments select. Returns the suite as part 1; the other
/// parts differ only in their index. The expected time of a case comes from runs here, or else from `predicted`:
/// milliseconds per call, by the case's id.
///
/// # Errors
/// The suite is wrong, is a part itself, has too few models, or lacks the anchor; a model's file cannot be read.
pub fn divide(
    paths: &Paths,
    request: &Request,
    division: &Division,
    predicted: impl FnOnce(&[&PlannedCase]) -> BTreeMap<String, f64>,
) -> Result<Suite> {
    let Plan { mut suite, cases } = make_plan(paths, request.own_suite.as_ref(), &request.selection, &request.effort)?;
    ensure!(suite.shard.is_none(), "{} is a part of a suite already", suite.name);
    let filter = CriterionArguments::parse_from(&request.criterion_arguments).id_filter()?;
    let selected: Vec<&PlannedCase> =
        cases.iter().filter(|planned| filter.is_match(&planned.case.to_string())).collect();
    let mut times = ExpectedTimes::read(&paths.runs(), &suite.effort, None);
    let is_new = |planned: &&&PlannedCase| planned.model.is_ok() && times.lacks(&work_of_planned(planned));
    let new: Vec<&PlannedCase> = selected.iter().filter(is_new).copied().collect();
    let latencies = predicted(&new);
    for planned in new {
        if let Some(call_ms) = latencies.get(&planned.case.to_string()) {
            times.learn(work_of_planned(planned), *call_ms);
        }
    }
    // A case that is unavailable here may run on the machine of its part.
    let never_runs = |planned: &PlannedCase| {
        planned.definition.is_err() || planned.model.as_ref().is_err_and(|why| why.status == Status::Unsupported)
    };
    let expected = |planned: &PlannedCase| match never_runs(planned) {
        true => 0.0,
        false => suite.effort.processes as f64 * times.of_process(&work_of_planned(planned)),
    };
    let planned = Some(Timestamp::now());
    let shard = Shard { planned, ..shard(&suite, &selected, division, expected)? };
    // Every machine makes the files of the operators itself.
    let (count, operators) = (suite.models.len(), paths.operators());
    suite.models.retain(|model| model.path.as_ref().is_none_or(|path| !path.starts_with(&operators)));
    suite.include_operators = suite.models.len() < count;
    Ok(Suite { shard: Some(shard), ..suite })
}

fn shard(
    suite: &Suite,
    selected: &[&PlannedCase],
    division: &Division,
    expected: impl Fn(&PlannedCase) -> f64,
) -> Result<Shard> {
    let is_anchor = |planned: &&&PlannedCase| Some(planned.case.to_string()) == division.anchor;
    if let Some(anchor) = &division.anchor {
        ensure!(selected.iter().any(|planned| is_anchor(&planned)), "the suite has no case {anchor} for an anchor");
    }
    let mut models: BTreeMap<Option<&str>, IndexMap<&str, Group<'_>>> = BTreeMap::new();
    for planned in selected.iter().filter(|planned| !is_anchor(planned)) {
        let kind = division.by.map(|_| device_kind(&planned.case.device));
        let (id, seconds) = (planned.case.to_string(), expected(planned));
        let case = ExpectedCase { id, backend: &planned.case.backend, seconds };
        models.entry(kind).or_default().entry(&planned.case.model).or_default().push(case);
    }
    let mut kinds: Vec<(Option<&str>, Vec<Group<'_>>)> =
        models.into_iter().map(|(kind, models)| (kind, models.into_values().collect())).collect();
    if division.equal_machines {
        divide_models(&mut kinds, division.count);
    }
    let mut parts = Vec::new();
    let counts = counts(&kinds, division)?;
    for ((kind, mut groups), count) in kinds.into_iter().zip(counts) {
        let mut of_kind: Vec<Group<'_>> = (0..count).map(|_| Vec::new()).collect();
        groups.sort_by(|one, other| seconds(other).total_cmp(&seconds(one)));
        for group in groups {
            // Models that take no time count, too, so that no part is empty.
            let least = of_kind
                .iter_mut()
                .min_by(|one, other| seconds(one).total_cmp(&seconds(other)).then_with(|| one.len().cmp(&other.len())));
            if let Some(part) = least {
                part.extend(group);
            }
        }
        let part = |group: Group<'_>| ShardCases {
            device: kind.map(str::to_owned),
            seconds: seconds(&group).ceil() as u64,
            cases: group.into_iter().map(|case| case.id).collect(),
        };
        parts.extend(of_kind.into_iter().map(part));
    }
    let fingerprint = fingerprint(&suite.effort, selected)?;
    Ok(Shard {
        index: 1,
        suite: suite.name.clone(),
        planned: None,
        anchor: division.anchor.clone(),
        fingerprint,
        parts,
    })
}

/// The cases of a model, of one of its backends, or of a part.
type Group<'a> = Vec<ExpectedCase<'a>>;

struct ExpectedCase<'a> {
    id: String,
    backend: &'a str,
    seconds: f64,
}

fn seconds(group: &[ExpectedCase<'_>]) -> f64 {
    group.iter().fold(0.0, |sum, case| sum + case.seconds)
}

/// Splits models by backend, the longest first, until there are `count` groups or no model has several backends.
fn divide_models(kinds: &mut [(Option<&str>, Vec<Group<'_>>)], count: usize) {
    while kinds.iter().map(|(_, groups)| groups.len()).sum::<usize>() < count {
        let all = kinds
            .iter()
            .enumerate()
            .flat_map(|(kind, (_, groups))| groups.iter().enumerate().map(move |(place, group)| (kind, place, group)));
        let several = all.filter(|(.., group)| group.iter().any(|case| case.backend != group[0].backend));
        let longest = several.max_by(|(.., one), (.., other)| seconds(one).total_cmp(&seconds(other)));
        let Some((kind, place, _)) = longest else { return };
        let groups = &mut kinds[kind].1;
        let mut of_backends: IndexMap<&str, Group<'_>> = IndexMap::new();
        for case in groups.remove(place) {
            of_backends.entry(case.backend).or_default().push(case);
        }
        groups.extend(of_backends.into_values());
    }
}

/// How many parts each kind of device gets: at least one. Each further part goes to the kind with most to do per part.
fn counts(kinds: &[(Option<&str>, Vec<Group<'_>>)], division: &Division) -> Result<Vec<usize>> {
    let count = division.count;
    let groups: usize = kinds.iter().map(|(_, groups)| groups.len()).sum();
    let parts = plural(count, "part", "parts");
    if groups < count && division.equal_machines {
        let pairs = plural(groups, "pair", "pairs");
        bail!("{parts} of {pairs} of a model and a backend: such a pair is in one part");
    } else if groups < count {
        let models = plural(groups, "model", "models");
        bail!(
            "{parts} of {models}: a model is in one part, with all its backends; `--equal-machines` divides them \
             among machines of one kind"
        );
    }
    ensure!(kinds.len() <= count, "{parts} of {} kinds of devices: each kind has parts of its own", kinds.len());
    let of_kinds: Vec<(f64, usize)> =
        kinds.iter().map(|(_, groups)| (groups.iter().map(|group| seconds(group)).sum(), groups.len())).collect();
    let mut counts = vec![1; of_kinds.len()];
    for _ in kinds.len()..count {
        let load = |place: &usize| of_kinds[*place].0 / counts[*place] as f64;
        let has_room = |place: &usize| counts[*place] < of_kinds[*place].1;
        let fullest = (0..counts.len()).filter(has_room).max_by(|one, other| load(one).total_cmp(&load(other)));
        // Always `Some`: there are at most as many parts as groups.
        if let Some(place) = fullest {
            counts[place] += 1;
        }
    }
    Ok(counts)
}

/// What all parts of these cases must have in common.
fn fingerprint(effort: &Effort, selected: &[&PlannedCase]) -> Result<Fingerprint> {
    let mut files = BTreeMap::new();
    for PlannedCase { case, definition, .. } in selected {
        let name = format!("{} {}", case.model, case.variant);
        if let Ok(model) = definition
            && !files.contains_key(&name)
        {
            let hash = sha256_of_definition(model).with_context(|| format!("the files of {name}"))?;
            files.insert(name, hash);
        }
    }
    let build = sha256_of_file(&own_executable()?)?;
    // The models of a part's file may be in another order.
    let ids: BTreeSet<String> = selected.iter().map(|planned| planned.case.to_string()).collect();
    // Each start may be shuffled differently, and still measures the same.
    let effort = Effort { shuffle: None, ..effort.clone() };
    Ok(Fingerprint {
        program: format!("{} of build {}", env!("CARGO_PKG_VERSION"), build.get(..12).unwrap_or_default()),
        cases: sha256_of_bytes(&serde_json::to_vec(&(ids, effort))?),
        files,
    })
}

/// Keeps only the cases of the part, if the suite is a part or `asked` names one, after checking that program and files
/// are those that it was planned for. Returns the part's folder, relative to that of all parts.
///
/// # Errors
/// The suite was divided into another number of parts, or for other code or files; a model's file cannot be read.
pub(super) fn keep_part(
    suite: &mut Suite,
    cases: &mut Vec<PlannedCase>,
    asked: Option<PartNumber>,
    filter: &Regex,
) -> Result<Option<PathBuf>> {
    // The suite may have more cases than those that were divided.
    let divided: Option<BTreeSet<&String>> = suite
        .shard
        .as_ref()
        .map(|shard| shard.parts.iter().flat_map(|part| &part.cases).chain(&shard.anchor).collect());
    let is_meant = |id: String| divided.as_ref().map_or_else(|| filter.is_match(&id), |divided| divided.contains(&id));
    let selected: Vec<&PlannedCase> = cases.iter().filter(|planned| is_meant(planned.case.to_string())).collect();
    let shard = match (suite.shard.take(), asked) {
        (None, None) => return Ok(None),
        (None, Some(number)) => {
            // Without a file of parts, all cases count as equally long, so that every machine finds the same parts.
            let division = Division { count: number.count, ..Division::default() };
            Shard { index: number.index, ..shard(suite, &selected, &division, |_| 1.0)? }
        }
        (Some(shard), None) => shard,
        (Some(shard), Some(number)) => {
            let count = shard.parts.len();
            ensure!(number.count == count, "the suite was divided into {count} parts, and not into {}", number.count);
            Shard { index: number.index, ..shard }
        }
    };
    if let Some(what) = shard.fingerprint.difference(&fingerprint(&suite.effort, &selected)?) {
        bail!("part {} of {} was planned for something else: here, {what}", shard.index, shard.parts.len());
    }
    cases.retain(|planned| shard.measures(&planned.case.to_string()));
    let folder = PathBuf::from(shard.measurement()).join(shard.name());
    suite.shard = Some(shard);
    Ok(Some(folder))
}

/// The runs of a part that other machines have begun.
pub(super) fn begun_elsewhere(runs: &Path) -> Vec<(RunFolder, Manifest)> {
    let own = Machine::read().host_id;
    let read = |folder: RunFolder| folder.read_manifest().ok().map(|manifest| (folder, manifest));
    let known = RunFolder::all(runs).into_iter().filter_map(read);
    known.filter(|(_, manifest)| manifest.machine.host_id != own).collect()
}

/// The cases that these runs of a part have finished, except the anchor, which every machine measures.
pub(super) fn finished_in(runs: &[(RunFolder, Manifest)]) -> Result<BTreeSet<String>> {
    let mut finished = BTreeSet::new();
    for (folder, manifest) in runs {
        let outcomes = folder.read_outcomes()?;
        let anchor = manifest.suite.shard.as_ref().and_then(|shard| shard.anchor.as_ref());
        let is_whole = |id: &&String| manifest.is_complete() || has_all_stages(&outcomes, &manifest.suite.effort, id);
        finished.extend(outcomes.finished.keys().filter(|id| Some(*id) != anchor).filter(is_whole).cloned());
    }
    Ok(finished)
}

/// Whether nothing is left to do for a finished case of a stopped run: further processes, memory and energy, and the
/// evaluation, which directly follows these.
fn has_all_stages(outcomes: &Outcomes, effort: &Effort, id: &str) -> bool {
    if !outcomes.row(id).is_some_and(|row| row.status.is_measured()) {
        return true;
    }
    let processes = 1 + outcomes.further.get(id).map_or(0, Vec::len);
    let is_measured_again =
        processes >= effort.processes || outcomes.lost.get(id).is_some_and(|lost| *lost >= MOST_LOST);
    let is_observed = !effort.watch || outcomes.watched.contains(id);
    is_measured_again && is_observed && outcomes.unevaluated.as_deref() != Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::run_data::{Latencies, Outcome, Record};

    fn model<'a>(id: &str, backends: &[(&'a str, f64)]) -> Group<'a> {
        let case = |(backend, seconds): &(&'a str, f64)| ExpectedCase {
            id: format!("{id}/{backend}"),
            backend,
            seconds: *seconds,
        };
        backends.iter().map(case).collect()
    }

    #[test]
    fn a_case_of_a_stopped_run_is_finished_when_nothing_of_it_is_left_to_do() {
        let case = Case::new("m", "ort", 1);
        let id = case.to_string();
        let effort = Effort { processes: 2, watch: true, ..Effort::default() };
        let row = Record { case_id: id.clone(), status: Status::Ok, ..Record::default() };
        let mut outcomes = Outcomes::default();
        outcomes.finished.insert(id.clone(), Outcome::new(row));
        let is_whole = |outcomes: &Outcomes| has_all_stages(outcomes, &effort, &id);
        assert!(!is_whole(&outcomes));
        outcomes.watched.insert(id.clone());
        assert!(!is_whole(&outcomes));
        let mut measured_again = outcomes.clone();
        measured_again.further.insert(id.clone(), Latencies::of_samples(&[vec![1]], None).into_iter().collect());
        assert!(is_whole(&measured_again));
        measured_again.unevaluated = Some(id.clone());
        assert!(!is_whole(&measured_again));
        outcomes.lost.insert(id.clone(), MOST_LOST);
        assert!(is_whole(&outcomes));
        outcomes = Outcomes::default();
        outcomes.finished.insert(id.clone(), Outcome::new(Record { status: Status::Failed, ..Record::default() }));
        assert!(is_whole(&outcomes));
    }

    #[test]
    fn as_few_models_as_possible_are_divided_and_those_that_take_longest_first() {
        let divided = |count: usize| {
            let long = model("long", &[("ort", 9.0), ("tch", 5.0), ("ort", 1.0)]);
            let short = model("short", &[("ort", 2.0), ("tch", 1.0)]);
            let mut kinds = vec![(None, vec![short, long, model("one", &[("jax", 99.0)])])];
            divide_models(&mut kinds, count);
            let ids = |group: &Group<'_>| group.iter().map(|case| case.id.as_str()).collect::<Vec<_>>().join(" ");
            kinds[0].1.iter().map(|group| (ids(group), seconds(group))).collect::<Vec<_>>()
        };
        assert_eq!(divided(3)[1], ("long/ort long/tch long/ort".to_owned(), 15.0));
        let four = divided(4);
        assert_eq!(four[0], ("short/ort short/tch".to_owned(), 3.0));
        assert_eq!(four[2..], [("long/ort long/ort".to_owned(), 10.0), ("long/tch".to_owned(), 5.0)]);
        assert_eq!([divided(5).len(), divided(9).len()], [5, 5]);
    }
}

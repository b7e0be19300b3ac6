//! Puts the parts of a suite together into one run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use indexmap::IndexMap;
use walkdir::WalkDir;

use crate::definition::{Shard, Status};
use crate::history::{History, Imported, NewRun, RESULTS, Run, remove};
use crate::run_data::{Distributions, HIDDEN, Manifest, Metric, Record, RunPart};

/// Parts as one run, which is not in a history yet.
pub struct Merged {
    pub manifest: Manifest,
    pub records: Vec<Record>,
    pub metrics: Vec<Metric>,
    distributions: Distributions,
    /// The runs in which the calls are, with their machines and the cases that are taken from each.
    sources: Vec<(Run, String, BTreeSet<String>)>,
    /// The models of which several machines have measured cases, besides the anchor.
    pub divided_models: BTreeSet<String>,
    /// The numbers of the parts of which there is no run.
    pub missing_parts: Vec<usize>,
    /// The cases of which there is no record.
    pub missing_cases: Vec<String>,
    /// Earlier runs of parts that were measured again.
    superseded: Parts,
}

/// A run of a part.
struct Source {
    run: Run,
    manifest: Manifest,
    shard: Shard,
}

/// The runs in these folders and below them.
pub fn find_parts(folders: &[PathBuf]) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for folder in folders {
        // Reports, measurement, part, run.
        for entry in WalkDir::new(folder).max_depth(4).sort_by_file_name() {
            let entry = entry.with_context(|| folder.display().to_string())?;
            let is_partial = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(HIDDEN.as_bytes());
            if entry.file_name() == RESULTS && !entry.path().components().any(is_partial) {
                runs.extend(entry.path().parent().map(Run::in_folder));
            }
        }
    }
    let named = || folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
    ensure!(!runs.is_empty(), "no part of a suite in {}; `inferbench run --shard 1/4` makes one", named());
    Ok(runs)
}

/// Puts runs of parts together. Of a case that two parts have measured, the later row is taken if `takes_newest`.
///
/// # Errors
/// A run is no part, parts are of different measurements (the message names what differs), or two parts have measured the same case.
pub fn merge(runs: Vec<Run>, takes_newest: bool) -> Result<Merged> {
    let mut sources = runs.into_iter().map(Source::read).collect::<Result<Vec<_>>>()?;
    // Of one part, the newest run is the last.
    sources.sort_by_key(|source| (source.shard.index, source.manifest.started));
    let Some(first) = sources.first() else { bail!("there is no part") };
    for other in &sources {
        first.check_same(other)?;
    }
    let shard = first.shard.clone();
    let superseded = take_superseded(&mut sources)?;
    let mut taken: IndexMap<(String, String), (usize, Record)> = IndexMap::new();
    for (place, source) in sources.iter().enumerate() {
        for record in source.run.records()? {
            let is_anchor = Some(&record.case_id) == shard.anchor.as_ref();
            // Every machine has its own row of the anchor.
            let host_id = if is_anchor { record.host_id.clone() } else { String::new() };
            let key = (record.case_id.clone(), host_id);
            if let Some((other, known)) = taken.get(&key) {
                let is_of_one_part = sources[*other].shard.index == source.shard.index;
                ensure!(
                    is_anchor || is_of_one_part || takes_newest,
                    "{} was measured by part {} ({}) and by part {} ({}); `--newest` takes the later one",
                    record.case_id,
                    sources[*other].shard.index,
                    sources[*other].run.folder().display(),
                    source.shard.index,
                    source.run.folder().display()
                );
                let is_older = sources[*other].manifest.started > source.manifest.started;
                // A part that goes on elsewhere leaves the case at which it was stopped as failed.
                if is_older || (known.status == Status::Ok && record.status != Status::Ok && is_of_one_part) {
                    continue;
                }
            }
            taken.insert(key, (place, record));
        }
    }
    Ok(Merged { superseded, ..Merged::of(sources, taken.into_values().collect(), &shard)? })
}

/// Takes out the runs of a part that were made before all of it was measured again: they are of an earlier measurement. A later run in
/// which something failed that was measured before replaces nothing. `sources` has those of one part in their order in time.
fn take_superseded(sources: &mut Vec<Source>) -> Result<Parts> {
    let right = |source: &Source| -> Result<BTreeSet<String>> {
        let rows = source.run.records()?.into_iter().filter(|record| record.status == Status::Ok);
        Ok(rows.map(|record| record.case_id).collect())
    };
    let right = sources.iter().map(right).collect::<Result<Vec<_>>>()?;
    let is_again = |place: usize| {
        let index = sources[place].shard.index;
        let replaces = |(later, source): (usize, &Source)| {
            source.shard.index == index && source.is_of_whole_part() && right[place].is_subset(&right[later])
        };
        sources.iter().enumerate().skip(place + 1).any(replaces)
    };
    let mut again = (0..sources.len()).map(is_again).collect::<Vec<bool>>().into_iter();
    let earlier = sources.extract_if(.., |_| again.next() == Some(true));
    Ok(earlier.map(|Source { manifest, .. }| (manifest.run_id, manifest.machine.host_id)).collect())
}

impl Source {
    fn read(run: Run) -> Result<Self> {
        let named = || run.folder().display().to_string();
        let manifest =
            run.manifest().with_context(named)?.with_context(|| format!("{}: it has no manifest", named()))?;
        let shard = manifest.suite.shard.clone();
        let shard = shard.with_context(|| format!("{}: the run is no part of a suite", named()))?;
        Ok(Source { run, manifest, shard })
    }

    /// Whether the run came to its end, has all cases of the part, and does not go on with an earlier one.
    fn is_of_whole_part(&self) -> bool {
        let planned: BTreeSet<String> = self.manifest.cases.iter().map(|planned| planned.case.to_string()).collect();
        let part = self.shard.index.checked_sub(1).and_then(|place| self.shard.parts.get(place));
        let is_all = |cases: &[String]| !cases.is_empty() && cases.iter().all(|id| planned.contains(id));
        self.manifest.is_complete() && part.is_some_and(|part| is_all(&part.cases))
    }

    fn check_same(&self, other: &Self) -> Result<()> {
        let of = |source: &Source| format!("part {} ({})", source.shard.index, source.run.folder().display());
        if let Some(what) = self.shard.fingerprint.difference(&other.shard.fingerprint) {
            bail!("{} is not of the same measurement as {}: there, {what}", of(other), of(self));
        }
        ensure!(
            self.shard.planned == other.shard.planned
                && self.shard.parts == other.shard.parts
                && self.shard.anchor == other.shard.anchor,
            "{} and {} are of different divisions of the suite",
            of(self),
            of(other)
        );
        Ok(())
    }
}

impl Merged {
    /// The records that are taken, each with the place of its source.
    fn of(sources: Vec<Source>, taken: Vec<(usize, Record)>, shard: &Shard) -> Result<Self> {
        let mut cases_of: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        let mut machines_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut machines_of_models: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (place, record) in &taken {
            cases_of.entry(*place).or_default().insert(record.case_id.clone());
            machines_of.entry(record.case_id.clone()).or_default().insert(record.host_id.clone());
            if Some(&record.case_id) != shard.anchor.as_ref() {
                machines_of_models.entry(&record.model).or_default().insert(&record.host_id);
            }
        }
        let divided = machines_of_models.iter().filter(|(_, hosts)| hosts.len() > 1);
        let divided_models = divided.map(|(model, _)| (*model).to_owned()).collect();
        let wanted = shard.parts.iter().flat_map(|part| &part.cases).chain(&shard.anchor);
        let missing_cases: Vec<String> = wanted.filter(|id| !machines_of.contains_key(*id)).cloned().collect();
        let is_there = |index: &usize| sources.iter().any(|source| source.shard.index == *index);
        let missing_parts = (1..=shard.parts.len()).filter(|index| !is_there(index)).collect();
        let manifest = manifest(&sources, !missing_cases.is_empty())?;
        let (mut metrics, mut used) = (Vec::new(), Vec::new());
        let mut distributions = Distributions::new(BTreeMap::new());
        let has_several = |case_id: &String| machines_of.get(case_id).is_some_and(|machines| machines.len() > 1);
        for (place, source) in sources.into_iter().enumerate() {
            let cases = cases_of.remove(&place).unwrap_or_default();
            let own = source.run.metrics()?.into_iter().filter(|metric| cases.contains(&metric.case_id));
            let host_id = source.manifest.machine.host_id;
            let of_machine =
                |metric| Metric { run_id: manifest.run_id.clone(), host_id: Some(host_id.clone()), ..metric };
            metrics.extend(own.map(of_machine));
            let kept = source.run.distributions().map(|kept| kept.cases).unwrap_or_default();
            let kept = kept.into_iter().filter(|(case_id, _)| cases.contains(case_id));
            let (of_several, of_one): (BTreeMap<_, _>, BTreeMap<_, _>) =
                kept.partition(|(case_id, _)| has_several(case_id));
            distributions.cases.extend(of_one);
            if !of_several.is_empty() {
                distributions.machines.entry(host_id.clone()).or_default().extend(of_several);
            }
            used.push((source.run, host_id, cases));
        }
        let mut records: Vec<Record> =
            taken.into_iter().map(|(_, record)| Record { run_id: manifest.run_id.clone(), ..record }).collect();
        // A history knows a run by its id and by the machine of its first row: that is the same one, whatever parts come later.
        records.sort_by_key(|record| record.host_id != manifest.machine.host_id);
        Ok(Merged {
            manifest,
            records,
            metrics,
            distributions,
            sources: used,
            divided_models,
            missing_parts,
            missing_cases,
            superseded: Parts::new(),
        })
    }
}

/// The manifest of the whole: that of the first part, with all cases and machines.
fn manifest(sources: &[Source], is_incomplete: bool) -> Result<Manifest> {
    let first = sources.iter().min_by_key(|source| source.manifest.started).context("there is no part")?;
    let started = first.manifest.started;
    let run_id = format!("{}-{}", started.strftime("%Y%m%dT%H%M%SZ"), first.shard.measurement());
    let mut cases = IndexMap::new();
    for planned in sources.iter().flat_map(|source| &source.manifest.cases) {
        cases.entry(planned.case.to_string()).or_insert_with(|| planned.clone());
    }
    let part = |source: &Source| RunPart {
        index: source.shard.index,
        run_id: source.manifest.run_id.clone(),
        started: source.manifest.started,
        finished: source.manifest.finished,
        machine: source.manifest.machine.clone(),
        peaks: source.manifest.peaks.clone(),
        calibrations: source.manifest.calibrations.clone(),
    };
    let mut suite = first.manifest.suite.clone();
    suite.shard = None;
    Ok(Manifest {
        run_id,
        suite,
        finished: sources.iter().filter_map(|source| source.manifest.finished).max(),
        is_interrupted: is_incomplete,
        parts: sources.iter().map(part).collect(),
        calibrations: Vec::new(),
        equal_machines: None,
        cases: cases.into_values().collect(),
        ..first.manifest.clone()
    })
}

/// Writes the run into the history in `root`, in place of earlier merges of the same parts, or of fewer of them.
///
/// # Errors
/// The history has a merge of these parts and more, or cannot be written.
pub fn publish(merged: &Merged, root: &Path) -> Result<(Imported, Run)> {
    let own = parts_of(&merged.manifest);
    let others = other_merges(&merged.manifest, root)?;
    if let Some((more, _)) = others.iter().find(|(_, parts)| own.is_subset(parts) && own.len() < parts.len()) {
        bail!(
            "run {0} was merged of more parts than these, and is kept; `inferbench store prune --run {0}` removes it",
            more.name()
        );
    }
    let mut new = NewRun::create(root, &merged.manifest.run_id, &merged.manifest.machine.host_id)?;
    for (run, host_id, cases) in &merged.sources {
        new.copy_calls(run, host_id, &|case| cases.contains(case))?;
    }
    let (imported, run) =
        new.publish(&merged.manifest, &merged.records, &merged.metrics, &merged.distributions, true)?;
    // The ids of merges of fewer parts begin with the time of another part: their rows would be in the history twice.
    let known: Parts = own.union(&merged.superseded).cloned().collect();
    for (other, parts) in &others {
        if other.folder() != run.folder() && parts.is_subset(&known) && !parts.is_disjoint(&own) {
            remove(other)?;
        }
    }
    Ok((imported, run))
}

/// The ids of the runs that a run was merged of, with their machines.
type Parts = BTreeSet<(String, String)>;

fn parts_of(manifest: &Manifest) -> Parts {
    let part = |part: &RunPart| (part.run_id.clone(), part.machine.host_id.clone());
    manifest.parts.iter().map(part).collect()
}

/// The merges of the same measurement that are in the history in `root`, with their parts.
fn other_merges(manifest: &Manifest, root: &Path) -> Result<Vec<(Run, Parts)>> {
    // `1a2b3c4d` of `20260101T000000Z-small-1a2b3c4d-of-4`.
    let hash = manifest.run_id.rsplit('-').nth(2).unwrap_or_default();
    let mut others = Vec::new();
    for other in History::open(&[root.to_owned()])?.runs().iter().filter(|other| other.name().contains(hash)) {
        let parts = other.manifest().ok().flatten().map(|manifest| parts_of(&manifest)).unwrap_or_default();
        if !parts.is_empty() {
            others.push((other.clone(), parts));
        }
    }
    Ok(others)
}

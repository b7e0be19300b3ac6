//! Merges the parts of a suite into one run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use indexmap::IndexMap;
use walkdir::WalkDir;

use crate::definition::{Shard, Status};
use crate::history::{History, Imported, NewRun, RESULTS, Run, remove};
use crate::run_data::{Distributions, HIDDEN, Manifest, Metric, Record, RunPart};

/// The merged run. It is not in a history yet.
pub struct Merged {
    pub manifest: Manifest,
    pub records: Vec<Record>,
    pub metrics: Vec<Metric>,
    distributions: Distributions,
    /// The runs that have the calls, with their machines and the cases that are taken from each.
    sources: Vec<(Run, String, BTreeSet<String>)>,
    /// The models that several machines have measured, apart from the anchor.
    pub divided_models: BTreeSet<String>,
    /// The numbers of the parts without a run.
    pub missing_parts: Vec<usize>,
    /// The cases without a record.
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
///
/// # Errors
/// A folder cannot be read, or there is no run.
pub fn find_parts(folders: &[PathBuf]) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for folder in folders {
        ensure!(folder.exists(), "there is no folder {}", folder.display());
        // The levels: reports, measurement, part, run.
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

/// Merges runs of parts. Each case is in one part. If a part was measured several times, the later row of a case
/// counts, unless only that has failed.
///
/// # Errors
/// A run is not a part, or parts are of different measurements (the message names the difference).
pub fn merge(runs: Vec<Run>) -> Result<Merged> {
    let mut sources = runs.into_iter().map(Source::read).collect::<Result<Vec<_>>>()?;
    // The runs of one part are in order of time.
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
                // A part that continues on another machine has a failed row of the case at which it was stopped.
                let stays = if is_answer(known) != is_answer(&record) {
                    is_answer(known)
                } else {
                    sources[*other].manifest.started > source.manifest.started
                };
                if stays {
                    continue;
                }
            }
            taken.insert(key, (place, record));
        }
    }
    Ok(Merged { superseded, ..Merged::of(sources, taken.into_values().collect(), &shard)? })
}

/// Whether the case came to its end. Wrong outputs are an answer, too, which an earlier right row must not hide.
fn is_answer(record: &Record) -> bool {
    record.status.is_measured() || record.status == Status::WrongOutput
}

/// Removes the runs of a part that a later run replaces, because it has measured the whole part again, and returns
/// their ids. A later run replaces nothing if a case failed in it that did not fail before. In `sources`, the runs of
/// one part are in order of time.
fn take_superseded(sources: &mut Vec<Source>) -> Result<Parts> {
    let answered = |source: &Source| -> Result<BTreeSet<String>> {
        let rows = source.run.records()?.into_iter().filter(is_answer);
        Ok(rows.map(|record| record.case_id).collect())
    };
    let answered = sources.iter().map(answered).collect::<Result<Vec<_>>>()?;
    let is_again = |place: usize| {
        let index = sources[place].shard.index;
        let replaces = |(later, source): (usize, &Source)| {
            source.shard.index == index && source.is_of_whole_part() && answered[place].is_subset(&answered[later])
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
        let shard = shard.with_context(|| format!("{}: the run is not a part of a suite", named()))?;
        Ok(Source { run, manifest, shard })
    }

    /// Whether the run came to its end and has all cases of the part. A run that continues an earlier one lacks some.
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
    /// The merged run of these records, each with the place of its source.
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
        // A history knows a run by its id and the machine of its first row. That machine stays the same if more parts
        // come.
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

/// The manifest of the merged run: that of the earliest part, with all cases and machines.
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
    // The id of a merge of fewer parts may begin with the time of another part. Its rows would be in the history twice.
    let known: Parts = own.union(&merged.superseded).cloned().collect();
    for (other, parts) in &others {
        if other.folder() != run.folder() && parts.is_subset(&known) && !parts.is_disjoint(&own) {
            remove(other)?;
        }
    }
    Ok((imported, run))
}

/// The ids and machines of the runs that were merged into one.
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::definition::{Case, Fingerprint, ShardCases, Suite};
    use crate::history::write_records;
    use crate::run_data::RunFolder;

    /// A run of a part, with the anchor as its only row.
    fn part(root: &Path, index: usize, started: i64, status: Status) -> Run {
        let anchor = Case::new("m", "ort", 1);
        let shard = Shard {
            index,
            suite: "small".into(),
            planned: None,
            anchor: Some(anchor.to_string()),
            fingerprint: Fingerprint::default(),
            parts: vec![ShardCases::default(); 2],
        };
        let suite = Suite { shard: Some(shard), ..Suite::default() };
        let started = Timestamp::from_second(started).unwrap();
        let folder = root.join(index.to_string());
        fs_err::create_dir(&folder).unwrap();
        let manifest = Manifest::begun(format!("run{index}"), started, suite, Vec::new());
        RunFolder::new(folder.clone()).write_manifest(&manifest).unwrap();
        let of_run = Record { host_id: "h".into(), ..Record::default() };
        let row = Record { status, ..of_run.about(&anchor) };
        write_records(&[row], fs_err::File::create(folder.join(RESULTS)).unwrap()).unwrap();
        Run::in_folder(&folder)
    }

    #[test]
    fn of_two_rows_of_a_case_the_later_counts_unless_only_that_failed() {
        use Status::{Ok, Suspicious, Timeout, WrongOutput};
        for (statuses, started, expected) in [
            ([Ok, Timeout], [1, 2], Ok),
            ([Timeout, Ok], [2, 1], Ok),
            ([Timeout, Ok], [1, 2], Ok),
            ([Ok, WrongOutput], [1, 2], WrongOutput),
            ([Ok, Suspicious], [1, 2], Suspicious),
            ([WrongOutput, Timeout], [1, 2], WrongOutput),
            ([WrongOutput, Ok], [1, 2], Ok),
        ] {
            let root = tempfile::tempdir().unwrap();
            let parts = [1, 2].map(|index| part(root.path(), index, started[index - 1], statuses[index - 1]));
            let merged = merge(parts.into()).unwrap();
            let found: Vec<Status> = merged.records.iter().map(|record| record.status).collect();
            assert_eq!(found, [expected], "{statuses:?} at {started:?}");
        }
    }
}

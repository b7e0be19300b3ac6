//! The two sides of a comparison: runs by id or path, and Criterion's baselines by name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use indexmap::IndexMap;

use super::within::Within;
use crate::convert::convert;
use crate::criterion_dir::{find_baselines, find_entries, read_entry};
use crate::definition::{Case, Status};
use crate::history::{History, Run};
use crate::paths::Paths;
use crate::run_data::{CriterionArguments, Manifest, Record, RunFolder};

/// Criterion's name for what was measured last.
const NEW: &str = "new";

/// A record, and how uncertain its median is by its own calls, where that is known.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub record: Record,
    pub within: Option<Within>,
}

impl Measurement {
    /// A record that is right, with the uncertainty that its calls show, or else its own figures; any other record, and one of
    /// several processes, without.
    fn new(record: Record, calls: impl FnOnce(&Record) -> Option<Vec<u64>>) -> Self {
        let by_calls = || Within::of_calls(&calls(&record)?);
        let is_right = record.status == Status::Ok && record.latency_p50_interval_lower_ms.is_none();
        let within = if is_right { by_calls().or_else(|| Within::of_record(&record)) } else { None };
        Measurement { record, within }
    }

    /// Whether the two are one measurement that was found in two paths.
    pub fn is_same_as(&self, other: &Measurement) -> bool {
        let [one, other] = [&self.record, &other.record];
        one.run_id == other.run_id && one.latency_p50_ms.is_some() && one.latency_p50_ms == other.latency_p50_ms
    }
}

/// What one name stands for. A baseline may hold cases of several runs, each case once.
#[derive(Clone, Debug)]
pub struct StoredRun {
    pub name: String,
    pub run_ids: BTreeSet<String>,
    pub measurements: Vec<Measurement>,
    manifests: Vec<Manifest>,
    /// What of it could not be used, for the reader.
    pub notes: Vec<String>,
}

/// One or more runs of the same code.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    pub runs: Vec<StoredRun>,
}

impl Side {
    /// Reads the runs of a list that is separated by commas.
    ///
    /// # Errors
    /// There is no such run or baseline (the message lists those that there are), or it cannot be read.
    pub fn find(names: &str, history: &History, paths: &Paths) -> Result<Self> {
        let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        let mut runs: Vec<StoredRun> = Vec::new();
        for name in &names {
            let run = find_run(name, history, paths)?;
            if let Some(known) = runs.iter().find(|known| known.is_same_as(&run)) {
                bail!("{name} is the same run as {}; name each run once", known.name);
            }
            runs.push(run);
        }
        if runs.is_empty() {
            bail!("a side of the comparison has no name; give a run, a folder or a baseline");
        }
        Ok(Side { name: names.join(", "), runs })
    }

    /// A run of these records, of which nothing else is known.
    pub fn of_records(name: &str, records: Vec<Record>) -> Self {
        let measurement = |record| Measurement::new(record, |_| None);
        let run = StoredRun::new(name, records.into_iter().map(measurement).collect(), Vec::new());
        Side { name: name.to_owned(), runs: vec![run] }
    }

    /// The first run that both sides have.
    pub fn shared_run<'a>(&'a self, other: &Side) -> Option<&'a StoredRun> {
        self.runs.iter().find(|run| other.runs.iter().any(|theirs| run.is_same_as(theirs)))
    }

    pub fn measurements(&self) -> impl Iterator<Item = &Measurement> {
        self.runs.iter().flat_map(|run| &run.measurements)
    }

    pub fn run_ids(&self) -> impl Iterator<Item = &str> {
        self.runs.iter().flat_map(|run| &run.run_ids).map(String::as_str)
    }

    /// Whether a run of this side was to measure the case, as far as that can be known.
    pub fn was_asked_for(&self, case: &Case, suite: &str) -> bool {
        self.runs.iter().any(|run| run.was_asked_for(case, suite))
    }
}

impl StoredRun {
    fn new(name: &str, measurements: Vec<Measurement>, manifests: Vec<Manifest>) -> Self {
        let run_ids = measurements.iter().map(|found| found.record.run_id.clone()).collect();
        StoredRun { name: name.to_owned(), run_ids, measurements, manifests, notes: Vec::new() }
    }

    fn is_same_as(&self, other: &StoredRun) -> bool {
        let medians = |run: &StoredRun| -> Vec<(Case, Option<f64>)> {
            run.measurements.iter().map(|found| (found.record.case(), found.record.latency_p50_ms)).collect()
        };
        self.run_ids == other.run_ids && medians(self) == medians(other)
    }

    /// By its manifests: a case is asked for if it passes the filter and each of its parts is that of a case of the run.
    /// A run without a manifest was asked for what its suite says, and of a run that was interrupted nobody knows.
    fn was_asked_for(&self, case: &Case, suite: &str) -> bool {
        if self.manifests.is_empty() {
            return self.measurements.iter().any(|found| found.record.suite == suite);
        }
        self.manifests.iter().any(|manifest| {
            let has = |is_alike: &dyn Fn(&Case) -> bool| manifest.cases.iter().any(|planned| is_alike(&planned.case));
            let filter = CriterionArguments::try_parse_from(&manifest.arguments)
                .ok()
                .and_then(|arguments| arguments.id_filter().ok());
            !manifest.is_interrupted
                && filter.is_none_or(|filter| filter.is_match(&case.to_string()))
                && has(&|other| (&other.model, &other.variant) == (&case.model, &case.variant))
                && has(&|other| other.backend == case.backend)
                && has(&|other| other.device == case.device)
                && has(&|other| other.dtype == case.dtype)
                && has(&|other| other.phase == case.phase)
                && has(&|other| other.batch_size == case.batch_size)
                && has(&|other| other.sequence_length == case.sequence_length)
        })
    }
}

fn find_run(name: &str, history: &History, paths: &Paths) -> Result<StoredRun> {
    if let Some(run) = history.find(name)? {
        return of_run(name, &run);
    }
    let runs = paths.runs();
    if name == NEW {
        return of_folders(name, &[RunFolder::find(&runs, None)?], NEW, paths);
    }
    if let Ok(folder) = RunFolder::find(&runs, Some(name)) {
        return of_folders(name, &[folder], NEW, paths);
    }
    of_baseline(name, history, paths)
}

/// A run of the history.
fn of_run(name: &str, run: &Run) -> anyhow::Result<StoredRun> {
    let records = run.records()?;
    let mut calls = run.calls()?;
    let measurement = |record: Record| {
        Measurement::new(record, |record| calls.remove(&record.case_id).map(|calls| calls.samples_ns.concat()))
    };
    let measurements = records.into_iter().map(measurement).collect();
    Ok(StoredRun::new(name, measurements, run.manifest().unwrap_or_default().into_iter().collect()))
}

/// Criterion's baseline of this name: what each case was last saved as.
fn of_baseline(name: &str, history: &History, paths: &Paths) -> Result<StoredRun> {
    let root = paths.criterion();
    let entries = find_entries(&root, name);
    let mut measured: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries.iter().filter_map(|entry| read_entry(entry).ok()) {
        *measured.entry(entry.run_id).or_default() += 1;
    }
    let mut folders = Vec::new();
    for folder in RunFolder::all(&paths.runs()) {
        let has_saved =
            || folder.read_manifest().is_ok_and(|manifest| manifest.saved_baseline.as_deref() == Some(name));
        let id = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A run that saved the baseline says also which cases failed.
        if measured.remove(&id).is_some() || has_saved() {
            folders.push(folder);
        }
    }
    if folders.is_empty() {
        ensure!(!entries.is_empty(), nothing_of_that_name(name, history, paths));
        bail!(
            "baseline {name:?} in {} cannot be used: there is no manifest of the run that measured it in {}; keep both \
             folders, or measure it again with `cargo bench -- --save-baseline {name}`",
            root.display(),
            paths.runs().display()
        );
    }
    let mut run = of_folders(name, &folders, name, paths)?;
    run.notes.extend(measured.iter().map(|(id, count)| {
        format!("{name}: {count} cases are left out: there is no manifest of run {id}, which measured them")
    }));
    Ok(run)
}

/// Of what several runs, the oldest first, left in a baseline, the last of each case.
fn of_folders(name: &str, folders: &[RunFolder], baseline: &str, paths: &Paths) -> Result<StoredRun> {
    let (mut manifests, mut notes) = (Vec::new(), Vec::new());
    let mut records: IndexMap<Case, Record> = IndexMap::new();
    for folder in folders {
        let conversion = convert(folder, &paths.criterion(), baseline)?;
        if folders.len() == 1 {
            let refused = conversion.refused.iter().filter(|(id, _)| !Path::new(id).is_absolute());
            notes.extend(refused.map(|(id, reason)| format!("{name}: {id}: {reason}")));
        }
        records.extend(conversion.records.into_iter().map(|record| (record.case(), record)));
        manifests.push(conversion.manifest);
    }
    let root = paths.criterion();
    // The calls that Criterion's tree still has.
    let calls = |record: &Record| {
        let id = record.case().benchmark_id();
        let entry = read_entry(&root.join(&id.group).join(&id.function).join(&id.value).join(baseline)).ok()?;
        (entry.run_id == record.run_id).then(|| entry.samples_ns.concat())
    };
    let measurements = records.into_values().map(|record| Measurement::new(record, calls)).collect();
    Ok(StoredRun { notes, ..StoredRun::new(name, measurements, manifests) })
}

fn nothing_of_that_name(name: &str, history: &History, paths: &Paths) -> String {
    const SHOWN: usize = 5;
    let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut runs: Vec<String> = history.runs().iter().map(|run| run.name().to_owned()).collect();
    let others = runs.len().saturating_sub(SHOWN);
    runs.truncate(SHOWN);
    let others = if others == 0 { String::new() } else { format!(" and {others} older ones") };
    format!(
        "no run, file or baseline {name:?}\n  baselines in {}: {}\n  runs in {}: {}{others}\n  \
         keep a baseline with `cargo bench -- --save-baseline {name}`",
        paths.criterion().display(),
        list(find_baselines(&paths.criterion())),
        history.places(),
        list(runs),
    )
}

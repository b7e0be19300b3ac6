//! The two sides of a comparison: runs by id or path, and Criterion's baselines by name.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};
use clap::Parser;
use indexmap::IndexMap;

use crate::convert::convert;
use crate::criterion_dir::find_baselines;
use crate::definition::Case;
use crate::history::History;
use crate::machine::Machine;
use crate::paths::Paths;
use crate::run_data::{CriterionArguments, Manifest, Metric, Record, RunFolder};

/// Criterion's name for what was measured last.
const NEW: &str = "new";

/// One or more runs of the same code. A baseline is one run, although its cases may be of several.
#[derive(Clone, Debug, Default)]
pub struct Side {
    pub name: String,
    pub records: Vec<Record>,
    pub metrics: Vec<Metric>,
    manifests: Vec<Manifest>,
    /// Cases whose measurement exists and cannot be read.
    pub(super) unread: BTreeSet<Case>,
    /// What could not be used, for the reader.
    pub notes: Vec<String>,
}

impl Side {
    /// Reads the runs of a list that is separated by commas.
    ///
    /// # Errors
    /// There is no such run or baseline (the message lists the existing ones), it cannot be read, or it is named twice.
    pub fn find(names: &str, history: &History, paths: &Paths) -> Result<Self> {
        let mut side = Side::of_records(names, Vec::new());
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let run = find_run(name, history, paths)?;
            // Two machines may have begun in the same second.
            let machines = |of: &Side| -> BTreeSet<(String, String)> {
                of.records.iter().map(|record| (record.run_id.clone(), record.host_id.clone())).collect()
            };
            if let Some((twice, _)) = machines(&side).intersection(&machines(&run)).next() {
                bail!("{name}: run {twice} is on this side already; name each run once");
            }
            side.records.extend(run.records);
            side.metrics.extend(run.metrics);
            side.manifests.extend(run.manifests);
            side.unread.extend(run.unread);
            side.notes.extend(run.notes);
        }
        ensure!(
            !side.records.is_empty() || !side.manifests.is_empty(),
            "a side of the comparison has no measurement; give a run, a folder or a baseline"
        );
        Ok(side)
    }

    /// A run of these records, of which nothing else is known.
    pub fn of_records(name: &str, records: Vec<Record>) -> Self {
        Side { name: name.to_owned(), records, ..Side::default() }
    }

    /// The ids of the runs, in order.
    pub fn run_ids(&self) -> BTreeSet<&str> {
        self.records.iter().map(|record| record.run_id.as_str()).collect()
    }

    /// The values of a setting of the machine in the runs of this side, as far as they are known.
    fn setting(&self, of: fn(&Machine) -> Option<String>) -> BTreeSet<String> {
        self.manifests.iter().filter_map(|manifest| of(&manifest.machine)).collect()
    }

    /// Returns true if some of the side's measurements cannot be read.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether a run of this side was stopped before it had measured the case. A merge of some of the parts does not
    /// say which cases the others have.
    pub fn did_not_reach(&self, case: &Case) -> bool {
        let was_to = |manifest: &Manifest| !manifest.parts.is_empty() || asks_for(manifest, case);
        self.manifests.iter().any(|manifest| !manifest.is_complete() && was_to(manifest))
    }

    /// Whether a run of this side that came to its end was to measure the case, as far as that can be known. Runs
    /// without a manifest were asked for what their suite says.
    pub fn was_asked_for(&self, case: &Case, suite: &str) -> bool {
        match self.manifests.as_slice() {
            [] => self.records.iter().any(|record| record.suite == suite),
            manifests => manifests.iter().any(|manifest| manifest.is_complete() && asks_for(manifest, case)),
        }
    }
}

/// Notes about settings of the machine that differ between the sides: they change its speed, and no condition of a case
/// covers them.
pub(super) fn other_settings(base: &Side, candidate: &Side) -> Vec<String> {
    type Setting = (&'static str, fn(&Machine) -> Option<String>);
    const SETTINGS: [Setting; 5] = [
        ("governor", |machine| machine.governor.clone()),
        ("turbo", |machine| machine.turbo.map(|is_on| if is_on { "on" } else { "off" }.to_owned())),
        ("number of processors", |machine| Some(machine.logical_processors.to_string()).filter(|it| it != "0")),
        ("limit of processors", |machine| {
            Some(machine.container_processors.map_or("none".into(), |it| it.to_string()))
        }),
        ("variables", |machine| {
            let all = machine.variables.as_ref()?.join(" ");
            Some(if all.is_empty() { "none".to_owned() } else { all })
        }),
    ];
    let note = |(name, of): Setting| {
        let sides = [base, candidate].map(|side| side.setting(of));
        let [before, after] = sides.each_ref().map(|it| it.iter().cloned().collect::<Vec<_>>().join(" or "));
        let differs = sides.iter().all(|it| !it.is_empty()) && sides[0] != sides[1];
        differs.then(|| format!("the machine's {name} differed: {before} and {after}"))
    };
    SETTINGS.into_iter().filter_map(note).collect()
}

/// A case was asked for if it passes the filter, and each of its parts is also in a case of the run.
fn asks_for(manifest: &Manifest, case: &Case) -> bool {
    let has = |is_alike: &dyn Fn(&Case) -> bool| manifest.cases.iter().any(|planned| is_alike(&planned.case));
    let arguments = CriterionArguments::try_parse_from(&manifest.arguments).ok();
    let filter = arguments.and_then(|arguments| arguments.id_filter().ok());
    filter.is_none_or(|filter| filter.is_match(&case.to_string()))
        && has(&|other| (&other.model, &other.variant) == (&case.model, &case.variant))
        && has(&|other| other.backend == case.backend)
        && has(&|other| other.device == case.device)
        && has(&|other| other.dtype == case.dtype)
        && has(&|other| other.phase == case.phase)
        && has(&|other| (other.boundary, other.timed_on) == (case.boundary, case.timed_on))
        && has(&|other| other.batch_size == case.batch_size)
        && has(&|other| other.dims == case.dims)
        && has(&|other| other.sequence_length == case.sequence_length)
}

fn find_run(name: &str, history: &History, paths: &Paths) -> Result<Side> {
    if let Some(run) = history.find(name)? {
        let manifests = run.manifest().unwrap_or_default().into_iter().collect();
        return Ok(Side { metrics: run.metrics()?, manifests, ..Side::of_records(name, run.records()?) });
    }
    let runs = paths.runs();
    if name == NEW {
        return of_folders(name, &[RunFolder::find(&runs, None)?], NEW, paths);
    }
    if let Ok(folder) = RunFolder::find(&runs, Some(name)) {
        return of_folders(name, &[folder], NEW, paths);
    }
    // A baseline of Criterion: the last saved measurement of each case, and the cases that failed in the runs that
    // saved it.
    let folders: Vec<RunFolder> = RunFolder::all(&runs).into_iter().filter(|folder| has_saved(folder, name)).collect();
    ensure!(!folders.is_empty(), nothing_of_that_name(name, history, paths));
    of_folders(name, &folders, name, paths)
}

fn has_saved(folder: &RunFolder, baseline: &str) -> bool {
    folder.read_manifest().is_ok_and(|manifest| manifest.saved_baseline.as_deref() == Some(baseline))
}

/// Reads what several runs, the oldest first, have left in a baseline. The last measurement of each case counts.
fn of_folders(name: &str, folders: &[RunFolder], baseline: &str, paths: &Paths) -> Result<Side> {
    let mut side = Side::of_records(name, Vec::new());
    let mut last: IndexMap<Case, Result<Record, String>> = IndexMap::new();
    for folder in folders {
        let conversion = convert(folder, &paths.criterion(), baseline, |_, _| Ok(()))?;
        let refused: BTreeMap<String, String> = conversion.refused.into_iter().collect();
        for record in conversion.records {
            match refused.get(&record.case_id) {
                None => drop(last.insert(record.case(), Ok(record))),
                // An older run may have left a measurement that can be read.
                Some(reason) => drop(last.entry(record.case()).or_insert_with(|| Err(reason.clone()))),
            }
        }
        side.metrics.extend(conversion.metrics);
        side.manifests.push(conversion.manifest);
    }
    for (case, found) in last {
        match found {
            Ok(record) => side.records.push(record),
            Err(reason) => {
                side.notes.push(format!("{name}: {case}: {reason}"));
                side.unread.insert(case);
            }
        }
    }
    Ok(side)
}

fn nothing_of_that_name(name: &str, history: &History, paths: &Paths) -> String {
    let list = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut baselines = find_baselines(&paths.criterion());
    // Criterion itself saves `base` to compare with. It belongs to no run.
    let is_saved = |baseline: &str| RunFolder::all(&paths.runs()).iter().any(|folder| has_saved(folder, baseline));
    baselines.retain(|baseline| baseline != "base" || is_saved(baseline));
    // A folder or the id of a run was meant to be one.
    let is_date = name.bytes().take_while(u8::is_ascii_digit).count() >= 8;
    let may_be_baseline = !is_date && CriterionArguments::try_parse_from(["--save-baseline", name]).is_ok();
    let keep = format!("\n  keep a baseline with `--save-baseline {name}` of `inferbench run` or `cargo bench --`");
    format!(
        "no run, file or baseline {name:?}\n  baselines in {}: {} (of runs whose manifests are in {})\n  \
         newest runs in {}: {}{}",
        paths.criterion().display(),
        list(baselines),
        paths.runs().display(),
        history.places(),
        list(history.runs().iter().take(5).map(|run| run.name().to_owned()).collect()),
        if may_be_baseline { keep.as_str() } else { "" },
    )
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::compare::tests::simulation::empty_record;
    use crate::compare::{Conclusion, EarlierRuns, Noise, Options, Value, compare};
    use crate::definition::{Boundary, Status, TimedOn};
    use crate::run_data::{ManifestCase, RunPart};

    #[test]
    fn what_criterion_itself_compares_with_is_not_offered() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::of(root.path().to_owned());
        for baseline in ["base", "main"] {
            let folder = paths.criterion().join("m/ort-cpu-f32/1").join(baseline);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("benchmark.json"), "{}").unwrap();
        }
        let history = History::open(&[paths.reports()]).unwrap();
        let said = nothing_of_that_name("base", &history, &paths);
        assert!(said.contains(": main (of runs"), "{said}");
        let is_advised = |name| nothing_of_that_name(name, &history, &paths).contains("keep a baseline");
        assert_eq!(["v1.0", "20260101T000000Z", "runs/1"].map(is_advised), [true, false, false]);
    }

    #[test]
    fn a_boundary_and_inputs_that_were_not_asked_for_are_not_gone() {
        let compute = Case::new("m", "ort", 1);
        let end_to_end = Case { boundary: Boundary::EndToEnd, ..compute.clone() };
        let on_samples = Case { timed_on: TimedOn::Samples, ..compute.clone() };
        let (cases, finished) = (vec![ManifestCase::new(compute.clone(), "onnx")], Some(Timestamp::UNIX_EPOCH));
        let side = Side { manifests: vec![Manifest { cases, finished, ..Manifest::default() }], ..Side::default() };
        let asked = [compute, end_to_end, on_samples].map(|case| side.was_asked_for(&case, "quick"));
        assert_eq!(asked, [true, false, false]);
    }

    #[test]
    fn what_a_run_did_not_reach_is_open_and_what_nobody_asked_for_is_not() {
        let record = |run_id: &str, backend: &str, status| Record {
            run_id: run_id.into(),
            backend: backend.into(),
            status,
            latency_p50_ms: (status == Status::Ok).then_some(1.0),
            ..empty_record()
        };
        let base = Side::of_records("a", vec![record("1", "ort", Status::Timeout), record("1", "other", Status::Ok)]);
        let found_in = |manifest: Manifest, planned: &[&str], missing_is_allowed| {
            let planned = planned.iter().map(|backend| ManifestCase::new(Case::new("m", backend, 1), "onnx"));
            let manifests = vec![Manifest { cases: planned.collect(), ..manifest }];
            let candidate = Side { manifests, ..Side::of_records("b", vec![record("2", "ort", Status::Ok)]) };
            let options = Options { missing_is_allowed, ..Options::default() };
            let earlier = EarlierRuns::of(std::iter::empty());
            let found = compare(&base, &candidate, &earlier, &|_| Noise::assumed(), &options);
            (found.conclusion, found.cases[1].is_open, found.cases[1].changes[0].candidate.clone())
        };
        let found = |is_interrupted, finished, missing_is_allowed| {
            let manifest = Manifest { is_interrupted, finished, ..Manifest::default() };
            let planned: &[&str] = if manifest.is_complete() { &["ort"] } else { &["ort", "other"] };
            found_in(manifest, planned, missing_is_allowed)
        };
        let text = |text: &str| Value::Text(text.into());
        let interrupted = text("not measured before the run was interrupted");
        let end = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(found(true, end, false), (Conclusion::CannotSay, true, interrupted.clone()));
        assert_eq!(found(true, end, true).0, Conclusion::Well);
        // A run that was killed has no end.
        assert_eq!(found(false, None, false), (Conclusion::CannotSay, true, interrupted.clone()));
        let not_asked_for = (Conclusion::Well, false, text("not asked for"));
        assert_eq!(found(false, end, false), not_asked_for);
        assert_eq!(found_in(Manifest::default(), &["ort"], false), not_asked_for);
        // A merge does not know the cases of the parts that it lacks.
        let (started, machine) = (Timestamp::UNIX_EPOCH, Machine::default());
        let (index, run_id, calibrations) = (1, "2".to_owned(), Vec::new());
        let part = RunPart { index, run_id, started, finished: None, machine, peaks: None, calibrations };
        let merged = Manifest { is_interrupted: true, parts: vec![part], ..Manifest::default() };
        assert_eq!(found_in(merged, &["ort"], false), (Conclusion::CannotSay, true, interrupted));
    }

    #[test]
    fn what_a_machine_was_set_to_otherwise_is_said() {
        let side = |machine| Side { manifests: vec![Manifest { machine, ..Manifest::default() }], ..Side::default() };
        let set = |governor: &str, turbo, logical_processors, variables: &[&str]| Machine {
            governor: Some(governor.into()),
            turbo: Some(turbo),
            logical_processors,
            variables: Some(variables.iter().map(|it| (*it).to_owned()).collect()),
            ..Machine::default()
        };
        let said = |other| other_settings(&side(set("performance", true, 8, &[])), &side(other));
        let slow = Machine { container_processors: Some(2.0), ..set("powersave", false, 4, &["A=1"]) };
        let parts = [
            "governor differed: performance and powersave",
            "turbo differed: on and off",
            "number of processors differed: 8 and 4",
            "limit of processors differed: none and 2",
            "variables differed: none and A=1",
        ];
        assert_eq!(said(slow), parts.map(|part| format!("the machine's {part}")));
        assert!(said(set("performance", true, 8, &[])).is_empty() && said(Machine::default()).is_empty());
    }
}

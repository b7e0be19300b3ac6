//! `inferbench convert`: Criterion's files → `target-reports/<run-id>/`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::machines::fleet_of;
use super::recommend::advice_about;
use super::report::payload;
use crate::convert::{Conversion, convert};
use crate::criterion_dir::find_baselines;
use crate::decision::{Prices, section};
use crate::definition::Status;
use crate::exit_codes;
use crate::history::{History, Imported, NewRun, RESULTS, Run, write_whole};
use crate::paths::Paths;
use crate::report::fleet::Fleet;
use crate::report::profile::newest_pages;
use crate::report::records::not_reached;
use crate::report::{ReportedRun, html, index};
use crate::run_data::{Distributions, Manifest, RunFolder};

/// Turn what `cargo bench` has measured into a run of the history
#[derive(Args)]
#[command(
    after_help = "Cases that a later run has measured again are refused, because Criterion keeps only the latest measurement.\n\n\
        Examples:\n  inferbench convert\n  inferbench convert --run 20260101T120000Z --baseline main\n  \
        inferbench convert --output-dir /mnt/share/reports"
)]
pub struct Arguments {
    /// Run id [default: the latest]
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Name under which Criterion keeps the measurements
    #[arg(long, value_name = "NAME", default_value = "new")]
    baseline: String,
    /// Replace the run's results, even with fewer results
    #[arg(long)]
    replace: bool,
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let paths = Paths::find();
    let folder = RunFolder::find(&paths.runs(), arguments.run.as_deref())?;
    check_baseline(&folder.read_manifest()?, &arguments.baseline)?;
    let reports = paths.reports();
    let converted = convert_run(&folder, &arguments.baseline, &reports, arguments.replace)?;
    converted.write_pages(&reports, &paths)?;
    not_reached(&converted.reported.not_reached).iter().for_each(|line| eprintln!("{line}"));
    println!("{}", converted.run.folder().join(RESULTS).display());
    let has_figures = converted.reported.records.iter().any(|record| record.status == Status::Ok);
    Ok(if has_figures { exit_codes::OK } else { exit_codes::NOTHING_MEASURED })
}

/// # Errors
/// No case of the run has a baseline of that name; the message lists those that there are. A run whose cases all failed has none.
fn check_baseline(manifest: &Manifest, baseline: &str) -> Result<()> {
    let root = &manifest.criterion_root;
    let has = |name: &str| manifest.cases.iter().any(|it| root.join(it.case.to_string()).join(name).is_dir());
    if baseline == "new" || manifest.saved_baseline.as_deref() == Some(baseline) || has(baseline) {
        return Ok(());
    }
    let others: Vec<String> = find_baselines(root).into_iter().filter(|name| has(name)).collect();
    ensure!(!others.is_empty(), "no baseline {baseline}; {} has none of this run", root.display());
    bail!("no baseline {baseline}; there are {}", others.join(", "))
}

/// A run that was converted: where it is now, and what is in it.
pub struct Converted {
    pub run: Run,
    pub reported: ReportedRun,
}

/// Converts a run, reports what was refused, and puts the run into the history in `reports`, without its pages.
///
/// # Errors
/// The manifest cannot be read, the files cannot be written, or the history has more of the run and `replace` is false.
pub fn convert_run(folder: &RunFolder, baseline: &str, reports: &Path, replace: bool) -> Result<Converted> {
    let manifest = folder.read_manifest()?;
    let mut new = NewRun::create(reports, &manifest.run_id, &manifest.machine.host_id)?;
    let conversion = convert(folder, &manifest.criterion_root, baseline, |record, entry| {
        new.append_calls(&record.case_id, &entry.samples_ns, entry.disturbed.as_deref())
    })?;
    let Conversion { manifest, records, metrics, distributions, refused } = conversion;
    refused.iter().for_each(|(entry, reason)| eprintln!("not converted: {entry}: {reason}"));
    let distributions = Distributions::new(distributions);
    let (imported, run) = new.publish(&manifest, &records, &metrics, &distributions, replace)?;
    if let Imported::Refused(reason) = imported {
        bail!("{}: {reason}", run.folder().display());
    }
    let (nodes, not_reached) = (manifest.nodes(), manifest.not_reached(&records));
    let distributions = Some(distributions);
    let name = manifest.run_id;
    let reported = ReportedRun { name, records, not_reached, metrics, nodes, distributions, equal_machines: None };
    Ok(Converted { run, reported })
}

impl Converted {
    /// Writes the run's page, and the page of all runs; returns their paths.
    pub fn write_pages(&self, reports: &Path, paths: &Paths) -> Result<[PathBuf; 2]> {
        let history = History::open(&[reports.to_owned()])?;
        let files = [self.run.folder().join(index::REPORT), reports.join(index::INDEX)];
        let fleet = fleet_of(std::slice::from_ref(&self.reported), &Prices::default(), paths);
        let mut payload = payload(std::slice::from_ref(&self.reported), fleet.as_ref(), paths, &history);
        payload.link_profiles(&newest_pages(reports, self.run.folder()));
        // As in `report`, a recommendation is about all machines.
        let is_about_all = fleet.as_ref().is_none_or(Fleet::shows_each_kind);
        let advice = |reported: &ReportedRun| section(&advice_about(&reported.records, &reported.metrics, paths));
        let page = html::render(&payload, &if is_about_all { advice(&self.reported) } else { String::new() })?;
        write_whole(&files[0], page.as_bytes())?;
        // Written after the run's page, since it links to that page.
        write_whole(&files[1], index::render(reports, &paths.criterion())?.as_bytes())?;
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Case;
    use crate::run_data::ManifestCase;

    #[test]
    fn a_baseline_that_no_case_has_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let case = Case::new("m", "ort", 1);
        for (id, name) in [(case.to_string(), "base"), (case.to_string(), "new"), ("n/ort-cpu-f32/1".into(), "main")] {
            let folder = root.path().join(id).join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("benchmark.json"), "{}").unwrap();
        }
        let manifest = Manifest {
            criterion_root: root.path().to_owned(),
            saved_baseline: Some("failed".into()),
            cases: vec![ManifestCase::new(case, "onnx")],
            ..Manifest::default()
        };
        let refused = |name: &str| check_baseline(&manifest, name).err().map(|error| error.to_string());
        assert_eq!(refused("main").as_deref(), Some("no baseline main; there are base, new"));
        assert_eq!(["new", "base", "failed"].map(refused), [None, None, None]);
    }
}

//! `inferbench merge`: the parts of a suite as one run.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::convert::Converted;
use super::machines::fleet_of;
use crate::decision::Prices;
use crate::definition::Status;
use crate::exit_codes;
use crate::fleet::{Merged, find_parts, merge, publish};
use crate::harness::exit_code_of;
use crate::history::RESULTS;
use crate::paths::Paths;
use crate::report::fleet::Fleet;
use crate::report::numbers::plural;
use crate::report::{Format, ReportedRun, records};
use crate::run_data::Record;

/// Put the parts of a suite that machines measured into one run
#[derive(Args)]
#[command(
    after_help = "Parts with different files, settings or builds are refused, and the difference is named. If all of a part was \
        measured again, its earlier runs are left out, unless a case failed that had not failed before. Exit code 3: parts or cases \
        are missing, and `--partial` is not given; otherwise it is that of `inferbench run`.\n\n\
        Examples:\n  inferbench merge target-reports/parts/small-1a2b3c4d-of-4\n  inferbench merge node1 node2 node3 --partial"
)]
pub struct Arguments {
    /// Folders of parts, or folders that contain them
    #[arg(required = true, value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Merge what is there, even if parts or cases are missing
    #[arg(long)]
    partial: bool,
    /// Exit with 0 even if a case failed; wrong outputs still give 1
    #[arg(long)]
    allow_failed: bool,
}

impl Arguments {
    /// The arguments that merge all that is in a folder, even if parts or cases are missing.
    pub fn of(folder: PathBuf) -> Self {
        Arguments { folders: vec![folder], partial: true, allow_failed: false }
    }
}

pub fn run(arguments: &Arguments) -> Result<u8> {
    let (code, records) = merge_parts(arguments)?;
    let statuses: Vec<Status> = records.iter().map(|record| record.status).collect();
    Ok(if code == exit_codes::OK { exit_code_of(&statuses, arguments.allow_failed) } else { code })
}

/// Merges the parts and shows the run. Returns the exit code and the records.
pub fn merge_parts(arguments: &Arguments) -> Result<(u8, Vec<Record>)> {
    let mut merged = merge(find_parts(&arguments.folders)?)?;
    say_what_is_missing(&merged);
    if !merged.missing_cases.is_empty() && !arguments.partial {
        eprintln!("nothing was merged; `--partial` merges what is there");
        return Ok((exit_codes::NOTHING_MEASURED, Vec::new()));
    }
    let paths = Paths::find();
    judge_machines(&mut merged, &paths);
    let reports = paths.reports();
    let (_, run) = publish(&merged, &reports)?;
    let Merged { manifest, records: rows, .. } = &merged;
    let machines = plural(manifest.nodes().len(), "machine", "machines");
    eprintln!(
        "{} of {} on {machines}",
        plural(rows.len(), "case", "cases"),
        plural(manifest.parts.len(), "part", "parts")
    );
    let converted = Converted { reported: ReportedRun::read(&run)?, run };
    print!("{}", records::render(&converted.reported, &[], "", Format::Table));
    for line in
        fleet_of(std::slice::from_ref(&converted.reported), &Prices::default(), &paths).iter().flat_map(Fleet::lines)
    {
        println!("{line}");
    }
    let [page, _] = converted.write_pages(&reports, &paths)?;
    println!("CSV   {}\nHTML  {}", converted.run.folder().join(RESULTS).display(), page.display());
    Ok((exit_codes::OK, merged.records))
}

/// Notes in the manifest that the machines among which models were divided are shown to be equal, or prints why they
/// are not.
fn judge_machines(merged: &mut Merged, paths: &Paths) {
    if merged.divided_models.is_empty() {
        return;
    }
    let (records, nodes) = (merged.records.clone(), merged.manifest.nodes());
    let run = ReportedRun { records, nodes, ..ReportedRun::default() };
    let equality = fleet_of(&[run], &Prices::default(), paths).map(|fleet| fleet.equality());
    match equality {
        Some(Ok(slowest_to_fastest)) => merged.manifest.equal_machines = Some(slowest_to_fastest),
        Some(Err(why)) => {
            let models = Vec::from_iter(merged.divided_models.iter().map(String::as_str)).join(", ");
            eprintln!("{models}: measured on several machines, which are ranked apart: {why}");
        }
        None => {}
    }
}

/// At most this many missing cases are named.
const MOST_NAMED: usize = 10;

fn say_what_is_missing(merged: &Merged) {
    if !merged.missing_parts.is_empty() {
        let numbers: Vec<String> = merged.missing_parts.iter().map(usize::to_string).collect();
        let numbers = numbers.join(", ");
        eprintln!("missing: part {numbers}; the command that measures a part begins or continues it with `--resume`");
    }
    for id in merged.missing_cases.iter().take(MOST_NAMED) {
        eprintln!("missing: {id}");
    }
    if let Some(more) = merged.missing_cases.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        eprintln!("missing: {}", plural(more, "more case", "more cases"));
    }
}

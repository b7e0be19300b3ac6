//! `inferbench devices`: which backends and devices are available, and what would add the others; what would disturb a
//! measurement here; the peaks of this machine.

use std::collections::BTreeMap;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use super::Listing;
use crate::backend::{self, Check, DeviceReport, LoadRequest};
use crate::catalogue::read_catalogue;
use crate::definition::{Dtype, ORIGINAL, Sizes};
use crate::fixture::Reads;
use crate::harness::{Conditions, examine, keep_others_out, prepare_model};
use crate::machine::Machine;
use crate::measurement::peaks::calibrate;
use crate::paths::Paths;
use crate::report::table::{Column, Table};
use crate::report::{Format, facts};
use crate::run_data::Peaks;
use crate::{exit_codes, fixture};

/// Show backends and devices: which are available, or why not
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench devices --format json\n  inferbench devices --doctor\n  inferbench devices --calibrate --threads 4\n  \
        inferbench devices --conformance 'python3 src/guide/digits_worker.py'"
)]
pub struct Arguments {
    /// Instead, show what would disturb a measurement on this machine, and how to fix it
    #[arg(long)]
    doctor: bool,
    /// Instead, measure how fast this machine multiplies matrices and copies memory; `roofline_percent` refers to these peaks
    #[arg(long, conflicts_with = "doctor")]
    calibrate: bool,
    /// With `--calibrate`: the number of threads that runs use [default: the number of processors]
    #[arg(long, requires = "calibrate", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Instead, check that an external worker speaks the protocol of external workers; exit code 1 if it does not
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["doctor", "calibrate"])]
    conformance: Option<String>,
    /// With `--conformance`: a packaged model that the worker runs
    #[arg(long, value_name = "MODEL", requires = "conformance", default_value = "digits")]
    with_model: String,
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let paths = Paths::find();
    if let Some(command) = &arguments.conformance {
        let checks = check_conformance(&paths, command, &arguments.with_model)?;
        let is_right = checks.iter().all(|check| check.found.is_ok());
        list_checks(&checks).print(arguments.format);
        return Ok(if is_right { exit_codes::OK } else { exit_codes::REGRESSION_OR_WRONG });
    }
    let listing = if arguments.doctor {
        list_disturbances(&paths)
    } else if arguments.calibrate {
        let machine = Machine::read();
        let threads = arguments.threads.map_or(machine.logical_processors, usize::from);
        let _lock = keep_others_out(&paths)?;
        list_peaks(&calibrate(&paths, &machine, threads))
    } else {
        list_devices()
    };
    listing.print(arguments.format);
    Ok(exit_codes::OK)
}

/// Checks a program with a packaged model at batch size 2.
fn check_conformance(paths: &Paths, command: &str, model: &str) -> anyhow::Result<Vec<Check>> {
    anyhow::ensure!(
        !command.trim().is_empty(),
        "the command of --conformance is empty: write a program with its arguments"
    );
    let catalogue = read_catalogue(&paths.models()?)?;
    let entry = catalogue.iter().find(|entry| entry.name == model && entry.variant == ORIGINAL);
    let model = entry.with_context(|| format!("there is no packaged model {model:?}"))?.model.clone()?;
    let held = prepare_model(&model, paths, Dtype::F32, Reads::Graphs)?;
    let sizes = Sizes { batch: 2, sequence: model.sequence_lengths.first().copied() };
    let ring: Vec<_> = (0..2).map(|index| fixture::batch(&model, None, index, sizes)).collect::<anyhow::Result<_>>()?;
    let plan = model.phases.first().context("the model has no phase")?;
    let request = LoadRequest {
        model: &model,
        artifacts: &held.artifacts,
        phase: plan.phase,
        sizes,
        device: "cpu",
        dtype: Dtype::F32,
        threads: 1,
        instances: 1,
        callers: 1,
    };
    Ok(backend::check_program(command, &request, &ring))
}

fn list_checks(checks: &[Check]) -> Listing {
    let mut table = Table::new([Column::text("check"), Column::text("state"), Column::text("found").or_below()]);
    let mut objects = Vec::new();
    for Check { what, found } in checks {
        let (is_right, found) = (found.is_ok(), found.as_ref().unwrap_or_else(|why| why));
        table.row([*what, if is_right { "right" } else { "wrong" }, found]);
        objects.push(json!({ "what": what, "right": is_right, "found": found }));
    }
    Listing { table, objects: json!({ "checks": objects }) }
}

/// All devices, and below them the facts about the machine.
fn list_devices() -> Listing {
    let machine = Machine::read();
    let mut table =
        Table::new(["backend", "device"].map(|header| Column::text(header).essential()).into_iter().chain([
            Column::text("state"),
            Column::text("version"),
            Column::text("detail").or_below(),
            Column::text("from").minor(),
        ]));
    let mut objects = Vec::new();
    // The backend and device that each reason was first printed for.
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    for (entry, devices) in backend::tried_devices() {
        let devices = devices.unwrap_or_else(|failure| vec![DeviceReport::certain("", Err(failure))]);
        for DeviceReport { device, availability, .. } in devices {
            // A device may bring a library of its own, whose version is in its description.
            let (version, library) = match device.as_str() {
                "cpu" => (entry.version, entry.library_version(&device)),
                _ => ("", String::new()),
            };
            let (state, detail) = match &availability {
                Ok(detail) => ("available", detail),
                Err(failure) => (failure.status.name(), &failure.message),
            };
            let path = entry.library_path(&device).map(|path| path.display().to_string()).unwrap_or_default();
            let from = if *detail == path { "" } else { &path };
            let name = format!("{} {device}", entry.name).trim_end().to_owned();
            let first = said.entry(detail.clone()).or_insert_with(|| name.clone());
            let again = (availability.is_err() && *first != name).then(|| format!("the same as for {first}"));
            table.row([entry.name, &device, state, &library, again.as_ref().unwrap_or(detail), from]);
            objects.push(json!({
                "backend": entry.name, "device": device, "available": availability.is_ok(), "detail": detail,
                "backend_version": version, "library_version": library, "library_path": path,
            }));
        }
    }
    for fact in facts(&machine.host_id, Some(&machine)) {
        table.footnote(format!("{}: {}", fact.name, fact.value));
    }
    Listing { table, objects: json!({ "machine": machine, "devices": objects }) }
}

fn list_peaks(peaks: &Peaks) -> Listing {
    let mut table = Table::new([Column::text("peak"), Column::number("measured")]);
    table.row(["multiplication of f32 matrices".into(), format!("{:.1} GFLOP/s", peaks.product_gflops_per_second)]);
    let copy = format!("copy of {:.0} MB", peaks.copied_bytes as f64 / 1e6);
    table.row([copy, format!("{:.1} GB/s", peaks.copy_gb_per_second)]);
    if let Some(share) = peaks.disturbed_share {
        table.footnote(format!("other load took {:.0} % of the processors meanwhile", 100.0 * share));
    }
    Listing { table, objects: json!(peaks) }
}

fn list_disturbances(paths: &Paths) -> Listing {
    let findings = examine(&Conditions::watch(paths));
    let mut table = Table::new([
        Column::text("state"),
        Column::text("subject").essential(),
        Column::text("detail").or_below(),
        Column::text("to fix").or_below(),
    ]);
    for finding in &findings {
        table.row([finding.state.into(), finding.subject, &finding.detail, finding.mend.unwrap_or_default()]);
    }
    Listing { table, objects: json!({ "findings": findings }) }
}

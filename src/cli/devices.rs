//! `inferbench devices`: which backends and devices there are here, and what would add the others; what would disturb a
//! measurement here; how fast the machine can be at best.

use clap::Args;
use serde_json::json;

use super::Listing;
use crate::backend::{self, DeviceReport, registry};
use crate::exit_codes;
use crate::harness::{Conditions, examine, keep_others_out};
use crate::machine::Machine;
use crate::measurement::peaks::calibrate;
use crate::paths::Paths;
use crate::report::table::{Column, Table};
use crate::report::{Format, facts};
use crate::run_data::Peaks;

/// Show backends and devices: whether they are available, why not, and what would add them
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench devices --format json\n  inferbench devices --doctor\n  inferbench devices --calibrate --threads 4"
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
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let paths = Paths::find();
    let listing = if arguments.doctor {
        list_disturbances(&paths)
    } else if arguments.calibrate {
        let machine = Machine::read();
        let threads = arguments.threads.map_or(machine.logical_processors, usize::from);
        let _lock = keep_others_out(&paths)?;
        list_peaks(&calibrate(&paths, &machine, threads)?)
    } else {
        list_devices()
    };
    listing.print(arguments.format);
    Ok(exit_codes::OK)
}

/// All devices, and below them the facts about the machine.
fn list_devices() -> Listing {
    let machine = Machine::read();
    let mut table = Table::new(["backend", "device", "state", "version", "detail"].map(Column::text));
    let mut objects = Vec::new();
    for entry in registry::real() {
        let devices = backend::tried_devices(entry)
            .unwrap_or_else(|failure| vec![DeviceReport::certain("", Err(failure.message))]);
        for DeviceReport { device, availability, .. } in devices {
            // A device may bring a library of its own, whose version is in its description.
            let (version, library) = match device.as_str() {
                "cpu" => (entry.version, entry.library_version(&device)),
                _ => ("", String::new()),
            };
            let (state, detail) = match &availability {
                Ok(detail) => ("available", detail),
                Err(reason) => ("unavailable", reason),
            };
            table.row([entry.name, &device, state, &library, detail]);
            objects.push(json!({
                "backend": entry.name, "device": device, "available": availability.is_ok(), "detail": detail,
                "backend_version": version, "library_version": library,
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
    table.row(["product of f32 matrices".into(), format!("{:.1} GFLOP/s", peaks.product_gflops_per_second)]);
    let copy = format!("copy of {:.0} MB", peaks.copied_bytes as f64 / 1e6);
    table.row([copy, format!("{:.1} GB/s", peaks.copy_gb_per_second)]);
    if let Some(share) = peaks.disturbed_share {
        table.footnote(format!("other work took {:.0} % of the processors meanwhile", 100.0 * share));
    }
    Listing { table, objects: json!(peaks) }
}

fn list_disturbances(paths: &Paths) -> Listing {
    let findings = examine(&Conditions::watch(paths));
    let mut table = Table::new(["state", "subject", "detail", "to mend"].map(Column::text));
    for finding in &findings {
        table.row([finding.state.into(), finding.subject, &finding.detail, finding.mend.unwrap_or_default()]);
    }
    Listing { table, objects: json!({ "findings": findings }) }
}

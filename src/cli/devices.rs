//! `inferbench devices`: which backends and devices there are here, and what would add the others.

use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing, doctor, print};
use crate::backend::{self, DeviceReport, Versions, registry};
use crate::exit_codes;
use crate::harness::{calibrate, keep_others_out};
use crate::machine::Machine;
use crate::paths::Paths;
use crate::report::facts;
use crate::report::table::{Column, Table};
use crate::run_data::Peaks;

/// Show backends and devices: available or not, why not, and what would add them
#[derive(Args)]
#[command(
    after_help = "Examples:\n  inferbench devices --format json\n  inferbench devices --doctor\n  inferbench devices --calibrate --threads 4"
)]
pub struct Arguments {
    /// Show instead what would disturb a measurement here, and how to mend it
    #[arg(long)]
    doctor: bool,
    /// Measure instead how fast this machine multiplies matrices and copies memory, which `roofline_percent` refers to
    #[arg(long, conflicts_with = "doctor")]
    calibrate: bool,
    /// With `--calibrate`: as many threads as runs use; as many as processors where it is not said
    #[arg(long, requires = "calibrate", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    if arguments.doctor {
        return doctor::run(arguments.format);
    }
    let machine = Machine::read();
    if arguments.calibrate {
        let threads = arguments.threads.map_or(machine.logical_processors, usize::from);
        let paths = Paths::find();
        let _lock = keep_others_out(&paths)?;
        let peaks = calibrate(&paths, &machine, threads)?;
        return list_peaks(&peaks).print(arguments.format).map(|()| exit_codes::OK);
    }
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for entry in registry::real() {
        let devices = backend::tried_devices(entry)
            .unwrap_or_else(|failure| vec![DeviceReport::certain("", Err(failure.message))]);
        for DeviceReport { device, availability, .. } in devices {
            // A device may bring a library of its own, whose version is in its description.
            let versions = if device == "cpu" {
                entry.backend().map(|backend| backend.versions(&device)).unwrap_or_default()
            } else {
                Versions::default()
            };
            let (state, detail) = match &availability {
                Ok(detail) => ("available", detail),
                Err(reason) => ("unavailable", reason),
            };
            objects.push(json!({
                "backend": entry.name, "device": device, "available": availability.is_ok(), "detail": detail,
                "backend_version": versions.backend, "library_version": versions.library,
            }));
            rows.push(vec![entry.name.to_owned(), device, state.to_owned(), versions.library, detail.clone()]);
        }
    }
    let listing = Listing {
        table: Table::new(["backend", "device", "state", "version", "detail"].map(Column::text)).with_rows(rows),
        objects: json!({ "machine": machine, "devices": objects }),
    };
    listing.print(arguments.format)?;
    if arguments.format == ListFormat::Table {
        print(&describe(&machine))?;
    }
    Ok(exit_codes::OK)
}

fn list_peaks(peaks: &Peaks) -> Listing {
    let best = peaks.product_gflops_per_second();
    let product = |size: usize, gflops: f64| {
        let percent = format!("{:.0} %", 100.0 * gflops / best);
        vec![format!("f32 product of {size} × {size}"), format!("{gflops:.1} GFLOP/s"), percent]
    };
    let mut rows: Vec<_> = peaks.products.iter().map(|it| product(it.size, it.gflops_per_second)).collect();
    let copy = format!("copy of {:.0} MB", peaks.copied_bytes as f64 / 1e6);
    rows.push(vec![copy, format!("{:.1} GB/s", peaks.copy_gb_per_second), String::new()]);
    let columns = [Column::text("peak"), Column::number("measured"), Column::number("of the best")];
    Listing { table: Table::new(columns).with_rows(rows), objects: json!(peaks) }
}

fn describe(machine: &Machine) -> String {
    let facts = facts(&machine.host_id, Some(machine));
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or_default() + 2;
    let lines: String = facts.iter().map(|fact| format!("{:<width$}{}\n", fact.name, fact.value)).collect();
    format!("\n{lines}")
}

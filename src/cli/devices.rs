//! `inferbench devices`: which backends and devices there are here, and what would add the others.

use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing, doctor, print};
use crate::backend::{self, NULL};
use crate::exit_codes;
use crate::harness::{Machine, calibrate, keep_others_out};
use crate::measurement::peaks::Peaks;
use crate::paths::Paths;
use crate::report::facts;

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

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    if arguments.doctor {
        return doctor::run(arguments.format);
    }
    let machine = Machine::read();
    if arguments.calibrate {
        let threads = arguments.threads.map_or(machine.logical_processors, usize::from);
        let paths = Paths::find();
        let _lock = keep_others_out(&paths).map_err(|error| format!("{error:#}"))?;
        let peaks = calibrate(&paths, &machine, threads).map_err(|error| format!("{error:#}"))?;
        return list_peaks(&peaks).print(arguments.format).map(|()| exit_codes::OK);
    }
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for (name, found) in backend::all() {
        if name == NULL {
            continue;
        }
        let reports = match found {
            Ok(backend) => {
                let versions = backend.versions("cpu");
                let devices = backend::tried_devices(backend);
                // A device may bring a library of its own, whose version is in its description.
                let of = |device: &str| if device == "cpu" { versions.clone() } else { backend::Versions::default() };
                devices
                    .into_iter()
                    .map(|report| (of(&report.device), report))
                    .map(|(versions, report)| (report.device, report.availability, versions))
                    .collect()
            }
            Err(reason) => vec![(String::new(), Err(reason), backend::Versions::default())],
        };
        for (device, availability, versions) in reports {
            let (state, detail) = match &availability {
                Ok(detail) => ("available", detail),
                Err(reason) => ("unavailable", reason),
            };
            objects.push(json!({
                "backend": name, "device": device, "available": availability.is_ok(), "detail": detail,
                "backend_version": versions.backend, "library_version": versions.library,
            }));
            rows.push(vec![name.to_owned(), device, state.to_owned(), versions.library, detail.clone()]);
        }
    }
    let listing = Listing {
        header: &["backend", "device", "state", "version", "detail"],
        rows,
        objects: json!({ "machine": machine, "devices": objects }),
    };
    listing.print(arguments.format)?;
    if arguments.format == ListFormat::Table {
        print(&describe(&machine))?;
    }
    Ok(exit_codes::OK)
}

fn list_peaks(peaks: &Peaks) -> Listing<'static> {
    let best = peaks.product_gflops_per_second();
    let product = |size: usize, gflops: f64| {
        let percent = format!("{:.0} %", 100.0 * gflops / best);
        vec![format!("f32 product of {size} × {size}"), format!("{gflops:.1} GFLOP/s"), percent]
    };
    let mut rows: Vec<_> = peaks.products.iter().map(|it| product(it.size, it.gflops_per_second)).collect();
    let copy = format!("copy of {:.0} MB", peaks.copied_bytes as f64 / 1e6);
    rows.push(vec![copy, format!("{:.1} GB/s", peaks.copy_gb_per_second), String::new()]);
    Listing { header: &["peak", "measured", "of the best"], rows, objects: json!(peaks) }
}

fn describe(machine: &Machine) -> String {
    let facts = facts(&machine.host_id, Some(machine));
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or_default() + 2;
    let lines: String = facts.iter().map(|fact| format!("{:<width$}{}\n", fact.name, fact.value)).collect();
    format!("\n{lines}")
}

//! `inferbench devices`: which backends and devices there are here, and what would add the others.

use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing, doctor, print};
use crate::backend::{self, NULL};
use crate::exit_codes;
use crate::harness::Machine;
use crate::report::facts;

/// Show backends and devices: available or not, why not, and what would add them
#[derive(Args)]
#[command(after_help = "Examples:\n  inferbench devices --format json\n  inferbench devices --doctor")]
pub struct Arguments {
    /// Show instead what would disturb a measurement here, and how to mend it
    #[arg(long)]
    doctor: bool,
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    if arguments.doctor {
        return doctor::run(arguments.format);
    }
    let machine = Machine::read();
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

fn describe(machine: &Machine) -> String {
    let facts = facts(&machine.host_id, Some(machine));
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or_default() + 2;
    let lines: String = facts.iter().map(|fact| format!("{:<width$}{}\n", fact.name, fact.value)).collect();
    format!("\n{lines}")
}

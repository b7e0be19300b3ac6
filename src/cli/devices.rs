//! `inferbench devices`: which backends and devices there are here, and what would add the others.

use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing, print};
use crate::backend::{self, NULL};
use crate::exit_codes;
use crate::harness::Machine;

/// Show backends and devices: available or not, why not, and what would add them
#[derive(Args)]
#[command(after_help = "Example:\n  inferbench devices --format json")]
pub struct Arguments {
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

pub fn run(arguments: &Arguments) -> Result<u8, String> {
    let machine = Machine::read();
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for (name, found) in backend::all() {
        if name == NULL {
            continue;
        }
        let reports = match found {
            Ok(backend) => {
                let versions = backend.versions();
                let devices = backend.devices();
                devices.into_iter().map(|report| (report.device, report.availability, versions.clone())).collect()
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
    let memory = machine.memory_bytes.map_or("unknown".into(), |bytes| format!("{:.1} GB", bytes as f64 / 1e9));
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    format!(
        "\nhost      {}\ncpu       {}, {} logical processors\nvectors   {}\nmemory    {memory}\nkernel    {} {}\n\
         governor  {}\nvirtual   {}\n",
        machine.host_id,
        or_unknown(&machine.cpu_model),
        machine.logical_processors,
        or_unknown(&machine.cpu_features),
        machine.os,
        or_unknown(&machine.kernel),
        or_unknown(&machine.governor),
        machine.hypervisor.map_or("unknown", |is_virtual| if is_virtual { "yes" } else { "no" }),
    )
}

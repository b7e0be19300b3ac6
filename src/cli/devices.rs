//! `inferbench devices`: which backends and devices there are here, and what would add the others.

use clap::Args;
use serde_json::json;

use super::{ListFormat, Listing, doctor, print};
use crate::backend::{self, NULL};
use crate::exit_codes;
use crate::harness::{Machine, calibrate, keep_others_out};
use crate::measurement::peaks::Peaks;
use crate::places::Places;

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
        let places = Places::find();
        let _lock = keep_others_out(&places)?;
        let peaks = calibrate(&places, &machine, threads)?;
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
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    let gigabytes =
        |bytes: Option<u64>| bytes.map_or("unknown".into(), |bytes| format!("{:.1} GB", bytes as f64 / 1e9));
    let switch = |on: Option<bool>| on.map_or("unknown", |on| if on { "on" } else { "off" });
    let cores = machine.physical_cores.map_or("unknown".into(), |cores| cores.to_string());
    let hypervisor = match (machine.hypervisor, &machine.hypervisor_name) {
        (Some(true), Some(name)) => name,
        (Some(true), None) => "yes",
        (Some(false), _) => "no",
        (None, _) => "unknown",
    };
    let mut lines = vec![
        ("host", machine.host_id.clone()),
        (
            "cpu",
            format!("{}, {} logical processors, {cores} cores", text(&machine.cpu_model), machine.logical_processors),
        ),
        ("vectors", text(&machine.cpu_features)),
        ("caches", text(&machine.caches)),
        ("memory", gigabytes(machine.memory_bytes)),
        ("kernel", format!("{} {}", machine.os, text(&machine.kernel))),
        ("governor", format!("{}, turbo {}", text(&machine.governor), switch(machine.turbo))),
        ("virtual", hypervisor.to_owned()),
        ("load", machine.load_average.map_or("unknown".into(), |load| format!("{load:.2}"))),
    ];
    if let Some(processors) = machine.container_processors {
        lines.push(("container", format!("{processors:.1} processors")));
    }
    if let Some(bytes) = machine.container_memory_bytes {
        lines.push(("container", gigabytes(Some(bytes))));
    }
    if let Some(gpus) = &machine.gpus {
        lines.push(("gpu", format!("{}, driver {}", gpus.join(", "), text(&machine.gpu_driver))));
    }
    let lines: String = lines.into_iter().map(|(name, value)| format!("{name:<10}{value}\n")).collect();
    format!("\n{lines}")
}

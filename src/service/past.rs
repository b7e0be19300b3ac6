//! Answers from the history. They have the same parameters, model, machine and versions, and are not too old.

use std::time::Duration;

use serde_json::{Value, json};

use super::asked::Asked;
use super::context::Context;
use super::devices::Found;
use super::failure::Failure;
use super::models::Chosen;
use super::queue::since;
use crate::backend;
use crate::definition::Status;
use crate::fixture::find_prepared;
use crate::history::{History, Run};
use crate::machine::Machine;
use crate::paths::Paths;
use crate::run_data::Record;

/// `90s`, `15m`, `1h` or `7d`.
///
/// # Errors
/// 422 if it is written differently.
pub fn age(text: &str) -> Result<Duration, Failure> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let read = |(unit, seconds): (&str, u64)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(seconds).map(Duration::from_secs)
    };
    let wrong = || Failure::parameter(format!("max_age: {text:?} is not an age; write 90s, 15m, 1h or 7d"));
    units.into_iter().find_map(read).ok_or_else(wrong)
}

/// The record of the last job with these parameters, if it still holds.
pub async fn find(context: &Context, asked: &Asked, chosen: &Chosen, found: &Found, age: Duration) -> Option<Record> {
    let job = context.queue.latest_done(asked, since(age))?;
    context.turn_to_read().await;
    let folder = context.paths.reports().join(job.id());
    let (paths, chosen, found) = (context.paths.clone(), chosen.clone(), found.clone());
    let reading = move || {
        let run = History::open(&[folder]).ok()?.latest().ok()?.clone();
        still_true(&run, &paths, &chosen, &found)
    };
    tokio::task::spawn_blocking(reading).await.ok().flatten()
}

fn still_true(run: &Run, paths: &Paths, chosen: &Chosen, found: &Found) -> Option<Record> {
    let manifest = run.manifest().ok()??;
    let record = run.records().ok()?.into_iter().next()?;
    let device = found.device(&record.backend, &record.device)?;
    let library = found.device(&record.backend, "cpu")?;
    let is_same =
        |known: &Option<String>, now: &str| known.as_deref().is_none_or(|known| known == now || now.is_empty());
    let is_of_this_build = manifest.inferbench_version == env!("CARGO_PKG_VERSION")
        && manifest.rustc_version == env!("INFERBENCH_RUSTC")
        && is_same(&record.backend_version, &library.backend_version)
        && (is_same(&record.library_version, &device.library_version)
            || is_same(&record.library_version, &library.library_version));
    let is_of_this_machine = found.machine["host_id"].as_str() == Some(&*record.host_id);
    let has_gpus = has_gpus_of(&manifest.machine, &record.device, &found.machine);
    if record.status != Status::Ok || !is_of_this_build || !is_of_this_machine || !has_gpus {
        return None;
    }
    let model = chosen.entry.model.as_ref().ok()?;
    let reads = backend::find(&record.backend).ok()?.reads();
    // A run that prepares a model may hold the lock of the prepared files for minutes.
    let artifacts = find_prepared(reads, model, &paths.prepared(), record.dtype).ok()??;
    let files = manifest.cases.first()?.files_sha256.clone()?;
    (artifacts.sha256_of_all().ok()? == files).then_some(record)
}

/// Whether the machine still has the GPUs and the driver of a measurement, if its device is not the CPU.
fn has_gpus_of(measured: &Machine, device: &str, now: &Value) -> bool {
    device == "cpu" || now["gpus"] == json!(measured.gpus) && now["gpu_driver"] == json!(measured.gpu_driver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::devices::Device;

    #[test]
    fn a_numbered_device_is_found_by_its_kind() {
        let device = |backend: &str, device: &str| Device {
            backend: backend.into(),
            device: device.into(),
            ..Device::default()
        };
        let devices = vec![device("ort", "cpu"), device("ort", "cuda"), device("candle", "cpu")];
        let found = Found { devices, ..Found::default() };
        let name = |backend: &str, device: &str| found.device(backend, device).map(|it| it.device.as_str());
        assert_eq!((name("ort", "cuda:1"), name("ort", "cuda")), (Some("cuda"), Some("cuda")));
        assert_eq!((name("candle", "cuda:1"), name("ort", "mps")), (None, None));
    }

    #[test]
    fn another_gpu_or_driver_makes_a_measurement_on_it_another_one() {
        let machine = |gpu: &str, driver: &str| Machine {
            gpus: Some(vec![gpu.into()]),
            gpu_driver: Some(driver.into()),
            ..Machine::default()
        };
        let now = serde_json::to_value(machine("H200", "570.86.15")).unwrap();
        let still = |device, gpu, driver| has_gpus_of(&machine(gpu, driver), device, &now);
        assert!(still("cuda:1", "H200", "570.86.15") && still("cpu", "L4", "535.1"));
        assert!(!still("cuda", "L4", "570.86.15") && !still("cuda", "H200", "535.1"));
    }

    #[test]
    fn an_age_has_a_unit() {
        assert_eq!(age("1h").unwrap(), Duration::from_secs(3600));
        assert_eq!(age("90s").unwrap(), Duration::from_secs(90));
        for wrong in ["", "1", "h", "-1h", "1.5h", "99999999999999999999d", "1 h"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}

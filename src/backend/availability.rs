//! Which devices are available here: the answers for the planner and for `inferbench devices`.

use super::interface::DeviceReport;
use super::probe::try_device;
use super::registry::{self, Entry};
use crate::definition::{CaseFailure, Dtype, Model, device_kind};
use crate::selection::Capabilities;

/// The devices of a backend. Those that need a probe have been probed, each in a process of its own.
///
/// # Errors
/// `unavailable`: this build does not have the backend.
pub fn tried_devices(entry: &'static Entry) -> Result<Vec<DeviceReport>, CaseFailure> {
    Ok(entry.backend()?.devices().into_iter().map(|report| tried(entry, report)).collect())
}

fn tried(entry: &'static Entry, report: DeviceReport) -> DeviceReport {
    if !report.needs_probe || report.availability.is_err() {
        return report;
    }
    DeviceReport { availability: try_device(entry, &report.device), ..report }
}

/// The registry's answers to the planner.
pub struct Registry;

impl Capabilities for Registry {
    fn check_device(&self, backend: &str, device: &str) -> Result<(), CaseFailure> {
        let entry = registry::entry(backend)?;
        let devices = entry.backend()?.devices();
        // The report of `cuda` holds for `cuda:1` until that one is loaded.
        let is_asked_for = |report: &&DeviceReport| report.device == device || report.device == device_kind(device);
        let asked = devices.iter().find(is_asked_for).cloned();
        let reason = match asked {
            None => format!("{backend} has no device {device:?}"),
            Some(asked) => match tried(entry, DeviceReport { device: device.to_owned(), ..asked }).availability {
                Ok(_) => return Ok(()),
                Err(reason) => reason,
            },
        };
        // A library that is installed is not yet a device.
        let tried = devices.into_iter().map(|report| tried(entry, report));
        let available = tried.filter(|report| report.availability.is_ok()).map(|report| report.device);
        let available = available.collect::<Vec<_>>().join(", ");
        let available = if available.is_empty() { "no device" } else { &available };
        Err(CaseFailure::unavailable(format!("{reason}; {backend} has {available} here")))
    }

    fn check_model(&self, backend: &str, model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        registry::find(backend)?.check_model(model, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Status;

    #[test]
    fn an_unknown_backend_and_an_absent_device_say_what_there_is() {
        let error = Registry.check_device("onnx", "cpu").unwrap_err();
        assert_eq!(error.status, Status::Unavailable);
        assert!(error.message.contains("there are ort, tch, candle"), "{error}");
        let error = Registry.check_device(registry::NULL, "cuda").unwrap_err();
        assert!(error.message.contains("null has cpu here"), "{error}");
    }
}

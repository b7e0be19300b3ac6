//! OpenVINO's library: loads it once, and reads its version and its devices.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{anyhow, bail};
use once_cell::sync::OnceCell;
use openvino::{Core, DeviceType, InferenceError, PropertyKey};

use crate::backend::failure::classify;
use crate::backend::interface::DeviceReport;
use crate::definition::CaseFailure;
use crate::paths::{Paths, variable};

/// The library of the release that `scripts/setup` pins.
const LIBRARY: &str = "libopenvino_c.so.2641";

fn library_path() -> PathBuf {
    match variable("INFERBENCH_OPENVINO_LIBRARY") {
        Some(path) => PathBuf::from(path),
        None => Paths::find().native().join("openvino").join(LIBRARY),
    }
}

/// OpenVINO's build number, such as `2026.4.1-22982-…`, after the library was loaded.
pub(super) fn build_number() -> anyhow::Result<&'static str> {
    static BUILD_NUMBER: OnceCell<String> = OnceCell::new();
    BUILD_NUMBER.get_or_try_init(|| read_build_number(&library_path())).map(String::as_str)
}

fn read_build_number(path: &Path) -> anyhow::Result<String> {
    if !path.is_file() {
        bail!(
            "OpenVINO is not at {}; get it with `scripts/setup openvino`, or set INFERBENCH_OPENVINO_LIBRARY to a \
             libopenvino_c of yours",
            path.display()
        );
    }
    // The error itself says only which call has failed, and its cause names the file.
    let broken = |error: libloading::Error| match error.source() {
        Some(cause) => anyhow!("{cause}"),
        None => anyhow!("{}: {error}", path.display()),
    };
    // The crate does not look for missing functions: it panics.
    // SAFETY: loading OpenVINO runs no code but its initialisers, and the function is not called through the symbol.
    unsafe {
        let library = libloading::Library::new(path).map_err(broken)?;
        library.get::<unsafe extern "C" fn()>(b"ov_get_openvino_version").map_err(broken)?;
    }
    // It also refuses releases whose numbers of element types are others than the crate's.
    openvino_sys::library::load_from(path).map_err(anyhow::Error::msg)?;
    Ok(openvino::version().build_number)
}

/// The process's one `Core`.
pub(super) fn core() -> Result<MutexGuard<'static, Core>, CaseFailure> {
    static CORE: OnceCell<Mutex<Core>> = OnceCell::new();
    let open = || -> anyhow::Result<Mutex<Core>> {
        build_number()?;
        Ok(Mutex::new(Core::new()?))
    };
    let core = CORE.get_or_try_init(open).map_err(|error| CaseFailure::unavailable(format!("{error:#}")))?;
    Ok(core.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn find_devices() -> Vec<DeviceReport> {
    let describe = |device: &str| {
        let name = device.to_uppercase();
        let described = core()?.get_property(&DeviceType::from(name.as_str()), &PropertyKey::DeviceFullName);
        let missing =
            |_| CaseFailure::unavailable(format!("OpenVINO finds no Intel {name} here; it needs Intel's driver"));
        described.map(|description| description.trim().to_owned()).map_err(missing)
    };
    let report = |device| DeviceReport::certain(device, describe(device));
    ["cpu", "gpu", "npu"].map(report).into()
}

/// The device of case ids: `gpu` for OpenVINO's `GPU` and `GPU.0`, which are the same.
pub(super) fn case_device(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_suffix(".0").map_or_else(|| name.clone(), str::to_owned)
}

impl From<InferenceError> for CaseFailure {
    fn from(InferenceError { kind, message }: InferenceError) -> Self {
        classify(message.filter(|message| !message.trim().is_empty()).unwrap_or_else(|| kind.to_string()))
    }
}

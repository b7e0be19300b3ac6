//! OpenVINO's library: loads it once, and reads its version and its devices.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::anyhow;
use once_cell::sync::OnceCell;
use openvino::{Core, DeviceType, InferenceError, PropertyKey};

use crate::backend::failure::classify;
use crate::backend::installed::{Environment, Installed, Search, file_beginning};
use crate::backend::interface::DeviceReport;
use crate::backend::native_library::broken;
use crate::definition::CaseFailure;
use crate::paths::Paths;

/// The beginning of the library's file name in Python's package and in `inferbench setup`.
const LIBRARY: &str = if cfg!(windows) { "openvino_c.dll" } else { "libopenvino_c." };

/// The environment whose library this process loads, if a backend was given one.
static PLACE: OnceCell<Option<&'static Path>> = OnceCell::new();

/// Binds this process to the library of an environment, or to the default one. Fails if it is bound to another.
pub(super) fn use_place(place: Option<&'static Path>) -> Result<(), CaseFailure> {
    let is_own = *PLACE.get_or_init(|| place) == place;
    if is_own { Ok(()) } else { Err(CaseFailure::failed("a process can load only one OpenVINO")) }
}

/// The library: named by `INFERBENCH_OPENVINO_LIBRARY`, in a Python environment, or from `inferbench setup`.
pub(super) fn library(place: Option<&Path>) -> Result<Installed, CaseFailure> {
    let in_environment = |environment: &Environment| file_beginning(&environment.package("openvino/libs")?, LIBRARY);
    let of_setup = || {
        let folder = Paths::find().native().join("openvino");
        Some(file_beginning(&folder, LIBRARY).unwrap_or_else(|| folder.join("libopenvino_c")))
    };
    let search = Search { key: "openvino", variable: Some("INFERBENCH_OPENVINO_LIBRARY"), environment: place };
    let found = search.find(in_environment, of_setup);
    if let Some(found) = found.as_ref().filter(|found| found.path.is_file()) {
        return Ok(found.clone());
    }
    Err(CaseFailure::unavailable(match place {
        Some(place) => format!("OpenVINO is not in {}: install the package openvino there", place.display()),
        None => format!(
            "OpenVINO is not at {}; get it with `{}`, or by `pip install openvino` in an active environment, or set \
             INFERBENCH_OPENVINO_LIBRARY to a libopenvino_c of yours",
            found.map(|found| found.path).unwrap_or_default().display(),
            Paths::find().setup_command("openvino")
        ),
    }))
}

/// OpenVINO's build number, such as `2026.4.1-22982-…`. Loads the library.
pub(super) fn build_number() -> anyhow::Result<&'static str> {
    static BUILD_NUMBER: OnceCell<String> = OnceCell::new();
    let read = || read_build_number(&library(*PLACE.get_or_init(|| None)).map_err(|it| anyhow!(it.message))?.path);
    BUILD_NUMBER.get_or_try_init(read).map(String::as_str)
}

fn read_build_number(path: &Path) -> anyhow::Result<String> {
    let broken = |error: libloading::Error| broken(&error, path);
    // The crate panics if a function is missing, so one is looked up first.
    // SAFETY: loading OpenVINO runs no code but its initialisers, and the function is not called through the symbol.
    unsafe {
        #[cfg(not(windows))]
        let library = libloading::Library::new(path).map_err(broken)?;
        // Its dependencies lie beside it. Once all are loaded, the crate finds them.
        #[cfg(windows)]
        let library = {
            use libloading::os::windows::{LOAD_WITH_ALTERED_SEARCH_PATH, Library};
            std::mem::ManuallyDrop::new(Library::load_with_flags(path, LOAD_WITH_ALTERED_SEARCH_PATH).map_err(broken)?)
        };
        library.get::<unsafe extern "C" fn()>(b"ov_get_openvino_version").map_err(broken)?;
    }
    // This also refuses releases whose element types have other numbers than the crate's.
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

pub(super) const DEVICES: [&str; 3] = ["cpu", "gpu", "npu"];

/// The full name of a device, as its driver gives it.
pub(super) fn describe(device: &str) -> Result<String, CaseFailure> {
    let name = own_name(device);
    let described = core()?.get_property(&DeviceType::from(name.as_str()), &PropertyKey::DeviceFullName);
    let missing = |_| CaseFailure::unavailable(format!("OpenVINO finds no Intel {name} here; it needs Intel's driver"));
    described.map(|description| description.trim().to_owned()).map_err(missing)
}

/// The devices of the library from `inferbench setup`, which is known to be complete. Other libraries are probed in
/// another process.
pub(super) fn find_devices() -> Vec<DeviceReport> {
    DEVICES.map(|device| DeviceReport::certain(device, describe(device))).into()
}

/// OpenVINO's name of a device of case ids: `GPU.1` for `gpu:1`.
pub(super) fn own_name(device: &str) -> String {
    device.to_uppercase().replace(':', ".")
}

/// The device of case ids: `gpu:1` for OpenVINO's `GPU.1`, and `gpu` for `GPU` and `GPU.0`, which are the same.
pub(super) fn case_device(name: &str) -> String {
    let name = name.to_lowercase();
    name.strip_suffix(".0").unwrap_or(&name).replace('.', ":")
}

impl From<InferenceError> for CaseFailure {
    fn from(InferenceError { kind, message }: InferenceError) -> Self {
        classify(message.filter(|message| !message.trim().is_empty()).unwrap_or_else(|| kind.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_environment_lacks_is_to_be_installed_there() {
        let folder = tempfile::tempdir().unwrap();
        let message = library(Some(folder.path())).unwrap_err().message;
        assert!(message.ends_with(": install the package openvino there"), "{message}");
    }

    #[test]
    fn a_number_of_a_device_is_written_as_openvino_has_it() {
        assert_eq!(["cpu", "gpu", "gpu:1"].map(own_name), ["CPU", "GPU", "GPU.1"]);
        assert_eq!(["CPU", "GPU.0", "GPU.1"].map(case_device), ["cpu", "gpu", "gpu:1"]);
        assert_eq!(case_device(&own_name("gpu:0")), case_device("GPU"));
    }
}

//! llama.cpp's library: loads it once, with ggml's backends beside it. A release other than the declared one is
//! refused.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use libloading::Library;
use once_cell::sync::OnceCell;

use super::declarations::{Device, Functions, Registration, ThreadPools};
use super::log::{last_kernels, log};
use crate::backend::installed::{Search, file_beginning};
use crate::backend::native_library::{broken, text_of};
use crate::definition::CaseFailure;
use crate::paths::Paths;

/// The release whose interface is declared.
const RELEASE: &str = "0.5.0";
/// The release of ggml that belongs to it.
const GGML_RELEASE: &str = "0.25.1";

/// The beginnings of the names of the libraries.
const LLAMA: &str = if cfg!(windows) { "llama." } else { "libllama." };
const GGML: &str = if cfg!(windows) { "ggml." } else { "libggml." };
const GGML_BASE: &str = if cfg!(windows) { "ggml-base." } else { "libggml-base." };

/// A folder with the libraries of llama.cpp, instead of the one that `inferbench setup` gets.
const VARIABLE: &str = "INFERBENCH_LLAMA_LIBRARY";

/// The loaded library.
pub(super) struct Llama {
    pub functions: Functions,
    pub thread_pools: ThreadPools,
    /// llama.cpp's own release, as the library reports it.
    pub version: String,
    /// The library of the CPU's kernels: `libggml-cpu-zen4.so`.
    pub kernels: String,
    /// They stay until the process ends.
    _libraries: Vec<Library>,
}

// SAFETY: the functions may be called by any thread, and each context is used by one thread.
unsafe impl Send for Llama {}
unsafe impl Sync for Llama {}

/// The library's folder: named by `INFERBENCH_LLAMA_LIBRARY`, or from `inferbench setup`.
pub(super) fn folder() -> Result<PathBuf, CaseFailure> {
    let of_setup = || Some(Paths::find().native().join("llama-cpp"));
    let search = Search { key: "llama-cpp", variable: Some(VARIABLE), environment: None };
    let found = search.find(|_| None, of_setup).map(|found| found.path).unwrap_or_default();
    if file_beginning(&found, LLAMA).is_some() {
        return Ok(found);
    }
    Err(CaseFailure::unavailable(format!(
        "llama.cpp is not in {}; get it with `{}`, or set {VARIABLE} to a folder with the libraries of llama.cpp {RELEASE}",
        found.display(),
        Paths::find().setup_command("llama-cpp")
    )))
}

/// The file of the library.
pub(super) fn file() -> Result<PathBuf, CaseFailure> {
    let folder = folder()?;
    Ok(file_beginning(&folder, LLAMA).unwrap_or(folder))
}

/// The library, which is loaded once per process.
///
/// # Errors
/// `unavailable`: it is missing, is another release, or cannot be loaded.
pub(super) fn llama() -> Result<&'static Llama, CaseFailure> {
    static LLAMA_CPP: OnceCell<Llama> = OnceCell::new();
    let open = || {
        let folder = folder()?;
        let opened = load(&folder).with_context(|| format!("llama.cpp in {}", folder.display()));
        opened.map_err(|why| CaseFailure::unavailable(format!("{why:#}")))
    };
    LLAMA_CPP.get_or_try_init(open)
}

fn load(folder: &Path) -> Result<Llama> {
    let open = |beginning: &str| -> Result<Library> {
        let path = file_beginning(folder, beginning).with_context(|| format!("it has no {beginning}*"))?;
        // SAFETY: loading these libraries runs no code but their initialisers.
        unsafe { Library::new(&path) }.map_err(|error| broken(&error, &path))
    };
    let libraries = vec![open(GGML_BASE)?, open(GGML)?, open(LLAMA)?];
    let functions = Functions::of(&libraries)?;
    // SAFETY: both take nothing and return a text that lives as long as the library.
    let [version, ggml] =
        unsafe { [(functions.llama_version)(), (functions.ggml_version)()].map(|version| text_of(version)) };
    let is_own = |found: &str, own: &str| found.split(['-', '+']).next() == Some(own);
    ensure!(
        is_own(&version, RELEASE) && is_own(&ggml, GGML_RELEASE),
        "it is release {version} with ggml {ggml}, and this inferbench needs {RELEASE} with ggml {GGML_RELEASE}"
    );
    let path = CString::new(folder.to_str().context("its path is not UTF-8")?)?;
    // SAFETY: the release is the one whose interface is declared.
    unsafe {
        (functions.llama_log_set)(log, std::ptr::null_mut());
        (functions.ggml_backend_load_all_from_path)(path.as_ptr());
        (functions.llama_backend_init)();
    }
    // The log does not name kernels that are a part of another library.
    let kernels = last_kernels().unwrap_or_else(|| "libggml-cpu".to_owned());
    let cpu = devices_of(&functions, "cpu").into_iter().next();
    let cpu = cpu.context("no libggml-cpu-* has kernels for this processor")?.registration;
    // SAFETY: these functions have these types in the release.
    let pools = unsafe {
        function_of(&functions, cpu, c"ggml_threadpool_new").zip(function_of(&functions, cpu, c"ggml_threadpool_free"))
    };
    let (new, free) = pools.context("its kernels have no thread pools")?;
    Ok(Llama { functions, thread_pools: ThreadPools { new, free }, version, kernels, _libraries: libraries })
}

/// A backend's own function of that name, if it has one.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn function_of<F: Copy>(functions: &Functions, of: *mut Registration, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the name ends with a zero, and a pointer to a function has the size of any other.
    unsafe {
        let found = (functions.ggml_backend_reg_get_proc_address)(of, name.as_ptr());
        (!found.is_null()).then(|| std::mem::transmute_copy::<*const c_void, F>(&found))
    }
}

/// A device of ggml.
pub(super) struct GgmlDevice {
    pub device: *mut Device,
    pub registration: *mut Registration,
    pub description: String,
}

/// The name of ggml's backend for a kind of device.
pub(super) fn ggml_name(kind: &str) -> Option<&'static str> {
    match kind {
        "cpu" => Some("CPU"),
        "cuda" => Some("CUDA"),
        "mps" => Some("MTL"),
        "vulkan" => Some("Vulkan"),
        _ => None,
    }
}

/// The devices of a kind, in ggml's order.
pub(super) fn devices_of(functions: &Functions, kind: &str) -> Vec<GgmlDevice> {
    let Some(name) = ggml_name(kind) else { return Vec::new() };
    let mut found = Vec::new();
    // SAFETY: devices are requested by numbers below their count, and live as long as the library.
    unsafe {
        for number in 0..(functions.ggml_backend_dev_count)() {
            let device = (functions.ggml_backend_dev_get)(number);
            let registration = (functions.ggml_backend_dev_backend_reg)(device);
            if text_of((functions.ggml_backend_reg_name)(registration)) == name {
                let description = text_of((functions.ggml_backend_dev_description)(device));
                found.push(GgmlDevice { device, registration, description });
            }
        }
    }
    found
}

//! Support for releases of ONNX Runtime that are older than the one for which the crate `ort` is built.
//!
//! The crate calls ONNX Runtime through a table of functions, to which newer releases only add. An older library gets a
//! table of the full length. Of the functions that it lacks, those that every session needs are implemented here; the
//! others return an error of ONNX Runtime's own kind. Newer libraries are called directly.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result, ensure};
use once_cell::sync::OnceCell;
use ort::sys::{
    ONNXTensorElementDataType, OrtApi, OrtApiBase, OrtDeviceMemoryType, OrtErrorCode, OrtMemoryInfo, OrtModelEditorApi,
    OrtSession, OrtStatusPtr, OrtValue,
};

/// The minor version of the oldest release that runs here.
pub const OLDEST: u32 = 17;

/// For each release that has added functions: its minor version, and where they begin in the table.
const ADDED: [(u32, usize); 5] = [
    (18, offset_of!(OrtApi, SessionOptionsAppendExecutionProvider_VitisAI)),
    (20, offset_of!(OrtApi, CreateLoraAdapter)),
    (22, offset_of!(OrtApi, ReleaseValueInfo)),
    (23, offset_of!(OrtApi, GetTensorSizeInBytes)),
    (24, offset_of!(OrtApi, TensorTypeAndShape_HasShape)),
];

/// The entry point of a library, which stays loaded.
fn entry(library: &Path) -> Result<&'static OrtApiBase> {
    // SAFETY: loading ONNX Runtime runs no code but its initialisers, and the symbol is its stable entry point.
    unsafe {
        let name = || library.display().to_string();
        let loaded = libloading::Library::new(library).with_context(name)?;
        let entry: libloading::Symbol<unsafe extern "C" fn() -> *const OrtApiBase> =
            loaded.get(b"OrtGetApiBase").with_context(name)?;
        let base = entry().as_ref().with_context(name)?;
        std::mem::forget(loaded);
        Ok(base)
    }
}

/// The version that a library reports.
pub fn version_of(library: &Path) -> Result<String> {
    // SAFETY: the field is a part of ONNX Runtime's stable entry point, and the string is static.
    let version = unsafe { CStr::from_ptr((entry(library)?.GetVersionString)()) };
    Ok(version.to_string_lossy().into_owned())
}

/// The minor version: 24 for `1.24.1`.
pub fn minor_of(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.split('.').next()?.parse().ok()
}

static TABLE: OnceCell<&'static OrtApi> = OnceCell::new();

/// Lets the crate use a library of that minor version, which is older than those that it loads itself.
///
/// # Errors
/// The library cannot be loaded, lacks the functions of its version, or the process uses another one.
pub fn use_library(library: &Path, minor: u32) -> Result<()> {
    let base = entry(library)?;
    // SAFETY: ONNX Runtime returns a table of the asked version, or null.
    let own = unsafe { (base.GetApi)(minor).as_ref() }.with_context(|| library.display().to_string())?;
    // An earlier attempt failed after this step. The next one has to reach the same error.
    if TABLE.get().is_some_and(|used| ptr::eq(*used, own)) {
        return Ok(());
    }
    let length = ADDED.iter().find(|(since, _)| *since > minor).map_or(size_of::<OrtApi>(), |(_, begin)| *begin);
    let mut table = MaybeUninit::<OrtApi>::uninit();
    // SAFETY: the table consists of pointers to functions: the library's own up to `length`, which its version has, and
    // `missing`.
    let mut table = unsafe {
        let places = fill(&mut table);
        ptr::copy_nonoverlapping(ptr::from_ref(own).cast::<u8>(), places.cast::<u8>(), length);
        // 1.22 has this function, but it ends the process.
        let place = offset_of!(OrtApi, SessionOptionsSetEpSelectionPolicy) / size_of::<usize>();
        places.add(place).write(missing as *const () as *const c_void);
        table.assume_init()
    };
    if minor < 22 {
        table.GetModelEditorApi = editor;
    }
    if minor < 24 {
        table.GetTensorElementTypeAndShapeDataReference = type_and_shape;
    }
    if minor < 23 {
        table.SessionGetMemoryInfoForInputs = memory_of_host;
        table.SessionGetMemoryInfoForOutputs = memory_of_host;
        table.MemoryInfoGetDeviceMemType = usual_memory;
    }
    ensure!(ort::set_api(table) && TABLE.set(own).is_ok(), "a process can use only one ONNX Runtime");
    Ok(())
}

/// Fills a table of functions with [`missing`] and returns its first place. `missing` takes no arguments, but may be
/// called with any: the caller passes and removes them.
fn fill<T>(table: &mut MaybeUninit<T>) -> *mut *const c_void {
    let places = table.as_mut_ptr().cast::<*const c_void>();
    for place in 0..size_of::<T>() / size_of::<*const c_void>() {
        // SAFETY: the table has this many places.
        unsafe { places.add(place).write(missing as *const () as *const c_void) };
    }
    places
}

/// A table of functions that edit models, all of them missing. The crate asks for it where it describes inputs, but can
/// do without.
unsafe extern "system" fn editor() -> *const OrtModelEditorApi {
    static EDITOR: OnceCell<OrtModelEditorApi> = OnceCell::new();
    EDITOR.get_or_init(|| {
        let mut table = MaybeUninit::uninit();
        fill(&mut table);
        // SAFETY: it consists of pointers to functions, and each is filled.
        unsafe { table.assume_init() }
    })
}

fn own() -> &'static OrtApi {
    TABLE.get().expect("the table was made with it")
}

/// Stands in for each function that the library lacks.
unsafe extern "system" fn missing() -> OrtStatusPtr {
    let message = c"this ONNX Runtime is too old for this function";
    // SAFETY: the message is a C string, which is copied.
    unsafe { (own().CreateStatus)(OrtErrorCode::ORT_NOT_IMPLEMENTED, message.as_ptr()) }
}

/// The element type and the sizes of a tensor. The sizes stay valid until the thread's next call; the crate copies
/// them.
unsafe extern "system" fn type_and_shape(
    value: *const OrtValue,
    element: *mut ONNXTensorElementDataType,
    sizes: *mut *const i64,
    count: *mut usize,
) -> OrtStatusPtr {
    thread_local! {
        static SIZES: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
    }
    let own = own();
    let mut info = ptr::null_mut();
    // SAFETY: the value is a tensor, the information is released, and the pointers are the caller's.
    unsafe {
        let status = (own.GetTensorTypeAndShape)(value, &mut info);
        if !status.0.is_null() {
            return status;
        }
        let status = (own.GetTensorElementType)(info, element);
        let status = if status.0.is_null() { (own.GetDimensionsCount)(info, count) } else { status };
        let status = SIZES.with_borrow_mut(|kept| {
            if !status.0.is_null() {
                return status;
            }
            kept.resize(*count, 0);
            *sizes = kept.as_ptr();
            (own.GetDimensions)(info, kept.as_mut_ptr(), *count)
        });
        (own.ReleaseTensorTypeAndShapeInfo)(info);
        status
    }
}

/// Host memory for each input or output. The crate asks for it to know when it may pass on a tensor without a copy.
unsafe extern "system" fn memory_of_host(
    _: *const OrtSession,
    memories: *mut *const OrtMemoryInfo,
    count: usize,
) -> OrtStatusPtr {
    use ort::sys::{OrtAllocatorType, OrtMemType};

    static HOST: OnceCell<usize> = OnceCell::new();
    let host = *HOST.get_or_init(|| {
        let mut made = ptr::null_mut();
        // SAFETY: the result is kept until the process ends.
        let _ = unsafe {
            (own().CreateCpuMemoryInfo)(OrtAllocatorType::OrtDeviceAllocator, OrtMemType::OrtMemTypeDefault, &mut made)
        };
        made as usize
    });
    for place in 0..count {
        // SAFETY: the caller has room for `count` entries.
        unsafe { memories.add(place).write(host as *const OrtMemoryInfo) };
    }
    OrtStatusPtr(ptr::null_mut())
}

unsafe extern "system" fn usual_memory(_: *const OrtMemoryInfo) -> OrtDeviceMemoryType {
    OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_grows_from_release_to_release() {
        assert!(ADDED.is_sorted() && ADDED.iter().all(|(_, begin)| *begin < size_of::<OrtApi>()));
        assert_eq!((ADDED[4].0, ort::MINOR_VERSION), (24, 24));
        assert_eq!(["1.17.0", "1.24.1", "2.0", "1.x"].map(minor_of), [Some(17), Some(24), None, None]);
    }

    #[test]
    fn what_is_no_onnx_runtime_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = format!("{:#}", version_of(file.path()).unwrap_err());
        assert!(error.starts_with(&file.path().display().to_string()), "{error}");
    }
}

//! Loads libtorch when the first case of this backend needs it. Other processes start faster and use less memory.
//!
//! `build.rs` makes a shared library of torch-sys's C++ functions, which is embedded in this executable. The functions'
//! names are jumps through a table, which [`load`] fills. Where `build.rs` cannot make the library, the executable is
//! linked with libtorch.

use std::ffi::{CStr, c_char};
use std::path::PathBuf;

use crate::definition::CaseFailure;

unsafe extern "C" {
    fn inferbench_libtorch_file() -> *const c_char;
}

/// The file of libtorch; `None` if it cannot be loaded, or the system does not say.
pub fn file() -> Option<PathBuf> {
    load().ok()?;
    // SAFETY: libtorch is loaded, which the function needs.
    let file = unsafe { inferbench_libtorch_file() };
    // SAFETY: the text stays as long as libtorch is loaded, and libtorch is never closed.
    (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) }.to_string_lossy().into_owned().into())
}

/// Loads libtorch, once per process.
pub fn load() -> Result<(), CaseFailure> {
    #[cfg(libtorch_at_run_time)]
    at_run_time::load().map_err(|error| CaseFailure::unavailable(format!("libtorch: {error:#}")))?;
    Ok(())
}

#[cfg(libtorch_at_run_time)]
mod at_run_time {
    use std::ffi::c_void;
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::ptr;

    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
    use once_cell::sync::OnceCell;

    const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtch.so"));
    const FUNCTIONS: &str = include_str!(concat!(env!("OUT_DIR"), "/libtorch-functions.txt"));

    std::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/libtorch.s")), options(att_syntax));

    unsafe extern "C" {
        /// The address of each function, in the order of [`FUNCTIONS`].
        static mut inferbench_libtorch_functions: [*const c_void; 0];
    }

    /// Every entry of the table points here before libtorch is loaded.
    #[unsafe(no_mangle)]
    extern "C" fn inferbench_libtorch_is_not_loaded() -> ! {
        eprintln!("a function of libtorch is called before libtorch is loaded");
        std::process::abort()
    }

    pub fn load() -> anyhow::Result<()> {
        static LOADED: OnceCell<Library> = OnceCell::new();
        LOADED.get_or_try_init(open).map(drop)
    }

    fn open() -> anyhow::Result<Library> {
        // SAFETY: the name is a C string, and the call returns a new descriptor or -1.
        let descriptor = unsafe { libc::memfd_create(c"libtch".as_ptr(), 0) };
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new and open, and nothing else owns it.
        let mut file = unsafe { std::fs::File::from_raw_fd(descriptor) };
        file.write_all(LIBRARY)?;
        // SAFETY: loading libtorch runs no code but its initialisers.
        let library = unsafe {
            // The library for GPUs registers itself. It exists only if `LD_LIBRARY_PATH` leads to another libtorch than
            // the build's.
            for gpu in ["libtorch_cuda.so", "libtorch_hip.so"] {
                if let Ok(library) = Library::open(Some(gpu), RTLD_LAZY | RTLD_GLOBAL) {
                    std::mem::forget(library);
                }
            }
            Library::open(Some(format!("/proc/self/fd/{}", file.as_raw_fd())), RTLD_LAZY | RTLD_LOCAL)?
        };
        for (index, name) in FUNCTIONS.lines().enumerate() {
            // SAFETY: the table has one place per name; nothing reads it before this function returns, because every
            // use of torch-sys comes after `load`. The library is never closed.
            unsafe {
                let function = library.get::<*const c_void>(name.as_bytes())?;
                let table = ptr::addr_of_mut!(inferbench_libtorch_functions).cast::<*const c_void>();
                table.add(index).write(*function);
            }
        }
        Ok(library)
    }
}

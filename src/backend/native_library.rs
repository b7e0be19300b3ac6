//! What the bindings of native libraries share.

use std::error::Error;
use std::ffi::{CStr, c_char};
use std::path::Path;

use anyhow::anyhow;

/// Why a library cannot be loaded. The error itself says only which call has failed, and its cause names the file.
pub(super) fn broken(error: &libloading::Error, path: &Path) -> anyhow::Error {
    match error.source() {
        Some(cause) => anyhow!("{cause}"),
        None => anyhow!("{}: {error}", path.display()),
    }
}

/// A text of a library; empty if there is none.
///
/// # Safety
/// `text` is null, or points to a text that ends with a zero.
pub(super) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

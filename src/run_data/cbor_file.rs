//! Files with one value in CBOR (RFC 8949), for what is too large for JSON.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use fs_err as fs;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes the file, and the folders that it lies in.
///
/// # Errors
/// The file cannot be written.
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let mut file = BufWriter::new(fs::File::create(path)?);
    ciborium::into_writer(value, &mut file).with_context(|| path.display().to_string())?;
    Ok(file.flush()?)
}

/// Reads the file. Returns `None` if there is none.
///
/// # Errors
/// The file cannot be read, or is not whole.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => ciborium::from_reader(bytes.as_slice()).with_context(|| path.display().to_string()).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

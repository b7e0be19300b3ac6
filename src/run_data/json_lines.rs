//! Files with one JSON document per line, to which lines are only ever added.
//!
//! Whatever ends a process (a crash, a signal, a full disk) damages at most the last line. A damaged line is left out when
//! the file is read, as are empty ones; each line begins with a line break, so that it is whole.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use fs_err::OpenOptions;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Adds a line and waits until it is on the disk.
///
/// # Errors
/// The file cannot be written.
pub fn append<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("\n{}", serde_json::to_string(value)?).as_bytes())?;
    Ok(file.file().sync_data()?)
}

/// Reads the lines that are whole; a file that is not there has none.
pub fn read<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    let bytes = fs_err::read(path).unwrap_or_default();
    bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_line_is_lost_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        assert_eq!(read::<u32>(&path), Vec::<u32>::new());
        append(&path, &1).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"\n\"\xff\"\n2").unwrap();
        append(&path, &3).unwrap();
        assert_eq!(read::<u32>(&path), [1, 2, 3]);
        file.write_all(b"\n{\"torn").unwrap();
        append(&path, &4).unwrap();
        assert_eq!(read::<u32>(&path), [1, 2, 3, 4]);
    }
}

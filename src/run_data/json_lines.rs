//! Files with one JSON document per line, to which lines are only ever added.
//!
//! Whatever ends a process (a crash, a signal, a full disk) damages at most the last line. A damaged line is left out when
//! the file is read, and the next one begins on a line of its own.

use std::io::{Read, Seek, SeekFrom, Write};
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
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let mut line = Vec::new();
    if !ends_with_newline(&mut file)? {
        line.push(b'\n');
    }
    serde_json::to_writer(&mut line, value)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.file().sync_data()?;
    Ok(())
}

/// Whether a new line can begin at the end of the file: it is empty, or its last line is whole.
fn ends_with_newline(file: &mut fs_err::File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
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
        file.write_all(b"\"\xff\"\n2").unwrap();
        append(&path, &3).unwrap();
        assert_eq!(read::<u32>(&path), [1, 2, 3]);
        file.write_all(b"{\"torn").unwrap();
        append(&path, &4).unwrap();
        assert_eq!(read::<u32>(&path), [1, 2, 3, 4]);
    }
}

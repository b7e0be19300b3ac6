//! A browser without a window, where there is one.

use std::path::Path;
use std::process::{Command, Stdio};

/// Opens a file, and gives what became of the page; none, with the reason printed, where there is no Chromium.
pub fn dump(page: &Path, hash: &str) -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&&str| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    let Some(name) = names.iter().find(is_there) else {
        eprintln!("left out: there is no Chromium here; on Debian: apt-get install chromium");
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(name)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}{hash}", page.display()))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{name} ended with {}", output.status);
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

//! A browser without a window, where there is one.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::left_out;

/// Keeps what a page complains about.
const LISTENER: &str = "<script>window.errors = []; addEventListener('error', (e) => errors.push(e.message)); \
    addEventListener('securitypolicyviolation', (e) => errors.push(e.violatedDirective)); \
    console.error = console.warn = (...words) => errors.push(words.join(' '));</script>";

/// Opens a copy of a page in a folder with a script in it, which puts what it saw into an element `seen`; none, with the reason printed,
/// where there is no Chromium.
pub fn read(page: &str, script: &str, folder: &Path, hash: &str) -> Option<Value> {
    let (before, after) = page.rsplit_once("</body>").unwrap();
    let before = before.replacen("<head>", &format!("<head>{LISTENER}"), 1);
    let file = folder.join("read.html");
    std::fs::write(&file, format!("{before}<script>{script}</script></body>{after}")).unwrap();
    let dom = dump(&file, hash)?;
    let (_, rest) = dom.split_once("<pre id=\"seen\">").unwrap_or_else(|| panic!("the page did not get ready:\n{dom}"));
    let text = rest.split_once("</pre>").unwrap().0.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&text).unwrap())
}

/// Opens a file, and gives what became of the page; none, with the reason printed, where there is no Chromium.
pub fn dump(page: &Path, hash: &str) -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&&str| {
        let found = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    let Some(name) = names.iter().find(is_there) else {
        left_out("there is no Chromium here; on Debian: apt-get install chromium");
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

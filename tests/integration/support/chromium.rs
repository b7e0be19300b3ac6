//! A browser without a window, where there is one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::{checkout, left_out};

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

/// Starts the Chromium of this machine, or else that of `scripts/setup browser`; none, with the reason printed, where neither opens a page.
pub fn command() -> Option<Command> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let of_setup = checkout().join(".native/browser");
    let start = |program: PathBuf| {
        let mut command = Command::new(&program);
        if program.starts_with(&of_setup) {
            // Libraries that a machine without another browser may lack.
            command.env("LD_LIBRARY_PATH", of_setup.join("lib"));
        }
        command
    };
    // One may say its version and start no process for a page.
    let opens_pages = |program: &PathBuf| {
        let opened = opened(&start(program.clone()), 20, "data:text/html,<p>ok");
        opened.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("<p>ok"))
    };
    let find = || {
        let names = ["chromium", "chromium-browser", "google-chrome"].map(PathBuf::from);
        names.into_iter().chain([of_setup.join("chromium")]).find(opens_pages)
    };
    let found = FOUND.get_or_init(find).clone();
    if found.is_none() {
        left_out("no Chromium opens a page here; get one with `scripts/setup browser`");
    }
    found.map(start)
}

/// What a browser says of a page, for which it gets so many seconds.
fn opened(browser: &Command, seconds: u32, address: &str) -> std::io::Result<Output> {
    let profile = tempfile::tempdir()?;
    // One that starts no process for the page waits for ever.
    let mut command = Command::new("timeout");
    command.arg(seconds.to_string()).arg(browser.get_program());
    for (name, value) in browser.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(address)
        .stderr(Stdio::null())
        .output()
}

/// Opens a file, and gives what became of the page; none, with the reason printed, where there is no Chromium.
pub fn dump(page: &Path, hash: &str) -> Option<String> {
    let browser = command()?;
    let output = opened(&browser, 300, &format!("file://{}{hash}", page.display())).unwrap();
    let ended = output.status;
    assert!(ended.success(), "{} ended with {ended}; 124 is after 300 s", browser.get_program().display());
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

//! A browser without a window, driven over two pipes as its developers' tools do it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::chromium;

/// How long the browser may take for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A page that was opened. Its browser ends with it.
pub struct Browser {
    process: Child,
    to: File,
    from: Receiver<Vec<u8>>,
    session: Value,
    messages: u64,
    /// What the page has complained about.
    pub complaints: Vec<String>,
    _folder: TempDir,
}

impl Browser {
    /// Starts a browser with an empty page; none, with the reason printed, where there is no Chromium.
    pub fn start() -> Option<Self> {
        let chromium = chromium::command()?;
        let folder = tempfile::tempdir().unwrap();
        let [to, from] = ["to", "from"].map(|name| folder.path().join(name));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        let start = "exec \"$4\" --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
            --disable-component-update --disable-sync --remote-debugging-pipe --user-data-dir=\"$1\" about:blank 3<\"$2\" 4>\"$3\"";
        let mut command = Command::new("sh");
        command.args(["-c", start, "sh"]).arg(folder.path().join("profile")).args([&to, &from]);
        command.arg(chromium.get_program());
        command.envs(chromium.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
        let to = File::options().write(true).open(to).unwrap();
        let answers = BufReader::new(File::open(from).unwrap()).split(0).map_while(Result::ok);
        let (sender, from) = channel();
        thread::spawn(move || answers.for_each(|answer| drop(sender.send(answer))));
        let mut browser =
            Browser { process, to, from, session: Value::Null, messages: 0, complaints: Vec::new(), _folder: folder };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        for domain in ["Log.enable", "Runtime.enable", "Page.enable"] {
            browser.call(domain, json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.messages += 1;
        let mut message = json!({ "id": self.messages, "method": method, "params": parameters });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.from.recv_timeout(end.saturating_duration_since(Instant::now()));
            let answer = answer.unwrap_or_else(|why| panic!("the browser does not answer to {method}: {why}"));
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.messages {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            match answer["method"].as_str() {
                Some("Log.entryAdded") if answer["params"]["entry"]["level"] == "error" => {
                    self.complaints.push(answer["params"]["entry"].to_string());
                }
                Some("Runtime.exceptionThrown") => self.complaints.push(answer["params"].to_string()),
                _ => {}
            }
        }
    }

    /// Opens an address.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// The value of an expression in the page, which may be a promise.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let key = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", key);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = Command::new("sh").args(["-c", &format!("kill -KILL -{} 2>/dev/null", self.process.id())]).status();
        let _ = self.process.wait();
    }
}

//! The devices of this machine, as `inferbench devices` finds them once when the server starts: to try them later would disturb a
//! measurement.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::command::read;
use crate::definition::{AUTO, device_kind};

/// A device of a backend.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    pub backend: String,
    pub device: String,
    pub available: bool,
    /// What it is, or why it is not available.
    pub detail: String,
    pub backend_version: String,
    pub library_version: String,
    /// The native library, or the program that has it; empty where there is none.
    #[serde(default)]
    pub library_path: String,
}

/// What `inferbench devices --format json` prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    pub machine: Value,
    pub devices: Vec<Device>,
}

const ASK_AGAIN_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Devices(watch::Sender<Option<Arc<Found>>>);

impl Devices {
    /// Finds out which devices there are; until it succeeds, again and again.
    pub async fn ask(&self) {
        let arguments = ["devices", "--format=json"].map(String::from);
        loop {
            let read = read(&arguments).await;
            let found = read.and_then(|output| {
                serde_json::from_slice(&output.stdout).map_err(|_| anyhow::anyhow!(output.last_words))
            });
            match found {
                Ok(found) => {
                    self.0.send_replace(Some(Arc::new(found)));
                    return;
                }
                Err(error) => eprintln!("inferbench: the devices are not known, and are looked for again: {error:#}"),
            }
            // Jobs need not wait: a case on a device that is not there says so.
            self.0.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert_default();
                is_first
            });
            sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// The devices are known without asking.
    #[cfg(fuzzing)]
    pub fn put(&self, found: Found) {
        self.0.send_replace(Some(Arc::new(found)));
    }

    /// Waits until the devices are known.
    pub async fn ready(&self) -> Arc<Found> {
        let mut found = self.0.subscribe();
        let found = found.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        found.unwrap_or_default()
    }
}

impl Found {
    /// Whether a backend has a device here.
    pub fn has(&self, backend: &str, device: &str) -> bool {
        // While none is known, the case itself says what is missing.
        device == AUTO
            || self.devices.is_empty()
            || self.of(backend).any(|it| it.available && (it.device == device || it.device == device_kind(device)))
    }

    /// The devices of a backend, whether or not they are available.
    pub fn of<'a>(&'a self, backend: &'a str) -> impl Iterator<Item = &'a Device> {
        self.devices.iter().filter(move |it| it.backend == backend)
    }

    /// The devices that some of these backends have here.
    pub fn available(&self, backends: &[impl AsRef<str>]) -> Vec<String> {
        let is_there = |it: &&Device| it.available && backends.iter().any(|name| name.as_ref() == it.backend);
        let names: BTreeSet<String> = self.devices.iter().filter(is_there).map(|it| it.device.clone()).collect();
        Vec::from_iter(names)
    }

    /// Why a backend does not have a device here.
    pub fn why_not(&self, backend: &str, device: &str) -> String {
        let known =
            self.of(backend).find(|it| it.device == device || it.device == device_kind(device) || it.device.is_empty());
        known.map_or_else(|| format!("{backend} has no device {device:?}"), |it| format!("{backend}: {}", it.detail))
    }
}

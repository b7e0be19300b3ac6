//! The devices of this machine. `inferbench devices` finds them once, when the server starts: trying them later would
//! disturb a measurement.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use indexmap::IndexSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::command::read;
use super::failure::Failure;
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
    /// The native library, or the program that has it; empty if there is none.
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
    /// Finds the devices, and tries again until that succeeds.
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
                Err(error) => eprintln!("inferbench: the devices cannot be listed, trying again: {error:#}"),
            }
            // Jobs need not wait: a case whose device is missing says so.
            self.0.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert_default();
                is_first
            });
            sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// Sets the devices without asking for them.
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
        // If no devices are known, the case itself says what is missing.
        device == AUTO || self.devices.is_empty() || self.device(backend, device).is_some_and(|it| it.available)
    }

    /// A device of a backend, whether or not it is available: by its name, or else by its kind (`cuda` for `cuda:1`).
    pub fn device(&self, backend: &str, device: &str) -> Option<&Device> {
        let named = |name: &str| self.devices.iter().find(|it| it.backend == backend && it.device == name);
        named(device).or_else(|| named(device_kind(device)))
    }

    /// The backends among these that have one of the devices here, each once.
    ///
    /// # Errors
    /// None has one; the message says why.
    pub fn having<'a>(&self, devices: &[String], backends: &[&'a str]) -> Result<IndexSet<&'a str>, Failure> {
        let is_there = |backend: &&&str| devices.iter().any(|device| self.has(backend, device));
        let there: IndexSet<&str> = backends.iter().filter(is_there).copied().collect();
        if there.is_empty() {
            let why_not = |backend| devices.iter().map(move |device| self.why_not(backend, device));
            let why: IndexSet<String> = backends.iter().copied().flat_map(why_not).collect();
            let message = format!("{} is not available: {}", devices.join(", "), Vec::from_iter(why).join("; "));
            let available_devices = Some(self.available(backends));
            return Err(Failure { available_devices, ..Failure::new(StatusCode::CONFLICT, message) });
        }
        Ok(there)
    }

    /// The devices that at least one of these backends has here.
    pub fn available(&self, backends: &[impl AsRef<str>]) -> Vec<String> {
        let is_there = |it: &&Device| it.available && backends.iter().any(|name| name.as_ref() == it.backend);
        let names: BTreeSet<String> = self.devices.iter().filter(is_there).map(|it| it.device.clone()).collect();
        Vec::from_iter(names)
    }

    /// Why a backend does not have a device here.
    pub fn why_not(&self, backend: &str, device: &str) -> String {
        let known = self.device(backend, device).or_else(|| self.device(backend, ""));
        known.map_or_else(|| format!("{backend} has no device {device:?}"), |it| format!("{backend}: {}", it.detail))
    }
}

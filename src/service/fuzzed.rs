//! The server on an in-memory connection that gets any bytes, for the fuzzer in `tests/fuzz`.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use super::Settings;
use super::context::Context;
use super::devices::{Device, Found};
use super::listener::answer;
use super::models::Models;
use super::queue::Queue;
use super::routes::router;
use crate::paths::Paths;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the server may wait for the rest of a request.
const PAUSE: Duration = Duration::from_millis(20);
/// The last request of every connection.
const LAST: &[u8] = b"\r\n\r\nGET /docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// An endpoint that answers requests and takes no job.
pub struct Endpoint {
    runtime: Runtime,
    router: Router,
}

impl Endpoint {
    /// # Errors
    /// The folder of jobs cannot be written.
    pub fn open(root: std::path::PathBuf) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let settings = Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            token: None,
            hosts: Vec::new(),
            places: 0,
            most_iterations: 1000,
            timeout_seconds: 60.0,
        };
        let paths = Paths::of(root);
        let (models, queue) = (Models::new(&paths)?, Queue::open(&paths, settings.places)?);
        let context = Context::new(paths, settings, models, queue);
        let cpu = |backend: &&str| Device {
            backend: (*backend).to_owned(),
            device: "cpu".into(),
            available: true,
            ..Device::default()
        };
        context.devices.put(Found { machine: Value::Null, devices: ["ort", "null"].iter().map(cpu).collect() });
        Ok(Endpoint { runtime, router: router(Arc::new(context)) })
    }

    /// The answers to the requests. Returns `None` if they take too long.
    pub fn answers(&self, requests: &[u8]) -> Option<Vec<u8>> {
        const ROOM: usize = 1 << 16;
        let (mut client, server) = duplex(ROOM);
        let mut all = Vec::new();
        let asked = async {
            let (mut answers, mut asking) = tokio::io::split(&mut client);
            let sending = async {
                for part in [requests, LAST] {
                    let _ = asking.write_all(part).await;
                }
                // In case a request announces a longer body.
                sleep(PAUSE).await;
                let _ = asking.shutdown().await;
                pending::<()>().await;
            };
            let answering = async { tokio::join!(answers.read_to_end(&mut all), answer(server, self.router.clone())) };
            tokio::select! {
                _ = answering => {}
                () = sending => {}
            }
        };
        self.runtime.block_on(async { timeout(PATIENCE, asked).await }).ok()?;
        Some(all)
    }
}

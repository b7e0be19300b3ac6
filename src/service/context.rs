//! What all requests and the queue share.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Settings;
use super::devices::Devices;
use super::failure::Failure;
use super::models::Models;
use super::pace::Pace;
use super::queue::Queue;
use crate::paths::Paths;

/// The time between two readings of the history while something is measured.
const BETWEEN_READINGS: Duration = Duration::from_secs(1);

pub struct Context {
    pub paths: Paths,
    pub settings: Settings,
    pub devices: Devices,
    pub models: Models,
    pub queue: Queue,
    /// The rate of requests while something is measured.
    pub pace: Pace,
    /// The rate of refused requests meanwhile.
    pub refusals: Pace,
    last_reading: Mutex<Option<Instant>>,
}

impl Context {
    pub fn new(paths: Paths, settings: Settings, models: Models, queue: Queue) -> Self {
        let (devices, pace, refusals) = (Devices::default(), Pace::default(), Pace::default());
        Context { paths, settings, devices, models, queue, pace, refusals, last_reading: Mutex::new(None) }
    }

    /// Checks that the history may be read now: reading takes processor time from a running measurement.
    ///
    /// # Errors
    /// 503 if something is measured and the history was read within the last second.
    pub fn may_read(&self) -> Result<(), Failure> {
        if self.queue.running().is_none() {
            return Ok(());
        }
        let mut last = self.last_reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.is_some_and(|last| last.elapsed() < BETWEEN_READINGS) {
            let message = "while a measurement runs, the history is read once per second; try again in 1 s";
            return Err(Failure::unavailable(message, 1));
        }
        *last = Some(Instant::now());
        Ok(())
    }

    /// Waits until the history may be read.
    pub async fn turn_to_read(&self) {
        while self.may_read().is_err() {
            sleep(BETWEEN_READINGS).await;
        }
    }
}

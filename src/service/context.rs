//! What all requests and the queue share.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Settings;
use super::devices::Devices;
use super::failure::Failure;
use super::models::Models;
use super::pace::Pace;
use super::queue::Queue;
use crate::paths::Paths;

/// While a case is measured, the history is read once in so long a time.
const BETWEEN_READINGS: Duration = Duration::from_secs(1);

pub struct Context {
    pub paths: Paths,
    pub settings: Settings,
    pub devices: Devices,
    pub models: Models,
    pub queue: Queue,
    /// The rate of requests while something is measured.
    pub pace: Pace,
    /// The same for requests that are refused.
    pub refusals: Pace,
    last_reading: Mutex<Option<Instant>>,
}

impl Context {
    pub fn new(paths: Paths, settings: Settings, models: Models, queue: Queue) -> Self {
        let (devices, pace, refusals) = (Devices::default(), Pace::default(), Pace::default());
        Context { paths, settings, devices, models, queue, pace, refusals, last_reading: Mutex::new(None) }
    }

    /// Whether the history may be read now: that takes processor time of the measurement that runs.
    ///
    /// # Errors
    /// 503, if it was read a moment ago.
    pub fn may_read(&self) -> Result<(), Failure> {
        if self.queue.running().is_none() {
            return Ok(());
        }
        let mut last = self.last_reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.is_some_and(|last| last.elapsed() < BETWEEN_READINGS) {
            return Err(Failure::unavailable("while a measurement runs, the history is read once per second", 1));
        }
        *last = Some(Instant::now());
        Ok(())
    }
}

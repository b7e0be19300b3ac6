//! Measurements over HTTP on a machine that a team shares, and a page for them.
//!
//! It takes requests. It gives answers, events and pages. It measures nothing in its own process.
//!
//! A measurement is a job: a process of `inferbench run` in its own process group. Isolation, verification, the lock of
//! the machine and the history are those of any run. One job runs at a time.
//!
//! ```text
//! request ─▶ guard ─▶ routes ─▶ models, asked ─▶ queue ─▶ measuring ─▶ (inferbench run) ─▶ the history
//!                       ▲                           │                         │
//!                       └── answer, events ◀── job ◀── progress ◀── outcomes of the run
//! ```
//!
//! The server's runtime has one thread. While a case is timed, it sleeps until the run prints a line or a request
//! comes.

mod answer;
mod asked;
mod benchmark;
mod command;
mod context;
mod devices;
mod failure;
#[cfg(fuzzing)]
pub mod fuzzed;
mod guard;
mod job;
mod listener;
mod listing;
mod measuring;
mod models;
mod openapi;
mod pace;
mod page;
mod past;
mod progress;
mod queue;
mod routes;
mod runs;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};

use self::context::Context;
use self::models::Models;
use self::queue::Queue;
use crate::exit_codes;
use crate::paths::Paths;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// The token that each request needs. Without one, the server listens on loopback addresses only.
    pub token: Option<String>,
    /// Names by which clients may call the server, besides `localhost` and addresses.
    pub hosts: Vec<String>,
    /// The most jobs that may wait.
    pub places: usize,
    pub most_iterations: usize,
    /// Seconds after which a case is stopped.
    pub timeout_seconds: f64,
}

/// Serves until SIGTERM or Ctrl-C. The address is printed when the server is ready for requests.
///
/// # Errors
/// The address is not loopback and there is no token, it is in use, or the folder of jobs cannot be written.
pub fn serve(paths: Paths, settings: Settings) -> Result<u8> {
    anyhow::ensure!(
        settings.listen.ip().is_loopback() || settings.token.is_some(),
        "{} can be reached from other machines: name a file with a token by `--token FILE`, or listen on 127.0.0.1",
        settings.listen
    );
    // One further thread reads files and reports. The other processors are left to the measurement.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(settings.listen).await;
        let listener = listener.with_context(|| format!("listening on {}", settings.listen))?;
        let address = listener.local_addr()?;
        let models = Models::new(&paths)?;
        let queue = Queue::open(&paths, settings.places)?;
        let context = Arc::new(Context::new(paths, settings, models, queue));
        let of_devices = context.clone();
        let asking = tokio::spawn(async move { of_devices.devices.ask().await });
        let measuring = tokio::spawn(measuring::work(context.clone()));
        println!("http://{address}");
        listener::listen(listener, context, measuring).await;
        asking.abort();
        Ok(exit_codes::OK)
    })
}

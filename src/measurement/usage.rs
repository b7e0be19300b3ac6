//! What a loaded case uses besides time: memory and energy, over calls that nobody times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::energy;
use super::memory;
use super::nvml::Gpu;
use super::timed_calls::TimedSession;
use crate::definition::CaseFailure;
use crate::run_data::{MemoryUsage, Usage};

/// How long the calls are watched at the least, and how often.
const WATCH: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Calls at the least: every batch of the ring, and the allocator's reuse of what the first have left.
const FEWEST_CALLS: u64 = 8;

/// Makes some calls and notes what they use. The first call has been made.
///
/// # Errors
/// A call fails.
pub fn watch(
    session: &mut TimedSession,
    device: &str,
    batch_size: usize,
    budget_seconds: f64,
) -> Result<Usage, CaseFailure> {
    let gpu = Gpu::open(device).and_then(Result::ok);
    let (memory, device_peak_bytes) = watch_memory(session, gpu, Duration::from_secs_f64(budget_seconds))?;
    let energy = energy::measure(session, device, batch_size)?.map_err(|error| format!("{error:#}"));
    Ok(Usage { memory, device_peak_bytes, energy })
}

fn watch_memory(
    session: &mut TimedSession,
    gpu: Option<Gpu>,
    at_most: Duration,
) -> Result<(Option<MemoryUsage>, Option<u64>), CaseFailure> {
    let loading_peak_bytes = memory::peak_bytes();
    let is_reset = memory::reset_peak().is_ok();
    let loaded_bytes = memory::resident_bytes();
    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || look_until(&is_over, gpu.as_ref())
    });
    let start = Instant::now();
    let mut called = Ok(());
    let mut calls = 0;
    while called.is_ok()
        && (calls < FEWEST_CALLS || start.elapsed() < WATCH)
        && (calls < 2 || start.elapsed() < at_most)
    {
        called = session.call(1).map(drop);
        calls += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    let (average_bytes, device_peak_bytes) = watcher.join().unwrap_or_default();
    called?;
    let all = loaded_bytes.zip(average_bytes).zip(memory::peak_bytes());
    let memory = all.map(|((loaded_bytes, average_bytes), peak_bytes)| MemoryUsage {
        loaded_bytes,
        average_bytes,
        peak_bytes: peak_bytes.max(loading_peak_bytes.unwrap_or(0)),
        calls_peak_bytes: is_reset.then_some(peak_bytes),
    });
    Ok((memory, device_peak_bytes))
}

/// The mean of looks at the resident set and the largest of those at the GPU, until it is over.
fn look_until(is_over: &AtomicBool, gpu: Option<&Gpu>) -> (Option<u64>, Option<u64>) {
    let (mut sum, mut looks, mut device_peak) = (Some(0), 0, None);
    loop {
        sum = sum.zip(memory::resident_bytes()).map(|(sum, bytes)| sum + bytes);
        looks += 1;
        device_peak = device_peak.max(gpu.and_then(Gpu::own_memory_bytes));
        if is_over.load(Ordering::Relaxed) {
            return (sum.map(|sum| sum / looks), device_peak);
        }
        thread::sleep(LOOK_EVERY);
    }
}

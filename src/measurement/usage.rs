//! What a loaded case uses besides time: memory and energy, over calls that do not count as measurements.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::energy;
use super::memory::{self, megabytes};
use super::nvml::Gpu;
use super::timed_calls::TimedSession;
use crate::definition::CaseFailure;
use crate::run_data::Record;

/// The minimum time for which calls are watched, and the time between looks.
const WATCH: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The minimum number of calls: then the allocator reuses what the first calls have left.
const FEWEST_CALLS: u64 = 8;

/// Makes some calls and notes in the case's row what they use. `loaded_bytes` is the resident set before the first
/// call, which was made earlier.
pub fn watch(
    session: &mut TimedSession,
    loaded_bytes: Option<u64>,
    row: &mut Record,
    budget_seconds: f64,
) -> Result<(), CaseFailure> {
    let gpu = Gpu::open(&row.device).and_then(Result::ok);
    watch_memory(session, loaded_bytes, gpu, Duration::from_secs_f64(budget_seconds), row)?;
    energy::measure(session, row)
}

/// Notes the memory of this process. It has loaded only this case, so its figures replace those of the process that
/// measured this case after others.
fn watch_memory(
    session: &mut TimedSession,
    loaded_bytes: Option<u64>,
    gpu: Option<Gpu>,
    at_most: Duration,
    row: &mut Record,
) -> Result<(), CaseFailure> {
    let loading_peak_bytes = memory::peak_bytes();
    let is_reset = memory::reset_peak().is_ok();
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
        // A list of the parts of all calls would count as memory of the case.
        session.take_parts();
        calls += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    let (seen, device_peak_bytes) = watcher.join().unwrap_or_default();
    called?;
    row.device_memory_mb = device_peak_bytes.map(megabytes);
    let told_peak = memory::peak_bytes();
    if let (Some(loaded), Some((average, largest))) = (loaded_bytes, seen) {
        let peak = told_peak.map_or(largest, |peak| peak.max(largest));
        row.memory_mb = Some(megabytes(peak.max(loading_peak_bytes.unwrap_or(0))));
        row.memory_avg_mb = Some(megabytes(average));
        row.memory_growth_mb = is_reset.then(|| megabytes(peak.saturating_sub(loaded)));
        row.memory_kind = Some(told_peak.map_or("own-process-seen-rss", |_| "own-process-peak-rss").into());
    }
    Ok(())
}

/// The mean and the largest resident set, and the largest memory on the GPU, of regular looks until `is_over`.
fn look_until(is_over: &AtomicBool, gpu: Option<&Gpu>) -> (Option<(u64, u64)>, Option<u64>) {
    let (mut seen, mut looks, mut device_peak) = (Some((0, 0)), 0, None);
    loop {
        seen = seen.zip(memory::resident_bytes()).map(|((sum, largest), bytes)| (sum + bytes, bytes.max(largest)));
        looks += 1;
        device_peak = device_peak.max(gpu.and_then(Gpu::own_memory_bytes));
        if is_over.load(Ordering::Relaxed) {
            return (seen.map(|(sum, largest)| (sum / looks, largest)), device_peak);
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::NullSession;
    use crate::definition::Dtype;

    #[test]
    fn the_parts_of_watched_calls_are_not_kept() {
        let mut session = TimedSession::from_host(Box::new(NullSession::new(Dtype::F32)), vec![Vec::new()]);
        watch_memory(&mut session, Some(0), None, Duration::ZERO, &mut Record::default()).unwrap();
        assert!(session.take_parts().is_empty());
    }
}

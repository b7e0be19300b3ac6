//! The worker of an arm: loads one case and times a slice of calls whenever the driver asks for one.

use std::hint::spin_loop;
use std::io::{Write, stdin, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::loaded_case::{LoadedCase, Worker};
use crate::compare::SliceLength;
use crate::definition::CaseFailure;
use crate::harness::protocol::{ArmAnswer, ArmReady, Handicap, Job, SliceFigures, WARM_UP, WorkItem};
use crate::machine::processes::{end_with_parent, resume_workers, suspend_workers};
use crate::machine::{
    confine_process, confine_thread, displace_mappings, pin_busiest, thread_affinities, thread_times,
};
use crate::measurement::{CallTimes, TimedSession, unwinding};
use crate::run_data::Outcome;
use crate::run_data::files::read_json;

/// One part in this many of a slice's time passes before its first counted call, so that the caches hold the arm's data
/// again.
const SETTLING: u32 = 4;
/// Without this limit, a duel of long calls would be mostly warm-up. An incomplete warm-up slows all arms of a row
/// alike.
const WARM_UP_AT_MOST: Duration = Duration::from_millis(200);
/// The mean of this many groups counts if the runtime times calls in groups: one group may be only a hundred steps of a
/// coarse clock.
const GROUPS: u64 = 4;
/// Initial room for the times of calls; a slice with more calls allocates between two calls, not during one.
const ROOM: usize = 1 << 16;

/// Runs an arm until its input ends. With `load_on`, it loads the case on these processors, and waits for the order to
/// warm up on its own processors. A failure of the case is an answer, not an error.
///
/// # Errors
/// The job cannot be read, or the driver is gone or asks for something unknown.
pub fn run_arm(job: &Path, handicap: Option<Handicap>, load_on: &[usize]) -> Result<()> {
    end_with_parent();
    displace_mappings();
    let job: Job = read_json(job)?;
    let [item] = job.work.as_slice() else { bail!("the job of an arm has {} cases, and not one", job.work.len()) };
    let processors = if load_on.is_empty() { &job.processors } else { load_on };
    let loaded = match unwinding(|| load(&job, item, processors)) {
        Ok(loaded) => loaded,
        Err(failure) => return answer(&ArmAnswer::Failed(failure)),
    };
    let mut lines = stdin().lines();
    if !load_on.is_empty() {
        answer(&ArmAnswer::Loaded)?;
        let Some(line) = lines.next() else { return Ok(()) };
        let line = line?;
        resume_workers();
        ensure!(line == WARM_UP, "an arm that waits for its warm-up was told {line:?}");
        confine_process(&job.processors)?;
    }
    let mut arm = match unwinding(|| Arm::warmed_up(loaded, &job.processors, handicap)) {
        Ok(arm) => arm,
        Err(failure) => return answer(&ArmAnswer::Failed(failure)),
    };
    answer(&ArmAnswer::Ready(ArmReady { call_ns: arm.call_ns, affinities: thread_affinities() }))?;
    for line in lines {
        let line = line?;
        resume_workers();
        let length = line.strip_prefix("slice ").and_then(|length| length.parse().ok());
        let length = length.with_context(|| format!("an arm was told {line:?}, which it does not know"))?;
        match unwinding(|| arm.slice(length)) {
            Ok(figures) => answer(&ArmAnswer::Slice(figures))?,
            Err(failure) => return answer(&ArmAnswer::Failed(failure)),
        }
    }
    Ok(())
}

/// Prints an answer on a line of its own, even if a library has left a line open.
fn answer(answer: &ArmAnswer) -> Result<()> {
    // The driver suspends this process, but not the processes that compute for it.
    suspend_workers();
    let line = format!("\n{}\n", answer.to_line()?);
    let mut out = stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

struct Arm {
    session: TimedSession,
    handicap: Option<Handicap>,
    /// Expected nanoseconds of a call.
    call_ns: u64,
}

/// Loads the case with its threads on these processors, or on any if there are none.
fn load(job: &Job, item: &WorkItem, processors: &[usize]) -> Result<LoadedCase, CaseFailure> {
    if !processors.is_empty() {
        // Threads that are started from now on inherit this.
        confine_thread(processors)?;
    }
    Worker::new(job).load(item, &mut Outcome::new(item.row.clone()))
}

impl Arm {
    /// Warms the case up, and pins its threads to these processors.
    fn warmed_up(mut loaded: LoadedCase, pins: &[usize], handicap: Option<Handicap>) -> Result<Self, CaseFailure> {
        let before = thread_times();
        let warm_up = loaded.warm_up_by(0, WARM_UP_AT_MOST, |session| time_calls(session, 1, handicap))?;
        pin_busiest(&before, pins)?;
        Ok(Arm { session: loaded.session, handicap, call_ns: warm_up.expected_call_ns() })
    }

    /// Times the calls of a slice; at least one is counted.
    fn slice(&mut self, SliceLength { ns, dropped, counted }: SliceLength) -> Result<SliceFigures, CaseFailure> {
        let length = Duration::from_nanos(ns);
        let mut calls = Vec::with_capacity(if ns == 0 { counted } else { ROOM });
        let is_short = Duration::from_nanos(self.call_ns) * SETTLING < length;
        let settling = if is_short { length / SETTLING } else { Duration::ZERO };
        // This process times calls with a handicap, and its clock needs no groups.
        let together = if self.handicap.is_some() { 1 } else { self.session.calls_together() };
        let groups = if together > 1 { GROUPS } else { 1 };
        let mut time = |calls: u64| time_calls(&mut self.session, calls, self.handicap);
        let start = Instant::now();
        for _ in 0..(dropped as u64).div_ceil(together) {
            time(together)?;
        }
        while start.elapsed() < settling {
            time(together)?;
        }
        while calls.len() < counted.max(1) || start.elapsed() < length {
            let times = time(groups * together)?;
            let mean = times.iter().sum::<u64>() / times.len().max(1) as u64;
            calls.extend(times.iter().map(|_| mean));
        }
        // The parts of calls are not reported.
        self.session.take_parts();
        let figures = SliceFigures::of(&calls).ok_or_else(|| CaseFailure::failed("no call was made"))?;
        // The calls of a group have no times of their own.
        Ok(if groups > 1 { SliceFigures { calls_ns: Vec::new(), ..figures } } else { figures })
    }
}

/// Times this many calls. A handicap is added to each by spinning at its end.
fn time_calls(session: &mut TimedSession, calls: u64, handicap: Option<Handicap>) -> Result<CallTimes, CaseFailure> {
    let Some(Handicap { slowdown_ppm, least_call_ns }) = handicap else { return session.call(calls) };
    let (factor, least) = (1.0 + f64::from(slowdown_ppm) / 1e6, Duration::from_nanos(least_call_ns));
    session.prolonged_call(calls, |begin| {
        let until = begin.elapsed().max(least).mul_f64(factor);
        while begin.elapsed() < until {
            spin_loop();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Placement, Session, Turn};
    use crate::fixture::HostTensor;

    /// A runtime that times three calls together. In each request, a call of the first group takes 1 µs, of the second
    /// 2 µs, and so on.
    struct Grouped;

    impl Session for Grouped {
        fn bind(&mut self, _: &[HostTensor]) -> Result<usize, CaseFailure> {
            Ok(0)
        }
        fn run(&mut self, _: usize) -> Result<(), CaseFailure> {
            Ok(())
        }
        fn run_timed(&mut self, turns: &mut dyn Iterator<Item = Turn>) -> Option<Result<Vec<u64>, CaseFailure>> {
            Some(Ok((0..turns.count() as u64).map(|call| 1000 * (1 + call / 3)).collect()))
        }
        fn outputs(&mut self, _: usize) -> Result<Vec<HostTensor>, CaseFailure> {
            Ok(Vec::new())
        }
        fn has_own_clock(&self) -> bool {
            true
        }
        fn placement(&self) -> Placement {
            Placement { together: Some(3), ..Placement::default() }
        }
    }

    #[test]
    fn a_slice_of_calls_that_are_timed_in_groups_has_the_mean_of_several_groups() {
        let slice = |handicap| {
            let mut arm = Arm { session: TimedSession::new(Box::new(Grouped), 1), handicap, call_ns: 1000 };
            arm.slice(SliceLength::of_calls(1)).unwrap()
        };
        let grouped = slice(None);
        assert_eq!((grouped.calls, grouped.median_ns, grouped.mean_ns), (12, 2500.0, 2500.0));
        assert!(grouped.calls_ns.is_empty());
        // With a handicap, each call is timed by this process.
        let slowed = slice(Some(Handicap { slowdown_ppm: 0, least_call_ns: 50_000 }));
        assert!(slowed.calls == 1 && slowed.median_ns >= 50_000.0, "{slowed:?}");
    }
}

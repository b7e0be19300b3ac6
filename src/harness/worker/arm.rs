//! The worker of an arm: loads one case and times a slice of calls whenever the driver asks for one.

use std::hint::spin_loop;
use std::io::{Write, stdin, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::case_outcome::unwinding;
use super::loaded_case::{self, Fixtures};
use crate::definition::CaseFailure;
use crate::harness::protocol::{ArmAnswer, ArmReady, Handicap, Job, SliceFigures, WorkItem};
use crate::machine::{confine_thread, displace_mappings, pin_busiest, thread_affinities, thread_times};
use crate::measurement::{CallTimes, TimedSession};
use crate::run_data::Observed;

/// One part of so many of a slice passes before its first counted call, so that the caches are the arm's own again.
const SETTLING: u32 = 4;
/// What there is room for at first; a slice with more calls allocates between two of them, and not in one.
const ROOM: usize = 1 << 16;

/// Does an arm's part, until its input ends. What goes wrong with the case is an answer, and not an error.
///
/// # Errors
/// The job cannot be read, or the driver is gone or asks for something unknown.
pub fn run_arm(job: &Path, handicap: Option<Handicap>) -> Result<()> {
    end_with_driver()?;
    displace_mappings();
    let job = Job::read(job)?;
    let [item] = job.work.as_slice() else { bail!("the job of an arm has {} cases, and not one", job.work.len()) };
    let (mut session, call) = match unwinding(|| load(&job, item, handicap)) {
        Ok(loaded) => loaded,
        Err(failure) => return answer(&failed(failure)),
    };
    let call_ns = u64::try_from(call.as_nanos()).unwrap_or(u64::MAX);
    answer(&ArmAnswer::Ready(ArmReady { call_ns, affinities: thread_affinities() }))?;
    for line in stdin().lines() {
        let line = line?;
        let length = line.strip_prefix("slice ").and_then(|length| length.parse().ok());
        let length = length.with_context(|| format!("an arm was told {line:?}, which it does not know"))?;
        match unwinding(|| slice(&mut session, handicap, Duration::from_nanos(length), call)) {
            Ok(figures) => answer(&ArmAnswer::Slice(figures))?,
            Err(failure) => return answer(&failed(failure)),
        }
    }
    Ok(())
}

/// Prints an answer on a line of its own, even if a library has left a line open.
fn answer(answer: &ArmAnswer) -> Result<()> {
    let line = format!("\n{}\n", answer.to_line()?);
    let mut out = stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

fn failed(CaseFailure { status, message }: CaseFailure) -> ArmAnswer {
    ArmAnswer::Failed { status, message }
}

/// Loads the case with its threads on their processors and warms it up. Returns also what a call is expected to take.
fn load(job: &Job, item: &WorkItem, handicap: Option<Handicap>) -> Result<(TimedSession, Duration), CaseFailure> {
    let pins = job.processors.as_slice();
    if !pins.is_empty() {
        // Threads that are started from now on inherit this.
        confine_thread(pins)?;
    }
    let mut observed = Observed::default();
    let mut loaded = loaded_case::load(item, job, &mut Fixtures::default(), &mut observed)?;
    let before = thread_times();
    let warm_up = loaded.warm_up(&job.effort, |session| call_once(session, handicap))?;
    pin_busiest(&before, pins)?;
    Ok((loaded.session, Duration::from_nanos(warm_up.expected_call_ns())))
}

/// Times one call. The time of a handicap is spun away at its end.
fn call_once(session: &mut TimedSession, handicap: Option<Handicap>) -> Result<CallTimes, CaseFailure> {
    let Some(Handicap { slowdown_ppm, least_call_ns }) = handicap else { return session.call(1) };
    let (factor, least) = (1.0 + f64::from(slowdown_ppm) / 1e6, Duration::from_nanos(least_call_ns));
    session.prolonged_call(1, |begin| {
        let until = begin.elapsed().max(least).mul_f64(factor);
        while begin.elapsed() < until {
            spin_loop();
        }
    })
}

/// Times calls for `length`; at least one is counted.
fn slice(
    session: &mut TimedSession,
    handicap: Option<Handicap>,
    length: Duration,
    call: Duration,
) -> Result<SliceFigures, CaseFailure> {
    let mut calls = Vec::with_capacity(ROOM);
    let settling = if call * SETTLING < length { length / SETTLING } else { Duration::ZERO };
    let start = Instant::now();
    while start.elapsed() < settling {
        call_once(session, handicap)?;
    }
    while calls.is_empty() || start.elapsed() < length {
        calls.extend_from_slice(call_once(session, handicap)?.as_nanoseconds());
    }
    // Nobody asks for the parts of calls from host to host.
    session.take_stages();
    SliceFigures::of(calls).ok_or_else(|| CaseFailure::failed("no call was made"))
}

/// Lets the system end this process when its driver ends, however that happens: a process that is stopped cannot look.
#[cfg(target_os = "linux")]
fn end_with_driver() -> Result<()> {
    use nix::sys::prctl::set_pdeathsig;
    use nix::sys::signal::Signal;
    set_pdeathsig(Signal::SIGKILL).context("an arm that ends with its driver")
}

/// Where the system has no such means, the end of the input must do.
#[cfg(not(target_os = "linux"))]
fn end_with_driver() -> Result<()> {
    Ok(())
}

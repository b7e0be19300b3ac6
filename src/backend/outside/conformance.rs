//! Puts an external worker through the protocol, verb by verb.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::messages::{Progress, load};
use super::process::{OutsideProcess, within};
use super::program::{Program, describe};
use super::session::OutsideSession;
use crate::backend::interface::{LoadRequest, Session, Turn};
use crate::definition::{CaseFailure, Status};
use crate::fixture::HostTensor;

/// How long a program may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to refuse something.
const ANSWER: Duration = Duration::from_secs(10);
/// How long it may take to refuse a model, for which it may have to load its libraries.
const LOAD: Duration = Duration::from_secs(60);
/// How long it may take to load a model, and for each check of the loaded model.
const WORK: Duration = Duration::from_secs(600);
/// The name of the tested program in messages.
const NAME: &str = "the program";
/// How many calls are timed in one request.
const CALLS: usize = 40;
/// How long clocks are compared.
const CLOCK_TIME: Duration = Duration::from_millis(300);

/// What a program must do, and what it did: `Err` says what was wrong.
pub struct Check {
    pub what: &'static str,
    pub found: Result<String, String>,
}

/// Checks a program with a model that it can run and at least two batches of inputs. Stops at the first fault.
pub fn check(command: &str, request: &LoadRequest<'_>, ring: &[Vec<HostTensor>]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut note = |what, found: Result<String, CaseFailure>| {
        let is_right = found.is_ok();
        checks.push(Check { what, found: found.map_err(|failure| failure.to_string()) });
        is_right
    };
    let program = Program::new(NAME, command);
    let is_program = note("describes itself", described(&program))
        && note("answers an unknown verb with an error, and goes on", unknown_verb(&program))
        && note("refuses a device that it does not have", unknown_device(&program, request))
        && note("ends when its input ends", ends(&program, |process| process.close()))
        && note("ends when it is told to", ends(&program, |process| process.tell(&json!({ "verb": "end" }))));
    if !is_program {
        return checks;
    }
    let loaded = program.start().and_then(|process| {
        let id = process.id();
        Ok((id, within(WORK, id, NAME, || OutsideSession::load(process, request))?))
    });
    match loaded {
        Err(failure) => drop(note("loads a model", Err(failure))),
        Ok((id, mut session)) => {
            note("loads a model", Ok(format!("on {}", session.placement().effective_device)));
            let mut tried = |what, does: fn(&mut OutsideSession, &[Vec<HostTensor>]) -> Result<String, CaseFailure>| {
                note(what, within(WORK, id, NAME, || does(&mut session, ring)))
            };
            let _ = tried("gives the same outputs each time, and others for other inputs", outputs)
                && tried("replaces a batch", replaced)
                && tried("times calls", |session, _| timed(session))
                && tried("has a clock that goes as fast as inferbench's", |session, _| clock(session));
        }
    }
    checks
}

fn described(program: &Program) -> Result<String, CaseFailure> {
    let description = describe(&mut program.start()?)?;
    let devices: Vec<&str> = description.devices.iter().map(|device| device.device.as_str()).collect();
    Ok(format!("{} {}, devices {}", description.name, description.version, devices.join(", ")))
}

fn unknown_verb(program: &Program) -> Result<String, CaseFailure> {
    let mut process = program.start()?;
    match process.ask_within::<Value>(ANSWER, &json!({ "verb": "no-such-verb" })) {
        Ok(_) => Err(CaseFailure::failed("it has answered the verb `no-such-verb`")),
        Err(failure) => match describe(&mut process) {
            Ok(_) => Ok(failure.message),
            Err(after) => Err(CaseFailure::failed(format!("{}; after that: {}", failure.message, after.message))),
        },
    }
}

fn unknown_device(program: &Program, request: &LoadRequest<'_>) -> Result<String, CaseFailure> {
    let load = load(&LoadRequest { device: "no-such-device", ..*request })?;
    match program.start()?.ask_within::<Progress>(LOAD, &load) {
        Err(failure) if matches!(failure.status, Status::Unsupported | Status::Unavailable) => Ok(failure.message),
        Err(failure) => Err(CaseFailure::failed(format!("{failure}; the status is `unavailable`"))),
        Ok(_) => Err(CaseFailure::failed("it has loaded a model on `no-such-device`")),
    }
}

fn ends(program: &Program, tell: impl FnOnce(&mut OutsideProcess)) -> Result<String, CaseFailure> {
    let mut process = program.start()?;
    describe(&mut process)?;
    tell(&mut process);
    let start = Instant::now();
    match process.wait(PATIENCE) {
        Some(status) if status.success() => Ok(format!("after {:.0?}", start.elapsed())),
        Some(status) => Err(CaseFailure::failed(format!("it ended with {status}"))),
        None => Err(CaseFailure::failed(format!("it goes on after {} s", PATIENCE.as_secs()))),
    }
}

fn outputs(session: &mut OutsideSession, ring: &[Vec<HostTensor>]) -> Result<String, CaseFailure> {
    for inputs in &ring[..2] {
        session.bind(inputs)?;
    }
    let [first, again, other] = [session.outputs(0)?, session.outputs(0)?, session.outputs(1)?];
    if first != again {
        return Err(CaseFailure::failed("the outputs of one batch differ"));
    }
    if first == other {
        return Err(CaseFailure::failed("the outputs of two batches are the same"));
    }
    let shapes: Vec<String> = first.iter().map(|output| format!("{:?}", output.shape)).collect();
    Ok(shapes.join(", "))
}

fn replaced(session: &mut OutsideSession, ring: &[Vec<HostTensor>]) -> Result<String, CaseFailure> {
    let other = session.outputs(1)?;
    session.rebind(0, &ring[1])?;
    let replaced = session.outputs(0)?;
    session.rebind(0, &ring[0])?;
    if replaced == other {
        Ok(String::new())
    } else {
        Err(CaseFailure::failed("the outputs are not those of the new batch"))
    }
}

fn timed(session: &mut OutsideSession) -> Result<String, CaseFailure> {
    let mut turns = (0..CALLS).map(|call| Turn { binding: call % 2, is_first: true });
    let times = session.run_timed(&mut turns).unwrap_or(Ok(Vec::new()))?;
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    Ok(format!("{} calls, {:.4} ms on average", times.len(), mean / 1e6))
}

fn clock(session: &mut OutsideSession) -> Result<String, CaseFailure> {
    std::thread::sleep(CLOCK_TIME);
    let faster = session.compare_clocks()?.unwrap_or_default();
    Ok(format!("{:+.3} %", 100.0 * faster))
}

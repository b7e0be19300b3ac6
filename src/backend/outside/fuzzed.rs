//! Reads what external workers and pages send, for the fuzzer in `tests/fuzz`.

use super::frame::read_frame;
use super::page_server::read_request;
use super::process::OutsideProcess;
use super::program::describe;
use super::session::OutsideSession;
use crate::backend::interface::{Continuation, LoadRequest, ProfiledSession, Session, Turn};
use crate::definition::CaseFailure;
use crate::fixture::HostTensor;

/// Reads frames until there are no more.
pub fn frames(mut bytes: &[u8]) {
    while read_frame(&mut bytes).is_ok() {}
}

/// Reads the requests of a page until there are no more.
pub fn page(mut bytes: &[u8]) {
    while let Ok(Some(_)) = read_request(&mut bytes, "/") {}
}

/// Sends a worker every kind of request; the bytes are its answers.
///
/// # Errors
/// An answer does not follow the protocol.
pub fn worker(bytes: &[u8], request: &LoadRequest<'_>, inputs: &[HostTensor]) -> Result<(), CaseFailure> {
    let started = OutsideProcess::of_frames(bytes.to_vec());
    let mut process = started.map_err(|error| CaseFailure::unavailable(error.to_string()))?;
    describe(&mut process)?.devices.iter().for_each(|device| drop(device.report()));
    let mut session = OutsideSession::load(process, request)?;
    let binding = session.bind(inputs)?;
    session.run_timed(&mut (0..3).map(|call| Turn { binding, is_first: call == 0 })).transpose()?;
    session.run(binding)?;
    session.run_timed(&mut (0..3).map(|_| Turn { binding, is_first: false })).transpose()?;
    session.outputs(binding)?;
    session.rewind(binding);
    let _ = session.call_from_host(binding, inputs);
    let _ = session.follow(inputs, Continuation::Likeliest { most: 4, ends: &[0] });
    session.begin()?;
    session.end()?;
    let _ = (session.placement(), session.compilation());
    Ok(())
}

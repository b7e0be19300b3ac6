//! Backends that are the user's own programs: `INFERBENCH_WORKER` names them.

use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;

use super::messages::{Description, OutsideDevice, PROTOCOL};
use super::process::OutsideProcess;
use super::session::OutsideSession;
use crate::backend::artifact::names;
use crate::backend::cuda::cuda_environment;
use crate::backend::interface::{Backend, DeviceReport, LoadRequest, ProfiledSession, Session};
use crate::definition::{CaseFailure, Dtype, Model};

/// How long a program may take to describe itself: it may have to load its libraries.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that speaks the protocol.
pub struct Program {
    name: String,
    /// A shell command: the program with its arguments, and variables before it.
    command: String,
    described: OnceLock<Result<Description, CaseFailure>>,
}

impl Program {
    pub fn new(name: &str, command: &str) -> Self {
        Program { name: name.into(), command: command.into(), described: OnceLock::new() }
    }

    pub(super) fn start(&self) -> Result<OutsideProcess, CaseFailure> {
        // Without a program, `env` would print the environment.
        if self.command.split_whitespace().all(|word| word.contains('=')) {
            let message = format!("the command of {} has no program: write one with its arguments", self.name);
            return Err(CaseFailure::unavailable(message));
        }
        OutsideProcess::start(&self.name, shell(&self.command))
    }

    fn describe(&self) -> Result<&Description, CaseFailure> {
        let ask = || describe(&mut self.start()?);
        self.described.get_or_init(ask).as_ref().map_err(CaseFailure::clone)
    }
}

/// Asks a process for its name, version and abilities.
///
/// # Errors
/// It does not answer in time, or speaks another version of the protocol.
pub(super) fn describe(process: &mut OutsideProcess) -> Result<Description, CaseFailure> {
    let ask = json!({ "verb": "describe", "protocol": PROTOCOL });
    let description: Description = process.ask_within(PATIENCE, &ask)?;
    if description.protocol != PROTOCOL {
        let (name, version) = (process.name(), description.protocol);
        let message = format!("{name} speaks version {version} of the protocol, but inferbench speaks {PROTOCOL}");
        return Err(CaseFailure::unavailable(message));
    }
    Ok(description)
}

/// Runs a command with the system's shell. On Unix, the program replaces the shell.
fn shell(command: &str) -> Command {
    if cfg!(windows) {
        let mut shell = Command::new("cmd");
        shell.args(["/C", command]);
        return shell;
    }
    let mut shell = Command::new("sh");
    // `exec` alone would take a variable for the program.
    shell.arg("-c").arg(format!("exec env {command}"));
    shell
}

impl Backend for Program {
    fn devices(&self) -> Vec<DeviceReport> {
        match self.describe() {
            Ok(description) => description.devices.iter().map(OutsideDevice::report).collect(),
            Err(failure) => vec![DeviceReport::certain("cpu", Err(CaseFailure::unavailable(&failure.message)))],
        }
    }

    fn process_environment(&self, device: &str) -> Vec<(&'static str, OsString)> {
        cuda_environment(device)
    }

    fn needs_one_shape(&self, _device: &str) -> bool {
        self.describe().is_ok_and(|description| description.one_shape)
    }

    fn least_warm_up_calls(&self) -> usize {
        self.describe().map_or(0, |description| description.warm_up_calls)
    }

    fn library_version(&self, _device: &str) -> Option<String> {
        Some(self.describe().map_or_else(|_| String::new(), |own| format!("{} {}", own.name, own.version)))
    }

    fn check_model(&self, _model: &Model, dtype: Dtype) -> Result<(), CaseFailure> {
        let dtypes = &self.describe()?.dtypes;
        if dtypes.contains(&dtype) {
            return Ok(());
        }
        Err(CaseFailure::unsupported(format!("it computes in {}, and not in {dtype}", names(dtypes))))
    }

    fn load(&self, request: &LoadRequest<'_>) -> Result<Box<dyn Session>, CaseFailure> {
        Ok(Box::new(OutsideSession::load(self.start()?, request)?))
    }

    fn load_profiled(&self, request: &LoadRequest<'_>) -> Result<Box<dyn ProfiledSession>, CaseFailure> {
        Ok(Box::new(OutsideSession::load(self.start()?, request)?))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_program_is_not_started() {
        for command in [" ", "OWN=1 OTHER='2'"] {
            let failure = Program::new("mine", command).start().err().unwrap();
            assert_eq!(failure.message, "the command of mine has no program: write one with its arguments");
        }
    }

    #[test]
    fn a_program_that_does_not_describe_itself_has_no_version() {
        assert_eq!(Program::new("mine", "false").library_version("cpu").as_deref(), Some(""));
    }

    #[test]
    fn a_command_may_begin_with_variables_and_takes_the_place_of_the_shell() {
        let mut started = shell("OWN='a b' sh -c 'echo $$ \"$OWN\"'");
        let child = started.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let id = child.id();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{id} a b\n"));
    }
}

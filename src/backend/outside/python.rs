//! Workers in Python that ship with this package: Python reads their modules from the standard input, before the first frame.

use std::path::PathBuf;
use std::process::Command;

use super::process::OutsideProcess;
use crate::definition::CaseFailure;

/// The name of a module and its text.
pub(super) type Module = (&'static str, &'static str);

/// The frames of the protocol, which all workers in Python import.
pub(super) const FRAMES: Module = ("frames", include_str!("python/frames.py"));

/// How a worker in Python answers requests; each adds how it loads.
pub(super) const SERVING: Module = ("serving", include_str!("python/serving.py"));

/// Makes modules of the first line of the standard input.
const BEGIN: &str = "import json, linecache, sys, types
for name, text in json.loads(sys.stdin.buffer.readline()):
    file = f'inferbench/{name}.py'
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, file, 'exec'), sys.modules[name].__dict__)";

/// Starts a Python with these modules, in the order in which they import each other; the last one runs the program.
pub(super) fn start(
    name: &str,
    python: PathBuf,
    modules: &[Module],
    prepare: impl FnOnce(&mut Command),
) -> Result<OutsideProcess, CaseFailure> {
    let mut command = Command::new(python);
    command.args(["-I", "-c", BEGIN]);
    prepare(&mut command);
    let mut process = OutsideProcess::start(name, command)?;
    process.write_line(&serde_json::to_string(modules).unwrap_or_default())?;
    Ok(process)
}

//! Records when OpenVINO executes each node, to the nanosecond: `tasks.c` notes what OpenVINO reports to Intel's
//! tracers.
//!
//! OpenVINO looks for a tracer when it is loaded, by an environment variable. So [`Tasks::of_process`] has to come
//! first.

use std::ffi::c_char;
use std::io::Write;
use std::{ptr, slice};

use anyhow::Context;
use libloading::{Library, Symbol};
use once_cell::sync::OnceCell;

use crate::backend::native_library::text_of;
use crate::paths::variable;

/// The tracer as a shared library, on systems that have one.
#[cfg(openvino_tasks)]
const TRACER: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/openvino_tasks.so")));
#[cfg(not(openvino_tasks))]
const TRACER: Option<&[u8]> = None;

/// The variable by which OpenVINO finds a tracer.
const VARIABLE: &str = "INTEL_LIBITTNOTIFY64";
/// The variable that names what is traced.
const GROUPS: &str = "INTEL_ITTNOTIFY_GROUPS";

/// A task, as in `tasks.c`.
#[repr(C)]
struct Task {
    operator: *const c_char,
    node: *const c_char,
    begin_ns: i64,
    end_ns: i64,
    parent: i32,
    thread: u32,
}

type CallBegins = unsafe extern "C" fn();
type CallEnds = unsafe extern "C" fn(*mut *const Task, *mut usize, *mut i64) -> usize;

/// The execution of a node in a call, or work around the nodes, which has an empty `node`.
pub(super) struct Execution {
    /// What is computed, as far as OpenVINO reports it to tracers: `Convolution`, but also `Node`.
    pub operator: String,
    pub node: String,
    /// Nanoseconds from the beginning of the call.
    pub start_ns: u64,
    /// The duration without the nodes that are executed within.
    pub duration_ns: u64,
    pub thread: u32,
}

/// The tracer of this process.
pub(super) struct Tasks {
    call_begins: CallBegins,
    call_ends: CallEnds,
    _library: Library,
}

impl Tasks {
    /// Sets the tracer up for OpenVINO, which must not be loaded yet. Returns `None` if another tracer is set up, or
    /// there is none for this system. Only one thread may run, because this sets environment variables.
    pub fn of_process() -> Option<&'static Self> {
        static TASKS: OnceCell<Option<Tasks>> = OnceCell::new();
        let listen = || variable(VARIABLE).is_none().then(|| Self::listen().ok()).flatten();
        TASKS.get_or_init(listen).as_ref()
    }

    fn listen() -> anyhow::Result<Self> {
        let tracer = TRACER.context("there is no tracer for this system")?;
        let mut file = tempfile::Builder::new().suffix(".so").tempfile()?;
        file.write_all(tracer)?;
        // The file is deleted afterwards. OpenVINO loads it by the same path, and gets the library that is loaded
        // already.
        // SAFETY: the library has no initialisers, and the functions have these types in `tasks.c`. Nobody else sets or
        // reads variables now, as the caller has to see to.
        unsafe {
            let library = Library::new(file.path())?;
            let call_begins: Symbol<CallBegins> = library.get(b"inferbench_call_begins")?;
            let call_ends: Symbol<CallEnds> = library.get(b"inferbench_call_ends")?;
            std::env::set_var(VARIABLE, file.path());
            std::env::set_var(GROUPS, "all");
            Ok(Tasks { call_begins: *call_begins, call_ends: *call_ends, _library: library })
        }
    }

    /// Starts to note nodes.
    pub fn call_begins(&self) {
        // SAFETY: no other call runs.
        unsafe { (self.call_begins)() }
    }

    /// The nodes since [`call_begins`](Self::call_begins); none if OpenVINO has not found the tracer.
    ///
    /// # Errors
    /// There were more nodes than can be noted.
    pub fn call_ends(&self) -> anyhow::Result<Vec<Execution>> {
        let (mut noted, mut place_for, mut begin_ns) = (ptr::null(), 0, 0);
        // SAFETY: the call has ended, so that no thread adds tasks; those until `count` are written, and names are
        // never freed.
        let tasks = unsafe {
            let count = (self.call_ends)(&raw mut noted, &raw mut place_for, &raw mut begin_ns);
            anyhow::ensure!(count <= place_for, "a call executes {count} nodes, and at most {place_for} can be noted");
            slice::from_raw_parts(noted, count)
        };
        let mut own_ns: Vec<i64> = tasks.iter().map(|task| task.end_ns - task.begin_ns).collect();
        for task in tasks {
            if let Ok(parent) = usize::try_from(task.parent) {
                own_ns[parent] -= task.end_ns - task.begin_ns;
            }
        }
        // SAFETY: `tasks.c` keeps each name, which ends with a zero, until the process ends.
        let text = |name: *const c_char| unsafe { text_of(name) };
        let execution = |(task, own_ns): (&Task, i64)| Execution {
            operator: operator(&text(task.operator)).to_owned(),
            node: text(task.node),
            start_ns: (task.begin_ns - begin_ns).max(0) as u64,
            duration_ns: own_ns.max(0) as u64,
            thread: task.thread,
        };
        Ok(tasks.iter().zip(own_ns).map(execution).collect())
    }
}

/// What a task does: `Convolution` for `Convolution::execute`, `SyncInferenceCPU::infer` for
/// `SyncInferenceCPU::infer::Model9`.
fn operator(name: &str) -> &str {
    let name = name.trim_end_matches("::execute");
    name.rsplit_once("::Model").map_or(name, |(operation, _)| operation)
}

#[cfg(test)]
mod tests {
    use super::operator;

    #[test]
    fn an_operator_has_no_name_of_its_model() {
        assert_eq!(operator("Convolution::execute"), "Convolution");
        assert_eq!(operator("SyncInferenceCPU::infer::Model9"), "SyncInferenceCPU::infer");
        assert_eq!(operator(""), "");
    }
}

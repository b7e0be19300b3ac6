//! A session of ONNX Runtime that one thread calls, or several at the same time.
//!
//! The crate `ort` asks for the only reference to a session for each run, since some execution providers are not safe. ONNX Runtime itself guarantees that
//! `Run` may be called from several threads at the same time: it keeps no state of a run in the session, and its providers take locks of their
//! own. That is relied upon for the CPU's provider alone.

use std::ffi::{CString, NulError};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use ort::AsPointer;
use ort::session::{Session, SessionInputValue};
use ort::value::DynValue;

use crate::backend::shared::Shared;
use crate::definition::CaseFailure;

/// A session.
pub enum Runner {
    Own(Session),
    Shared(Arc<SharedSession>),
}

/// A session with several callers.
pub struct SharedSession {
    session: Session,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

impl Runner {
    /// The session of this key for another caller; the first one opens it.
    pub fn shared(key: String, open: impl FnOnce() -> Result<Session, CaseFailure>) -> Result<Self, CaseFailure> {
        static OPENED: Shared<SharedSession> = Shared::new();
        let open = || {
            let session = open()?;
            let names = |of: &[ort::value::Outlet]| of.iter().map(|it| CString::new(it.name())).collect();
            let names: [Result<Vec<CString>, NulError>; 2] = [names(session.inputs()), names(session.outputs())];
            let [inputs, outputs] = names.map(|names| names.map_err(|error| CaseFailure::failed(error.to_string())));
            Ok(SharedSession { session, inputs: inputs?, outputs: outputs? })
        };
        OPENED.get(key, open).map(Runner::Shared)
    }

    /// The session, to read from it.
    pub fn session(&self) -> &Session {
        match self {
            Runner::Own(session) => session,
            Runner::Shared(shared) => &shared.session,
        }
    }

    /// Runs on these inputs, in the order of the session's own, and returns its outputs in their order.
    pub fn run(&mut self, inputs: &[&DynValue]) -> Result<Vec<DynValue>, CaseFailure> {
        match self {
            Runner::Own(session) => {
                let inputs: Vec<SessionInputValue> = inputs.iter().map(|&input| input.into()).collect();
                Ok(session.run(inputs.as_slice())?.into_iter().map(|(_, value)| value).collect())
            }
            Runner::Shared(shared) => shared.run(inputs),
        }
    }
}

impl SharedSession {
    fn run(&self, inputs: &[&DynValue]) -> Result<Vec<DynValue>, CaseFailure> {
        if inputs.len() != self.inputs.len() {
            return Err(CaseFailure::failed(format!("{} inputs in place of {}", inputs.len(), self.inputs.len())));
        }
        let names = |of: &[CString]| of.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let (input_names, output_names) = (names(&self.inputs), names(&self.outputs));
        let values: Vec<_> = inputs.iter().map(|input| input.ptr()).collect();
        let mut outputs = vec![null_mut(); output_names.len()];
        // SAFETY: the lists have the lengths that are said and outlive the call; names and values are those of this session, which
        // is alive. `Run` may be called by several threads, and writes nothing but the outputs, which are this call's own.
        let status = unsafe {
            (ort::api().Run)(
                self.session.ptr().cast_mut(),
                null(),
                input_names.as_ptr(),
                values.as_ptr(),
                values.len(),
                output_names.as_ptr(),
                output_names.len(),
                outputs.as_mut_ptr(),
            )
        };
        // SAFETY: the status is of that call.
        unsafe { ort::Error::result_from_status(status) }?;
        let output = |value: *mut _| {
            let value = NonNull::new(value).ok_or_else(|| CaseFailure::failed("a run without an output"))?;
            // SAFETY: ONNX Runtime has made the value for this call, in the memory of the CPU, and nobody else has it.
            Ok(unsafe { DynValue::from_ptr(value, Some(self.session.allocator())) })
        };
        outputs.into_iter().map(output).collect()
    }
}

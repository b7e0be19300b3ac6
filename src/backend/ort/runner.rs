//! A session of ONNX Runtime that one thread calls, or several at the same time.
//!
//! The crate `ort` asks for the only reference to a session for each run, since some execution providers are not safe. ONNX Runtime itself guarantees that
//! `Run` may be called from several threads at the same time: it keeps no state of a run in the session, and its providers take locks of their
//! own. That is relied upon for the CPU's provider alone.
//!
//! `Run` is called here and not through the crate, which makes all names anew and asks for an allocator in each call.

use std::ffi::{CString, NulError};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use ort::AsPointer;
use ort::session::{IoBinding, Session};
use ort::value::DynValue;

use crate::backend::shared::Shared;
use crate::definition::CaseFailure;

/// A session with one caller or several.
pub enum Runner {
    Own(NamedSession),
    Shared(Arc<NamedSession>),
}

/// A session with its names as `Run` wants them.
pub struct NamedSession {
    session: Session,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

impl Runner {
    /// A session for one caller.
    pub fn own(session: Session) -> Result<Self, CaseFailure> {
        NamedSession::new(session).map(Runner::Own)
    }

    /// The session of this key for another caller; the first one opens it.
    pub fn shared(key: String, open: impl FnOnce() -> Result<Session, CaseFailure>) -> Result<Self, CaseFailure> {
        static OPENED: Shared<NamedSession> = Shared::new();
        OPENED.get(key, || NamedSession::new(open()?)).map(Runner::Shared)
    }

    /// The session, to read from it.
    pub fn session(&self) -> &Session {
        match self {
            Runner::Own(own) => &own.session,
            Runner::Shared(shared) => &shared.session,
        }
    }

    /// Runs on these inputs, in the order of the session's own, and returns its outputs in their order.
    pub fn run(&mut self, inputs: &[&DynValue]) -> Result<Vec<DynValue>, CaseFailure> {
        match self {
            Runner::Own(own) => own.run(inputs),
            Runner::Shared(shared) => shared.run(inputs),
        }
    }
}

impl NamedSession {
    fn new(session: Session) -> Result<Self, CaseFailure> {
        let names = |of: &[ort::value::Outlet]| of.iter().map(|it| CString::new(it.name())).collect();
        let names: [Result<Vec<CString>, NulError>; 2] = [names(session.inputs()), names(session.outputs())];
        let [inputs, outputs] = names.map(|names| names.map_err(|error| CaseFailure::failed(error.to_string())));
        Ok(NamedSession { session, inputs: inputs?, outputs: outputs? })
    }

    /// Runs on inputs that are bound.
    pub fn run_bound(&mut self, binding: &IoBinding) -> Result<Vec<DynValue>, CaseFailure> {
        Ok(self.session.run_binding(binding)?.into_iter().map(|(_, value)| value).collect())
    }

    fn run(&self, inputs: &[&DynValue]) -> Result<Vec<DynValue>, CaseFailure> {
        if inputs.len() != self.inputs.len() {
            return Err(CaseFailure::failed(format!("{} inputs in place of {}", inputs.len(), self.inputs.len())));
        }
        let names = |of: &[CString]| of.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let (input_names, output_names) = (names(&self.inputs), names(&self.outputs));
        let values: Vec<_> = inputs.iter().map(|input| input.ptr()).collect();
        let mut outputs = vec![null_mut(); output_names.len()];
        // SAFETY: the lists have the lengths that are said and outlive the call; names and values are those of this session, which
        // is alive. `Run` writes nothing but the outputs, which are this call's own, so that several threads may call that of a shared session.
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
            // SAFETY: ONNX Runtime has made the value for this call, and nobody else has it.
            Ok(unsafe { DynValue::from_ptr(value, Some(self.session.allocator())) })
        };
        outputs.into_iter().map(output).collect()
    }
}

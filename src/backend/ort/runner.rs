//! A session of ONNX Runtime that one thread calls, or several at the same time.
//!
//! The crate `ort` needs an exclusive reference to a session for each run, because some execution providers are not
//! thread-safe. ONNX Runtime itself guarantees that several threads may call `Run` at the same time: a run keeps no
//! state in the session, and providers take their own locks. This module relies on that only for the CPU's provider.
//!
//! It calls `Run` itself, because the crate makes all names anew and asks for an allocator in each call.

use std::cell::OnceCell;
use std::ffi::{CString, NulError, c_char};
use std::ptr::{NonNull, null, null_mut};
use std::rc::Rc;
use std::sync::Arc;

use ort::AsPointer;
use ort::memory::Allocator;
use ort::session::{IoBinding, Session};
use ort::sys::OrtValue;
use ort::value::DynValue;

use crate::backend::shared::Shared;
use crate::definition::CaseFailure;

/// A value of ONNX Runtime.
///
/// The crate asks for the type, shape and memory of each value that it gets. Most timed calls do not read their
/// outputs, so here these questions wait until the value is read.
pub struct Value {
    /// Owned by `read`, if that is set.
    value: NonNull<OrtValue>,
    read: OnceCell<DynValue>,
}

impl Value {
    pub fn read(&self) -> &DynValue {
        // SAFETY: nobody else owns the value; from now on `read` releases it.
        self.read.get_or_init(|| unsafe { DynValue::from_ptr(self.value, Some(&Allocator::default())) })
    }
}

impl From<DynValue> for Value {
    fn from(read: DynValue) -> Self {
        let value = NonNull::new(read.ptr().cast_mut()).expect("the crate's values are not null");
        Value { value, read: OnceCell::from(read) }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.read.get().is_none() {
            // SAFETY: only `self` owns the value, and it ends here.
            unsafe { (ort::api().ReleaseValue)(self.value.as_ptr()) };
        }
    }
}

/// A session with one caller or several.
pub enum Runner {
    Own(NamedSession),
    Shared(Arc<NamedSession>),
}

/// A session with its names in the form that `Run` takes.
pub struct NamedSession {
    session: Session,
    inputs: Names,
    outputs: Names,
}

struct Names {
    pointers: Vec<*const c_char>,
    /// The strings to which the pointers lead.
    _names: Vec<CString>,
}

// SAFETY: the pointers lead to strings that this value owns and nothing changes.
unsafe impl Send for Names {}
// SAFETY: as above.
unsafe impl Sync for Names {}

impl Runner {
    /// A session for one caller.
    pub fn own(session: Session) -> Result<Self, CaseFailure> {
        NamedSession::new(session).map(Runner::Own)
    }

    /// The shared session of a key; the first caller opens it.
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

    /// Runs on inputs in the session's order, and returns all outputs in the session's order.
    pub fn run<'v>(&mut self, inputs: impl Iterator<Item = &'v Value>) -> Result<Vec<Rc<Value>>, CaseFailure> {
        match self {
            Runner::Own(own) => own.run(inputs),
            Runner::Shared(shared) => shared.run(inputs),
        }
    }
}

impl NamedSession {
    fn new(session: Session) -> Result<Self, CaseFailure> {
        let names = |of: &[ort::value::Outlet]| {
            let names: Result<Vec<CString>, NulError> = of.iter().map(|it| CString::new(it.name())).collect();
            let names = names.map_err(|error| CaseFailure::failed(error.to_string()))?;
            Ok::<_, CaseFailure>(Names { pointers: names.iter().map(|name| name.as_ptr()).collect(), _names: names })
        };
        let (inputs, outputs) = (names(session.inputs())?, names(session.outputs())?);
        Ok(NamedSession { session, inputs, outputs })
    }

    /// Runs on inputs that are bound.
    pub fn run_bound(&mut self, binding: &IoBinding) -> Result<Vec<Rc<Value>>, CaseFailure> {
        Ok(self.session.run_binding(binding)?.into_iter().map(|(_, value)| Rc::new(value.into())).collect())
    }

    fn run<'v>(&self, inputs: impl Iterator<Item = &'v Value>) -> Result<Vec<Rc<Value>>, CaseFailure> {
        let (input_names, output_names) = (&self.inputs.pointers, &self.outputs.pointers);
        let values: Vec<_> = inputs.map(|input| input.value.as_ptr().cast_const()).collect();
        if values.len() != input_names.len() {
            return Err(CaseFailure::failed(format!("{} inputs instead of {}", values.len(), input_names.len())));
        }
        let mut outputs = vec![null_mut(); output_names.len()];
        // SAFETY: the lists have the given lengths and outlive the call; names and values belong to this session, which
        // is alive. `Run` writes only the outputs, which belong to this call, so several threads may call a shared
        // session.
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
        // SAFETY: the status comes from that call.
        unsafe { ort::Error::result_from_status(status) }?;
        // ONNX Runtime made the values for this call, and nothing else owns them.
        let output = |value: *mut _| {
            let value =
                NonNull::new(value).ok_or_else(|| CaseFailure::failed("an output of ONNX Runtime has no value"))?;
            Ok(Rc::new(Value { value, read: OnceCell::new() }))
        };
        outputs.into_iter().map(output).collect()
    }
}

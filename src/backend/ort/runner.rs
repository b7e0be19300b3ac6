//! A session of ONNX Runtime that one thread calls, or several at the same time.
//!
//! The crate `ort` asks for the only reference to a session for each run, since some execution providers are not safe. ONNX Runtime itself guarantees that
//! `Run` may be called from several threads at the same time: it keeps no state of a run in the session, and its providers take locks of their
//! own. That is relied upon for the CPU's provider alone.
//!
//! `Run` is called here and not through the crate, which makes all names anew and asks for an allocator in each call.

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
/// The crate asks for type, shape and memory of each value that it gets. Outputs come in timed calls, most of which read none of them, so that
/// these questions wait until somebody reads the value.
pub struct Value {
    /// Owned by `read`, if there is one.
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
            // SAFETY: the value is this one's own, and nobody has it after this.
            unsafe { (ort::api().ReleaseValue)(self.value.as_ptr()) };
        }
    }
}

/// A session with one caller or several.
pub enum Runner {
    Own(NamedSession),
    Shared(Arc<NamedSession>),
}

/// A session with its names as `Run` wants them.
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

// SAFETY: what the pointers point to is theirs, and nobody changes it.
unsafe impl Send for Names {}
// SAFETY: as above.
unsafe impl Sync for Names {}

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
            return Err(CaseFailure::failed(format!("{} inputs in place of {}", values.len(), input_names.len())));
        }
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
        // ONNX Runtime has made the values for this call, and nobody else has them.
        let output = |value: *mut _| {
            let value =
                NonNull::new(value).ok_or_else(|| CaseFailure::failed("an output of ONNX Runtime has no value"))?;
            Ok(Rc::new(Value { value, read: OnceCell::new() }))
        };
        outputs.into_iter().map(output).collect()
    }
}

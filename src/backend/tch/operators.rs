//! The operators that libtorch's interpreter executes in a call, as `operators.cpp` notes them.
//!
//! Modules and memory are slow to find out, but the same in each call of the same operators. So they are recorded only
//! in the calls before the measured ones.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_void};
use std::{ptr, slice};

use tch::{CModule, Kind};

use super::modules::Modules;
use crate::backend::failure::classify;
use crate::backend::interface::Session;
use crate::backend::recorder::Tape;
use crate::definition::CaseFailure;
use crate::run_data::{OperatorCall, RecordedCall};

unsafe extern "C" {
    fn inferbench_call_begins(is_described: bool);
    fn inferbench_call_ends(
        operators: *mut *const Execution,
        description: *mut *const c_char,
        begin_ns: *mut i64,
    ) -> usize;
    fn inferbench_convert(module: *mut c_void, kind: i8) -> *const c_char;
}

/// Converts the floating-point parameters and buffers of a module.
///
/// # Errors
/// libtorch cannot convert the module.
pub fn convert(module: &CModule, kind: Kind) -> Result<(), CaseFailure> {
    const { assert!(size_of::<CModule>() == size_of::<*mut c_void>()) };
    let number = match kind {
        Kind::Half => 5,
        Kind::Float => 6,
        Kind::Double => 7,
        Kind::BFloat16 => 15,
        _ => return Err(CaseFailure::unsupported(format!("modules are not converted to {kind:?}"))),
    };
    // SAFETY: in the version of the crate that Cargo.toml pins, the pointer is a module's only field, and so lies at
    // its start.
    let why = unsafe { inferbench_convert(*ptr::from_ref(module).cast(), number) };
    if why.is_null() {
        return Ok(());
    }
    // SAFETY: the text stays until the next call in this thread.
    Err(classify(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned()))
}

/// An operator that was executed, as in `operators.cpp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Execution {
    name: [c_char; 64],
    parent: i64,
    begin_ns: i64,
    end_ns: i64,
    peak_bytes: i64,
}

impl Execution {
    fn name(&self) -> String {
        // SAFETY: the last byte of a name is always 0.
        unsafe { CStr::from_ptr(self.name.as_ptr()) }.to_string_lossy().into_owned()
    }

    fn duration_ns(&self) -> i64 {
        self.end_ns - self.begin_ns
    }
}

struct Call {
    begin_ns: i64,
    operators: Vec<Execution>,
}

impl Call {
    /// The operators that no other operator calls, with their places among all.
    fn outermost(&self) -> impl Iterator<Item = (usize, &Execution)> {
        self.operators.iter().enumerate().filter(|(_, execution)| execution.parent < 0)
    }

    fn sequence(&self) -> Sequence {
        self.outermost().map(|(_, execution)| execution.name()).collect()
    }

    /// For each outermost operator, adds up the own times of it and of the operators within it, by name. An own time
    /// excludes the operators that are called.
    fn add_own_times(&self, sums: &mut Vec<BTreeMap<String, i64>>) {
        let mut own_ns: Vec<i64> = self.operators.iter().map(Execution::duration_ns).collect();
        for execution in self.operators.iter().filter(|execution| execution.parent >= 0) {
            own_ns[execution.parent as usize] -= execution.duration_ns();
        }
        let mut place = 0;
        for (execution, own_ns) in self.operators.iter().zip(own_ns) {
            place += usize::from(execution.parent < 0);
            sums.resize_with(sums.len().max(place), BTreeMap::new);
            *sums[place - 1].entry(execution.name()).or_default() += own_ns;
        }
    }
}

/// The names of a call's outermost operators. Calls with the same sequence count as the same.
type Sequence = Vec<String>;

/// The facts of an operator that are the same in every call.
struct Described {
    module: Option<String>,
    peak_bytes: u64,
}

/// The operators of the calls of a session.
pub struct OperatorTape {
    modules: Modules,
    described: HashMap<Sequence, Vec<Described>>,
    /// The calls since [`Tape::begin`]; `None` before it, when calls are described.
    calls: Option<Vec<Call>>,
}

impl OperatorTape {
    /// A tape for sessions of these modules, whose weights have to be in place.
    pub fn new(modules: &[CModule]) -> Result<Self, CaseFailure> {
        Ok(OperatorTape { modules: Modules::new(modules)?, described: HashMap::new(), calls: None })
    }
}

impl Tape for OperatorTape {
    fn call_begins(&mut self) -> Result<(), CaseFailure> {
        // SAFETY: libtorch is loaded, since the tape has modules.
        unsafe { inferbench_call_begins(self.calls.is_none()) };
        Ok(())
    }

    fn call_ends(&mut self) -> Result<(), CaseFailure> {
        let (mut operators, mut description, mut begin_ns) = (ptr::null(), ptr::null(), 0);
        // SAFETY: as above. The result stays valid until the next call begins; the pointer of an empty list is not
        // read.
        let (operators, description) = unsafe {
            match inferbench_call_ends(&mut operators, &mut description, &mut begin_ns) {
                0 => return Err(CaseFailure::failed("libtorch has named no operator of a call")),
                count => (slice::from_raw_parts(operators, count), CStr::from_ptr(description)),
            }
        };
        let call = Call { begin_ns, operators: operators.to_vec() };
        if let Some(calls) = &mut self.calls {
            calls.push(call);
            return Ok(());
        }
        let modules = self.modules.of_operators(&description.to_string_lossy());
        let described = call.outermost().zip(modules);
        let described = described.map(|((_, execution), module)| Described {
            module,
            peak_bytes: u64::try_from(execution.peak_bytes).unwrap_or(0),
        });
        self.described.insert(call.sequence(), described.collect());
        Ok(())
    }

    fn begin(&mut self) -> Result<(), CaseFailure> {
        self.calls = Some(Vec::new());
        Ok(())
    }

    fn end(&mut self, _: Box<dyn Session>) -> Result<Vec<RecordedCall>, CaseFailure> {
        let calls = self.calls.take().unwrap_or_default();
        let mut own_times: HashMap<Sequence, Vec<BTreeMap<String, i64>>> = HashMap::new();
        for call in &calls {
            call.add_own_times(own_times.entry(call.sequence()).or_default());
        }
        let recorded = calls.iter().map(|call| {
            let sequence = call.sequence();
            let described = self.described.get(&sequence);
            let operators = call.outermost().zip(&own_times[&sequence]).enumerate();
            let operators = operators.map(|(place, ((_, execution), own_times))| {
                let operator = execution.name();
                let kernel = own_times.iter().max_by_key(|(_, own_ns)| **own_ns).map(|(name, _)| name.clone());
                let described = described.and_then(|described| described.get(place));
                OperatorCall {
                    kernel: kernel.filter(|kernel| *kernel != operator),
                    operator,
                    module: described.and_then(|described| described.module.clone()),
                    start_ns: u64::try_from(execution.begin_ns - call.begin_ns).ok(),
                    duration_ns: u64::try_from(execution.duration_ns()).unwrap_or(0),
                    memory_bytes: described.map(|described| described.peak_bytes),
                    ..OperatorCall::default()
                }
            });
            RecordedCall { calls: 1, operators: operators.collect() }
        });
        Ok(recorded.collect())
    }
}

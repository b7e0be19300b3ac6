//! Times of ggml's operators: its scheduler calls back before and after each that somebody wants to know of, and computes one after the other
//! then. So operators that it would compute as one are apart, and each waits for the threads.

use std::cell::Cell;
use std::ffi::c_void;
use std::time::Instant;

use super::declarations::Tensor;
use super::library::llama;
use crate::backend::native_library::text_of;
use crate::backend::recorder::Recorder;
use crate::run_data::OperatorCall;

/// What the scheduler calls: with a tensor, whether it is going to be computed or was, and what was given with the function.
type Callback = unsafe extern "C" fn(*mut Tensor, bool, *mut c_void) -> bool;

/// Operators that compute nothing but say how other numbers lie.
const FREE: [&str; 5] = ["NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"];

/// A recorder, and when the operator began that is running.
pub(super) struct Watch {
    recorder: Recorder,
    begin: Cell<Option<Instant>>,
}

impl Watch {
    pub fn new(recorder: Recorder) -> Self {
        Watch { recorder, begin: Cell::new(None) }
    }

    /// The function that is called for each operator, and what it is called with, which has to stay where it is.
    pub fn callback(&self) -> (*const c_void, *mut c_void) {
        let callback: Callback = noted;
        (callback as *const c_void, std::ptr::from_ref(self).cast_mut().cast())
    }
}

unsafe extern "C" fn noted(tensor: *mut Tensor, is_before: bool, watch: *mut c_void) -> bool {
    let Ok(llama) = llama() else { return false };
    // SAFETY: the context was made with this function and a watch that lives as long as the context; ggml calls with a tensor of its graph, whose
    // operator and name are texts of its own.
    let (watch, operator, node) = unsafe {
        let operator = text_of((llama.functions.ggml_op_desc)(tensor));
        (&*watch.cast::<Watch>(), operator, text_of((llama.functions.ggml_get_name)(tensor)))
    };
    if is_before {
        // The time of an operator that computes nothing is counted with the operator after it.
        watch.begin.set(watch.begin.get().or_else(|| Some(Instant::now())));
        return !FREE.contains(&operator.as_str());
    }
    if let Some(begin) = watch.begin.take() {
        let module = module_of(&node);
        watch.recorder.note(begin, || OperatorCall { node, operator, module, ..OperatorCall::default() });
    }
    true
}

/// The block of an operator's result, which llama.cpp names with the block's number: `blk.3` of `ffn_out-3`.
fn module_of(node: &str) -> Option<String> {
    let number = node.split(' ').next()?.rsplit_once('-')?.1;
    number.parse::<u32>().ok().map(|number| format!("blk.{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_of_the_block_with_its_number() {
        let module = |node: &str| module_of(node);
        assert_eq!(module("ffn_out-12").as_deref(), Some("blk.12"));
        assert_eq!(module("Qcur-0 (view)").as_deref(), Some("blk.0"));
        assert_eq!((module("result_output"), module("a-b")), (None, None));
    }
}

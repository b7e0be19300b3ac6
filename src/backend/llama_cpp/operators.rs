//! Times of ggml's operators: its scheduler calls back before and after each observed operator. It then computes the
//! operators one by one: it does not fuse them, and the threads wait for each other after each one.

use std::cell::Cell;
use std::ffi::c_void;
use std::time::Instant;

use super::declarations::Tensor;
use super::library::llama;
use crate::backend::native_library::text_of;
use crate::backend::recorder::Recorder;
use crate::run_data::OperatorCall;

/// The scheduler's callback. It gets a tensor, whether this is before or after its computation, and the data that was
/// set with the callback.
type Callback = unsafe extern "C" fn(*mut Tensor, bool, *mut c_void) -> bool;

/// Operators that compute nothing: they only describe the layout of other tensors.
const FREE: [&str; 5] = ["NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"];

/// A recorder, and when the running operator began.
pub(super) struct Watch {
    recorder: Recorder,
    begin: Cell<Option<Instant>>,
}

impl Watch {
    pub fn new(recorder: Recorder) -> Self {
        Watch { recorder, begin: Cell::new(None) }
    }

    /// The callback, and its data: `self`, which must not move.
    pub fn callback(&self) -> (*const c_void, *mut c_void) {
        let callback: Callback = noted;
        (callback as *const c_void, std::ptr::from_ref(self).cast_mut().cast())
    }
}

unsafe extern "C" fn noted(tensor: *mut Tensor, is_before: bool, watch: *mut c_void) -> bool {
    let Ok(llama) = llama() else { return false };
    // SAFETY: the context was made with this function and a watch that lives as long as the context; ggml passes a
    // tensor of its graph and owns the texts of its operator and name.
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

/// The block of an operator's result, which llama.cpp names with the block's number: `blk.3` for `ffn_out-3`.
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

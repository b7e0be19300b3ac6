//! Runs a graph once under OpenVINO's own profiler, and says what its products were computed in.
//!
//! The `openvino` crate does not reach the profiler; these are the calls of OpenVINO's C interface that it lacks, and those before
//! them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr::null_mut;

use anyhow::{Result, bail, ensure};
use openvino_sys as sys;
use openvino_sys::ov_status_e;

use crate::backend::interface::Trace;
use crate::definition::Dtype;

/// Something of OpenVINO that is freed when this is dropped.
struct Owned<T> {
    pointer: *mut T,
    free: unsafe fn(*mut T),
}

impl<T> Owned<T> {
    /// What `make` puts into its argument.
    fn make(free: unsafe fn(*mut T), make: impl FnOnce(*mut *mut T) -> ov_status_e) -> Result<Self> {
        let mut pointer = null_mut();
        check(make(&raw mut pointer))?;
        Ok(Owned { pointer, free })
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from the call that belongs to `free`, and nobody else has it.
        unsafe { (self.free)(self.pointer) }
    }
}

fn check(status: ov_status_e) -> Result<()> {
    if status == ov_status_e::OK {
        return Ok(());
    }
    // SAFETY: the text belongs to OpenVINO until its next call in this thread.
    let message = unsafe { text(sys::ov_get_last_err_msg()) };
    bail!("OpenVINO's profiler: {}", if message.trim().is_empty() { format!("{status:?}") } else { message })
}

/// # Safety
/// The pointer is null or points to a text that ends with a zero.
unsafe fn text(pointer: *const c_char) -> String {
    // SAFETY: the caller says so.
    if pointer.is_null() { String::new() } else { unsafe { CStr::from_ptr(pointer).to_string_lossy().into_owned() } }
}

/// Compiles a graph for inputs of these names and shapes, runs it once on zeros, and reads where its operators ran and in what.
/// The library is loaded already.
///
/// # Errors
/// OpenVINO cannot compile or run the graph.
pub(super) fn trace(file: &Path, inputs: &[(&str, &[usize])], device: &str) -> Result<Trace> {
    let file = CString::new(file.as_os_str().as_encoded_bytes())?;
    let [device_name, profile, yes, hint, f32] =
        [device, "PERF_COUNT", "YES", "INFERENCE_PRECISION_HINT", "f32"].map(CString::new);
    let (device_name, profile, yes, hint, f32) = (device_name?, profile?, yes?, hint?, f32?);
    // SAFETY: all pointers are of texts and objects that live until the end of this function, and every call gets what
    // the C interface asks for.
    unsafe {
        let core = Owned::make(sys::ov_core_free, |core| sys::ov_core_create(core))?;
        for (key, value) in [(&profile, &yes), (&hint, &f32)] {
            check(sys::ov_core_set_property(core.pointer, device_name.as_ptr(), key.as_ptr(), value.as_ptr()))?;
        }
        let model = Owned::make(sys::ov_model_free, |model| {
            sys::ov_core_read_model(core.pointer, file.as_ptr(), std::ptr::null(), model)
        })?;
        for (name, shape) in inputs {
            let name = CString::new(*name)?;
            let dimensions: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
            let mut partial = std::mem::zeroed();
            let rank = dimensions.len() as i64;
            check(sys::ov_partial_shape_create_static(rank, dimensions.as_ptr(), &raw mut partial))?;
            let reshaped = check(sys::ov_model_reshape_input_by_name(model.pointer, name.as_ptr(), partial));
            sys::ov_partial_shape_free(&raw mut partial);
            reshaped?;
        }
        let compiled = Owned::make(sys::ov_compiled_model_free, |compiled| {
            sys::ov_core_compile_model(core.pointer, model.pointer, device_name.as_ptr(), 0, compiled)
        })?;
        let request = Owned::make(sys::ov_infer_request_free, |request| {
            sys::ov_compiled_model_create_infer_request(compiled.pointer, request)
        })?;
        for (name, _) in inputs {
            let name = CString::new(*name)?;
            let tensor = Owned::make(sys::ov_tensor_free, |tensor| {
                sys::ov_infer_request_get_tensor(request.pointer, name.as_ptr(), tensor)
            })?;
            let (mut data, mut bytes) = (null_mut(), 0);
            check(sys::ov_tensor_data(tensor.pointer, &raw mut data))?;
            check(sys::ov_tensor_get_byte_size(tensor.pointer, &raw mut bytes))?;
            std::ptr::write_bytes(data.cast::<u8>(), 0, bytes);
        }
        check(sys::ov_infer_request_infer(request.pointer))?;
        let mut list = std::mem::zeroed();
        check(sys::ov_infer_request_get_profiling_info(request.pointer, &raw mut list))?;
        let mut trace = Trace { asked_for: device.to_owned(), ..Trace::default() };
        for place in 0..list.size {
            let info = &*list.profiling_infos.add(place);
            if info.status == sys::ov_profiling_info_t_Status::EXECUTED {
                add(&mut trace, text(info.node_type), &text(info.exec_type));
            }
        }
        sys::ov_profiling_info_list_free(&raw mut list);
        ensure!(!trace.nodes.is_empty(), "OpenVINO's profiler names no operator");
        Ok(trace)
    }
}

/// Operators that compute products.
const PRODUCTS: [&str; 4] = ["Convolution", "FullyConnected", "MatMul", "Deconvolution"];

/// Adds an operator with OpenVINO's name of its kernel, such as `brgconv_avx512_I8`, which ends with its precision.
fn add(trace: &mut Trace, operator: String, kernel: &str) {
    if PRODUCTS.iter().any(|product| operator.contains(product)) {
        let precision = kernel.rsplit('_').next().unwrap_or_default().to_lowercase();
        let dtype = match precision.as_str() {
            "i8" | "u8" => Some(Dtype::I8),
            other => Dtype::ALL.into_iter().find(|dtype| dtype.name() == other),
        };
        trace.products.entry(dtype).or_default().insert(operator.clone());
    }
    let on_device: &mut BTreeMap<String, usize> = trace.nodes.entry(trace.asked_for.clone()).or_default();
    *on_device.entry(operator).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_of_the_precision_that_its_kernel_ends_with() {
        let mut trace = Trace { asked_for: "CPU".into(), ..Trace::default() };
        add(&mut trace, "FullyConnected".into(), "brgemm_avx512_f32");
        add(&mut trace, "Reorder".into(), "jit_uni_I8");
        assert_eq!(trace.products_not_in(Dtype::I8), Some((Dtype::F32, vec!["FullyConnected"])));
        add(&mut trace, "Convolution".into(), "brgconv_avx512_I8");
        assert_eq!((trace.products_not_in(Dtype::I8), trace.share()), (None, 1.0));
        if super::super::library::build_number().is_ok() {
            let missing = super::trace(Path::new("nowhere.onnx"), &[], "CPU").unwrap_err();
            assert!(missing.to_string().contains("OpenVINO's profiler: "), "{missing}");
        }
    }
}

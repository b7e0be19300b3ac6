//! What OpenVINO's profiler says about the precision of products.

use anyhow::{Result, ensure};

use crate::backend::interface::Trace;
use crate::definition::{CaseFailure, Dtype};

/// The trace of operators and their kernels, all of which ran on `device`.
///
/// # Errors
/// There are no operators.
pub(super) fn trace(operators: &[(String, String)], device: &str) -> Result<Trace> {
    ensure!(!operators.is_empty(), "OpenVINO's profiler names no operator");
    let mut trace = Trace { asked_for: device.to_owned(), ..Trace::default() };
    for (operator, kernel) in operators {
        add(&mut trace, operator.clone(), kernel);
    }
    Ok(trace)
}

/// Checks that products took weights in blocks as they are. OpenVINO calls these products `FullyConnectedCompressed` on
/// the CPU, but it may also convert the weights to f32 while it compiles a graph.
///
/// # Errors
/// `unsupported`: there are no such products.
pub(super) fn check_blocks(trace: &Trace) -> Result<(), CaseFailure> {
    let mut products = trace.products.values().flatten();
    if products.any(|operator| operator.ends_with("Compressed")) {
        return Ok(());
    }
    let others: Vec<&str> = trace.products.values().flatten().map(String::as_str).collect();
    let others = others.join(", ");
    Err(CaseFailure::unsupported(format!("OpenVINO ran no product with compressed weights, but {others}")))
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
    *trace.nodes.entry(trace.asked_for.clone()).or_default().entry(operator).or_default() += 1;
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
        assert_eq!(super::trace(&[], "CPU").unwrap_err().to_string(), "OpenVINO's profiler names no operator");
    }
}

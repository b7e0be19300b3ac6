//! GGUF files of language models: reads their headers without a runtime, and writes the weights of a packaged model as
//! one.
//!
//! It takes a file, or a model's weights. It gives a checked header, or a file. The backends `llama-cpp` and `candle`
//! run the files.
//!
//! The layout is that of `docs/gguf.md` of ggml: the magic `GGUF`, a version, the numbers of tensors and of keys, the
//! keys with their values, the tensors' names, sizes, types and offsets, and then their data. A header may say
//! anything, so every number in it is checked against the length of the file before it is used.

mod element;
mod header;
mod writing;

pub use element::ElementKind;
pub use header::{Header, TensorInfo, Value};
pub use writing::{Architecture, bytes_to_write, write_f32};

use anyhow::{Result, ensure};

use crate::definition::{Scheme, least_share};

/// Checks that a scheme can hold most of a model: K-quants need rows that are multiples of 256, and the others of 32.
///
/// # Errors
/// Less than nine tenths of the parameters, or half of them for blocks of 32, are in rows that the scheme can hold.
pub fn check_scheme(scheme: Scheme, tensors: &[(String, Vec<usize>)]) -> Result<()> {
    let block = scheme.block();
    let (mut all, mut fitting) = (0_usize, 0_usize);
    for (_, shape) in tensors {
        let count: usize = shape.iter().product();
        all += count;
        let is_row = shape.len() > 1 && shape.last().is_some_and(|width| width.is_multiple_of(block));
        fitting += if is_row { count } else { 0 };
    }
    let share = fitting as f64 / all.max(1) as f64;
    ensure!(
        share >= least_share(block),
        "{scheme} needs rows that are multiples of {block}, and only {:.0} % of the parameters are in such rows",
        share * 100.0
    );
    Ok(())
}

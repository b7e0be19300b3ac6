//! The forms in which a module of `candle-transformers` runs: one pass, or prefill and steps.

use candle_core::Tensor;

/// Computes a model's outputs out of its inputs, both in the model's order; fails if an input does not fit.
pub type Forward = Box<dyn Fn(&[Tensor]) -> candle_core::Result<Vec<Tensor>>>;

/// The input of a model that has one.
///
/// # Errors
/// There are more, or none.
pub fn only_input(inputs: &[Tensor]) -> candle_core::Result<&Tensor> {
    let [input] = inputs else { candle_core::bail!("{} inputs instead of 1", inputs.len()) };
    Ok(input)
}

/// A model that makes tokens, with a cache.
pub trait Decoder {
    /// Keys and values of all positions so far; a clone does not copy them.
    type Cache: Clone;

    /// The logits of the first new token, `[batch, vocabulary]`, and the cache of all before it.
    ///
    /// # Errors
    /// An input does not fit.
    fn prefill(&self, inputs: &[Tensor]) -> candle_core::Result<(Tensor, Self::Cache)>;
    /// The logits after `tokens`, i64 `[batch, 1]`, at `position`, counted from 0.
    ///
    /// # Errors
    /// The position is beyond the last.
    fn step(&self, tokens: &Tensor, position: usize, cache: &mut Self::Cache) -> candle_core::Result<Tensor>;
}

//! The forms in which a module of `candle-transformers` runs: one pass, or prefill and steps.

use candle_core::{Result, Tensor};

/// Computes a model's outputs out of its inputs, both in the model's order; fails if an input does not fit.
pub type Forward = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// The input of a model that has one.
///
/// # Errors
/// There are more, or none.
pub fn only_input(inputs: &[Tensor]) -> Result<&Tensor> {
    let [input] = inputs else { candle_core::bail!("{} inputs instead of 1", inputs.len()) };
    Ok(input)
}

/// A model that makes tokens, with a cache of the keys and values of all positions so far.
pub struct Decoder<C> {
    /// The cache before the first token; a clone of a cache does not copy its tensors.
    pub empty: C,
    /// The logits `[batch, vocabulary]` after tokens, i64 `[batch, positions]`, of which the first is at the position.
    pub forward: Continue<C>,
}

type Continue<C> = Box<dyn Fn(&Tensor, usize, &mut C) -> Result<Tensor>>;

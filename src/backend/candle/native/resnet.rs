//! torchvision's resnet50.

use candle_core::{Result, Tensor};
use candle_nn::{Func, VarBuilder};

use super::Module;

struct ResNet(Func<'static>);

/// torchvision's `resnet50`: pictures to logits.
///
/// # Errors
/// The weights do not fit.
pub fn load(weights: VarBuilder<'static>) -> Result<impl Module + use<>> {
    let classes = weights.get_unchecked("fc.bias")?.dim(0)?;
    Ok(ResNet(candle_transformers::models::resnet::resnet50(classes, weights)?))
}

impl Module for ResNet {
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let [pixels] = inputs else { candle_core::bail!("{} inputs instead of 1", inputs.len()) };
        Ok(vec![pixels.apply(&self.0)?])
    }
}

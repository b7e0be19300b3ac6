//! ResNet-50 with spans, for profiles: candle's own module has none. It computes the same by the same functions of candle in the
//! same order.

use candle_core::{D, Result, Tensor};
use candle_nn::{Conv2dConfig, Module, ModuleT, VarBuilder};

use crate::backend::candle::native::Spans;

/// A layer, which is a span of its own.
type Layer = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

/// Blocks and channels of the four stages.
const STAGES: [(usize, usize); 4] = [(3, 64), (4, 128), (6, 256), (3, 512)];
/// Channels that leave a block, by those inside of it.
const EXPANSION: usize = 4;

/// Makes the layers of a network.
struct Maker<'a> {
    spans: &'a Spans,
}

impl Maker<'_> {
    fn layer(
        &self,
        name: &'static str,
        module: &VarBuilder,
        apply: impl Fn(&Tensor) -> Result<Tensor> + 'static,
    ) -> Layer {
        let span = self.spans.layer(name, module.prefix());
        Box::new(move |input| span.around(|| apply(input)))
    }

    /// A convolution and the normalisation of its output.
    fn conv(&self, sizes: [usize; 3], stride: usize, [conv, norm]: [VarBuilder; 2]) -> Result<[Layer; 2]> {
        let [from, to, kernel] = sizes;
        let config = Conv2dConfig { stride, padding: kernel / 2, ..Conv2dConfig::default() };
        let computed = candle_nn::conv2d_no_bias(from, to, kernel, config, conv.clone())?;
        let normed = candle_nn::batch_norm(to, 1e-5, norm.clone())?;
        Ok([
            self.layer("conv2d", &conv, move |input| computed.forward(input)),
            self.layer("batch-norm", &norm, move |input| normed.forward_t(input, false)),
        ])
    }

    /// A block of three convolutions beside a shortcut.
    fn block(&self, from: usize, inside: usize, stride: usize, weights: VarBuilder) -> Result<Layer> {
        let to = EXPANSION * inside;
        let of = |number: usize| [format!("conv{number}"), format!("bn{number}")].map(|name| weights.pp(name));
        let relu = || self.layer("relu", &weights, |input| input.relu());
        let [conv1, norm1] = self.conv([from, inside, 1], 1, of(1))?;
        let [conv2, norm2] = self.conv([inside, inside, 3], stride, of(2))?;
        let [conv3, norm3] = self.conv([inside, to, 1], 1, of(3))?;
        let main = [conv1, norm1, relu(), conv2, norm2, relu(), conv3, norm3];
        let has_shortcut = stride != 1 || from != to;
        let shortcut = has_shortcut.then(|| {
            let weights = weights.pp("downsample");
            self.conv([from, to, 1], stride, [weights.pp(0), weights.pp(1)])
        });
        let shortcut = shortcut.transpose()?;
        let (added, relu) = (self.spans.layer("add", weights.prefix()), relu());
        Ok(Box::new(move |input| {
            let output = through(&main, input)?;
            let beside = shortcut.as_ref().map_or_else(|| Ok(input.clone()), |layers| through(layers, input))?;
            relu(&added.around(|| beside + output)?)
        }))
    }
}

fn through(layers: &[Layer], input: &Tensor) -> Result<Tensor> {
    layers.iter().try_fold(input.clone(), |value, layer| layer(&value))
}

/// `candle_transformers::models::resnet::resnet50`: pictures `[batch, 3, height, width]` to logits `[batch, classes]`.
pub fn resnet50(
    classes: usize,
    weights: &VarBuilder,
    spans: &Spans,
) -> Result<impl Fn(&Tensor) -> Result<Tensor> + use<>> {
    let maker = Maker { spans };
    let mut layers: Vec<Layer> = maker.conv([3, 64, 7], 2, [weights.pp("conv1"), weights.pp("bn1")])?.into();
    layers.push(maker.layer("relu", &weights.pp("relu"), |input| input.relu()));
    layers.push(maker.layer("max-pool", &weights.pp("maxpool"), |input| {
        input.pad_with_same(D::Minus1, 1, 1)?.pad_with_same(D::Minus2, 1, 1)?.max_pool2d_with_stride(3, 2)
    }));
    let mut from = 64;
    for (number, (blocks, inside)) in (1..).zip(STAGES) {
        for block in 0..blocks {
            let stride = if block == 0 && number > 1 { 2 } else { 1 };
            layers.push(maker.block(from, inside, stride, weights.pp(format!("layer{number}")).pp(block))?);
            from = EXPANSION * inside;
        }
    }
    layers.push(maker.layer("mean", &weights.pp("avgpool"), |input| input.mean(D::Minus1)?.mean(D::Minus1)));
    let fc = candle_nn::linear(from, classes, weights.pp("fc"))?;
    layers.push(maker.layer("linear", &weights.pp("fc"), move |input| fc.forward(input)));
    Ok(move |pictures: &Tensor| through(&layers, pictures))
}

//! The integers of a quantised weight and of the bias that is added to its products, with their scales.

use anyhow::{Result, ensure};

use crate::onnx::{Source, floats};

/// A weight as symmetric i8: `round(w / scale)` with `scale = max |w| / 127` of its output channel.
///
/// That is `quantize_dynamic` of ONNX Runtime with `per_channel` and `QInt8`; the zero point is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantised {
    pub source: usize,
    /// Channels are the rows of the source, which is seen as a matrix; its columns otherwise.
    pub channels_are_rows: bool,
    /// Whether the integers are written with rows and columns exchanged.
    pub is_transposed: bool,
    /// A normalisation of the product that is computed in its weights.
    pub normalisation: Option<Normalisation>,
    /// A bias in i32.
    pub bias: Option<Bias>,
}

/// `BatchNormalization`: `gamma · (x − mean) / √(variance + epsilon) + beta`, each with one number per channel, by the
/// places of their initializers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Normalisation {
    pub gamma: usize,
    pub beta: usize,
    pub mean: usize,
    pub variance: usize,
    pub epsilon: f32,
}

/// A bias as i32 with the scale of the sums that it is added to: the scale of the activation times that of the weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bias {
    /// The initializer; `None` if the bias comes from a normalisation alone.
    pub source: Option<usize>,
    pub activation_scale: f32,
}

/// The largest integer of a bias: half of what i32 holds, so that there is room for the sum that it is added to.
const LARGEST_BIAS: f32 = (1 << 30) as f32;

impl Quantised {
    /// One number per channel.
    pub fn scales(&self, source: &Source) -> Result<Vec<f32>> {
        let tensor = &source.graph.initializers[self.source];
        let bytes = source.float_bytes(tensor)?;
        let factors = self.factors(source)?;
        let channel_of = self.channel_of(source);
        let mut largest = vec![0.0_f32; self.channels(source)];
        for (place, value) in floats(bytes.as_slice()).enumerate() {
            let channel = channel_of(place);
            let value = value * factors.as_ref().map_or(1.0, |factors| factors[channel]);
            ensure!(
                value.is_finite(),
                "initializer {:?} has a value that is not finite: it has no i8 form",
                tensor.name
            );
            largest[channel] = largest[channel].max(value.abs());
        }
        let mut scales: Vec<f32> = largest.into_iter().map(|largest| largest / 127.0).collect();
        if let Some(Bias { activation_scale, .. }) = self.bias {
            // Weights that are tiny in comparison with their bias get coarser steps, so that the bias fits.
            for (scale, bias) in scales.iter_mut().zip(self.full_bias(source)?) {
                let least = (bias.abs() / LARGEST_BIAS).max(f32::MIN_POSITIVE) / activation_scale;
                *scale = scale.max(least);
            }
        }
        // A channel of zeros, or of numbers too small for their scale to be one, is all zeros with any scale.
        Ok(scales.into_iter().map(|scale| Some(scale).filter(|scale| scale.is_normal()).unwrap_or(1.0)).collect())
    }

    /// The weight, one i8 per byte.
    pub fn integers(&self, source: &Source) -> Result<Vec<u8>> {
        let scales = self.scales(source)?;
        let factors = self.factors(source)?;
        let bytes = source.float_bytes(&source.graph.initializers[self.source])?;
        let (rows, columns) = self.matrix(source);
        let channel_of = self.channel_of(source);
        let mut integers = vec![0_u8; rows * columns];
        for (place, value) in floats(bytes.as_slice()).enumerate() {
            let channel = channel_of(place);
            let value = value * factors.as_ref().map_or(1.0, |factors| factors[channel]);
            let integer = (value / scales[channel]).round_ties_even().clamp(-127.0, 127.0) as i8;
            let place = if self.is_transposed { place % columns * rows + place / columns } else { place };
            integers[place] = integer.cast_unsigned();
        }
        Ok(integers)
    }

    /// One number per channel, as in `quantize_static` of ONNX Runtime.
    pub fn bias_scales(&self, source: &Source) -> Result<Vec<f32>> {
        let activation_scale = self.bias.map_or(1.0, |bias| bias.activation_scale);
        Ok(self.scales(source)?.into_iter().map(|scale| scale * activation_scale).collect())
    }

    /// The bias in units of its scales.
    pub fn bias(&self, source: &Source) -> Result<Vec<i32>> {
        let scales = self.bias_scales(source)?;
        let integer = |(bias, scale): (f32, f32)| (f64::from(bias) / f64::from(scale)).round_ties_even() as i32;
        Ok(self.full_bias(source)?.into_iter().zip(scales).map(integer).collect())
    }

    fn matrix(&self, source: &Source) -> (usize, usize) {
        let dims = &source.graph.initializers[self.source].dims;
        let rows = dims.first().map_or(1, |&rows| rows.max(1) as usize);
        (rows, dims.iter().skip(1).map(|&size| size.max(0) as usize).product())
    }

    fn channels(&self, source: &Source) -> usize {
        let (rows, columns) = self.matrix(source);
        if self.channels_are_rows { rows } else { columns }
    }

    /// A function from the place of a number in the source to its channel.
    fn channel_of(&self, source: &Source) -> impl Fn(usize) -> usize + use<> {
        let (_, columns) = self.matrix(source);
        let are_rows = self.channels_are_rows;
        move |place| if are_rows { place / columns } else { place % columns }
    }

    /// The factors of the normalisation, one per channel.
    fn factors(&self, source: &Source) -> Result<Option<Vec<f32>>> {
        let Some(Normalisation { gamma, variance, epsilon, .. }) = self.normalisation else { return Ok(None) };
        let [gamma, variance] = [gamma, variance].map(|place| numbers(source, place));
        let factor = |(gamma, variance): (f32, f32)| gamma / (variance + epsilon).sqrt();
        Ok(Some(gamma?.into_iter().zip(variance?).map(factor).collect()))
    }

    /// The bias in f32, including that of the normalisation.
    fn full_bias(&self, source: &Source) -> Result<Vec<f32>> {
        let mut biases = match self.bias.and_then(|bias| bias.source) {
            Some(place) => numbers(source, place)?,
            None => vec![0.0; self.channels(source)],
        };
        if let (Some(Normalisation { mean, beta, .. }), Some(factors)) = (self.normalisation, self.factors(source)?) {
            let (means, betas) = (numbers(source, mean)?, numbers(source, beta)?);
            for (((bias, mean), factor), beta) in biases.iter_mut().zip(means).zip(factors).zip(betas) {
                *bias = (*bias - mean) * factor + beta;
            }
        }
        let name = &source.graph.initializers[self.source].name;
        ensure!(
            biases.iter().all(|bias| bias.is_finite()),
            "the bias of initializer {name:?} has a value that is not finite: it has no i32 form"
        );
        Ok(biases)
    }
}

fn numbers(source: &Source, place: usize) -> Result<Vec<f32>> {
    Ok(floats(source.float_bytes(&source.graph.initializers[place])?.as_slice()).collect())
}
